"""Learning curves on unseen games, and how soon they reach a level; success of the paths that training itself took."""

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from threespo.methods.registry import full_options
from threespo.paths import REFERENCE_METHODS
from threespo.results.analysis.statistics import Interval, ratio_interval
from threespo.results.collect import RUN_COLUMNS
from threespo.study.matrix import learning_runs

if TYPE_CHECKING:
    from threespo.study.config import Study

CURVE_POINTS = 60
"""Points of a mean training curve."""

ROW = ["env", "policy", "method"]

WALL_TIME_COLUMNS = (
    *ROW, "seeds", "minutes", "generations", "generations_per_minute", "at_minutes", "success_at", "success_end",
)  # fmt: skip


LEARNING_COLUMNS = (
    *RUN_COLUMNS, "paper_row", "preset", "split", "snapshot", "share", "generations", "epochs", "optimizer_steps", "games",
    "success",
)  # fmt: skip

TIME_COLUMNS = (*RUN_COLUMNS, "snapshot", "seconds")

TIME_TO_COLUMNS = (*ROW, "goal", "level", "unit", "seeds", "reached", "mean", "speedup", "low", "high")

UNITS = ("generations", "epochs", "optimizer_steps", "seconds")
"""What learning curves are read against."""

LEVELS = {"60 %": 0.6, "80 %": 0.8}
"""Success that ``time_to_table`` asks for, besides GRPO's final one."""


def learning_table(study: "Study", episodes: pd.DataFrame) -> pd.DataFrame:
    """Return the success of every run's snapshots on the games of the learning curves (figures 3a and 3d).

    Args:
        study: gives budgets, and the order and the names of the rows.
        episodes: a row per episode of a snapshot, as ``collect.snapshots`` returns it.

    Returns:
        Of each run a row per snapshot, before them the untrained base as number 0; columns ``LEARNING_COLUMNS``. ``share``
        of the budget and ``success`` are in 0 to 1; ``games`` are the same for all rows of an environment. ``paper_row``
        is the method's name in the paper's tables, ``preset`` that of 3SPO's options; empty where there is none.
    """
    if episodes.empty:
        return pd.DataFrame(columns=list(LEARNING_COLUMNS))

    snapshots = episodes.rename(columns={"epoch": "epochs"}).groupby(
        [*RUN_COLUMNS, "split", "snapshot"], sort=True
    )
    totals = snapshots[["generations", "epochs", "optimizer_steps"]].first()
    means = totals.assign(
        games=snapshots["task_id"].nunique(), success=snapshots["success"].mean()
    ).reset_index()
    points_of_run = dict(iter(means.groupby(RUN_COLUMNS)))

    frames = []
    for run in learning_runs(study):
        if run.method in REFERENCE_METHODS:
            continue
        section = study.at(run.env)
        training = section.training
        entry = section.methods[run.method]

        # A base is evaluated once, for all runs that start from it.
        base = study.policies[run.policy].base_of_seed(run.seed)
        start = points_of_run[(run.env, run.policy, "base", base)]
        start = start.assign(method=run.method, training_seed=run.seed)
        points = pd.concat([start, points_of_run[(run.env, run.policy, run.method, run.seed)]])
        shares = [
            training.spent_budget(epochs=epochs, generations=generations) / training.budget
            for epochs, generations in zip(points["epochs"], points["generations"], strict=True)
        ]
        preset = full_options(entry.method, entry.options).get("preset", "")
        # Options that a study does not name have defaults, of which the preset is one.
        frames.append(points.assign(paper_row=entry.paper_row or "", preset=preset, share=shares))
    return pd.concat(frames, ignore_index=True)[list(LEARNING_COLUMNS)]


def learning_time_table(points: pd.DataFrame, timing: pd.DataFrame) -> pd.DataFrame:
    """Return the seconds of training until each row of ``learning``, 0 for the untrained base: ``TIME_COLUMNS``.

    Args:
        points: as ``learning_table`` returns it.
        timing: as ``collect.timing`` returns it.
    """
    # A snapshot is written at the end of an epoch, so its ``epochs`` are the number of the epoch that ended.
    clock = _seconds_at_epoch_ends(timing).rename(columns={"epoch": "epochs"})
    timed = points[[*RUN_COLUMNS, "snapshot", "epochs"]].merge(
        clock, on=[*RUN_COLUMNS, "epochs"], how="left"
    )
    seconds = timed["seconds"].where(timed["epochs"] > 0, 0.0)
    return timed.assign(seconds=seconds.astype(np.float64))[list(TIME_COLUMNS)]


def time_to_table(points: pd.DataFrame, seconds: pd.DataFrame) -> pd.DataFrame:
    """Return how soon each method reaches a level of success on unseen games, in each of ``UNITS``.

    A seed's snapshots are joined by straight lines; it reaches a level where they first cross it.

    Args:
        points: as ``learning_table`` returns it.
        seconds: as ``learning_time_table`` returns it.

    Returns:
        A row for each environment, policy, method, level (those of ``LEVELS``, and GRPO's final success: the mean over its
        seeds) and unit: ``TIME_TO_COLUMNS``. ``reached`` of ``seeds`` have reached it. ``mean`` is their geometric mean,
        ``speedup`` GRPO's divided by it, ``low`` and ``high`` the 95 % interval of that over seeds; all of them NaN
        where a seed of the method (for the last three, or of GRPO) has never reached the level, or begins above it.
    """
    rows: list[dict[str, Any]] = []
    timed = points.merge(seconds, on=[*RUN_COLUMNS, "snapshot"])
    for (env, policy), group in timed.groupby(["env", "policy"], sort=False):
        methods = {method: _curves_by_seed(runs) for method, runs in group.groupby("method", sort=False)}
        grpo_names = group.loc[group["paper_row"] == "grpo", "method"]
        grpo = methods[grpo_names.iloc[0]] if len(grpo_names) else []
        levels = dict(LEVELS)
        if grpo:
            levels["GRPO's end"] = float(np.mean([curve["success"].iloc[-1] for curve in grpo]))

        cases = itertools.product(methods.items(), levels.items(), UNITS)
        for (method, curves), (goal, level), unit in cases:
            names = {"env": env, "policy": policy, "method": method, "goal": goal, "level": level}
            # GRPO has no speed-up on itself: a ratio of 1 with an interval would look like a result.
            reference = [] if curves is grpo else grpo
            rows.append({**names, "unit": unit, **_time_to_level(curves, reference, level, unit)})
    return pd.DataFrame(rows, columns=list(TIME_TO_COLUMNS))


def _time_to_level(
    curves: list[pd.DataFrame], reference: list[pd.DataFrame], level: float, unit: str
) -> dict[str, float]:
    """Return when a method's seeds reach a level, and how much sooner than those of the reference, if there is one."""
    times = [first_reached(curve, level, unit) for curve in curves]
    reference_times = [first_reached(curve, level, unit) for curve in reference]

    # A mean over the seeds that arrive would favour a method whose slow seeds never do.
    mean = math.nan
    speedup = Interval(math.nan)
    if _have_logarithms(times):
        mean = math.exp(np.mean(np.log(times)))
    if reference and _have_logarithms(times + reference_times):
        speedup = ratio_interval(reference_times, times)
    return {
        "seeds": len(curves),
        "reached": sum(map(math.isfinite, times)),
        "mean": mean,
        "speedup": speedup.estimate,
        "low": speedup.low,
        "high": speedup.high,
    }


def time_to_rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return ``time_to`` for readers: a row for each method and level, a column for each unit, the ratio in generations."""
    rows = []
    for (env, policy, goal, method), group in table.groupby(
        ["env", "policy", "goal", "method"], sort=False
    ):
        by_unit = group.set_index("unit")
        generations = by_unit.loc["generations"]
        rows.append(
            {
                "env": env,
                "policy": policy,
                "goal": goal,
                "level": generations["level"],
                "method": method,
                "reached": f"{generations['reached']} of {generations['seeds']}",
                **{unit: by_unit.loc[unit, "mean"] for unit in UNITS},
                **{name: generations[name] for name in ("speedup", "low", "high")},
            }
        )
    return rows


def first_reached(curve: pd.DataFrame, level: float, unit: str = "generations") -> float:
    """Return where a curve first has ``level``, in a unit, by straight lines between snapshots; infinity if nowhere."""
    positions = curve[unit].to_numpy(dtype=np.float64)
    success = curve["success"].to_numpy(dtype=np.float64)
    above = np.flatnonzero(success >= level)
    if not len(above):
        return math.inf

    after = int(above[0])
    if after == 0:
        return float(positions[0])
    # Success rises over this step, as ``interp`` needs it: the snapshot before was below the level.
    step = slice(after - 1, after + 1)
    return float(np.interp(level, success[step], positions[step]))


def _have_logarithms(times: Sequence[float]) -> bool:
    """Return whether all seeds have reached a level, none of them before training."""
    return all(0 < time < math.inf for time in times)


def _curves_by_seed(group: pd.DataFrame) -> list[pd.DataFrame]:
    return [curve.sort_values("snapshot") for _, curve in group.groupby("training_seed", sort=True)]


def _seconds_at_epoch_ends(timing: pd.DataFrame) -> pd.DataFrame:
    """Return the seconds since the beginning of a run at the end of each epoch."""
    trained = timing.loc[timing["stage"] == "train", [*RUN_COLUMNS, "epoch", "seconds"]]
    trained = trained.sort_values("epoch")
    return trained.assign(seconds=trained.groupby(RUN_COLUMNS)["seconds"].cumsum())


def training_curves(metrics: pd.DataFrame) -> pd.DataFrame:
    """Return each method's training success against generations: mean, least and greatest over training seeds.

    Each seed's epochs are joined by straight lines and read at the same ``CURVE_POINTS`` generations, from where all seeds
    have finished an epoch to where the first one ends.

    Args:
        metrics: a row per epoch of every training run, as ``collect.metrics`` returns it.

    Returns:
        Columns ``env``, ``policy``, ``method``, ``seeds``, ``generations``, and success in 0 to 1: ``mean``, ``lowest``,
        ``highest``.
    """
    rows: list[dict[str, Any]] = []
    for (env, policy, method), group in metrics.groupby(ROW, sort=True):
        runs = _epochs_with_success(group)
        if not runs:
            continue

        # Only where every seed has a value: a mean over changing seeds would jump.
        first = max(run["generations"].iloc[0] for run in runs)
        last = min(run["generations"].iloc[-1] for run in runs)
        grid = np.linspace(first, max(first, last), CURVE_POINTS)
        values = np.stack([np.interp(grid, run["generations"], run["train_success"]) for run in runs])

        for generations, success in zip(grid, values.T, strict=True):
            rows.append(
                {
                    "env": env,
                    "policy": policy,
                    "method": method,
                    "seeds": len(runs),
                    "generations": generations,
                    "mean": success.mean(),
                    "lowest": success.min(),
                    "highest": success.max(),
                }
            )
    return pd.DataFrame(rows)


def wall_time_table(metrics: pd.DataFrame, timing: pd.DataFrame) -> pd.DataFrame:
    """Return how long each method's runs took, and each one's training success when the fastest method was done.

    A seed's epochs are joined by straight lines over the time at which they ended. A seed that ended before is read at its
    end.

    Args:
        metrics: a row per epoch of every training run, as ``collect.metrics`` returns it.
        timing: as ``collect.timing`` returns it; rows of ``stage`` ``train`` are read, ``seconds`` for each epoch.

    Returns:
        A row for each environment, policy and method in the order of ``metrics``, with means over training seeds.
        ``at_minutes`` is the shortest of the mean ``minutes`` in the same environment and with the same policy,
        ``success_at`` the success at that time, ``success_end`` that of the last epoch, both in 0 to 1. ``success_at`` is
        NaN where some seed had not finished an epoch by then.
    """
    clock = _seconds_at_epoch_ends(timing)
    clock["minutes"] = clock["seconds"] / 60
    timed = metrics.merge(clock[[*RUN_COLUMNS, "epoch", "minutes"]], on=[*RUN_COLUMNS, "epoch"])

    ends = timed.groupby(RUN_COLUMNS, sort=False).last()
    means = ends.groupby(ROW, sort=False)[["minutes", "generations"]].mean()
    shortest = means.groupby(["env", "policy"])["minutes"].min()

    rows = []
    for (env, policy, method), group in timed.groupby(ROW, sort=False):
        minutes, generations = means.loc[(env, policy, method)]
        at_minutes = shortest.loc[(env, policy)]
        runs = _epochs_with_success(group)
        # ``interp`` holds the last value after a run's end. Before its first epoch there is none: NaN, also of the mean.
        success_at = [
            np.interp(at_minutes, run["minutes"], run["train_success"], left=np.nan) for run in runs
        ]
        success_end = [run["train_success"].iloc[-1] for run in runs]
        rows.append(
            {
                "env": env,
                "policy": policy,
                "method": method,
                "seeds": group["training_seed"].nunique(),
                "minutes": minutes,
                "generations": generations,
                "generations_per_minute": generations / minutes,
                "at_minutes": at_minutes,
                "success_at": float(np.mean(success_at)) if runs else np.nan,
                "success_end": float(np.mean(success_end)) if runs else np.nan,
            }
        )
    return pd.DataFrame(rows, columns=list(WALL_TIME_COLUMNS))


def _epochs_with_success(group: pd.DataFrame) -> list[pd.DataFrame]:
    """Return each seed's epochs that have a success rate; an epoch without a completed path has none."""
    runs = [run.dropna(subset="train_success") for _, run in group.groupby("training_seed", sort=True)]
    return [run for run in runs if len(run)]
