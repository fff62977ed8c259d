"""What recorded search trees say of a run: steps that lead back, and the next states of a state's first and tenth visit."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from threespo.methods.tree_table import read_trees
from threespo.results.collect import RUN_COLUMNS
from threespo.results.paper_numbers import VISITS
from threespo.study.matrix import searching_runs

if TYPE_CHECKING:
    from threespo.paths import Paths
    from threespo.study.config import Study

COLUMNS = (*RUN_COLUMNS, "steps", "back", "states", "next_first", "next_tenth", "met_before")


def collect_search_facts(study: "Study", paths: "Paths") -> pd.DataFrame:
    """Return a row for each run that searches, over all trees that it recorded (``training.recorded_tasks``).

    Returns:
        ``steps`` sampled transitions; ``back`` the share of them that lead to an observation which their path has shown
        before. ``states`` that were expanded ten times or more: ``next_first`` and ``next_tenth`` are the mean numbers of
        different states that were sampled at their first and tenth expansion, ``met_before`` the share of the latter that
        earlier trees or expansions had. NaN where there are none.
    """
    rows = []
    for run in searching_runs(study):
        names = dict(zip(RUN_COLUMNS, (run.env, run.policy, run.method, run.seed), strict=True))
        trees = read_trees(paths.run(run).trees).sort_values(
            ["epoch", "task_id", "node"], kind="stable", ignore_index=True
        )
        rows.append({**names, **share_leading_back(trees), **count_next_states(trees)})
    return pd.DataFrame(rows, columns=list(COLUMNS))


def share_leading_back(trees: pd.DataFrame) -> dict[str, Any]:
    """Return how many sampled transitions there are, and the share that lead back."""
    shown: dict[tuple[Any, ...], frozenset[str]] = {}
    steps = back = 0
    for epoch, task, node, parent, observation in trees[
        ["epoch", "task_id", "node", "parent", "observation"]
    ].itertuples(index=False, name=None):
        # Parents come before children. A root has none.
        before = shown.get((epoch, task, parent), frozenset())
        shown[epoch, task, node] = before | {observation}
        steps += parent >= 0
        back += parent >= 0 and observation in before
    return {"steps": steps, "back": back / steps if steps else np.nan}


def count_next_states(trees: pd.DataFrame) -> dict[str, Any]:
    """Return what the children of states' first and tenth expansions are."""
    children = trees[trees["parent"] >= 0].groupby(["epoch", "task_id", "parent"])["state"]
    sampled: dict[tuple[Any, ...], set[str]] = {key: set(states) for key, states in children}
    expanded = trees[trees["expanded"] >= 0].sort_values(["epoch", "task_id", "expanded"], kind="stable")

    first, tenth, before = [], [], []
    for _, visits in expanded.groupby("state", sort=True):
        if len(visits) < VISITS[-1]:
            continue
        groups = [
            sampled.get(key, set())
            for key in visits[["epoch", "task_id", "node"]].itertuples(index=False, name=None)
        ]
        earlier: set[str] = set().union(*groups[: VISITS[-1] - 1])
        last = groups[VISITS[-1] - 1]
        first.append(len(groups[0]))
        tenth.append(len(last))
        before.append(len(last & earlier) / len(last) if last else np.nan)
    if not first:
        return {"states": 0, "next_first": np.nan, "next_tenth": np.nan, "met_before": np.nan}
    known = [value for value in before if not np.isnan(value)]
    return {
        **{
            "states": len(first),
            "next_first": float(np.mean(first)),
            "next_tenth": float(np.mean(tenth)),
        },
        "met_before": float(np.mean(known)) if known else np.nan,
    }
