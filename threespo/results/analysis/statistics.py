"""Intervals and tests of differences between methods. The unit of inference is the training seed.

All methods of a study are judged on the same games, so a run is one number, its mean over evaluation seeds and games, and
the games' difficulty is common to all. What was measured of these functions: ``benchmarks/intervals.py``.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import special, stats

from threespo.study.confirmatory import MIN_SEEDS

Array = np.ndarray[Any, Any]

Terms = Sequence[tuple[float, Sequence[float]]]
"""The means of a weighted sum: the weight and the per-seed values of each."""

LEVEL = 0.05
"""Promised rate of false verdicts, two-sided; intervals have 95 %."""

POWER = 0.8
MAX_SEEDS = 1000

ROUNDING = 1e-9
"""What degrees of freedom may be short of a whole number."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its 95 % interval, in the unit of the values."""

    estimate: float
    low: float = math.nan
    """NaN, like ``high`` and ``p``, where there are fewer than ``MIN_SEEDS`` seeds."""
    high: float = math.nan
    p: float = math.nan
    """Two-sided p of the null, that the true value is the one that the test names (0, or 1 for ratios)."""


def mean_interval(values: Sequence[float], null: float = 0.0) -> Interval:
    """Return the mean over training seeds with Student's t interval; ``p`` is that of a true mean of ``null``."""
    return contrast_interval([(1.0, values)], null)


def difference_interval(
    first: Sequence[float], second: Sequence[float], null: float = 0.0, level: float = LEVEL
) -> Interval:
    """Return ``mean(first) - mean(second)`` over training seeds, by :func:`contrast_interval`."""
    return contrast_interval([(1.0, first), (-1.0, second)], null, level)


def contrast_interval(terms: Terms, null: float = 0.0, level: float = LEVEL) -> Interval:
    """Return a weighted sum of means over training seeds, with Welch's interval.

    Welch's degrees of freedom are rounded down, and where terms have different numbers of seeds they are those of the
    smallest. Unrounded, three seeds and an arm without spread give 5.9 % false verdicts, and 3 seeds against 12 give 7.

    Args:
        terms: weight and per-seed values of each mean. Seeds of different terms are independent, equal numbers or not.
        null: the sum that ``p`` tests.
        level: share of cases in which the interval may miss the truth.
    """
    arms = [(weight, np.asarray(values, dtype=np.float64)) for weight, values in terms]
    counts = [len(values) for _, values in arms]
    fewest = min(counts)
    estimate = math.nan
    if fewest:
        estimate = float(sum(weight * values.mean() for weight, values in arms))
    if fewest < MIN_SEEDS or not math.isfinite(estimate):
        return Interval(estimate)

    parts = [(weight**2 * _variance(values) / len(values), len(values) - 1) for weight, values in arms]
    equal_counts = len(set(counts)) == 1
    freedom = _welch_freedom(parts) if equal_counts else fewest - 1
    error = math.sqrt(sum(variance for variance, _ in parts))
    return _student_interval(estimate, error, freedom, null, level)


def ratio_interval(first: Sequence[float], second: Sequence[float]) -> Interval:
    """Return the ratio of the geometric means over training seeds: Welch's interval of the logarithms, transformed back.

    ``p`` is that of a true ratio of 1. All is NaN where a value is not positive.
    """
    if min(*first, *second, math.inf) <= 0:
        return Interval(math.nan)

    logs = [[math.log(value) for value in values] for values in (first, second)]
    found = difference_interval(logs[0], logs[1])
    return Interval(math.exp(found.estimate), math.exp(found.low), math.exp(found.high), found.p)


def equivalence_interval(first: Sequence[float], second: Sequence[float], margin: float) -> Interval:
    """Return the difference with its *90 %* interval, for two one-sided tests (TOST) against a margin.

    The means are equivalent if the whole interval lies within plus and minus ``margin``, and differ by more if it lies
    outside; either is false in at most 5 % of cases.

    Returns:
        ``p`` is that of the conclusion that the estimate suggests: within the margin, the larger p of the two one-sided
        tests; outside, the one-sided p of a true difference within it.
    """
    # The nearer bound has the larger p of the two tests, so it alone decides.
    nearer_bound = math.copysign(margin, difference_interval(first, second).estimate)
    found = difference_interval(first, second, nearer_bound, level=2 * LEVEL)
    return replace(found, p=found.p / 2)


def adjust_by_holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's adjusted p of a family of tests, in the same order; NaN stays NaN and is no member of the family."""
    adjusted = [math.nan] * len(p_values)
    members = sorted((p, index) for index, p in enumerate(p_values) if not math.isnan(p))

    # Adjusted values may not fall from one rank to the next, so the largest so far is carried on.
    largest = 0.0
    for rank, (p, index) in enumerate(members):
        largest = max(largest, min(1.0, (len(members) - rank) * p))
        adjusted[index] = largest
    return adjusted


def seeds_needed(first: Sequence[float], second: Sequence[float], null: float = 0.0) -> int | None:
    """Return how many training seeds in each arm would decide a difference, by :func:`seeds_needed_for_contrast`."""
    return seeds_needed_for_contrast([(1.0, first), (-1.0, second)], null)


def seeds_needed_for_contrast(terms: Terms, null: float = 0.0) -> int | None:
    """Return how many training seeds of each term would decide a contrast whose means and spreads are these.

    That is where the two-sided test at 5 % of :func:`contrast_interval` has 80 % power, by the noncentral t.

    Returns:
        None if it takes more than 1,000, or if a term has a single seed, of which no spread is known.
    """
    arms = [(weight, np.asarray(values, dtype=np.float64)) for weight, values in terms]
    if min(len(values) for _, values in arms) < 2:
        return None

    variances = np.array([weight**2 * _variance(values) for weight, values in arms])
    effect = abs(sum(weight * float(values.mean()) for weight, values in arms) - null)
    if not variances.any():
        return MIN_SEEDS if effect else None
    if not math.isfinite(effect):
        return None

    counts = np.arange(MIN_SEEDS, MAX_SEEDS + 1)
    # With n seeds in all arms, Welch's degrees of freedom are (n - 1) times a number that only the variances decide.
    freedom = np.floor((counts - 1) * variances.sum() ** 2 / (variances**2).sum() + ROUNDING)
    shift = effect / np.sqrt(variances.sum() / counts)
    quantile = stats.t.ppf(1 - LEVEL / 2, freedom)
    is_enough = stats.nct.sf(quantile, freedom, shift) >= POWER
    return int(counts[is_enough.argmax()]) if is_enough.any() else None


def interval_over_policies(differences: Mapping[str, Interval], null: float = 0.0) -> Interval:
    """Return the mean of one difference over several base policies that stand for the same model.

    Each policy counts once, however many training seeds it has: seeds of one policy say nothing of how policies differ.

    Args:
        differences: the difference on each base policy, by its name.
        null: the difference that ``p`` tests.

    Returns:
        Student's t interval over bases; NaN ends with fewer than ``MIN_SEEDS``, where each has to be read by itself.
    """
    return mean_interval([interval.estimate for interval in differences.values()], null)


def cluster_interval(values: Array, clusters: Sequence[Hashable], null: float = 0.0) -> Interval:
    """Return the mean over tasks of a single policy, whose tasks are not independent of each other.

    The standard error is the cluster-robust one of a mean (CR1), with Student's t on the number of clusters less one.

    Args:
        values: (tasks,), in any unit; for a difference of two policies, the difference in each task.
        clusters: of each task, what it shares with others: the layout of a household, the product of a shop.
        null: the mean that ``p`` tests.
    """
    estimate = float(values.mean())
    variance, freedom = _cluster_variance(values, clusters)
    if freedom + 1 < MIN_SEEDS:
        return Interval(estimate)
    return _student_interval(estimate, math.sqrt(variance), freedom, null)


def difference_to_policy(
    seeds: Array, policy: Array, clusters: Sequence[Hashable], null: float = 0.0
) -> Interval:
    """Return how far a trained method is above a single policy, which has no training seeds.

    The variance is that between the method's seeds, and that between clusters of the differences on their tasks; degrees of
    freedom are those of the fewer. Chance in single episodes is in both variances, so the interval is rather too wide.

    Args:
        seeds: (training seeds, tasks) of the method.
        policy: (tasks,) of the policy, on the same tasks.
        clusters: of each task.
        null: the difference that ``p`` tests.
    """
    differences = seeds.mean(axis=0) - policy
    estimate = float(differences.mean())
    task_variance, task_freedom = _cluster_variance(differences, clusters)
    if len(seeds) < MIN_SEEDS or task_freedom + 1 < MIN_SEEDS:
        return Interval(estimate)

    variance = _variance(seeds.mean(axis=1)) / len(seeds) + task_variance
    return _student_interval(estimate, math.sqrt(variance), min(len(seeds) - 1, task_freedom), null)


def _cluster_variance(values: Array, clusters: Sequence[Hashable]) -> tuple[float, int]:
    """Return the variance of the mean over tasks, and its degrees of freedom."""
    names = np.asarray([str(name) for name in clusters])
    _, cluster_indices = np.unique(names, return_inverse=True)
    sums = np.bincount(cluster_indices, weights=values - values.mean())
    count = len(sums)
    if count < 2:
        return math.nan, count - 1
    variance = float(np.sum(sums**2)) / len(values) ** 2 * count / (count - 1)
    return variance, count - 1


def _variance(values: Array) -> float:
    """Return the variance (n - 1); exactly 0 for equal values, whose rounded mean would leave 1e-34."""
    return float(values.var(ddof=1)) if np.ptp(values) else 0.0


def _welch_freedom(parts: Sequence[tuple[float, int]]) -> int:
    """Return Welch's and Satterthwaite's degrees of freedom of a sum of variances, rounded down."""
    total = sum(variance for variance, _ in parts)
    weighted = sum(variance**2 / freedom for variance, freedom in parts)
    if not weighted:
        return min(freedom for _, freedom in parts)
    return math.floor(total**2 / weighted + ROUNDING)


def _student_interval(
    estimate: float, error: float, freedom: int, null: float = 0.0, level: float = LEVEL
) -> Interval:
    if not error:
        return Interval(estimate, estimate, estimate, float(estimate == null))

    # The numbers of ``scipy.stats.t``, in a tenth of the time.
    half_width = float(special.stdtrit(freedom, 1 - level / 2)) * error
    p = 2 * float(special.stdtr(freedom, -abs(estimate - null) / error))
    return Interval(estimate, estimate - half_width, estimate + half_width, p)
