"""Measures of the course of training (tables ``metrics`` and ``task_types``), which the paper shows for ALFWorld."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from threespo.results.analysis.statistics import mean_interval
from threespo.results.claims.evidence import Evidence, RowRuns, Run
from threespo.results.claims.finding import Finding, combine, require_min_seeds
from threespo.results.claims.seeds import mean, test_difference, test_equivalence, test_mean, test_ratio
from threespo.results.paper_numbers import DETAILED_ENVIRONMENT, PaperNumbers

MIN_EPOCHS = 3
"""Fewest whole epochs that a part of training is read from. A run's first does not count: its states have no visits yet."""

PARTS = 5
"""Equal parts of the generations in which the course of training is compared."""

MAX_CAPPED = 0.05
"""Share of searches that may be cut short by the budget of a task where the length of searches is compared."""

MIN_SPENT = 0.9
"""Least share of its budget that a run must have spent to be compared: a method may give up."""

TOO_COARSE = Finding("undecided", detail="the study's epochs are too long to see it")


def compare_states(
    runs: RowRuns, evidence: Evidence, upper: str, lower: Sequence[str], at_least: float = 1.0
) -> Finding:
    """Decide by how many times as many different states ``upper`` has met as each of ``lower``."""
    by_row = runs.select(evidence.metrics)
    findings = {}
    for row in lower:
        if row not in by_row:
            continue
        # Totals grow with what was spent, so they are read where both have spent the same.
        generations = _common_generations(by_row[upper], by_row[row])
        upper_states = [_states_after(run, generations) for run in by_row[upper]]
        lower_states = [_states_after(run, generations) for run in by_row[row]]
        words = f"{mean(upper_states):,.0f} and {mean(lower_states):,.0f} after {generations:,.0f} generations"
        found = test_ratio(upper_states, lower_states, at_least, units=runs.units)
        findings[f"to {row}"] = found.with_detail(words)
    return _require_spent_budget(combine(findings, runs.missing), by_row, runs)


def compare_rollouts(
    runs: RowRuns, evidence: Evidence, upper: str, lower: str, at_least: float
) -> Finding:
    """Decide by the ratio of generations per searched task, over the epochs that all runs have."""
    by_row = runs.select(evidence.metrics)
    if lower not in by_row:
        return Finding("not here")
    upper_parts, lower_parts = _common_epochs(by_row[upper], by_row[lower])
    upper_cost = [float(part["generations"].iloc[-1] / part["tasks"].sum()) for part in upper_parts]
    lower_cost = [float(part["generations"].iloc[-1] / part["tasks"].sum()) for part in lower_parts]
    found = test_ratio(upper_cost, lower_cost, at_least, units=runs.units)
    capped = max(_share_of_capped_searches(upper_parts), _share_of_capped_searches(lower_parts))
    found = found.with_detail(
        f"{mean(upper_cost):,.0f} and {mean(lower_cost):,.0f} generations a task; "
        f"{capped:.0%} of the searches were cut short"
    )
    # A search that its budget cuts short would have gone on: its length is that of the cap.
    if capped > MAX_CAPPED:
        detail = f"{found.detail}, so the cap decides and not the rule"
        found = replace(found, verdict="undecided", p=math.nan, detail=detail)
    return _require_spent_budget(found, by_row, runs)


def compare_rollouts_of_searched_tasks(
    runs: RowRuns, evidence: Evidence, upper: str, lower: Sequence[str], at_most: float
) -> Finding:
    """Decide by how many times the generations of each of ``lower`` are that ``upper`` takes for a task.

    A task whose root is gated is not among those of its epoch: that it takes no generation is no saving, it is given up.
    """
    by_row = runs.select(evidence.metrics)
    findings = {}
    for row in lower:
        if row not in by_row:
            continue
        upper_parts, lower_parts = _common_epochs(by_row[upper], by_row[row])
        upper_tasks = [_searched_tasks(part) for part in upper_parts]
        lower_tasks = [_searched_tasks(part) for part in lower_parts]
        if min(*upper_tasks, *lower_tasks) <= 0:
            findings[f"to {row}"] = Finding("undecided", detail="a run has given all of its tasks up")
            continue
        upper_cost = [
            _generations(part) / tasks for part, tasks in zip(upper_parts, upper_tasks, strict=True)
        ]
        lower_cost = [
            _generations(part) / tasks for part, tasks in zip(lower_parts, lower_tasks, strict=True)
        ]
        words = f"{mean(upper_cost):,.0f} and {mean(lower_cost):,.0f} generations a searched task"
        found = test_ratio(upper_cost, lower_cost, at_most, at_most=True, units=runs.units)
        findings[f"to {row}"] = found.with_detail(words)
    return _require_spent_budget(combine(findings, runs.missing), by_row, runs)


def _searched_tasks(part: Run) -> float:
    """Return how many tasks were searched, all epochs together: those whose root was not gated."""
    # Methods without a gate have no such column.
    gated = part["detail_gated_roots"].fillna(0.0).sum() if "detail_gated_roots" in part else 0.0
    return float(part["tasks"].sum() - gated)


def compare_rollouts_of_successes(
    runs: RowRuns, evidence: Evidence, upper: str, lower: str, at_least: float
) -> Finding:
    """Decide by the ratio of generations for each path of training that was won, over the epochs that all runs have."""
    # For each success and not for each task: a method that gives tasks up takes fewer generations, and wins less by it.
    by_row = runs.select(evidence.metrics)
    if lower not in by_row:
        return Finding("not here")
    upper_parts, lower_parts = _common_epochs(by_row[upper], by_row[lower])
    without = sum(part["epoch_successes"].sum() == 0 for part in (*upper_parts, *lower_parts))
    if without:
        total = len(upper_parts) + len(lower_parts)
        return Finding("undecided", detail=f"{without} of {total} runs win no path in training")

    upper_cost = [_generations(part) / float(part["epoch_successes"].sum()) for part in upper_parts]
    lower_cost = [_generations(part) / float(part["epoch_successes"].sum()) for part in lower_parts]
    words = f"{mean(upper_cost):,.0f} and {mean(lower_cost):,.0f} generations for each path that was won"
    found = test_ratio(upper_cost, lower_cost, at_least, units=runs.units).with_detail(words)
    return _require_spent_budget(found, by_row, runs)


def _common_epochs(upper: Sequence[Run], lower: Sequence[Run]) -> tuple[list[Run], list[Run]]:
    """Return the runs of two arms up to the last epoch that all of them have."""
    # Equal epochs, and not equal generations: it is generations that are compared, and they change in the course of
    # training.
    last_epoch = min(int(run["epoch"].max()) for run in (*upper, *lower))
    upper_parts = [run[run["epoch"] <= last_epoch] for run in upper]
    lower_parts = [run[run["epoch"] <= last_epoch] for run in lower]
    return upper_parts, lower_parts


def _share_of_capped_searches(parts: Sequence[Run]) -> float:
    capped = sum(part["detail_generation_caps"].sum() for part in parts)
    return float(capped / sum(part["tasks"].sum() for part in parts))


def compare_throughout(
    runs: RowRuns,
    evidence: Evidence,
    column: str,
    upper: str,
    lower: Sequence[str],
    by: float = 0.0,
    within: float | None = None,
) -> Finding:
    """Decide by a column of ``metrics``, a share in 0 to 1, in every fifth of the generations.

    Args:
        runs: where the rows are.
        evidence: the study's results.
        column: of ``metrics``.
        upper: the row that should be higher than each of ``lower``.
        lower: the other rows.
        by: points by which it should be higher.
        within: instead of higher, over the whole course no further apart than so many points.
    """
    by_row = runs.select(evidence.metrics)
    findings: dict[str, Finding] = {}
    for row in lower:
        if row not in by_row:
            continue
        generations = _common_generations(by_row[upper], by_row[row])
        arms = [
            [_points_in_parts(run, column, generations) for run in by_row[name]] for name in (upper, row)
        ]
        # With epochs longer than half a part nothing can be said of that part.
        if any(points is None for arm in arms for points in arm):
            findings[f"from {row}"] = TOO_COARSE
            continue

        upper_points, lower_points = (np.array(arm, dtype=np.float64) for arm in arms)
        if within is not None:
            upper_means = upper_points.mean(axis=1).tolist()
            lower_means = lower_points.mean(axis=1).tolist()
            findings[f"from {row}"] = test_equivalence(
                upper_means, lower_means, within, units=runs.units
            )
            continue
        for part in range(PARTS):
            upper_part = upper_points[:, part].tolist()
            lower_part = lower_points[:, part].tolist()
            found = test_difference(upper_part, lower_part, by, units=runs.units)
            findings[f"from {row} in part {part + 1} of {PARTS}"] = found
    return _require_spent_budget(combine(findings, runs.missing), by_row, runs)


def _require_spent_budget(found: Finding, by_row: Mapping[str, Sequence[Run]], runs: RowRuns) -> Finding:
    """Return the finding, undecided where a run gave up early."""
    # A run that stops early has met fewer states and taken fewer steps, whatever its method does with a budget.
    training = runs.study.at(runs.cell.env).training
    early = []
    for row, row_runs in by_row.items():
        count = 0
        for run in row_runs:
            epochs = int(run["epoch"].iloc[-1])
            spent = training.spent_budget(epochs=epochs, generations=int(_generations(run)))
            count += spent / training.budget < MIN_SPENT
        if count:
            early.append(f"{count} of {len(row_runs)} runs of {row} gave up early")
    if not early or found.verdict == "not here":
        return found
    return found.as_undecided("; ".join(early))


def _generations(run: Run) -> float:
    return float(run["generations"].iloc[-1])


def _common_generations(*arms: Sequence[Run]) -> float:
    """Return the generations at the end of the shorter of two arms, so that both have spent the same."""
    return min(_generations(run) for runs in arms for run in runs)


def _states_after(run: Run, generations: float) -> float:
    """Return how many different states a run has met after so many generations, by straight lines between epochs."""
    # From 0 at the start: ``interp`` would otherwise hold the first epoch's total before its end.
    met = [0.0, *run["detail_state_met"]]
    return float(np.interp(generations, [0.0, *run["generations"]], met))


def _whole_epochs(run: Run) -> Run:
    """Return a run's whole epochs but the first: the last ones have the tasks that the rest of the budget paid for."""
    is_full = run["tasks"] == run["tasks"].max()
    is_after_first = run["epoch"] > run["epoch"].iloc[0]
    return run[is_full & is_after_first]


def _points_in_parts(run: Run, column: str, generations: float) -> list[float] | None:
    """Return a column's points in equal parts of the first ``generations``; None where whole epochs are too few.

    An epoch counts in a part with the generations that it has there. Half of a part must be covered.
    """
    ends = run["generations"].to_numpy(dtype=np.float64)
    starts = np.concatenate(([0.0], ends[:-1]))
    is_whole = run["epoch"].isin(_whole_epochs(run)["epoch"]).to_numpy()
    values = run[column].to_numpy(dtype=np.float64)

    width = generations / PARTS
    points = []
    for part in range(PARTS):
        overlap_ends = np.minimum(ends, (part + 1) * width)
        overlap_starts = np.maximum(starts, part * width)
        weights = np.clip(overlap_ends - overlap_starts, 0.0, None) * is_whole
        if weights.sum() < width / 2:
            return None
        points.append(100.0 * float(np.average(values, weights=weights)))
    return points


def test_course(
    runs: RowRuns,
    evidence: Evidence,
    row: str,
    column: str,
    start: float,
    stop: float,
    change_within: float | None = None,
    at_least: float | None = None,
    spearman_below: float | None = None,
) -> Finding:
    """Decide by how a column of ``metrics`` moves between two shares of training; every bound that is given must hold.

    Args:
        runs: where the row is.
        evidence: the study's results.
        row: the row.
        column: of ``metrics``.
        start: share of the generations at which the course begins.
        stop: share at which it ends.
        change_within: greatest difference between two of its values.
        at_least: bound on its least value.
        spearman_below: bound on its rank correlation with time: close to -1 it falls steadily.

    Returns:
        The finding on the smoothed course of each seed; ``measured`` is the mean of the values at which they end.
    """
    # Smoothed over three epochs, since an epoch's tasks differ in difficulty from the next one's.
    courses = [_smoothed_course(run, column, start, stop) for run in runs.select(evidence.metrics)[row]]
    if any(len(course.dropna()) < MIN_EPOCHS for course in courses):
        return require_min_seeds(TOO_COARSE, len(courses))

    findings: dict[str, Finding] = {}
    if change_within is not None:
        ranges = [float(np.ptp(course)) for course in courses]
        findings["its range"] = test_mean(ranges, change_within, below=True)
    if at_least is not None:
        findings["its least value"] = test_mean([float(course.min()) for course in courses], at_least)
    if spearman_below is not None:
        correlations = [_correlation_with_time(course) for course in courses]
        findings["its rank correlation with time"] = test_mean(correlations, spearman_below, below=True)

    last = mean_interval([float(course.iloc[-1]) for course in courses])
    first = mean([float(course.iloc[0]) for course in courses])
    words = f"from {first:.2f} to {last.estimate:.2f}, as a mean of the seeds"
    # The verdict is on the course; the number that the paper prints is where it ends.
    found = combine(findings).with_detail(words)
    found = replace(found, measured=last.estimate, low=last.low, high=last.high)
    return require_min_seeds(found, len(courses))


def _smoothed_course(run: Run, column: str, start: float, stop: float) -> "pd.Series[float]":
    """Return a column of a run's whole epochs between two shares of training, over three epochs each."""
    # Before the part is cut out, so that the epochs at either side of it are in the means at its ends.
    whole = _whole_epochs(run)
    smooth = whole[column].rolling(3, center=True, min_periods=2).mean()
    share = (run["generations"] / _generations(run))[whole.index]
    return smooth[(share >= start) & (share <= stop)]


def _correlation_with_time(course: "pd.Series[float]") -> float:
    """Return Spearman's correlation with time; 0 where the course does not move."""
    # Spearman, since a steady fall need not be a straight line.
    if not np.ptp(course):
        return 0.0
    return float(course.rank().corr(pd.Series(range(len(course)), course.index)))


def test_order_of_task_types(
    runs: RowRuns, evidence: Evidence, row: str, types: Sequence[str], shares: Sequence[float]
) -> Finding:
    """Decide by the steps of the mean score from one task type to the next, at these shares of the epochs.

    Means are over the quarter of training before each share.
    """
    # ``types`` come from the easiest to the hardest, and scores are the higher the harder a state is.
    row_runs = runs.select(evidence.task_types)[row]
    pairs = list(itertools.pairwise(types))
    steps: dict[str, list[float]] = {f"{upper} above {lower}": [] for lower, upper in pairs}
    for run in row_runs:
        last_epoch = run["epoch"].max()
        run_steps: list[list[float]] = [[] for _ in pairs]
        for share in shares:
            # ``max(1, …)``: never the first epoch, see ``MIN_EPOCHS``.
            begin = max(1, (share - 0.25) * last_epoch)
            part = run[(run["epoch"] <= share * last_epoch) & (run["epoch"] > begin)]
            means = part.groupby("task_type")["state_score_unique"].mean()
            if part["epoch"].nunique() < MIN_EPOCHS or not set(types) <= set(means.index):
                return require_min_seeds(TOO_COARSE, len(row_runs))
            for values, (lower, upper) in zip(run_steps, pairs, strict=True):
                values.append(float(means[upper] - means[lower]))
        for name, values in zip(steps, run_steps, strict=True):
            steps[name].append(mean(values))
    found = combine({name: test_mean(values) for name, values in steps.items()})
    return require_min_seeds(found, len(row_runs))


def correlate_samples_with_failure(runs: RowRuns, evidence: Evidence, row: str) -> Finding:
    """Decide by each seed's correlation, over task types, of the mean n(s) with the share of failed paths."""
    correlations = []
    for run in runs.select(evidence.task_types)[row]:
        columns = [name for name in run.columns if name.startswith("n_")]
        sums = run.groupby("task_type")[[*columns, "successes", "completed_paths"]].sum()
        sums = sums[sums["completed_paths"] > 0]
        # The column ``n_8`` counts the states in which eight samples were drawn.
        samples = np.array([float(name.removeprefix("n_")) for name in columns])
        mean_samples = sums[columns] @ samples / sums[columns].sum(axis=1)
        failed = 1.0 - sums["successes"] / sums["completed_paths"]
        # A correlation needs three points that are not all alike.
        if len(sums) < MIN_EPOCHS or np.ptp(mean_samples) == 0 or np.ptp(failed) == 0:
            return Finding("undecided", detail="too few task types, or all alike")
        correlations.append(float(np.corrcoef(mean_samples, failed)[0, 1]))
    return test_mean(correlations).with_detail("correlation over task types")


def rollouts_ratio_in_paper(paper: PaperNumbers, upper: str, lower: str) -> float:
    """Return the ratio of rollouts in the paper's efficiency table; NaN where a row is not in it."""
    return _least_ratio(paper, upper, [lower], per_rollout=False, column="paper_rollouts")


def states_ratio_in_paper(
    paper: PaperNumbers, upper: str, lower: Sequence[str], per_rollout: bool
) -> float:
    """Return the least ratio of states in the paper's efficiency table; NaN where rows are not in it."""
    return _least_ratio(paper, upper, lower, per_rollout, column="paper_states")


def _least_ratio(
    paper: PaperNumbers, upper: str, lower: Sequence[str], per_rollout: bool, column: str
) -> float:
    # The least, as the claim is on all of ``lower`` and is as strong as its weakest pair.
    values = {}
    for row in (upper, *lower):
        numbers = paper.efficiency.get((DETAILED_ENVIRONMENT, row))
        if numbers:
            values[row] = numbers[column] / (numbers["paper_rollouts"] if per_rollout else 1)
    if upper not in values:
        return math.nan
    return min((values[upper] / values[row] for row in lower if row in values), default=math.nan)
