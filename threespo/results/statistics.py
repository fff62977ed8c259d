"""Means, spreads and intervals of success rates and scores over training seeds, evaluation seeds and games."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from threespo.rng import derive

if TYPE_CHECKING:
    import pandas as pd

RESAMPLES = 2000
"""Draws of a bootstrap interval."""

_T_975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""97.5 % quantiles of Student's t for 1 to 10 degrees of freedom."""

_NORMAL_975 = 1.959964


@dataclass(frozen=True, slots=True)
class Summary:
    """Success or score in percent: its mean and what it varies with."""

    mean: float
    std: float
    """Standard deviation (n - 1) over training seeds of each seed's mean; NaN with one seed."""
    evaluation_std: float
    """Standard deviation (n - 1) over evaluation seeds, averaged over training seeds; NaN with one evaluation seed."""
    low: float
    """Lower end of the 95 % bootstrap interval over training seeds and games."""
    high: float
    t_low: float
    """Lower end of the 95 % t interval over training seeds; NaN with one seed. Very wide with two."""
    t_high: float


def summarize(success: "np.ndarray[Any, Any]", key: int) -> Summary:
    """Return mean, spreads and intervals of one method's success or score.

    Args:
        success: success or score in 0 to 1, (training seeds, evaluation seeds, games).
        key: 64-bit integer of ``derive`` that seeds the bootstrap.
    """
    percent = 100.0 * success.astype(np.float64)
    by_seed = percent.mean(axis=(1, 2))

    # Evaluation seeds replay the same weights on the same games. They are averaged, not resampled like independent runs.
    low, high = bootstrap_interval(percent.mean(axis=1), key)
    t_low, t_high = t_interval(by_seed)

    return Summary(
        mean=float(by_seed.mean()),
        std=_std(by_seed),
        evaluation_std=float(np.mean([_std(row) for row in percent.mean(axis=2)])),
        low=low,
        high=high,
        t_low=t_low,
        t_high=t_high,
    )


def bootstrap_interval(values: "np.ndarray[Any, Any]", key: int, resamples: int = RESAMPLES) -> tuple[float, float]:
    """Return the 95 % percentile interval of a mean by bootstrap over seeds and games.

    Every seed plays the same games, so games are drawn once for all seeds of a resample.

    Args:
        values: (seeds, games), in any unit.
        key: 64-bit integer of ``derive`` that seeds the draws: equal keys and values give equal intervals.
        resamples: number of draws.

    Returns:
        Lower and upper end, in the unit of ``values``.
    """
    random = np.random.Generator(np.random.Philox(key=key))
    games = random.integers(values.shape[1], size=(resamples, values.shape[1]))
    return _percentiles(_resampled_means(values, games, random))


def difference_interval(
    first: "np.ndarray[Any, Any]", second: "np.ndarray[Any, Any]", key: int, resamples: int = RESAMPLES
) -> tuple[float, float]:
    """Return the 95 % percentile interval of ``mean(first) - mean(second)``.

    Args:
        first: (seeds, games).
        second: (seeds, games) over the same games in the same order; the number of seeds may differ.
        key: 64-bit integer of ``derive`` that seeds the draws.
        resamples: number of draws.
    """
    return contrast_interval([(1.0, first), (-1.0, second)], key, resamples)


def contrast_interval(
    terms: Sequence[tuple[float, "np.ndarray[Any, Any]"]], key: int, resamples: int = RESAMPLES
) -> tuple[float, float]:
    """Return the 95 % percentile interval of a weighted sum of means.

    A resample has the same games for all terms, so a game's difficulty cancels. Seeds are drawn for each term on its own,
    since different methods' runs with one seed have nothing in common.

    Args:
        terms: weight and values of each mean; values are (seeds, games) over the same games in the same order.
        key: 64-bit integer of ``derive`` that seeds the draws.
        resamples: number of draws.
    """
    random = np.random.Generator(np.random.Philox(key=key))
    games = random.integers(terms[0][1].shape[1], size=(resamples, terms[0][1].shape[1]))
    drawn = [weight * _resampled_means(values, games, random) for weight, values in terms]
    return _percentiles(np.sum(drawn, axis=0))


def by_game(played: "pd.DataFrame", measure: str) -> "np.ndarray[Any, Any]":
    """Return one method's success or score in percent, (training seeds, games), each the mean over evaluation seeds.

    Args:
        played: the episodes of one environment, policy, split and method, with columns ``training_seed``, ``task_id`` and
            ``measure``.
        measure: ``success`` or ``score``, in 0 to 1.
    """
    wide = played.pivot_table(index="training_seed", columns="task_id", values=measure, aggfunc="mean")
    return np.asarray(100.0 * wide.to_numpy(dtype=np.float64))


def method_difference(played: "pd.DataFrame", first: str, second: str, measure: str) -> tuple[float, float, float]:
    """Return how many points one method is above another, with the 95 % interval over seeds and games.

    Args:
        played: a row per episode of one environment, policy and split: ``method``, ``policy``, ``training_seed``,
            ``evaluation_seed``, ``task_id``, and ``measure`` in 0 to 1. Other methods may be among them.
        first: name of the one method.
        second: name of the other.
        measure: ``success`` or ``score``.

    Returns:
        The difference of the means in percentage points (positive if ``first`` is above), and both ends of its interval.
    """
    upper, lower = (by_game(played[played["method"] == name], measure) for name in (first, second))
    low, high = difference_interval(upper, lower, derive("difference", str(played["policy"].iloc[0]), first, second))
    return float(upper.mean() - lower.mean()), low, high


def _resampled_means(
    values: "np.ndarray[Any, Any]", games: "np.ndarray[Any, Any]", random: np.random.Generator
) -> "np.ndarray[Any, Any]":
    """Return each resample's mean, (resamples,). ``games`` are those drawn, (resamples, games); seeds are drawn here."""
    resamples, count = games.shape
    seeds = random.integers(len(values), size=(resamples, len(values)))

    # How often each resample draws each game, (resamples, games). Every resample has places of its own in one ``bincount``.
    places = games + count * np.arange(resamples)[:, None]
    drawn = np.bincount(places.ravel(), minlength=games.size).reshape(games.shape)

    # With counts as weights, the means of all seeds over the drawn games are one product, (resamples, seeds).
    return np.asarray(np.take_along_axis(drawn @ values.T / count, seeds, axis=1).mean(axis=1))


def _percentiles(means: "np.ndarray[Any, Any]") -> tuple[float, float]:
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)


def t_interval(values: "np.ndarray[Any, Any]") -> tuple[float, float]:
    """Return the 95 % interval of the mean by Student's t, (NaN, NaN) for fewer than two values."""
    freedom = len(values) - 1
    if freedom < 1:
        return math.nan, math.nan
    half = _t_quantile(freedom) * _std(values) / math.sqrt(len(values))
    return float(values.mean() - half), float(values.mean() + half)


def _t_quantile(freedom: int) -> float:
    """97.5 % quantile; above the table by its Cornish-Fisher expansion about the normal's, good to four digits there."""
    if freedom <= len(_T_975):
        return _T_975[freedom - 1]
    z = _NORMAL_975
    return (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    )


def _std(values: "np.ndarray[Any, Any]") -> float:
    return float(values.std(ddof=1)) if len(values) > 1 else math.nan
