"""How the scores of the states that searches meet are distributed, by kind of task and time (figure 3c of the paper)."""

from itertools import pairwise
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

GROUP = ["env", "policy", "method", "task_type", "third"]
"""What a distribution is of."""

COLUMNS = ("env", "policy", "method", "task_type", "third", "states", "mean", "low", "high", "share")


def state_score_table(study: "Study", paths: "Paths", metrics: pd.DataFrame) -> pd.DataFrame:
    """Return the distribution of S in the recorded search trees, by method, task type and third of training.

    A state counts each time that a search has sampled it. Scores are the method's own, by its own constants, and only tasks
    whose trees are recorded are included.

    Returns:
        A row for each band: ``share`` of the states with a score from ``low`` to ``high``. ``states`` is the number of
        states over all bands and seeds, ``mean`` their mean score.
    """
    # The number of epochs is not read from the trees, since the last epochs may have recorded none.
    epochs = metrics.groupby(RUN_COLUMNS)["epoch"].max()
    frames = []
    for run in searching_runs(study):
        trees = read_trees(paths.run(run).trees)
        run_epochs = epochs.loc[(run.env, run.policy, run.method, run.seed)]
        frames.append(_states_of_run(run, trees, int(run_epochs)))
    if not frames:
        return pd.DataFrame(columns=list(COLUMNS))
    states = pd.concat(frames, ignore_index=True)

    rows = []
    for key, group in states.groupby(GROUP, sort=False):
        # A band includes its lower edge, as numpy counts.
        counts, _ = np.histogram(group["score"].to_numpy(dtype=np.float64), EDGES)
        states_in_group = len(group)
        mean = float(group["score"].mean())
        for (low, high), count in zip(pairwise(EDGES), counts, strict=True):
            share = count / states_in_group
            rows.append((*key, states_in_group, mean, low, high, share))
    return _sort_rows(study, pd.DataFrame(rows, columns=list(COLUMNS)))


def _states_of_run(run: "Run", trees: pd.DataFrame, epochs: int) -> pd.DataFrame:
    """Return the recorded states of a run, each with the third of the run's epochs that it belongs to."""
    third = []
    for epoch in trees["epoch"]:
        # Epochs are counted from 1.
        number = 3 * (epoch - 1) // epochs
        third.append(THIRDS[number])
    return trees[["task_type", "score"]].assign(
        env=run.env, policy=run.policy, method=run.method, third=third
    )


def _sort_rows(study: "Study", rows: pd.DataFrame) -> pd.DataFrame:
    """Sort by the study's order, task type, time and band."""
    positions = {
        "env": list(study.environments),
        "policy": list(study.policies),
        "method": list(study.methods),
        "third": list(THIRDS),
    }
    sort_keys = rows.copy()
    for name, values in positions.items():
        sort_keys[name] = rows[name].map(values.index)
    order = sort_keys.sort_values([*GROUP, "low"]).index
    return rows.loc[order].reset_index(drop=True)
