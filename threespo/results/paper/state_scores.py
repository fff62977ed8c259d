"""How the scores of the states that searches meet are distributed, by kind of task and time (figure 3c of the paper)."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from threespo.methods.tree_table import read_trees
from threespo.results.collect import RUN_COLUMNS
from threespo.study.matrix import searching_runs

if TYPE_CHECKING:
    from threespo.paths import Paths, Run
    from threespo.study.config import Study

THIRDS = ("early", "middle", "late")
"""Thirds of a run's epochs."""

EDGES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
"""Edges of the bands of scores; a band includes its lower edge, the last one both."""

COLUMNS = ("env", "policy", "method", "task_type", "third", "states", "mean", "low", "high", "share")


def state_score_table(study: "Study", paths: "Paths", metrics: pd.DataFrame) -> pd.DataFrame:
    """Return the distribution of S in the recorded search trees, by method, task type and third of training.

    A state counts each time that a search has sampled it. Scores are the method's own, by its own constants, and only tasks
    whose trees are recorded are included.

    Args:
        study: the study.
        paths: where its results lie; the trees of all searching runs are read.
        metrics: the table ``metrics``, which gives the epochs of each run.

    Returns:
        A row for each band: ``share`` of the states with a score from ``low`` to ``high``. ``states`` is the number of
        states over all bands and seeds, ``mean`` their mean score.
    """
    # Not from the trees: the last epochs may have recorded none.
    epochs = metrics.groupby(RUN_COLUMNS)["epoch"].max()
    frames = [
        _of_run(run, read_trees(paths.run(run).trees), int(epochs.loc[_key(run)]))
        for run in searching_runs(study)
    ]
    met = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=list(COLUMNS))

    rows = []
    for names, group in met.groupby(["env", "policy", "method", "task_type", "third"], sort=False):
        counts, _ = np.histogram(group["score"].to_numpy(dtype=np.float64), EDGES)
        own = (*names, len(group), float(group["score"].mean()))
        rows += [
            (*own, EDGES[band], EDGES[band + 1], count / len(group)) for band, count in enumerate(counts)
        ]
    return _in_order(study, pd.DataFrame(rows, columns=list(COLUMNS)))


def _of_run(run: "Run", trees: pd.DataFrame, epochs: int) -> pd.DataFrame:
    """Return the recorded states of a run, each with the third of the run's epochs that it belongs to."""
    third = [THIRDS[3 * (epoch - 1) // epochs] for epoch in trees["epoch"]]
    return trees[["task_type", "score"]].assign(
        env=run.env, policy=run.policy, method=run.method, third=third
    )


def _key(run: "Run") -> tuple[str, str, str, int]:
    return run.env, run.policy, run.method, run.seed


def _in_order(study: "Study", rows: pd.DataFrame) -> pd.DataFrame:
    """Sort by the study's order, task type, time and band."""
    orders: dict[str, Iterable[str]] = {
        **{"env": study.environments, "policy": study.policies, "method": study.methods},
        "third": THIRDS,
    }
    places = rows.assign(**{name: rows[name].map(list(order).index) for name, order in orders.items()})
    by = ["env", "policy", "method", "task_type", "third", "low"]
    return rows.loc[places.sort_values(by).index].reset_index(drop=True)
