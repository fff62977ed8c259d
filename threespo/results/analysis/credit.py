"""The table ``credit``: whether the advantages of a method point towards actions that are worth more.

Of the responses that a method learns from, with advantage A, share w in the loss (over the probability of being drawn), and
Delta = Q(s, a) - V(s):

    g = sum w A Delta / sqrt(sum w * sum w A^2)

the weighted mean of A Delta over the root mean square of A. It is what success gains per decision, to first order, if the
log-probability of each response is raised by eta A / rms(A), in units of eta: the policy pi exp(eta A) / Z gains
eta E[A Delta] in each state (performance difference lemma). It does not change if all advantages are multiplied by a
positive number, so methods of different scales can be compared, and no learning rate is in it. By Cauchy and Schwarz no
advantages on the same responses give more than rms(Delta), which A = Delta does.
"""

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from threespo.paths import Paths, credit_folder
from threespo.results.analysis.statistics import Interval, cluster_interval, mean_interval
from threespo.results.analysis.summaries import interval_unit, task_clusters
from threespo.study.matrix import credit_audits
from threespo.tables import read_table

if TYPE_CHECKING:
    from threespo.study.config import Study

COLUMNS = (
    "env", "policy", "at", "method", "pass", "groups", "groups_with_signal", "share", "rows", "estimate", "low", "high",
    "penalised", "penalised_low", "penalised_high", "largest", "interval", "seeds", "tasks", "continuations",
)  # fmt: skip

_ROW = ["env", "policy", "at", "method", "pass"]


def credit_table(study: "Study", paths: Paths) -> pd.DataFrame:
    """Return how each method's credit is aligned with what actions are worth, a row for each pass.

    Returns:
        ``share`` is that of the groups that carry a signal, in percent. ``estimate`` is g in percentage points with its
        95 % interval, of the method's own advantages; ``penalised`` the same of advantages from which the study's penalty
        for inadmissible actions is taken off. ``largest`` is rms(Delta), without the chance of the continuations.
        ``interval`` says what the intervals are over, as in the table ``main``. All are NaN where nothing carries a signal.
    """
    summaries = []
    valued = []
    for run, at in credit_audits(study):
        files = credit_folder(paths, run, at)
        names = {
            "env": run.env,
            "policy": run.policy,
            "at": at,
            "method": run.method,
            "training_seed": run.seed,
        }
        summaries.append(read_table(files.passes).assign(**names))
        valued.append(read_table(files.rows).assign(**names))
    section = study.credit_audit
    if section is None or not summaries:
        return pd.DataFrame(columns=list(COLUMNS))

    # Tables without rows have no types, and would change those of the others.
    with_rows = [frame for frame in valued if len(frame)]
    rows = pd.concat(with_rows or valued, ignore_index=True)
    rows_of = dict(iter(rows.groupby(_ROW, sort=False)))
    table = []
    for names, passes in pd.concat(summaries, ignore_index=True).groupby(_ROW, sort=False):
        env, policy, at, _, _ = names
        # One policy whatever the seed, unless each seed has trained its own or starts from a base of its own.
        several = at == "final" or study.policies[policy].bases > 1
        found = rows_of.get(names, rows.iloc[:0])
        table.append(
            {
                **dict(zip(_ROW, names, strict=True)),
                "groups": int(passes["groups"].sum()),
                "groups_with_signal": int(passes["groups_with_signal"].sum()),
                "share": 100.0 * passes["groups_with_signal"].sum() / max(1, passes["groups"].sum()),
                "rows": len(found),
                **_alignment_columns(env, found, several),
                "interval": interval_unit(passes["training_seed"].nunique() if several else 1),
                "seeds": passes["training_seed"].nunique(),
                "tasks": int(passes["tasks"].max()),
                "continuations": section.continuations,
            }
        )
    return pd.DataFrame(table, columns=list(COLUMNS))


def _alignment_columns(env: str, rows: pd.DataFrame, several_policies: bool) -> dict[str, float]:
    columns: dict[str, float] = {}
    for name, credit in (("estimate", "credit"), ("penalised", "penalised_credit")):
        found = _alignment_interval(env, rows, credit, several_policies)
        prefix = "" if name == "estimate" else f"{name}_"
        columns |= {name: found.estimate, f"{prefix}low": found.low, f"{prefix}high": found.high}
    return {**columns, "largest": largest_alignment(rows)}


def _alignment_interval(env: str, rows: pd.DataFrame, credit: str, several_policies: bool) -> Interval:
    if several_policies and rows["training_seed"].nunique() > 1:
        by_seed = [group for _, group in rows.groupby("training_seed")]
        return mean_interval([measure_alignment(group, credit, env).estimate for group in by_seed])
    return measure_alignment(rows, credit, env)


class _Sums(NamedTuple):
    """Of one cluster of tasks."""

    product: float
    """Sum of w A Delta."""
    weight: float
    """Sum of w."""
    square: float
    """Sum of w A^2."""


def measure_alignment(rows: pd.DataFrame, credit: str, env: str) -> Interval:
    """Return g in percentage points, with its interval over clusters of tasks.

    Args:
        rows: valued responses under one policy (``threespo.runs.credit.ROW_COLUMNS``).
        credit: the column with the advantages; rows where it is 0 do not count.
        env: the environment, which says which tasks are not independent.

    Returns:
        The interval is that of a mean over clusters, of g linearised in their sums (delta method). NaN without rows.
    """
    rows = rows[rows[credit] != 0.0]
    if rows.empty:
        return Interval(math.nan)
    weighted = rows["weight"] * rows[credit]
    terms = pd.DataFrame(
        {
            "product": weighted * value_differences(rows),
            "weight": rows["weight"],
            "square": weighted * rows[credit],
        }
    )
    clusters = task_clusters(env, rows["task_id"].tolist())
    by_cluster = terms.groupby(clusters, sort=True).sum()
    total = _Sums(*by_cluster.sum().tolist())
    estimate = total.product / math.sqrt(total.weight * total.square)

    # The derivative of g by the three sums, applied to each cluster's own; these add up to 0.
    influence = by_cluster["product"] / math.sqrt(total.weight * total.square) - estimate / 2 * (
        by_cluster["weight"] / total.weight + by_cluster["square"] / total.square
    )
    pseudo_values = 100.0 * (estimate + len(by_cluster) * influence.to_numpy())
    return cluster_interval(pseudo_values, by_cluster.index.to_list())


def value_differences(rows: pd.DataFrame) -> "pd.Series[Any]":
    """Return the estimate of Q(s, a) - V(s) of each response, in 0 to 1."""
    return (rows["wins_after"] - rows["wins_before"]) / rows["continuations"]


def largest_alignment(rows: pd.DataFrame) -> float:
    """Return rms(Q - V) over the responses with a credit, in percentage points, without the variance of both estimates."""
    rows = rows[rows["credit"] != 0.0]
    if rows.empty:
        return math.nan
    count = rows["continuations"]
    after = rows["wins_after"] / count
    before = rows["wins_before"] / count
    # The unbiased variance of a share; an end is no estimate.
    noise_before = before * (1 - before) / (count - 1)
    noise_after = (after * (1 - after) / (count - 1)).where(~rows["ends"], 0.0)
    squares = value_differences(rows) ** 2 - noise_before - noise_after
    mean_square = float(np.average(squares, weights=rows["weight"]))
    # Below 0 by chance where all actions are worth the same.
    return 100.0 * math.sqrt(max(0.0, mean_square))
