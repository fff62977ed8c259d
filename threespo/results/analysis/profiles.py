"""Performance profiles: how many of a method's runs reach each level of success (Agarwal et al. 2021, fig. 3)."""

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from numpy.typing import NDArray

CELL = ["env", "policy", "split"]
"""What the paper calls a task: each has a score of its own."""

LEVELS = np.linspace(0.0, 1.0, 101)
"""Levels of success, tau."""

COLUMNS = ("method", "cells", "seeds", "level", "share")


def performance_profiles(episodes: pd.DataFrame) -> pd.DataFrame:
    """Return the share of a method's runs and cells whose success is at least each of ``LEVELS``.

    Args:
        episodes: the table ``episodes``; a run's success in a cell (environment, base policy, split) is its mean.

    Returns:
        A row for each method and level, of methods that were run in every cell; ``seeds`` is the least number
        of runs in a cell.
    """
    # The usual band, of a bootstrap over seeds, is left out: with the few seeds that studies have it is too
    # narrow (docs/method.md, Statistics).
    success = (
        episodes.groupby([*CELL, "method", "training_seed"], sort=False)["success"].mean().reset_index()
    )
    cell_count = len(success[CELL].drop_duplicates())

    rows = []
    for method, runs in success.groupby("method", sort=False):
        cells = [
            group["success"].to_numpy(dtype=np.float64) for _, group in runs.groupby(CELL, sort=False)
        ]
        # Cells differ in difficulty: a method that was spared a hard one would have the better profile.
        if len(cells) < cell_count:
            continue
        fewest_seeds = min(map(len, cells))
        for level, share in zip(LEVELS, _share_of_runs(cells), strict=True):
            rows.append((method, len(cells), fewest_seeds, level, share))
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _share_of_runs(cells: "list[NDArray[np.float64]]") -> "NDArray[np.float64]":
    """Return the share of runs at or above each level, every cell with the same weight, (levels,)."""
    # A mean of games may fall short of a level by rounding.
    thresholds = LEVELS[None, :] - 1e-9
    by_cell = [(success[:, None] >= thresholds).mean(axis=0) for success in cells]
    # Cells may have different numbers of runs; averaging within a cell first weighs them alike.
    share: NDArray[np.float64] = np.mean(by_cell, axis=0)
    return share
