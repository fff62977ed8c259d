"""Claims on the course of training, which the paper shows for ALFWorld and the small model."""

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from threespo.results.claims.finding import Evidence, Finding, Place, Verdict, inside, policy_for, presets, range_of, side
from threespo.results.claims.rules import ByType, Cost, Course, Early, Sooner
from threespo.results.paper import PaperNumbers

if TYPE_CHECKING:
    from threespo.study.config import Study

GRID = 60
"""Points at which a course of training is read."""

LEAST_PATHS = 64
"""Paths that a training success is read from: 3SPO as printed may take four an epoch."""

NOT_ALIKE = "a search's training success is not that of plain episodes"


def of_training(rule: Cost | Sooner | Early | Course | ByType, evidence: Evidence) -> Iterator[dict[str, Any]]:
    """Judge a rule on the course of training, which the paper shows for ALFWorld and the small model."""
    env, study = "alfworld", evidence.study
    policy = policy_for(study, "qwen2.5-1.5b-instruct")
    if env not in study.environments or policy is None:
        yield {"env": env, "verdict": "not here"}
        return
    rows = (rule.row,) if isinstance(rule, Course | ByType) else (rule.upper, *_lower(rule))
    for preset in presets(study, env, rows):
        place = Place(env, policy, preset)
        frame = evidence.task_types if isinstance(rule, ByType) else evidence.metrics
        frame = frame[(frame["env"] == env) & (frame["policy"] == policy)]
        runs = {}
        for row in rows:
            if name := place.method(study, row):
                runs[row] = [run.sort_values("epoch") for _, run in frame[frame["method"] == name].groupby("training_seed")]
        found = _judge(rule, runs) if rows[0] in runs and (len(rows) == 1 or len(runs) > 1) else Finding("not here")
        if found.verdict == "holds" and len(runs) < len(rows):
            found = replace(found, verdict="unclear", detail="not all rows are in this study")
        if isinstance(rule, Sooner) and found.verdict != "not here" and not _alike(place, rows, study):
            found = replace(found, verdict="unclear", detail="; ".join(filter(None, (NOT_ALIKE, found.detail))))
        printed = rule.printed if isinstance(rule, Cost | Sooner) else None
        common = {"env": env, "policy": policy, "preset": preset, "measure": "training", "printed": printed}
        yield {**common, "paper": _of_paper(rule, evidence.paper), **found.as_row()}


def _alike(place: Place, rows: tuple[str, ...], study: "Study") -> bool:
    """Return whether the rows' paths are all those of searches, or all plain episodes."""
    names = [place.method(study, row) for row in rows]
    return len({name is not None and study.methods[name].method == "threespo" for name in names}) == 1


def _lower(rule: Cost | Sooner | Early) -> tuple[str, ...]:
    return (rule.lower,) if isinstance(rule, Sooner) else rule.lower


def _judge(rule: Cost | Sooner | Early | Course | ByType, runs: dict[str, list[pd.DataFrame]]) -> Finding:
    match rule:
        case Cost():
            ends = {row: [_end(run, rule.quantity) for run in of_row] for row, of_row in runs.items()}
            return _least_ratio(ends, rule.upper, rule.at_least)
        case Sooner():
            return _sooner(rule, runs)
        case Early():
            shares = {row: [100 * _first_part(run, rule) for run in of_row] for row, of_row in runs.items()}
            return _early(rule, shares)
        case Course():
            return _course(rule, runs[rule.row])
        case ByType():
            return _by_type(rule, runs[rule.row])


def _end(run: pd.DataFrame, quantity: str) -> float:
    last = run.iloc[-1]
    states = float(last["detail_state_met"])
    return states if quantity == "states" else states / float(last["generations"])


def _least_ratio(values: dict[str, list[float]], upper: str, at_least: float) -> Finding:
    """Judge the least of the ratios of ``upper`` to the others; its interval is that of all pairs of seeds."""
    found = [
        (_mean(values[upper]) / _mean(values[row]), *range_of(values[upper], values[row], lambda a, b: a / b), row)
        for row in values
        if row != upper
    ]
    ratio, low, high, row = min(found)
    return Finding(side(low, high, at_least), ratio, low, high, f"to {row}" if len(found) > 1 else "")


def _sooner(rule: Sooner, runs: dict[str, list[pd.DataFrame]]) -> Finding:
    """Judge the ratio of the generations after which training success is first reached; a run that never reaches it takes
    at least all it had."""
    upper, lower = ([_reached(run, rule.success) for run in runs[row]] for row in (rule.upper, rule.lower))
    low = min(b for b, _ in lower) / max(a if done else math.inf for a, done in upper)
    high = max(b if done else math.inf for b, done in lower) / min(a for a, _ in upper)
    ratio = _mean([b for b, _ in lower]) / _mean([a for a, _ in upper])
    never = [
        f"{sum(not done for _, done in of_row)} of {len(of_row)} runs of {row} never reach it"
        for row, of_row in ((rule.upper, upper), (rule.lower, lower))
        if not all(done for _, done in of_row)
    ]
    if not any(done for _, done in (*upper, *lower)):
        return Finding("unclear", detail="; ".join(never))
    return Finding(side(low, high, rule.at_least), ratio, low, high, "; ".join(never))


def _reached(run: pd.DataFrame, success: float) -> tuple[float, bool]:
    """Return the generations after which the success of three epochs' paths is first reached, or all, and whether it was."""
    paths, won = (run[name].rolling(3, min_periods=1).sum() for name in ("epoch_paths", "epoch_successes"))
    there = run.loc[(paths >= LEAST_PATHS) & (won >= success * paths), "generations"]
    return (float(there.iloc[0]), True) if len(there) else (float(run["generations"].iloc[-1]), False)


def _first_part(run: pd.DataFrame, rule: Early) -> float:
    early = run[run["generations"] <= rule.until * run["generations"].iloc[-1]]
    return float((early if len(early) else run.iloc[:1])[rule.column].mean())


def _early(rule: Early, shares: dict[str, list[float]]) -> Finding:
    found = [
        (_mean(shares[rule.upper]) - _mean(shares[row]), *range_of(shares[rule.upper], shares[row], lambda a, b: a - b), row)
        for row in rule.lower
        if row in shares
    ]
    if rule.within is not None:
        gap, low, high, row = max(found, key=lambda one: abs(one[0]))
        return Finding(inside(low, high, rule.within), gap, low, high, f"from {row}")
    gap, low, high, row = min(found)
    assert rule.at_least is not None
    return Finding(side(low, high, rule.at_least), gap, low, high, f"from {row}")


def _course(rule: Course, runs: list[pd.DataFrame]) -> Finding:
    at = np.linspace(rule.start, rule.stop, GRID)
    read = [np.interp(at, run["generations"] / run["generations"].iloc[-1], run[rule.column]) for run in runs]
    course = np.mean(read, axis=0)
    if rule.change_within is not None:
        change = float(course.max() - course.min())
        return Finding("holds" if change <= rule.change_within else "fails", change, detail=f"starts at {course[0]:.2f}")
    # A course that does not move has no order.
    order = float(pd.Series(course).rank().corr(pd.Series(at).rank())) if np.ptp(course) else 0.0
    steady = rule.spearman_below is None or order <= rule.spearman_below
    there = rule.end is None or rule.end[0] <= course[-1] <= rule.end[1]
    words = f"from {course[0]:.2f} to {course[-1]:.2f}; rank correlation with time {order:.2f}"
    return Finding("holds" if steady and there else "fails", float(course[-1]), detail=words)


def _by_type(rule: ByType, runs: list[pd.DataFrame]) -> Finding:
    """Judge the order of task types at each share of training, by the mean of the eighth of training before it."""
    rises = []
    for run in runs:
        last = run["epoch"].max()
        for share in rule.at:
            part = run[(run["epoch"] <= share * last) & (run["epoch"] > (share - 0.125) * last)]
            means = part.groupby("task_type")["state_score_visits"].mean()
            if not set(rule.types) <= set(means.index):
                return Finding("not here")
            rises.append(all(means[a] < means[b] for a, b in itertools.pairwise(rule.types)))
    verdict: Verdict = "holds" if all(rises) else "unclear" if any(rises) else "fails"
    return Finding(verdict, sum(rises) / len(rises), detail=f"in {sum(rises)} of {len(rises)} looks")


def _of_paper(rule: Cost | Sooner | Early | Course | ByType, paper: PaperNumbers) -> float:
    """Return what the paper's own table or picture gives for a rule; NaN where there is none."""
    if isinstance(rule, Cost):
        of_row = {row: paper.efficiency.get(("alfworld", row)) for row in (rule.upper, *rule.lower)}
        units = {
            row: one["paper_states"] / (one["paper_rollouts"] if rule.quantity == "states_per_generation" else 1)
            for row, one in of_row.items()
            if one
        }
        return min((units[rule.upper] / units[row] for row in rule.lower if row in units), default=math.nan)
    if isinstance(rule, Sooner):
        reached = {}
        for row in (rule.upper, rule.lower):
            curve = paper.curves.get(row)
            if curve is None:
                return math.nan
            reached[row] = next(epoch for epoch, success in curve if success >= rule.success)
        return reached[rule.lower] / reached[rule.upper]
    return math.nan


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
