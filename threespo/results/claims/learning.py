"""Claims on learning curves: success on unseen games at the snapshots of training runs (table ``learning``)."""

import math
from dataclasses import replace

import numpy as np
from scipy import stats

from threespo.results.analysis.curves import first_reached
from threespo.results.analysis.statistics import LEVEL, ratio_interval
from threespo.results.claims.arms import Arms, Run
from threespo.results.claims.finding import Evidence, Finding, Verdict, combine, require_min_seeds
from threespo.results.claims.rules import Ahead, Area, OfCurves, Sooner, Steady
from threespo.results.claims.seeds import test_difference, test_ratio

AXES = {"epochs": "epochs", "optimizer_steps": "optimizer steps"}
"""Columns of ``learning`` beside generations, as readers see them."""

LEAST_SNAPSHOTS = 4
"""Fewest snapshots that the steadiness of success is read from."""


def of_curves(rule: OfCurves, arms: Arms, evidence: Evidence) -> Finding:
    """Decide a rule on success on unseen games.

    Args:
        rule: the rule.
        arms: where its rows are.
        evidence: the study's results.

    Returns:
        ``not here`` where the study has no curves of the rows.
    """
    curves = arms.of(evidence.learning, "generations")
    lower = (rule.lower,) if isinstance(rule, Steady) else rule.lower
    there = [row for row in lower if row in curves]
    if rule.upper not in curves or not there:
        return Finding("not here", detail="the study has no curves of these methods on unseen games")

    each: dict[str, Finding] = {}
    for row in there:
        upper, other = curves[rule.upper], curves[row]
        if isinstance(rule, Sooner):
            each[f"{rule.upper} and {row}"] = compare_arrivals(rule, upper, other, row)
        elif isinstance(rule, Steady):
            each[f"{row} and {rule.upper}"] = _steady(upper, other)
        elif isinstance(rule, Ahead):
            end = _common_end(upper, other)
            for share in rule.at:
                first, second = ([_success(run, share * end) for run in runs] for runs in (upper, other))
                each[f"{rule.upper} and {row} after {share:.0%} of {end:,.0f} generations"] = (
                    test_difference(first, second, rule.by)
                )
        else:
            each[f"{rule.upper} and {row}"] = _area(rule, upper, other, row, arms, evidence)
    return combine(
        each, [*arms.missing, *(row for row in lower if row not in curves and row not in arms.missing)]
    )


def _common_end(*arms: list[Run]) -> float:
    """Return the generations that all runs have."""
    return min(float(run["generations"].iloc[-1]) for runs in arms for run in runs)


def _success(run: Run, at: float) -> float:
    """Return the success in points after so many generations, by straight lines between snapshots."""
    return 100.0 * float(np.interp(at, run["generations"], run["success"]))


def compare_arrivals(rule: Sooner, upper: list[Run], lower: list[Run], row: str) -> Finding:
    """Decide by the ratio of the generations after which a success is first reached, ``lower`` over ``upper``.

    Where a run never reaches it only the order of runs is known, if its last snapshot is later than all that reached it:
    then an exact rank test decides, with such runs as the latest.
    """
    first, second = ([first_reached(run, rule.success) for run in runs] for runs in (upper, lower))
    if not any(math.isfinite(value) for value in (*first, *second)):
        return Finding("unclear", detail=f"no run of either reaches {rule.success:.0%}")
    if min(*first, *second) <= 0:
        return Finding("unclear", detail=f"the untrained policy is at {rule.success:.0%} already")

    if math.isfinite(max(*first, *second)):
        others = []
        for axis, words in AXES.items():
            there = [[first_reached(run, rule.success, axis) for run in runs] for runs in (lower, upper)]
            others.append(f"{ratio_interval(*there).estimate:.2f} in {words}")
        found = test_ratio(second, first, rule.at_least)
        return found.said(f"the ratio is {', '.join(others)}")

    never = [
        f"{sum(map(math.isinf, values))} of {len(values)} runs of {name} never reach {rule.success:.0%}"
        for name, values in ((rule.upper, first), (row, second))
        if any(map(math.isinf, values))
    ]
    return require_min_seeds(
        _ranked(rule, (upper, first), (lower, second), "; ".join(never)), min(len(first), len(second))
    )


def _ranked(
    rule: Sooner, upper: tuple[list[Run], list[float]], lower: tuple[list[Run], list[float]], never: str
) -> Finding:
    """Decide by the order of runs, where some never reach the success."""
    # What is compared is the factor times the one arrival with the other. A run that ended before such a time might have
    # been sooner or later than it.
    scaled = [rule.at_least * value for value in upper[1]]
    last = max(value for value in (*scaled, *lower[1]) if math.isfinite(value))
    ended = [
        factor * float(run["generations"].iloc[-1])
        for factor, (runs, values) in ((rule.at_least, upper), (1.0, lower))
        for run, value in zip(runs, values, strict=True)
        if math.isinf(value)
    ]
    if min(ended) < last:
        return Finding(
            "unclear", detail=f"{never}, and ended before {rule.at_least:g} times the arrival of others"
        )

    p = float(stats.mannwhitneyu(scaled, lower[1], alternative="two-sided", method="exact").pvalue)
    ahead = sum(a < b for a in scaled for b in lower[1]) - sum(a > b for a in scaled for b in lower[1])
    verdict: Verdict = "unclear" if p >= LEVEL else "holds" if ahead > 0 else "fails"
    return Finding(
        verdict, p=p, detail=f"{never}; decided by the order in which runs arrive (exact rank test)"
    )


def _mean_success(run: Run, end: float) -> float:
    """Return the mean success in points over the generations from the first snapshot to ``end``."""
    inside = run[run["generations"] < end]
    spent = np.array([*inside["generations"], end], dtype=np.float64)
    values = np.array([*inside["success"], _success(run, end) / 100.0], dtype=np.float64)
    width = spent[-1] - spent[0]
    return 100.0 * (float(np.trapezoid(values, spent)) / width if width else float(values[-1]))


def _area(
    rule: Area, upper: list[Run], lower: list[Run], row: str, arms: Arms, evidence: Evidence
) -> Finding:
    """Decide by the mean success over the generations that all runs have."""
    end = _common_end(upper, lower)
    first, second = ([_mean_success(run, end) for run in runs] for runs in (upper, lower))
    if rule.with_higher is None:
        return test_difference(first, second)

    trained = arms.of(evidence.metrics)
    column = {
        name: [100.0 * float(run[rule.with_higher].mean()) for run in trained.get(name, [])]
        for name in (rule.upper, row)
    }
    if not all(column.values()):
        return Finding("not here")
    shares = test_difference(column[rule.upper], column[row])
    ends = "" if math.isnan(shares.low) else f" ({shares.low:+.1f} to {shares.high:+.1f})"
    words = f"shares differ by {shares.measured:+.1f} points{ends}"
    if shares.verdict not in ("holds", "fails"):
        return replace(shares.said(words), verdict="unclear", p=math.nan)

    # Both have to be true, the order of shares and that of success, so the larger p is that of the claim.
    found = (
        test_difference(first, second) if shares.verdict == "holds" else test_difference(second, first)
    )
    return replace(found.said(words), p=max(found.p, shares.p))


def _steady(upper: list[Run], lower: list[Run]) -> Finding:
    """Decide by the standard deviation of success about its straight line over the last half of training."""
    spreads: list[list[float]] = []
    for runs in (lower, upper):
        halves = [run[run["generations"] >= run["generations"].iloc[-1] / 2] for run in runs]
        if min(len(half) for half in halves) < LEAST_SNAPSHOTS:
            return Finding(
                "unclear", detail=f"fewer than {LEAST_SNAPSHOTS} snapshots in the last half of training"
            )
        spreads.append([_residual(half) for half in halves])
    return test_difference(spreads[0], spreads[1])


def _residual(half: Run) -> float:
    at, values, games = (
        half[name].to_numpy(dtype=np.float64) for name in ("generations", "success", "games")
    )
    line = np.polynomial.Polynomial.fit(at, values, 1)
    # Chance in the evaluation's games moves success as well, and most where it is near a half: that is not training's.
    chance = np.sum(values * (1.0 - values) / games)
    return 100.0 * float(np.sqrt(max(0.0, np.sum((values - line(at)) ** 2) - chance) / (len(at) - 2)))
