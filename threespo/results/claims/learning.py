"""Measures of learning curves: success on unseen games at the snapshots of training runs (table ``learning``)."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from scipy import stats

from threespo.results.analysis.curves import first_reached
from threespo.results.analysis.statistics import FAILED_RUN, LEVEL, Units, ratio_interval
from threespo.results.claims.evidence import Evidence, RowRuns, Run
from threespo.results.claims.finding import Finding, Verdict, combine, require_min_seeds
from threespo.results.claims.seeds import test_difference, test_ratio

AXES = {"epochs": "epochs", "optimizer_steps": "optimizer steps"}
"""Other columns of ``learning`` than generations, as readers see them."""

MIN_SNAPSHOTS = 4
"""Fewest snapshots that the steadiness of success is read from."""


def _compare_curves(
    runs: RowRuns,
    evidence: Evidence,
    upper: str,
    lower: Sequence[str],
    compare: Callable[[list[Run], list[Run], str], dict[str, Finding]],
) -> Finding:
    """Combine the findings on the curves of ``upper`` and each of ``lower``; ``not here`` where the study has no curves.

    ``compare`` returns findings by a name for readers, of the runs of ``upper``, those of a lower row, and its name.
    """
    curves = runs.select(evidence.learning, "generations")
    present = [row for row in lower if row in curves]
    if upper not in curves or not present:
        return Finding("not here", detail="the study has no curves of these methods on unseen games")

    findings: dict[str, Finding] = {}
    for row in present:
        findings |= compare(curves[upper], curves[row], row)
    without_curves = [row for row in lower if row not in curves and row not in runs.missing]
    return combine(findings, [*runs.missing, *without_curves])


def compare_arrivals(
    runs: RowRuns,
    evidence: Evidence,
    upper: str,
    lower: Sequence[str],
    success: float,
    at_least: float = 1.0,
) -> Finding:
    """Decide by how many times the generations of ``upper`` each of ``lower`` needs to reach a success in 0 to 1."""

    def compare(upper_runs: list[Run], lower_runs: list[Run], row: str) -> dict[str, Finding]:
        found = test_arrival(upper_runs, lower_runs, (upper, row), success, at_least, runs.units)
        return {f"{upper} and {row}": found}

    return _compare_curves(runs, evidence, upper, lower, compare)


def test_arrival(
    upper_runs: list[Run],
    lower_runs: list[Run],
    names: tuple[str, str],
    success: float,
    at_least: float = 1.0,
    units: Units = None,
) -> Finding:
    """Decide by the ratio of the generations after which a success is first reached, lower over upper.

    Where a run never reaches it only the order of runs is known, if its last snapshot is later than all that reached it:
    then an exact rank test decides, with such runs as the latest.
    """
    upper_arrivals = [first_reached(run, success) for run in upper_runs]
    lower_arrivals = [first_reached(run, success) for run in lower_runs]
    arrivals = [*upper_arrivals, *lower_arrivals]
    if not any(map(math.isfinite, arrivals)):
        return Finding("undecided", detail=f"no run of either reaches {success:.0%}")
    if min(arrivals) <= 0:
        return Finding("undecided", detail=f"the untrained policy is at {success:.0%} already")

    if math.isfinite(max(arrivals)):
        # The paper counts epochs, which are not equally long for all methods, so their ratio is shown as well.
        other_ratios = []
        for axis, words in AXES.items():
            upper_times = [first_reached(run, success, axis) for run in upper_runs]
            lower_times = [first_reached(run, success, axis) for run in lower_runs]
            ratio = ratio_interval(lower_times, upper_times).estimate
            other_ratios.append(f"{ratio:.2f} in {words}")
        found = test_ratio(lower_arrivals, upper_arrivals, at_least, units=units)
        return found.with_detail(f"the ratio is {', '.join(other_ratios)}")

    # Without an arrival there is no ratio, and leaving such runs out would favour the method that has them.
    never = []
    for name, times in zip(names, (upper_arrivals, lower_arrivals), strict=True):
        count = sum(map(math.isinf, times))
        if count:
            never.append(f"{count} of {len(times)} runs of {name} never reach {success:.0%}")
    scaled_times = [at_least * time for time in upper_arrivals]

    # Where the runs end that never arrive, on the scale of their row.
    ends = []
    for run, time in zip(upper_runs, upper_arrivals, strict=True):
        if math.isinf(time):
            ends.append(at_least * _last_generations(run))
    for run, time in zip(lower_runs, lower_arrivals, strict=True):
        if math.isinf(time):
            ends.append(_last_generations(run))
    found = _test_order_of_arrival(scaled_times, lower_arrivals, min(ends), at_least, "; ".join(never))
    return require_min_seeds(found, min(len(upper_runs), len(lower_runs)))


def _test_order_of_arrival(
    scaled_times: list[float], other_times: list[float], first_end: float, at_least: float, never: str
) -> Finding:
    """Decide by the order of runs, where some never reach the success.

    Args:
        scaled_times: the factor times the generations after which each run of the upper row arrives; infinity if never.
        other_times: the generations of each run of the lower row.
        first_end: where the first of the runs ends that never arrive, with the factor for the upper row.
        at_least: the factor.
        never: which runs never arrive, in words.
    """
    # A run that ended before others arrived might have been sooner or later than they.
    last_arrival = max(time for time in (*scaled_times, *other_times) if math.isfinite(time))
    if first_end < last_arrival:
        words = f"{never}, and ended before {at_least:g} times the arrival of others"
        return Finding("undecided", detail=words)

    # Ranks need no size of what was not observed. Exact, since the normal approximation is for more than a few
    # seeds; three against three have p of 0.1 at least, and so never a verdict. Of independent runs, also where
    # seeds share a pool or base: what they share moves both rows alike, so the test is cautious.
    test = stats.mannwhitneyu(scaled_times, other_times, alternative="two-sided", method="exact")
    p = float(test.pvalue)
    pairs = list(itertools.product(scaled_times, other_times))
    sooner = sum(scaled < other for scaled, other in pairs)
    later = sum(scaled > other for scaled, other in pairs)
    verdict: Verdict = "holds" if sooner > later else "fails"
    if p >= LEVEL:
        verdict = "undecided"
    words = f"{never}; decided by the order in which runs arrive (exact rank test)"
    return Finding(verdict, p=p, detail=words)


def lead_at_shares(
    runs: RowRuns,
    evidence: Evidence,
    upper: str,
    lower: Sequence[str],
    shares: Sequence[float],
    by: float = 0.0,
) -> Finding:
    """Decide by whether ``upper`` is ``by`` points above each of ``lower`` at these shares of the generations."""

    def compare(upper_runs: list[Run], lower_runs: list[Run], row: str) -> dict[str, Finding]:
        # At equal generations: epochs of different methods do not cost the same.
        end = _common_end(upper_runs, lower_runs)
        findings = {}
        for share in shares:
            upper_success = [_success_after(run, share * end) for run in upper_runs]
            lower_success = [_success_after(run, share * end) for run in lower_runs]
            name = f"{upper} and {row} after {share:.0%} of {end:,.0f} generations"
            findings[name] = test_difference(
                upper_success, lower_success, by, floor=FAILED_RUN, units=runs.units
            )
        return findings

    return _compare_curves(runs, evidence, upper, lower, compare)


def compare_mean_success(runs: RowRuns, evidence: Evidence, upper: str, lower: Sequence[str]) -> Finding:
    """Decide by the mean success over the generations that all runs have."""

    def compare(upper_runs: list[Run], lower_runs: list[Run], row: str) -> dict[str, Finding]:
        upper_success, lower_success = _mean_success_of_both(upper_runs, lower_runs)
        found = test_difference(upper_success, lower_success, floor=FAILED_RUN, units=runs.units)
        return {f"{upper} and {row}": found}

    return _compare_curves(runs, evidence, upper, lower, compare)


def higher_column_with_higher_success(
    runs: RowRuns, evidence: Evidence, column: str, upper: str, lower: Sequence[str]
) -> Finding:
    """Decide by whether, of each pair, the method with more of a column of ``metrics`` has the higher mean success."""
    trained = runs.select(evidence.metrics)

    def compare(upper_runs: list[Run], lower_runs: list[Run], row: str) -> dict[str, Finding]:
        name = f"{upper} and {row}"
        upper_shares = [100.0 * float(run[column].mean()) for run in trained.get(upper, [])]
        lower_shares = [100.0 * float(run[column].mean()) for run in trained.get(row, [])]
        if not upper_shares or not lower_shares:
            return {name: Finding("not here")}

        # Which method should have more success depends on which has more of the column: first that is decided.
        order = test_difference(upper_shares, lower_shares, units=runs.units)
        words = f"shares differ by {order.measured:+.1f} points"
        if not math.isnan(order.low):
            words += f" ({order.low:+.1f} to {order.high:+.1f})"
        if order.verdict not in ("holds", "fails"):
            undecided = replace(order.with_detail(words), verdict="undecided", p=math.nan)
            return {name: undecided}

        success_with_more, success_with_less = _mean_success_of_both(upper_runs, lower_runs)
        if order.verdict == "fails":
            success_with_more, success_with_less = success_with_less, success_with_more
        found = test_difference(
            success_with_more, success_with_less, floor=FAILED_RUN, units=runs.units
        ).with_detail(words)
        # Both have to be true, the order of shares and that of success, so the larger p is that of the claim.
        return {name: replace(found, p=max(found.p, order.p))}

    return _compare_curves(runs, evidence, upper, lower, compare)


def compare_steadiness(runs: RowRuns, evidence: Evidence, upper: str, lower: str) -> Finding:
    """Decide by the standard deviation of success about its straight line over the last half of training."""

    def compare(upper_runs: list[Run], lower_runs: list[Run], row: str) -> dict[str, Finding]:
        return {f"{row} and {upper}": _test_steadiness(upper_runs, lower_runs, runs.units)}

    return _compare_curves(runs, evidence, upper, [lower], compare)


def _test_steadiness(upper_runs: list[Run], lower_runs: list[Run], units: Units) -> Finding:
    # The last half only: while success rises fast, a straight line does not describe it.
    deviations: list[list[float]] = []
    for row_runs in (lower_runs, upper_runs):
        halves = [run[run["generations"] >= _last_generations(run) / 2] for run in row_runs]
        if min(map(len, halves)) < MIN_SNAPSHOTS:
            words = f"fewer than {MIN_SNAPSHOTS} snapshots in the last half of training"
            return Finding("undecided", detail=words)
        deviations.append([_deviation_from_line(half) for half in halves])
    return test_difference(deviations[0], deviations[1], units=units)


def _deviation_from_line(half: Run) -> float:
    """Return the standard deviation of success about its straight line, in points."""
    generations = half["generations"].to_numpy(dtype=np.float64)
    success = half["success"].to_numpy(dtype=np.float64)
    games = half["games"].to_numpy(dtype=np.float64)
    line = np.polynomial.Polynomial.fit(generations, success, 1)
    # Chance in the evaluation's games moves success as well, and most where it is near a half: that is not training's.
    chance = np.sum(success * (1.0 - success) / games)
    residual = np.sum((success - line(generations)) ** 2) - chance
    # Two degrees of freedom go into the line.
    return 100.0 * float(np.sqrt(max(0.0, residual) / (len(generations) - 2)))


def _last_generations(run: Run) -> float:
    return float(run["generations"].iloc[-1])


def _common_end(*arms: list[Run]) -> float:
    """Return the generations that all runs have."""
    return min(_last_generations(run) for runs in arms for run in runs)


def _success_after(run: Run, generations: float) -> float:
    """Return the success in points after so many generations, by straight lines between snapshots."""
    return 100.0 * float(np.interp(generations, run["generations"], run["success"]))


def _mean_success_of_both(
    upper_runs: list[Run], lower_runs: list[Run]
) -> tuple[list[float], list[float]]:
    """Return the mean success in points of each run of both rows, over the generations that all runs have."""
    end = _common_end(upper_runs, lower_runs)
    return (
        [_mean_success(run, end) for run in upper_runs],
        [_mean_success(run, end) for run in lower_runs],
    )


def _mean_success(run: Run, end: float) -> float:
    """Return the mean success in points over the generations from the first snapshot to ``end``."""
    before = run[run["generations"] < end]
    generations = np.array([*before["generations"], end], dtype=np.float64)
    success = np.array([*before["success"], _success_after(run, end) / 100.0], dtype=np.float64)
    # Snapshots are not equally far apart, so a plain mean would weigh the dense part more.
    width = generations[-1] - generations[0]
    if not width:
        return 100.0 * float(success[-1])
    return 100.0 * (float(np.trapezoid(success, generations)) / float(width))
