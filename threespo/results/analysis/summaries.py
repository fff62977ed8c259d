"""Success and scores of a study's methods with their intervals, from its episodes."""

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from threespo.envs.registry import presentation
from threespo.errors import InputError
from threespo.results.analysis.statistics import (
    FAILED_RUN,
    Array,
    Interval,
    Units,
    cluster_interval,
    difference_interval,
    difference_to_policy,
    mean_interval,
    task_error,
    unit_means,
)
from threespo.study.confirmatory import MIN_SEEDS

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Summary:
    """Success or score in percent: its mean and what it varies with."""

    mean: float
    std: float
    """Standard deviation (n - 1) over training seeds of each seed's mean; NaN with one seed."""
    evaluation_std: float
    """Standard deviation (n - 1) over evaluation seeds, averaged over training seeds; NaN with one evaluation seed."""
    low: float
    """Lower end of the 95 % interval: Student's t over training seeds (or the bases that they share), with no less error
    than that of the tasks; with one seed, which is a single policy, over clusters of its tasks. NaN where there are fewer
    than ``MIN_SEEDS`` of them. Ends are cut at 0 and 100."""
    high: float


def summarize(success: Array, clusters: Sequence[Hashable], units: Units = None) -> Summary:
    """Return mean, spreads and interval of one method's success or score.

    Args:
        success: success or score in 0 to 1, (training seeds, evaluation seeds, games).
        clusters: of each game, see :func:`cluster_interval`.
        units: of each training seed, what it shares with other seeds, which are averaged for the interval.
    """
    percent = 100.0 * success.astype(np.float64)
    seed_means = percent.mean(axis=(1, 2))

    # Evaluation seeds replay the same weights on the same games: they are averaged, and are no independent runs.
    by_game = percent.mean(axis=(0, 1))
    by_unit = seed_means if units is None else unit_means(seed_means, units)
    interval = mean_interval(by_unit.tolist(), least_error=task_error(by_game, clusters))
    if len(seed_means) == 1:
        interval = cluster_interval(by_game, clusters)

    spreads = [_sample_std(evaluations) for evaluations in percent.mean(axis=2)]
    return Summary(
        mean=float(seed_means.mean()),
        std=_sample_std(seed_means),
        evaluation_std=float(np.mean(spreads)),
        # t is symmetric, so near 0 or 100 an end may lie outside of what a percentage can be.
        low=float(np.clip(interval.low, 0.0, 100.0)),
        high=float(np.clip(interval.high, 0.0, 100.0)),
    )


def _sample_std(values: Array) -> float:
    return float(values.std(ddof=1)) if len(values) > 1 else math.nan


def interval_unit(seeds: int) -> str:
    """Return what the interval of :func:`summarize` is over, for so many training seeds; "" if there is none."""
    if seeds == 1:
        return "clusters of tasks"
    return "training seeds" if seeds >= MIN_SEEDS else ""


def episode_array(group: "pd.DataFrame", names: dict[str, str], column: str = "success") -> Array:
    """Return a column of the episodes as (training seeds, evaluation seeds, games).

    Raises:
        InputError: if some seed did not play every game.
    """
    by_game = group.pivot_table(
        index=["training_seed", "evaluation_seed"], columns="task_id", values=column, aggfunc="first"
    )
    training_seeds = group["training_seed"].nunique()
    evaluation_seeds = group["evaluation_seed"].nunique()

    # A missing episode would be NaN, and a seed without rows would shift all that come after it.
    if by_game.isna().any().any() or len(by_game) != training_seeds * evaluation_seeds:
        raise InputError(
            f"evaluations of {'/'.join(names.values())} are incomplete: not every seed played every game. "
            "Delete its evaluation.parquet files and run the workflow again."
        )
    values = by_game.to_numpy(dtype=np.float64)
    return np.asarray(values.reshape(training_seeds, evaluation_seeds, -1))


def percent_by_game(played: "pd.DataFrame", measure: str) -> "pd.DataFrame":
    """Return one method's success or score in percent, each the mean over evaluation seeds.

    Args:
        played: the episodes of one environment, policy, split and method, with columns ``training_seed``, ``task_id`` and
            ``measure``.
        measure: ``success`` or ``score``, in 0 to 1.

    Returns:
        A row for each training seed, a column for each task.
    """
    return 100.0 * played.pivot_table(
        index="training_seed", columns="task_id", values=measure, aggfunc="mean"
    )


def percent_by_seed(played: "pd.DataFrame", measure: str) -> list[float]:
    """Return one method's success or score in percent of each training seed: the means of :func:`percent_by_game`."""
    return [float(value) for value in percent_by_game(played, measure).mean(axis=1)]


def task_clusters(env: str, tasks: Sequence[Hashable]) -> list[str]:
    """Return of each task of an environment the name of what it shares with others."""
    cluster_of_task = presentation(env).cluster
    return [cluster_of_task(str(task)) for task in tasks]


def method_difference(
    played: "pd.DataFrame",
    pair: tuple[str, str],
    measure: str,
    trained: Collection[str],
    null: float = 0.0,
    *,
    units: Mapping[int, int] | None = None,
    floor: float = FAILED_RUN,
) -> Interval:
    """Return how many points one method is above another.

    Args:
        played: a row per episode of one environment, policy and split: ``env``, ``method``, ``training_seed``,
            ``evaluation_seed``, ``task_id``, and ``measure`` in 0 to 1. Other methods may be among them.
        pair: the upper and the lower method.
        measure: ``success`` or ``score``.
        trained: the study's methods; all others are single policies, without training seeds.
        null: the difference in points that ``p`` tests.
        units: of each training seed, what it shares with that seed of other methods (``study.matrix.units_of_seeds``);
            None if seeds of two methods are independent.
        floor: percent at which failed runs of a trained method end.

    Returns:
        The difference of the means in percentage points, positive if the first is above: over training seeds, units that
        they share, clusters of tasks, or seeds and clusters.
    """
    games = [percent_by_game(played[played["method"] == name], measure) for name in pair]
    # A method that was not played here is no arm of no success.
    if any(frame.empty for frame in games):
        return Interval(math.nan)
    clusters = task_clusters(str(played["env"].iloc[0]), list(games[0].columns))
    # Only what is trained fails.
    floors = [floor if name in trained else math.inf for name in pair]
    has_runs = [name in trained or len(frame) > 1 for name, frame in zip(pair, games, strict=True)]

    shared = None
    if units is not None and all(has_runs):
        games, shared = _pair_seeds(games, [name in trained for name in pair], units)

    upper, lower = (frame.to_numpy(dtype=np.float64) for frame in games)
    # Seeds of two methods are independent runs, so they are not paired even where they have the same number,
    # unless they share what varies.
    if all(has_runs):
        return difference_interval(
            upper.mean(axis=1).tolist(),
            lower.mean(axis=1).tolist(),
            null,
            floor=floors,
            least_error=task_error(upper.mean(axis=0) - lower.mean(axis=0), clusters),
            units=shared,
        )

    # A single policy has one row of games. Its games are paired with those of the other: they are the same.
    if pair[0] in trained:
        return difference_to_policy(upper, lower[0], clusters, null, floor=floor)
    if pair[1] in trained:
        # The function takes the trained method first: the sign of all numbers but p is turned back.
        found = difference_to_policy(lower, upper[0], clusters, -null, floor=floor)
        return Interval(-found.estimate, -found.high, -found.low, found.p)
    return cluster_interval(upper.mean(axis=0) - lower.mean(axis=0), clusters, null)


def _pair_seeds(
    games: "Sequence[pd.DataFrame]", are_trained: Sequence[bool], units: Mapping[int, int]
) -> "tuple[list[pd.DataFrame], list[int]]":
    """Return the rows of both methods seed by seed, as far as both have them, and the unit of each."""
    # Several bases are rows whose seed is the number of the base, which is the unit: one row for each seed on it.
    row_of_seed = [
        {seed: seed if is_trained else units[seed] for seed in units} for is_trained in are_trained
    ]
    seeds = [
        seed
        for seed in units
        if all(rows[seed] in frame.index for rows, frame in zip(row_of_seed, games, strict=True))
    ]
    paired = [
        frame.loc[[rows[seed] for seed in seeds]] for rows, frame in zip(row_of_seed, games, strict=True)
    ]
    return paired, [units[seed] for seed in seeds]
