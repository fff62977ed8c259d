"""Performance profiles: how many of a method's runs reach each level of success (Agarwal et al. 2021, fig. 3)."""

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from threespo.results.statistics import FEWEST_SEEDS
from threespo.rng import derive

if TYPE_CHECKING:
    from numpy.typing import NDArray

CELL = ["env", "policy", "split"]
"""What the paper calls a task: each has a score of its own."""

LEVELS = np.linspace(0.0, 1.0, 101)
"""Levels of success, tau."""

RESAMPLES = 2000

COLUMNS = ("method", "cells", "seeds", "level", "share", "low", "high")


def performance_profiles(episodes: pd.DataFrame) -> pd.DataFrame:
    """Return the share of a method's runs and cells whose success is at least each of ``LEVELS``.

    Args:
        episodes: the table ``episodes``; a run's success in a cell (environment, base policy, split) is its mean.

    Returns:
        A row for each method and level. Only methods that were run in every cell in which any method was trained are
        there, since cells differ in difficulty. ``low`` and ``high`` are the 95 % interval of a stratified bootstrap, which
        draws seeds within each cell; NaN with fewer than ``FEWEST_SEEDS`` seeds in one of them.
    """
    success = episodes.groupby([*CELL, "method", "training_seed"], sort=False)["success"].mean().reset_index()
    cells = list(dict.fromkeys(success[CELL].itertuples(index=False, name=None)))

    rows = []
    for method, runs in success.groupby("method", sort=False):
        found = [group["success"].to_numpy(dtype=np.float64) for _, group in runs.groupby(CELL, sort=False)]
        if len(found) < len(cells):
            continue
        share = _share(found)
        seeds = min(map(len, found))
        low, high = _interval(str(method), found) if seeds >= FEWEST_SEEDS else np.full((2, len(LEVELS)), np.nan)
        for place, level in enumerate(LEVELS):
            rows.append((method, len(found), seeds, level, share[place], low[place], high[place]))
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _share(cells: "list[NDArray[np.float64]]") -> "NDArray[np.float64]":
    """Return the share of runs at or above each level, every cell with the same weight, (levels,)."""
    # A mean of games may fall short of a level by rounding.
    of_cells = [(values[:, None] >= LEVELS[None, :] - 1e-9).mean(axis=0) for values in cells]
    share: NDArray[np.float64] = np.mean(of_cells, axis=0)
    return share


def _interval(method: str, cells: "list[NDArray[np.float64]]") -> "NDArray[np.float64]":
    """Return the ends of the bootstrap's interval, (2, levels)."""
    random = np.random.Generator(np.random.Philox(key=derive("profiles", method)))
    drawn = [_share([random.choice(values, len(values)) for values in cells]) for _ in range(RESAMPLES)]
    ends: NDArray[np.float64] = np.quantile(drawn, (0.025, 0.975), axis=0)
    return ends
