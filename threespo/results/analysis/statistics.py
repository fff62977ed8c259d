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
"""Degrees of freedom are rounded down; without this, 3.9999999999 would become 3."""


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
    arms = _as_arrays(terms)
    counts = [len(values) for _, values in arms]
    fewest = min(counts)
    estimate = math.nan
    if fewest:
        estimate = float(sum(weight * values.mean() for weight, values in arms))
    # With two seeds in an arm Welch's degrees of freedom may be 1, where the interval is ± 12.7 standard
    # errors: it decides nothing, and rests on normality alone. NaN keeps every verdict undecided.
    if fewest < MIN_SEEDS or not math.isfinite(estimate):
        return Interval(estimate)

    # Student's t, and not a bootstrap: with 3 to 12 seeds the percentile bootstrap over seeds and games
    # gave up to 19 % false verdicts (docs/method.md, Statistics).
    # Welch's form, since training methods differ in how much their seeds spread.
    parts = []
    for weight, values in arms:
        variance_of_mean = weight**2 * _variance(values) / len(values)
        parts.append((variance_of_mean, len(values) - 1))
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

    # Counts of generations and states spread by factors, so their logarithms are closer to normal, and the
    # ratio becomes a difference, for which the false verdicts were measured.
    first_logs = [math.log(value) for value in first]
    second_logs = [math.log(value) for value in second]
    found = difference_interval(first_logs, second_logs)
    return Interval(math.exp(found.estimate), math.exp(found.low), math.exp(found.high), found.p)


def equivalence_interval(first: Sequence[float], second: Sequence[float], margin: float) -> Interval:
    """Return the difference with its *90 %* interval, for two one-sided tests (TOST) against a margin.

    The means are equivalent if the whole interval lies within plus and minus ``margin``, and differ by more if it lies
    outside; either is false in at most 5 % of cases.

    Returns:
        ``p`` is that of the conclusion that the estimate suggests: within the margin, the larger p of the two one-sided
        tests; outside, the one-sided p of a true difference within it.
    """
    # Welch's test of equal means cannot show that means are equal: few seeds never reject it. TOST tests
    # the two margins instead. The nearer bound has the larger p of the two tests, so it alone decides.
    nearer_bound = math.copysign(margin, difference_interval(first, second).estimate)
    found = difference_interval(first, second, nearer_bound, level=2 * LEVEL)
    # ``p`` is two-sided; each of the two tests is one-sided.
    return replace(found, p=found.p / 2)


def adjust_by_holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's adjusted p of a family of tests, in the same order; NaN stays NaN and is no member of the family."""
    # Holm, not Bonferroni: the same guarantee for tests that depend on each other, as all comparisons with
    # one reference do, and never less power.
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
    arms = _as_arrays(terms)
    if min(len(values) for _, values in arms) < 2:
        return None

    variances = np.array([weight**2 * _variance(values) for weight, values in arms])
    estimate = sum(weight * float(values.mean()) for weight, values in arms)
    effect = abs(estimate - null)
    # Without spread any effect is decided by the fewest seeds that have an interval, and no effect by none.
    if not variances.any():
        return MIN_SEEDS if effect else None
    if not math.isfinite(effect):
        return None

    counts = np.arange(MIN_SEEDS, MAX_SEEDS + 1)
    # With n seeds in all arms, Welch's degrees of freedom are (n - 1) times a number that only the variances
    # decide.
    total = variances.sum()
    squares = (variances**2).sum()
    freedom = np.floor((counts - 1) * total**2 / squares + ROUNDING)
    noncentrality = effect / np.sqrt(total / counts)
    quantile = stats.t.ppf(1 - LEVEL / 2, freedom)
    # The tail on the side of the effect; the other one adds less than can be seen at 80 % power.
    is_enough = stats.nct.sf(quantile, freedom, noncentrality) >= POWER
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

    The standard error is the cluster-robust one of a mean (CR1), with Student's t on the number of clusters
    less one.

    Args:
        values: (tasks,), in any unit; for a difference of two policies, the difference in each task.
        clusters: of each task, what it shares with others: the layout of a household, the product of a shop.
        null: the mean that ``p`` tests.
    """
    estimate = float(values.mean())
    # By clusters, since games of one layout are won or lost together. Resampling games as if they were
    # independent missed the true success in 5 to 49 % of cases (docs/method.md, Statistics). By CR1 and not by
    # a cluster bootstrap: a panel may have four layouts, of which there are only 35 different resamples.
    variance, freedom = _cluster_variance(values, clusters)
    if freedom + 1 < MIN_SEEDS:
        return Interval(estimate)
    return _student_interval(estimate, math.sqrt(variance), freedom, null)


def difference_to_policy(
    seeds: Array, policy: Array, clusters: Sequence[Hashable], null: float = 0.0
) -> Interval:
    """Return how far a trained method is above a single policy, which has no training seeds.

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

    # The policy's own chance shows only in its tasks, so the variance between seeds and that between clusters
    # are added. Chance in single episodes is in both: the interval is rather too wide (0 to 3.7 % false
    # verdicts where 5 % are allowed). Degrees of freedom are those of the fewer, which is cautious as well.
    seed_variance = _variance(seeds.mean(axis=1)) / len(seeds)
    error = math.sqrt(seed_variance + task_variance)
    freedom = min(len(seeds) - 1, task_freedom)
    return _student_interval(estimate, error, freedom, null)


def _as_arrays(terms: Terms) -> list[tuple[float, Array]]:
    return [(weight, np.asarray(values, dtype=np.float64)) for weight, values in terms]


def _cluster_variance(values: Array, clusters: Sequence[Hashable]) -> tuple[float, int]:
    """Return the variance of the mean over tasks, and its degrees of freedom."""
    names = np.asarray([str(name) for name in clusters])
    _, cluster_indices = np.unique(names, return_inverse=True)
    # Residuals are summed within a cluster before they are squared, so what its tasks share does not cancel.
    residual_sums = np.bincount(cluster_indices, weights=values - values.mean())
    count = len(residual_sums)
    if count < 2:
        return math.nan, count - 1

    # CR1: the factor count / (count - 1) corrects for the mean that is estimated from the same clusters.
    squares = float(np.sum(residual_sums**2))
    variance = squares / len(values) ** 2 * count / (count - 1)
    return variance, count - 1


def _variance(values: Array) -> float:
    """Return the variance (n - 1); exactly 0 for equal values, whose rounded mean would leave 1e-34."""
    return float(values.var(ddof=1)) if np.ptp(values) else 0.0


def _welch_freedom(parts: Sequence[tuple[float, int]]) -> int:
    """Return Welch's and Satterthwaite's degrees of freedom of a sum of variances, rounded down."""
    total = sum(variance for variance, _ in parts)
    weighted = sum(variance**2 / freedom for variance, freedom in parts)
    # No arm has spread: the error is 0, and any number does.
    if not weighted:
        return min(freedom for _, freedom in parts)
    return math.floor(total**2 / weighted + ROUNDING)


def _student_interval(
    estimate: float, error: float, freedom: int, null: float = 0.0, level: float = LEVEL
) -> Interval:
    # Equal seeds, as with 0 % success everywhere: the interval has no width, and t would divide by zero.
    if not error:
        return Interval(estimate, estimate, estimate, float(estimate == null))

    # The numbers of ``scipy.stats.t``, in a tenth of the time.
    half_width = float(special.stdtrit(freedom, 1 - level / 2)) * error
    p = 2 * float(special.stdtr(freedom, -abs(estimate - null) / error))
    return Interval(estimate, estimate - half_width, estimate + half_width, p)
