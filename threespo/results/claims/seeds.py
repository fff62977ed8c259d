"""Findings from one number of each training seed, against the bound that a rule gives."""

import math
from collections.abc import Sequence
from dataclasses import replace

from threespo.results.analysis.statistics import (
    Interval,
    Units,
    difference_interval,
    equivalence_interval,
    equivalence_of,
    mean_interval,
    ratio_interval,
    seeds_needed,
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

OPPOSITE: dict[Verdict, Verdict] = {"holds": "fails", "fails": "holds"}


def mean(values: Values) -> float:
    """Return the mean over training seeds."""
    return sum(values) / len(values)


def test_difference(
    first: Values,
    second: Values,
    bound: float = 0.0,
    *,
    floor: float | None = None,
    units: Units = None,
) -> Finding:
    """Return whether the mean of ``first`` is above that of ``second`` by more than ``bound``, by Welch's interval.

    ``floor`` and ``units`` are those of ``contrast_interval``: where failed runs end, and what seeds of both rows share.
    """
    found = difference_interval(first, second, bound, floor=floor, units=units)
    verdict = verdict_vs_bound(found.low, found.high, bound)
    needed = seeds_needed(first, second, bound, floor=floor, units=units)
    finding = make_finding(found, verdict, needed)
    return require_min_seeds(finding, min(len(first), len(second)))


def test_ratio(
    first: Values,
    second: Values,
    bound: float = 1.0,
    at_most: bool = False,
    *,
    units: Units = None,
) -> Finding:
    """Return whether the ratio of two geometric means is above ``bound``, or below it with ``at_most``."""
    # Divided by the bound, so that p is that of a ratio at the bound: ``ratio_interval`` tests a ratio of 1.
    scaled = ratio_interval([value / bound for value in first], second, units=units)
    found = Interval(bound * scaled.estimate, bound * scaled.low, bound * scaled.high, scaled.p)
    needed = None
    if not math.isnan(scaled.estimate):
        first_logs = [math.log(value) for value in first]
        second_logs = [math.log(value) for value in second]
        needed = seeds_needed(first_logs, second_logs, math.log(bound), units=units)

    # An interval below the bound is what the claim says then. NaN stays undecided either way.
    verdict = verdict_vs_bound(found.low, found.high, bound)
    if at_most:
        verdict = OPPOSITE.get(verdict, verdict)
    return require_min_seeds(make_finding(found, verdict, needed), min(len(first), len(second)))


def test_mean(values: Values, bound: float = 0.0, below: bool = False) -> Finding:
    """Return whether the mean of ``values`` is above ``bound``, or below it, by Student's interval."""
    # One mean against a fixed number has one spread, so Student's t is exact for normal seeds.
    found = mean_interval(values, bound)
    verdict = verdict_vs_bound(found.low, found.high, bound)
    if below:
        verdict = OPPOSITE.get(verdict, verdict)
    needed = seeds_needed_for_contrast([(1.0, values)], bound)
    return require_min_seeds(make_finding(found, verdict, needed), len(values))


def test_within(
    values: Values, margin: float, around: float = 0.0, *, floor: float | None = None
) -> Finding:
    """Return whether the mean is within ``margin`` of a number, by two one-sided tests (90 % interval)."""
    # A number is an arm that never varies nor fails.
    found = equivalence_of([(1.0, values)], margin, around, floor=floor)
    verdict = verdict_within(found.low - around, found.high - around, margin)
    nearer_bound = around + math.copysign(margin, found.estimate - around)
    needed = seeds_needed_for_contrast([(1.0, values)], nearer_bound, floor=floor)
    return require_min_seeds(make_finding(found, verdict, needed), len(values))


def test_equivalence(
    first: Values,
    second: Values,
    margin: float,
    *,
    floor: float | None = None,
    units: Units = None,
) -> Finding:
    """Return whether two means are no further apart than ``margin``, by two one-sided tests (90 % interval)."""
    found = equivalence_interval(first, second, margin, floor=floor, units=units)
    nearer_bound = math.copysign(margin, found.estimate)
    verdict = verdict_within(found.low, found.high, margin)
    finding = make_finding(
        found, verdict, seeds_needed(first, second, nearer_bound, floor=floor, units=units)
    )
    return require_min_seeds(finding, min(len(first), len(second)))


def guard_floor_ceiling(found: Finding, success: Sequence[Values], points: float) -> Finding:
    """Return the finding, undecided where it would hold but all means are within ``points`` of 0 or of 100 percent.

    Rows that cannot be further apart are no evidence that what differs between them costs nothing.

    Args:
        found: that rows are no more than ``points`` apart, or one is no more than that below the other.
        success: of each row, in percent, one number for each training seed.
        points: the margin of the claim.
    """
    if found.verdict != "holds":
        return found
    means = [mean(values) for values in success]
    lowest = min(means)
    highest = max(means)
    if highest > points and lowest < 100.0 - points:
        return found

    undecided = replace(found, verdict="undecided", p=math.nan, p_holm=math.nan, seeds_needed=math.nan)
    return undecided.with_detail(
        f"rows of {lowest:.1f} to {highest:.1f} % cannot be {points:g} points apart"
    )
