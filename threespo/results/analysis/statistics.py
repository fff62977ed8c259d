"""Intervals and tests of differences between methods. The unit of inference is the training seed.

All methods of a study are judged on the same games, so a run is one number, its mean over evaluation seeds and games, and
the games' difficulty is common to all. What was measured of these functions: ``benchmarks/intervals.py``.
"""

import bisect
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import special, stats

from threespo.study.confirmatory import MIN_SEEDS

Array = np.ndarray[Any, Any]

Terms = Sequence[tuple[float, Sequence[float]]]
"""The means of a weighted sum: the weight and the per-seed values of each."""

Arms = Sequence[tuple[float, Array]]
"""Terms as arrays."""

Units = Sequence[Hashable] | None
"""Of each training seed, in order, what it shares with the other arm's seed at its place."""

Floor = float | Sequence[float] | None
"""The value at which a failed run ends, of all arms or of each; infinity for an arm whose runs cannot fail, None for all."""

FAILED_RUN = 0.0
"""Success and score in percent of a failed run. Not the base's: runs that collapsed here ended below it, down to nothing."""

LEVEL = 0.05
"""Promised rate of false verdicts, two-sided; intervals have 95 %."""

POWER = 0.8
MAX_SEEDS = 1000

ROUNDING = 1e-9
"""Degrees of freedom are rounded down; without this, 3.9999999999 would become 3."""

UNSEEN_SHARES = np.linspace(0.0, 1.0, 201)
"""Shares of failed runs, of which the least favourable decides (:func:`_widest_end`)."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its 95 % interval, in the unit of the values."""

    estimate: float
    low: float = math.nan
    """NaN, like ``high`` and ``p``, where there are fewer than ``MIN_SEEDS`` seeds, or none of them differs from another."""
    high: float = math.nan
    p: float = math.nan
    """Two-sided p of the null, that the true value is the one that the test names (0, or 1 for ratios)."""


@dataclass(frozen=True, slots=True)
class UnseenFailure:
    """What an estimate would lose, or gain, if all runs of one arm had failed."""

    runs: int
    """Training runs of the arm, whether or not they share a unit: that none of them is one of a share q of failed ones has
    probability ``(1 - q) ** runs``."""
    points: float
    """Positive where failed runs would lower the estimate, negative where they would raise it."""


def mean_interval(
    values: Sequence[float], null: float = 0.0, *, floor: Floor = None, least_error: float = 0.0
) -> Interval:
    """Return the mean over training seeds with Student's t interval, by :func:`contrast_interval`."""
    return contrast_interval([(1.0, values)], null, floor=floor, least_error=least_error)


def difference_interval(
    first: Sequence[float],
    second: Sequence[float],
    null: float = 0.0,
    *,
    one_sided: bool = False,
    floor: Floor = None,
    least_error: float = 0.0,
    units: Units = None,
) -> Interval:
    """Return ``mean(first) - mean(second)`` over training seeds, by :func:`contrast_interval`."""
    return contrast_interval(
        [(1.0, first), (-1.0, second)],
        null,
        one_sided=one_sided,
        floor=floor,
        least_error=least_error,
        units=units,
    )


def contrast_interval(
    terms: Terms,
    null: float = 0.0,
    *,
    one_sided: bool = False,
    floor: Floor = None,
    least_error: float = 0.0,
    units: Units = None,
) -> Interval:
    """Return a weighted sum of means over training seeds, with Welch's interval, widened for failed runs that were not seen.

    Welch's degrees of freedom are rounded down, and where terms have different numbers of seeds they are those of the
    smallest. Unrounded, three seeds and an arm without spread give 5.9 % false verdicts, and 3 seeds against 12 give 7.

    Args:
        terms: weight and per-seed values of each mean. Seeds of different terms are independent, equal numbers or not.
        null: the sum that ``p`` tests.
        one_sided: whether each end is to miss the truth in 5 % of cases, and not both together; ``p`` is one-sided then.
        floor: the value at which a failed run ends. One arm may have failed runs of any share that were not among its own
            seeds; see :func:`_widest_end`. None for values without such a floor.
        least_error: the standard error that the evaluation's tasks alone give the sum: it has never less.
        units: of each seed, what it shares with the seed at the same place of the other terms. The sums of each unit are
            averaged then, and the interval is Student's over units. Failing remains that of a run, so that none failed
            unseen has the probability of all seeds. None: all seeds are independent.
    """
    runs = _as_arrays(terms)
    arms = runs
    if units is not None:
        arms = [(weight, unit_means(values, units)) for weight, values in runs]
    return _widened_interval(
        arms, runs, null, one_sided, floor, least_error, are_pairs=units is not None
    )


def _widened_interval(
    arms: Arms,
    runs: Arms,
    null: float,
    one_sided: bool = False,
    floor: Floor = None,
    least_error: float = 0.0,
    *,
    are_pairs: bool,
) -> Interval:
    """Return :func:`contrast_interval`'s interval: Student's over the values of ``arms``, failing over those of ``runs``."""
    counts = [len(values) for _, values in arms]
    fewest = min(counts)
    estimate = math.nan
    if fewest:
        estimate = float(sum(weight * values.mean() for weight, values in arms))
    # With two seeds in an arm Welch's degrees of freedom may be 1, where the interval is ± 12.7 standard
    # errors: it decides nothing, and rests on normality alone. NaN keeps every verdict undecided.
    if fewest < MIN_SEEDS or not math.isfinite(estimate):
        return Interval(estimate)

    failures = []
    if floor is not None:
        # An arm below the floor cannot fall onto it.
        failures = [
            UnseenFailure(len(values), weight * _height(values, end))
            for (weight, values), end in zip(runs, np.broadcast_to(floor, len(runs)), strict=True)
        ]

    # Student's t, and not a bootstrap: with 3 to 12 seeds the percentile bootstrap over seeds and games
    # gave up to 19 % false verdicts (docs/method.md, Statistics).
    # Welch's form, since training methods differ in how much their seeds spread.
    summands = [(1.0, _sum_of_terms(arms))] if are_pairs else arms
    parts = []
    for weight, values in summands:
        variance_of_mean = weight**2 * _variance(values) / len(values)
        parts.append((variance_of_mean, len(values) - 1))
    equal_counts = len(set(counts)) == 1
    freedom = _welch_freedom(parts) if equal_counts else fewest - 1
    error = max(least_error, math.sqrt(sum(variance for variance, _ in parts)))
    return _student_interval(estimate, error, freedom, null, one_sided, failures)


def ratio_interval(first: Sequence[float], second: Sequence[float], *, units: Units = None) -> Interval:
    """Return the ratio of the geometric means over training seeds: Welch's interval of the logarithms, transformed back.

    ``p`` is that of a true ratio of 1. All is NaN where a value is not positive.
    """
    if min(*first, *second, math.inf) <= 0:
        return Interval(math.nan)

    # Counts of generations and states spread by factors, so their logarithms are closer to normal, and the
    # ratio becomes a difference, for which the false verdicts were measured.
    first_logs = [math.log(value) for value in first]
    second_logs = [math.log(value) for value in second]
    found = difference_interval(first_logs, second_logs, units=units)
    return Interval(math.exp(found.estimate), math.exp(found.low), math.exp(found.high), found.p)


def equivalence_interval(
    first: Sequence[float],
    second: Sequence[float],
    margin: float,
    *,
    floor: Floor = None,
    units: Units = None,
) -> Interval:
    """Return the difference with its *90 %* interval and p of equivalence, by :func:`equivalence_of`."""
    return equivalence_of([(1.0, first), (-1.0, second)], margin, floor=floor, units=units)


def equivalence_of(
    terms: Terms,
    margin: float,
    around: float = 0.0,
    *,
    floor: Floor = None,
    units: Units = None,
) -> Interval:
    """Return a weighted sum with its *90 %* interval, for two one-sided tests (TOST) against a margin.

    The sum is equivalent to ``around`` if the whole interval is within ``margin`` of it, and is further away if it lies
    outside; either is false in at most 5 % of cases.

    Returns:
        ``p`` is that of the conclusion that the estimate suggests: within the margin, the larger p of the two one-sided
        tests; outside, the one-sided p of a true sum within it.
    """
    # Welch's test of equal means cannot show that means are equal: few seeds never reject it. TOST tests
    # the two margins instead. Both, as failed runs that were not seen may put the sum beyond the further one.
    upper, lower = (
        contrast_interval(terms, around + bound, one_sided=True, floor=floor, units=units)
        for bound in (margin, -margin)
    )
    if abs(upper.estimate - around) <= margin:
        return replace(upper, p=max(upper.p, lower.p))
    return upper if upper.estimate > around else lower


def seeds_needed(
    first: Sequence[float],
    second: Sequence[float],
    null: float = 0.0,
    *,
    floor: Floor = None,
    units: Units = None,
) -> int | None:
    """Return how many training seeds in each arm would decide a difference, by :func:`seeds_needed_for_contrast`."""
    return seeds_needed_for_contrast([(1.0, first), (-1.0, second)], null, floor=floor, units=units)


def seeds_needed_for_contrast(
    terms: Terms, null: float = 0.0, *, floor: Floor = None, units: Units = None
) -> int | None:
    """Return how many training seeds of each term would decide a contrast whose means and spreads are these.

    That is where the two-sided test at 5 % of :func:`contrast_interval` has 80 % power, by the noncentral t. With ``units``
    it is how many of them, each with as many seeds as now.

    Returns:
        None if it takes more than 1,000, or if the values have no spread, which does not say that there is none.
    """
    runs = _as_arrays(terms)
    arms = runs
    if units is not None:
        arms = [(weight, unit_means(values, units)) for weight, values in runs]
    if min(len(values) for _, values in arms) < 2:
        return None
    runs_of_unit = len(runs[0][1]) // len(arms[0][1])

    estimate = sum(weight * float(values.mean()) for weight, values in arms)
    effect = estimate - null
    summands = arms if units is None else [(1.0, _sum_of_terms(arms))]
    variances = np.array([weight**2 * _variance(values) for weight, values in summands])
    if not variances.any() or not math.isfinite(effect):
        return None
    # Of the arm that looks better failed runs may have been missed.
    losses = [0.0]
    if floor is not None:
        for (weight, values), end in zip(runs, np.broadcast_to(floor, len(runs)), strict=True):
            losses.append(math.copysign(1.0, effect) * weight * _height(values, end))
    loss = max(losses)

    def is_enough(count: int) -> bool:
        # With n seeds in all arms, Welch's degrees of freedom are (n - 1) times a number that only the variances decide.
        freedom = math.floor((count - 1) * variances.sum() ** 2 / (variances**2).sum() + ROUNDING)
        error = math.sqrt(variances.sum() / count)
        quantile = _widest_end(error, freedom, 2, count * runs_of_unit, loss) / error
        # The tail on the side of the effect; the other one adds less than can be seen at 80 % power.
        return bool(stats.nct.sf(quantile, freedom, abs(effect) / error) >= POWER)

    counts = range(MIN_SEEDS, MAX_SEEDS + 1)
    found = bisect.bisect_left(counts, True, key=is_enough)
    return counts[found] if found < len(counts) else None


def interval_over_policies(
    first: Sequence[Sequence[float]],
    second: Sequence[Sequence[float]],
    null: float = 0.0,
    *,
    floor: Floor = None,
) -> Interval:
    """Return the mean of a difference over several base policies that stand for the same model.

    Each policy counts once, however many training seeds it has: seeds of one policy say nothing of how policies differ.

    Args:
        first: on each base policy, the first method's value of each training seed.
        second: the other's, on the same policies; its numbers of seeds may be others.
        null: the difference that ``p`` tests.
        floor: as in :func:`contrast_interval`; what may have failed unseen is a run, on whichever policy.

    Returns:
        Student's t interval over bases; NaN ends with fewer than ``MIN_SEEDS``, where each has to be read by itself.
    """
    signed = ((1.0, first), (-1.0, second))
    means = [(sign, np.array([np.mean(seeds) for seeds in arm])) for sign, arm in signed]
    runs = [(sign, np.concatenate([np.asarray(seeds) for seeds in arm])) for sign, arm in signed]
    return _widened_interval(means, runs, null, floor=floor, are_pairs=True)


def cluster_interval(values: Array, clusters: Sequence[Hashable], null: float = 0.0) -> Interval:
    """Return the mean over tasks of a single policy, whose tasks are not independent of each other.

    The standard error is the cluster-robust one of a mean (CR1), with Student's t on the number of clusters
    less one.

    Args:
        values: (tasks,), in percent; for a difference of two policies, the difference in each task.
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
    return _student_interval(estimate, math.sqrt(variance or _one_task(values)), freedom, null)


def task_error(values: Array, clusters: Sequence[Hashable]) -> float:
    """Return the standard error that tasks alone give a mean: the cluster-robust one, and never 0.

    Args:
        values: (tasks,), in percent; for a difference of two methods, the difference of their means in each task.
        clusters: of each task; with fewer than ``MIN_SEEDS`` every task is one.
    """
    if len(set(clusters)) < MIN_SEEDS:
        clusters = range(len(values))
    variance, freedom = _cluster_variance(values, clusters)
    return math.sqrt(variance if freedom and variance else _one_task(values))


def difference_to_policy(
    seeds: Array,
    policy: Array,
    clusters: Sequence[Hashable],
    null: float = 0.0,
    *,
    floor: float | None = None,
) -> Interval:
    """Return how far a trained method is above a single policy, which has no training seeds.

    Args:
        seeds: (training seeds, tasks) of the method.
        policy: (tasks,) of the policy, on the same tasks.
        clusters: of each task.
        null: the difference that ``p`` tests.
        floor: where failed runs of the method end, as in :func:`contrast_interval`; a single policy has no runs that fail.
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
    error = math.sqrt(seed_variance + task_variance or _one_task(differences))
    freedom = min(len(seeds) - 1, task_freedom)
    failures = []
    if floor is not None:
        failures.append(UnseenFailure(len(seeds), _height(seeds.mean(axis=1), floor)))
    return _student_interval(estimate, error, freedom, null, failures=failures)


def _as_arrays(terms: Terms) -> Arms:
    return [(weight, np.asarray(values, dtype=np.float64)) for weight, values in terms]


def _height(values: Array, floor: float) -> float:
    """Return how far a run that has not failed is above the floor, which is what a failed one loses."""
    # The median where it is higher: a failed run that was seen is in the mean, and would make the next one's loss look less.
    # With the mean alone 11 runs of which one in three fails give 7.5 % false verdicts.
    return max(0.0, float(values.mean()) - floor, float(np.median(values)) - floor)


def _sum_of_terms(arms: Arms) -> Array:
    """Return the weighted sum in each unit."""
    return np.asarray(sum(weight * values for weight, values in arms))


def unit_means(values: Array, units: Sequence[Hashable]) -> Array:
    """Return the mean over the first axis of each unit's values, by the first place of the unit."""
    places: dict[Hashable, list[int]] = {}
    for place, unit in enumerate(units):
        places.setdefault(unit, []).append(place)
    if len(values) != len(units):
        raise ValueError(f"{len(values)} values of {len(units)} paired seeds")
    return np.array([values[of_unit].mean(axis=0) for of_unit in places.values()])


def _one_task(values: Array) -> float:
    """Return the variance of a mean in percent over tasks that are all alike."""
    # 150 of 150 are not all that there could be: about as if one were the only one of its kind, a binomial with 1 in n.
    return float((100.0 / len(values)) ** 2)


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
    estimate: float,
    error: float,
    freedom: int,
    null: float = 0.0,
    one_sided: bool = False,
    failures: Sequence[UnseenFailure] = (),
) -> Interval:
    # Equal values show no spread, which is not that there is none: they decide nothing.
    if not error:
        return Interval(estimate)

    # An estimate below the null is judged as its mirror image: only failed runs of the arm that looks better count.
    towards_null = math.copysign(1.0, estimate - null)
    tails = 1 if one_sided else 2
    # The numbers of ``scipy.stats.t``, in a tenth of the time.
    p = tails * float(special.stdtr(freedom, -abs(estimate - null) / error))
    half_width = float(special.stdtrit(freedom, 1 - LEVEL / tails)) * error
    low = estimate - half_width
    high = estimate + half_width
    for failure in failures:
        loss = abs(failure.points)
        end = _widest_end(error, freedom, tails, failure.runs, loss)
        if failure.points > 0:
            low = min(low, estimate - end)
        if failure.points < 0:
            high = max(high, estimate + end)
        if failure.points * towards_null > 0:
            p = max(p, _largest_p(abs(estimate - null), error, freedom, tails, failure.runs, loss))
    return Interval(estimate, low, high, p)


def _largest_p(distance: float, error: float, freedom: int, tails: int, runs: int, loss: float) -> float:
    """Return the largest p over all shares q of failed runs of which none was seen.

    For a share q it is ``(1 - q) ** runs``, the probability that none of the runs failed, times Student's p of the distance
    that remains after the mean has lost q times ``loss``.
    """
    chances = (1.0 - UNSEEN_SHARES) ** runs
    remaining = distance - UNSEEN_SHARES * loss
    p_values = np.minimum(1.0, tails * special.stdtr(freedom, -remaining / error))
    return float(np.max(chances * p_values))


def _widest_end(error: float, freedom: int, tails: int, runs: int, loss: float) -> float:
    """Return how far the interval's end is from the estimate: the distance whose :func:`_largest_p` is 5 %."""
    chances = (1.0 - UNSEEN_SHARES) ** runs
    is_possible = chances > LEVEL
    quantiles = special.stdtrit(freedom, 1.0 - LEVEL / (tails * chances[is_possible]))
    return float(np.max(UNSEEN_SHARES[is_possible] * loss + quantiles * error))
