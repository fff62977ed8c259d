"""Claims on the course of training, which the paper shows for ALFWorld and the small model."""

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pandas as pd

from threespo.results.analysis.statistics import mean_interval
from threespo.results.claims.arms import Arms, Run, Runs
from threespo.results.claims.finding import Evidence, Finding, combine, require_min_seeds
from threespo.results.claims.rules import (
    ByType,
    Course,
    OfMetrics,
    Priority,
    Resource,
    Rollouts,
    States,
    Throughout,
)
from threespo.results.claims.seeds import mean, test_difference, test_equivalence, test_mean, test_ratio
from threespo.results.paper_numbers import DETAILED_ENVIRONMENT, PaperNumbers

LEAST_EPOCHS = 3
"""Fewest whole epochs that a part of training is read from. A run's first does not count: its states have no visits yet."""

PARTS = 5
"""Equal parts of the generations in which the course of training is compared."""

MOST_CAPPED = 0.05
"""Share of searches that may be cut short by the budget of a task where the length of searches is compared."""

SPENT = 0.9
"""Least share of its budget that a run must have spent to be compared: a method may give up."""

TOO_COARSE = Finding("unclear", detail="the study's epochs are too long to see it")


def of_metrics(rule: OfMetrics, arms: Arms, evidence: Evidence) -> Finding:
    """Decide a rule on the metrics of training.

    Args:
        rule: the rule.
        arms: where its rows are.
        evidence: the study's results.
    """
    if isinstance(rule, ByType | Priority):
        runs = arms.of(evidence.task_types)[rule.row]
        return (
            require_min_seeds(_by_type(rule, runs), len(runs))
            if isinstance(rule, ByType)
            else _priority(runs)
        )

    runs_of = arms.of(evidence.metrics)
    if isinstance(rule, Course):
        return require_min_seeds(_course(rule, runs_of[rule.row]), len(runs_of[rule.row]))

    gave_up = {row: sum(_spent(run, arms) < SPENT for run in runs) for row, runs in runs_of.items()}
    early = [
        f"{count} of {len(runs_of[row])} runs of {row} gave up early"
        for row, count in gave_up.items()
        if count
    ]
    found = _compared(rule, runs_of, arms)
    if not early or found.verdict == "not here":
        return found
    return replace(
        found, verdict="unclear", p=math.nan, detail="; ".join(filter(None, (found.detail, *early)))
    )


def _compared(rule: States | Resource | Rollouts | Throughout, runs: Runs, arms: Arms) -> Finding:
    if isinstance(rule, Rollouts):
        return _rollouts(rule, runs) if rule.lower in runs else Finding("not here")

    # At the end of the shorter of two arms, so that both have spent the same.
    each: dict[str, Finding] = {}
    for row in rule.lower:
        if row in runs:
            at = min(_total(run) for run in (*runs[rule.upper], *runs[row]))
            each |= dict(_pair(rule, runs[rule.upper], runs[row], row, at))
    return combine(each, arms.missing)


def _pair(
    rule: States | Resource | Throughout, upper: list[Run], lower: list[Run], row: str, at: float
) -> Iterator[tuple[str, Finding]]:
    """Yield the findings of one pair of rows at so many generations, by a name for readers."""
    if isinstance(rule, States | Resource):
        column = "detail_state_met" if isinstance(rule, States) else rule.column
        first, second = ([_running(run, column, at) for run in runs] for runs in (upper, lower))
        bound, at_most = (rule.at_least, False) if isinstance(rule, States) else (rule.at_most, True)
        words = f"{mean(first):,.0f} and {mean(second):,.0f} after {at:,.0f} generations"
        yield f"to {row}", test_ratio(first, second, bound, at_most).said(words)
        return

    parts = [[_parts(run, rule.column, at) for run in runs] for runs in (upper, lower)]
    if any(part is None for arm in parts for part in arm):
        yield f"from {row}", TOO_COARSE
        return
    first_parts, second_parts = (np.array(arm, dtype=np.float64) for arm in parts)
    if rule.within is not None:
        yield (
            f"from {row}",
            test_equivalence(
                first_parts.mean(axis=1).tolist(), second_parts.mean(axis=1).tolist(), rule.within
            ),
        )
        return
    for part in range(PARTS):
        name = f"from {row} in part {part + 1} of {PARTS}"
        yield (
            name,
            test_difference(first_parts[:, part].tolist(), second_parts[:, part].tolist(), rule.by),
        )


def _rollouts(rule: Rollouts, runs: Runs) -> Finding:
    """Decide by the ratio of generations per searched task, over the epochs that all runs have."""
    both = [runs[rule.upper], runs[rule.lower]]
    epochs = min(int(run["epoch"].max()) for run in itertools.chain(*both))
    parts = [[run[run["epoch"] <= epochs] for run in arm] for arm in both]

    first, second = (
        [float(part["generations"].iloc[-1] / part["tasks"].sum()) for part in arm] for arm in parts
    )
    capped = [
        sum(part["detail_generation_caps"].sum() for part in arm)
        / sum(part["tasks"].sum() for part in arm)
        for arm in parts
    ]
    found = test_ratio(first, second, rule.at_least).said(
        f"{mean(first):,.0f} and {mean(second):,.0f} generations a task; {max(capped):.0%} of the searches were cut short"
    )
    if max(capped) > MOST_CAPPED:
        words = f"{found.detail}, so the cap decides and not the rule"
        return replace(found, verdict="unclear", p=math.nan, detail=words)
    return found


def _total(run: Run) -> float:
    return float(run["generations"].iloc[-1])


def _spent(run: Run, arms: Arms) -> float:
    """Return the share of its budget that a run has spent."""
    training = arms.study.at(arms.place.env).training
    return (
        training.spent_budget(epochs=int(run["epoch"].iloc[-1]), generations=int(_total(run)))
        / training.budget
    )


def _running(run: Run, column: str, at: float) -> float:
    """Return a running total after so many generations, by straight lines between epochs."""
    return float(np.interp(at, [0.0, *run["generations"]], [0.0, *run[column]]))


def _whole(run: Run) -> Run:
    """Return a run's whole epochs but the first: the last ones have the tasks that the rest of the budget paid for."""
    return run[(run["tasks"] == run["tasks"].max()) & (run["epoch"] > run["epoch"].iloc[0])]


def _parts(run: Run, column: str, at: float) -> list[float] | None:
    """Return a column's points in equal parts of the first ``at`` generations; None where whole epochs are too few.

    An epoch counts in a part with the generations that it has there. Half of a part must be covered.
    """
    ends = run["generations"].to_numpy(dtype=np.float64)
    starts = np.concatenate(([0.0], ends[:-1]))
    counted = run["epoch"].isin(_whole(run)["epoch"]).to_numpy()
    values, found, width = run[column].to_numpy(dtype=np.float64), [], at / PARTS

    for part in range(PARTS):
        inside = (
            np.clip(np.minimum(ends, (part + 1) * width) - np.maximum(starts, part * width), 0.0, None)
            * counted
        )
        if inside.sum() < width / 2:
            return None
        found.append(100.0 * float(np.average(values, weights=inside)))
    return found


def _course(rule: Course, runs: list[Run]) -> Finding:
    """Decide by the smoothed course of each seed; ``measured`` is the mean of the values at which they end."""
    parts = []
    for run in runs:
        share = run["generations"] / _total(run)
        # Over three whole epochs each, those at either side of the part included.
        whole = _whole(run)
        smooth = whole[rule.column].rolling(3, center=True, min_periods=2).mean()
        parts.append(smooth[(share[whole.index] >= rule.start) & (share[whole.index] <= rule.stop)])
    if any(len(part.dropna()) < LEAST_EPOCHS for part in parts):
        return TOO_COARSE

    # Spearman's correlation with time, as that of the ranks; a column that does not move has no ranks to correlate.
    orders = [
        float(part.rank().corr(pd.Series(range(len(part)), part.index))) if np.ptp(part) else 0.0
        for part in parts
    ]
    each: dict[str, Finding] = {}
    if rule.change_within is not None:
        each["its range"] = test_mean(
            [float(np.ptp(part)) for part in parts], rule.change_within, below=True
        )
    if rule.at_least is not None:
        each["its least value"] = test_mean([float(part.min()) for part in parts], rule.at_least)
    if rule.spearman_below is not None:
        each["its rank correlation with time"] = test_mean(orders, rule.spearman_below, below=True)

    ends, found = mean_interval([float(part.iloc[-1]) for part in parts]), combine(each)
    words = f"from {mean([float(part.iloc[0]) for part in parts]):.2f} to {ends.estimate:.2f}, as a mean of the seeds"
    # The verdict is on the course; the number that the paper prints is where it ends.
    return replace(found.said(words), measured=ends.estimate, low=ends.low, high=ends.high)


def _by_type(rule: ByType, runs: list[Run]) -> Finding:
    """Decide by the steps between task types, of each seed's means over the quarters of training before the looks."""
    steps: dict[str, list[float]] = {f"{b} above {a}": [] for a, b in itertools.pairwise(rule.types)}
    for run in runs:
        looks = []
        last = run["epoch"].max()
        for share in rule.at:
            # ``max(1, …)``: never the first epoch, see ``LEAST_EPOCHS``.
            part = run[(run["epoch"] <= share * last) & (run["epoch"] > max(1, (share - 0.25) * last))]
            means = part.groupby("task_type")["state_score_unique"].mean()
            if part["epoch"].nunique() < LEAST_EPOCHS or not set(rule.types) <= set(means.index):
                return TOO_COARSE

            looks.append([float(means[b] - means[a]) for a, b in itertools.pairwise(rule.types)])
        for values, of_looks in zip(steps.values(), zip(*looks, strict=True), strict=True):
            values.append(mean(list(of_looks)))
    return combine({pair: test_mean(values) for pair, values in steps.items()})


def _priority(runs: list[Run]) -> Finding:
    """Decide by each seed's correlation, over task types, of the mean n(s) with the share of failed paths."""
    found = []
    for run in runs:
        samples = [name for name in run.columns if name.startswith("n_")]
        sums = run.groupby("task_type")[[*samples, "successes", "completed_paths"]].sum()
        sums = sums[sums["completed_paths"] > 0]
        mean = (
            sums[samples] @ np.array([float(name[2:]) for name in samples]) / sums[samples].sum(axis=1)
        )
        failed = 1.0 - sums["successes"] / sums["completed_paths"]
        if len(sums) < LEAST_EPOCHS or np.ptp(mean) == 0 or np.ptp(failed) == 0:
            return Finding("unclear", detail="too few task types, or all alike")
        found.append(float(np.corrcoef(mean, failed)[0, 1]))
    return test_mean(found).said("correlation over task types")


def of_paper(rule: object, paper: PaperNumbers) -> float:
    """Return the ratio that the paper's efficiency table gives; NaN for other rules, and where a row is not in it."""
    if not isinstance(rule, States | Rollouts):
        return math.nan

    rows = (rule.upper, *(rule.lower if isinstance(rule, States) else (rule.lower,)))
    table = {row: paper.efficiency.get((DETAILED_ENVIRONMENT, row)) for row in rows}
    there = {row: one for row, one in table.items() if one}
    if isinstance(rule, Rollouts):
        each = {row: one["paper_rollouts"] for row, one in there.items()}
    else:
        each = {
            row: one["paper_states"] / (one["paper_rollouts"] if rule.per_rollout else 1)
            for row, one in there.items()
        }
    return min(
        (each[rule.upper] / each[row] for row in rows[1:] if {row, rule.upper} <= set(each)),
        default=math.nan,
    )
