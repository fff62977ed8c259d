"""Claims on the course of training, which the paper shows for ALFWorld and the small model."""

import itertools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from threespo.results.claims.finding import (
    Evidence,
    Finding,
    Place,
    inside,
    of_few_seeds,
    over_seeds,
    policy_for,
    presets,
    side,
    together,
)
from threespo.results.claims.rules import ByType, Cost, Course, Early, Sooner
from threespo.results.paper import PaperNumbers

if TYPE_CHECKING:
    from threespo.study.config import Study

LEAST_EPOCHS = 3
"""Fewest epochs that a part of training is read from. A run's first does not count: its states have no visits yet."""

LEAST_PATHS = 64
"""Fewest paths that a training success is read from: 3SPO as printed may take four an epoch."""

TOO_COARSE = Finding("unclear", detail="the study's epochs are too long to see it")

Runs = dict[str, list[pd.DataFrame]]
"""Row of the paper -> the epochs of each training seed."""


def of_training(rule: Cost | Sooner | Early | Course | ByType, evidence: Evidence) -> Iterator[dict[str, Any]]:
    """Decide a rule in ALFWorld with the small model, for every preset of 3SPO that the study trains.

    Args:
        rule: the rule, which names rows of the paper.
        evidence: the study's results and the paper's tables.

    Yields:
        Rows of the table ``claims``; one with the verdict ``not here`` if the study lacks ALFWorld or the small model.
    """
    env, study = "alfworld", evidence.study
    policy = policy_for(study, "qwen2.5-1.5b-instruct")
    if env not in study.environments or policy is None:
        yield {"env": env, "verdict": "not here"}
        return

    rows = (rule.row,) if isinstance(rule, Course | ByType) else (rule.upper, *_lower(rule))
    frame = evidence.task_types if isinstance(rule, ByType) else evidence.metrics
    frame = frame[(frame["env"] == env) & (frame["policy"] == policy)]

    for preset in presets(study, env, rows):
        runs = _runs(frame, Place(env, policy, preset), rows, study)
        found = _decide(rule, runs, [row for row in rows if row not in runs]) if rows[0] in runs else Finding("not here")
        found = of_few_seeds(found, min((len(of_row) for of_row in runs.values()), default=0))
        common = {"env": env, "policy": policy, "preset": preset, "measure": "training"}
        numbers = {"printed": rule.printed if isinstance(rule, Course) else None, "paper": _of_paper(rule, evidence.paper)}
        yield {**common, **numbers, **found.as_row()}


def _runs(frame: pd.DataFrame, place: Place, rows: tuple[str, ...], study: "Study") -> Runs:
    """Return the epochs of the study's methods for ``rows``, without those that it lacks."""
    names = {row: name for row in rows if (name := place.method(study, row))}
    return {
        row: [run.sort_values("epoch") for _, run in frame[frame["method"] == name].groupby("training_seed")]
        for row, name in names.items()
    }


def _lower(rule: Cost | Sooner | Early) -> tuple[str, ...]:
    return (rule.lower,) if isinstance(rule, Sooner) else rule.lower


def _decide(rule: Cost | Sooner | Early | Course | ByType, runs: Runs, missing: list[str]) -> Finding:
    match rule:
        case Cost():
            ratios = {f"to {row}": _ratio(runs[rule.upper], runs[row]) for row in rule.lower if row in runs}
            return together(ratios, missing)
        case Sooner():
            return _sooner(rule, runs) if rule.lower in runs else Finding("not here")
        case Early():
            gaps = {f"from {row}": _early(rule, runs[rule.upper], runs[row]) for row in rule.lower if row in runs}
            return together(gaps, missing)
        case Course():
            return _course(rule, runs[rule.row])
        case ByType():
            return _by_type(rule, runs[rule.row])


def _ratio(upper: list[pd.DataFrame], lower: list[pd.DataFrame]) -> Finding:
    """Decide by the ratio of different states per generation; ``low`` to ``high`` is its range over all pairs of seeds."""
    first, second = (
        [float(run["detail_state_met"].iloc[-1] / run["generations"].iloc[-1]) for run in runs] for runs in (upper, lower)
    )
    low, high = min(first) / max(second), max(first) / min(second)
    return Finding(side(low, high, 1.0), _mean(first) / _mean(second), low, high)


def _sooner(rule: Sooner, runs: Runs) -> Finding:
    """Decide by the ratio of the generations after which a training success is first reached, ``lower`` over ``upper``.

    Above 1 ``upper`` is sooner. ``low`` to ``high`` is the range over all pairs of seeds. A run that never reaches the
    success would need more generations than it had, and each end of the range assumes the extreme.
    """
    both = [[_reached(run, rule.success) for run in runs[row]] for row in (rule.upper, rule.lower)]
    if any(one is None for of_row in both for one in of_row):
        return Finding("unclear", detail=f"fewer than {LEAST_PATHS} paths in three epochs")

    # Each run is (generations, whether it reached the success in them).
    upper, lower = ([one for one in of_row if one is not None] for of_row in both)
    never = [
        f"{sum(not done for _, done in of_row)} of {len(of_row)} runs of {row} never reach it"
        for row, of_row in ((rule.upper, upper), (rule.lower, lower))
        if not all(done for _, done in of_row)
    ]

    # If no run reached it, the generations are only budgets, and their ratio says nothing.
    if not any(done for _, done in (*upper, *lower)):
        return Finding("unclear", detail="; ".join(never))

    # Of a run that never reached it only a lower bound is known, its generations; it might have needed any number more.
    # So ``low`` divides by infinity for such a run of ``upper``, ``high`` is infinite for one of ``lower``, and in the
    # other two places the bound is the extreme.
    low = min(b for b, _ in lower) / max(a if done else math.inf for a, done in upper)
    high = max(b if done else math.inf for b, done in lower) / min(a for a, _ in upper)

    # The ratio itself counts such a run with its generations, and ``detail`` names it.
    ratio = _mean([b for b, _ in lower]) / _mean([a for a, _ in upper])
    return Finding(side(low, high, 1.0), ratio, low, high, "; ".join(never))


def _reached(run: pd.DataFrame, success: float) -> tuple[float, bool] | None:
    """Return the generations after which a run's training success first reaches ``success``, and whether it ever does.

    Success is that of all paths of the last three epochs. Returns all generations of a run that never reaches it, and None
    where there were never enough paths to tell.
    """
    # Sums of paths and not a mean of rates: epochs of searches differ in their number of paths.
    paths, won = (run[name].rolling(3, min_periods=1).sum() for name in ("epoch_paths", "epoch_successes"))
    if paths.max() < LEAST_PATHS:
        return None
    there = run.loc[(paths >= LEAST_PATHS) & (won >= success * paths), "generations"]
    return (float(there.iloc[0]), True) if len(there) else (float(run["generations"].iloc[-1]), False)


def _part(run: pd.DataFrame, start: float, stop: float) -> pd.DataFrame | None:
    """Return the epochs that end between two shares of a run's generations; None where they are too few to be read."""
    share = run["generations"] / run["generations"].iloc[-1]
    part = run[(share >= start) & (share <= stop) & (run["epoch"] > run["epoch"].iloc[0])]
    return part if len(part) >= LEAST_EPOCHS else None


def _early(rule: Early, upper: list[pd.DataFrame], lower: list[pd.DataFrame]) -> Finding:
    """Decide by the difference in points of a column's means; ``low`` to ``high`` is its range over all pairs of seeds."""
    parts = [[_part(run, 0.0, rule.until) for run in runs] for runs in (upper, lower)]
    if any(part is None for of_row in parts for part in of_row):
        return TOO_COARSE

    first, second = ([100 * float(part[rule.column].mean()) for part in of_row if part is not None] for of_row in parts)
    low, high, gap = min(first) - max(second), max(first) - min(second), _mean(first) - _mean(second)
    verdict = side(low, high, 0.0) if rule.within is None else inside(low, high, rule.within)
    return Finding(verdict, gap, low, high)


def _course(rule: Course, runs: list[pd.DataFrame]) -> Finding:
    """Decide by the course of each seed; ``measured`` is the mean of the values at which they end."""
    parts = [part for run in runs if (part := _part(run, rule.start, rule.stop)) is not None]
    if len(parts) < len(runs):
        return TOO_COARSE

    said = []
    for part in parts:
        values = part[rule.column]
        change = float(np.ptp(values))
        # Spearman's correlation, as that of the ranks; a column that does not move has no ranks to correlate.
        order = float(values.rank().corr(part["generations"].rank())) if change else 0.0
        bounds = (
            rule.change_within is None or change <= rule.change_within,
            rule.at_least is None or values.min() >= rule.at_least,
            rule.spearman_below is None or order <= rule.spearman_below,
        )
        said.append(all(bounds))

    ends = [float(part[rule.column].iloc[-1]) for part in parts]
    first = _mean([float(part[rule.column].iloc[0]) for part in parts])
    words = f"from {first:.2f} to {_mean(ends):.2f}, as a mean of the seeds"
    return Finding(over_seeds(said), _mean(ends), min(ends), max(ends), words)


def _by_type(rule: ByType, runs: list[pd.DataFrame]) -> Finding:
    """Decide by the order of task types at each share of the epochs, by their means in the quarter of training before it."""
    rises = []
    for run in runs:
        last = run["epoch"].max()
        for share in rule.at:
            # ``max(1, …)``: never the first epoch, see ``LEAST_EPOCHS``.
            part = run[(run["epoch"] <= share * last) & (run["epoch"] > max(1, (share - 0.25) * last))]
            means = part.groupby("task_type")["state_score_unique"].mean()
            if part["epoch"].nunique() < LEAST_EPOCHS or not set(rule.types) <= set(means.index):
                return TOO_COARSE

            rises.append(all(means[a] < means[b] for a, b in itertools.pairwise(rule.types)))
    return Finding(over_seeds(rises), sum(rises) / len(rises), detail=f"in {sum(rises)} of {len(rises)} looks")


def _of_paper(rule: Cost | Sooner | Early | Course | ByType, paper: PaperNumbers) -> float:
    """Return the ratio that the paper's efficiency table gives; NaN for other rules, and where a row is not in it."""
    if not isinstance(rule, Cost):
        return math.nan

    table = {row: paper.efficiency.get(("alfworld", row)) for row in (rule.upper, *rule.lower)}
    each = {row: one["paper_states"] / one["paper_rollouts"] for row, one in table.items() if one}
    return min((each[rule.upper] / each[row] for row in rule.lower if row in each), default=math.nan)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
