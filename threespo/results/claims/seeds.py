"""Findings from one number of each training seed, against the bound that a rule gives."""

import math
from collections.abc import Sequence
from dataclasses import replace

from threespo.results.analysis.statistics import (
    LEVEL,
    Interval,
    contrast_interval,
    difference_interval,
    equivalence_interval,
    mean_interval,
    ratio_interval,
    seeds_needed_for_contrast,
)
from threespo.results.claims.finding import (
    Finding,
    Verdict,
    make_finding,
    require_min_seeds,
    verdict_vs_bound,
    verdict_within,
)

Values = Sequence[float]
"""One number for each training seed."""

_OTHER: dict[Verdict, Verdict] = {"holds": "fails", "fails": "holds"}


def mean(values: Values) -> float:
    """Return the mean over training seeds."""
    return sum(values) / len(values)


def test_difference(first: Values, second: Values, bound: float = 0.0) -> Finding:
    """Return whether the mean of ``first`` is above that of ``second`` by more than ``bound``, by Welch's interval."""
    found, needed = (
        difference_interval(first, second, bound),
        seeds_needed_for_contrast([(1.0, first), (-1.0, second)], bound),
    )
    return _finding(
        found, verdict_vs_bound(found.low, found.high, bound), min(len(first), len(second)), needed
    )


def test_ratio(first: Values, second: Values, bound: float = 1.0, at_most: bool = False) -> Finding:
    """Return whether the ratio of two geometric means is above ``bound``, or below it with ``at_most``."""
    # Divided by the bound, so that p is that of a ratio at the bound.
    found = ratio_interval([value / bound for value in first], second)
    whole = Interval(bound * found.estimate, bound * found.low, bound * found.high, found.p)
    needed = None
    if not math.isnan(found.estimate):
        logs = [[math.log(value) for value in values] for values in (first, second)]
        needed = seeds_needed_for_contrast([(1.0, logs[0]), (-1.0, logs[1])], math.log(bound))

    verdict = verdict_vs_bound(whole.low, whole.high, bound)
    return _finding(
        whole, _OTHER.get(verdict, verdict) if at_most else verdict, min(len(first), len(second)), needed
    )


def test_mean(values: Values, bound: float = 0.0, below: bool = False) -> Finding:
    """Return whether the mean of ``values`` is above ``bound``, or below it, by Student's interval."""
    found = mean_interval(values, bound)
    verdict = verdict_vs_bound(found.low, found.high, bound)
    return _finding(
        found,
        _OTHER.get(verdict, verdict) if below else verdict,
        len(values),
        seeds_needed_for_contrast([(1.0, values)], bound),
    )


def test_within(values: Values, margin: float, around: float = 0.0) -> Finding:
    """Return whether the mean is within ``margin`` of a number, by two one-sided tests (90 % interval)."""
    moved = [value - around for value in values]
    nearer = math.copysign(margin, sum(moved))
    found = contrast_interval([(1.0, moved)], nearer, level=2 * LEVEL)
    whole = Interval(found.estimate + around, found.low + around, found.high + around, found.p / 2)
    needed = seeds_needed_for_contrast([(1.0, moved)], nearer)
    return _finding(whole, verdict_within(found.low, found.high, margin), len(values), needed)


def test_equivalence(first: Values, second: Values, margin: float) -> Finding:
    """Return whether two means are no further apart than ``margin``, by two one-sided tests (90 % interval)."""
    found = equivalence_interval(first, second, margin)
    nearer = math.copysign(margin, found.estimate)
    needed = seeds_needed_for_contrast([(1.0, first), (-1.0, second)], nearer)
    return _finding(
        found, verdict_within(found.low, found.high, margin), min(len(first), len(second)), needed
    )


def guard_floor_ceiling(found: Finding, success: Sequence[Values], points: float) -> Finding:
    """Return the finding, which does not hold where all means are within ``points`` of no success, or of success everywhere.

    Rows that cannot be further apart are no evidence that what differs between them costs nothing.

    Args:
        found: that rows are no more than ``points`` apart, or one is no more than that below the other.
        success: of each row, in percent, one number for each training seed.
        points: the margin of the claim.
    """
    if found.verdict != "holds":
        return found
    means = [mean(values) for values in success]
    if max(means) > points and min(means) < 100.0 - points:
        return found
    words = f"rows of {min(means):.1f} to {max(means):.1f} % cannot be {points:g} points apart"
    return replace(found, verdict="unclear", p=math.nan, seeds_needed=math.nan).said(words)


def _finding(found: Interval, verdict: Verdict, seeds: int, needed: int | None) -> Finding:
    return require_min_seeds(make_finding(found, verdict, needed), seeds)
