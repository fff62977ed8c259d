"""The trials of learning rates as a table, and the rows whose rate is at an edge of what was tried."""

from collections.abc import Mapping
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from threespo.envs.registry import presentation
from threespo.envs.spec import CALIBRATION
from threespo.results.analysis.summaries import episode_array, summarize, task_clusters
from threespo.results.labels import label
from threespo.runs.learning_rate import read_trials
from threespo.study.matrix import base_trials_of, tuned_rows
from threespo.tables import read_table, select_rows

if TYPE_CHECKING:
    from threespo.paths import Paths
    from threespo.study.config import Study

RATE_COLUMNS = (
    "env", "policy", "method", "learning_rate", "training_seed", "split", "games", "success", "score", "base_success",
    "base_low", "base_high", "base_score", "in_grid", "chosen", "at_edge", "equals_base",
)  # fmt: skip

TUNING_COLUMNS = ("env", "policy", "method", "learning_rate", "training_seed", "success", "chosen")

EDGES = {
    "lower": "learning rate at the lower edge of those tried: a smaller one may be better",
    "upper": "learning rate at the upper edge of those tried: a larger one may be better",
}
"""What a row's note says of its rate."""

Row = tuple[str, str, str]
"""Environment, policy and method."""


def rate_table(study: "Study", paths: "Paths") -> pd.DataFrame:
    """Return every trial's result on every split that trials are judged on; no rows where rates are given by hand.

    Returns:
        ``RATE_COLUMNS``, a row for each trial and split, in the study's order, rates rising, ``calibration`` first. Success
        and score are percents; the score is NaN in environments that have none. ``base_...`` is the untrained policy on
        the same games: the mean of its bases with a 95 % interval over them, or over clusters of tasks where there is one
        base. ``at_edge`` (``lower``, ``upper`` or empty) and ``equals_base`` are of the chosen rate, the same in all rows
        of a method.
    """
    bases = {
        (env, policy): _base_columns(study, paths, env, policy) for env, policy, _ in tuned_rows(study)
    }
    rows: list[dict[str, Any]] = []
    for env, policy, method in tuned_rows(study):
        choice = read_trials(paths, env, policy, method)
        has_score = "score" in presentation(env).measures
        order = itemgetter("learning_rate", "training_seed", "split")
        for trial in sorted(choice["trials"], key=order):
            rows.append(
                {
                    "env": env,
                    "policy": policy,
                    "method": method,
                    **trial,
                    "success": 100.0 * trial["success"],
                    "score": 100.0 * trial["score"] if has_score else np.nan,
                    **bases[env, policy][trial["split"]],
                    "in_grid": trial["learning_rate"] not in choice["extensions"],
                    "chosen": trial["learning_rate"] == choice["learning_rate"],
                    "at_edge": choice["at_edge"] or "",
                    "equals_base": choice["equals_base"],
                }
            )
    return pd.DataFrame(rows, columns=list(RATE_COLUMNS))


def _base_columns(study: "Study", paths: "Paths", env: str, policy: str) -> dict[str, dict[str, float]]:
    """Return the columns of a policy's bases by split."""
    runs = base_trials_of(study, env, policy)
    frames = [read_table(paths.run(run).evaluation).assign(training_seed=run.seed) for run in runs]
    found = {}
    has_score = "score" in presentation(env).measures
    for split, played in pd.concat(frames).groupby("split"):
        names = {"env": env, "policy": policy, "method": "base", "split": str(split)}
        clusters = task_clusters(env, sorted(played["task_id"].unique()))
        success = summarize(episode_array(played, names), clusters)
        score = summarize(episode_array(played, names, "score"), clusters) if has_score else None
        found[str(split)] = {
            "base_success": success.mean,
            "base_low": success.low,
            "base_high": success.high,
            "base_score": score.mean if score else np.nan,
        }
    return found


def tuning_table(rates: pd.DataFrame) -> pd.DataFrame:
    """Return what rates were chosen by: success on the calibration split of each trial of the table ``rates``."""
    return select_rows(rates, split=CALIBRATION)[list(TUNING_COLUMNS)].reset_index(drop=True)


def rows_at_edge(rates: pd.DataFrame) -> dict[Row, str]:
    """Return the rows of the study whose rate is at an edge of what was tried, with the edge."""
    marked = rates[rates["at_edge"] != ""].drop_duplicates(["env", "policy", "method"])
    return {(row.env, row.policy, row.method): row.at_edge for row in marked.itertuples()}


def note_edges(main: pd.DataFrame, edges: Mapping[Row, str]) -> pd.DataFrame:
    """Return the table ``main`` with a note at each row whose rate is at an edge of what was tried."""
    notes = []
    for row in main.to_dict("records"):
        edge = edges.get((row["env"], row["policy"], row["method"]))
        notes.append(row["note"] or (EDGES[edge] if edge else ""))
    return main.assign(note=notes)


def warn_of_edges(edges: Mapping[Row, str]) -> str | None:
    """Return a sentence on the rows whose rate is at an edge; ``None`` if there are none."""
    if not edges:
        return None
    names = [
        f"{label(method)} in {label(env)} ({policy}, {edge})"
        for (env, policy, method), edge in edges.items()
    ]
    return (
        f"The learning rate of these rows is at the edge of what was tried, and one beyond it may be better: "
        f"{', '.join(names)}. What is said of such a row is said of that rate, not of the method."
    )
