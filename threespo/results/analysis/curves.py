"""Learning curves on unseen games, and how soon they reach a level; success of the paths that training itself took."""

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
    from threespo.paths import Run
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
    grouped = episodes.rename(columns={"epoch": "epochs"}).groupby(
        [*RUN_COLUMNS, "split", "snapshot"], sort=True
    )
    totals = grouped[["generations", "epochs", "optimizer_steps"]].first()
    means = totals.assign(
        games=grouped["task_id"].nunique(), success=grouped["success"].mean()
    ).reset_index()
    of_run = dict(iter(means.groupby(RUN_COLUMNS)))

    frames = []
    for run in learning_runs(study):
        if run.method in REFERENCE_METHODS:
            continue
        here = study.at(run.env)
        training = here.training
        entry, start = here.methods[run.method], of_run[(run.env, run.policy, "base", 0)]
        points = pd.concat(
            [start.assign(method=run.method, training_seed=run.seed), of_run[tuple(_names(run))]]
        )
        frames.append(
            points.assign(
                paper_row=entry.paper_row or "",
                preset=full_options(entry.method, entry.options).get("preset", ""),
                share=[
                    training.spent_budget(epochs=epochs, generations=generations) / training.budget
                    for epochs, generations in zip(points["epochs"], points["generations"], strict=True)
                ],
            )
        )
    return pd.concat(frames, ignore_index=True)[list(LEARNING_COLUMNS)]


def learning_time_table(points: pd.DataFrame, timing: pd.DataFrame) -> pd.DataFrame:
    """Return the seconds of training until each row of ``learning_table``, 0 for the untrained base: ``TIME_COLUMNS``.

    Args:
        points: as ``learning_table`` returns it.
        timing: as ``collect.timing`` returns it.
    """
    clock = _clock(timing).rename(columns={"epoch": "epochs"})
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
        seeds) and unit: ``TIME_TO_COLUMNS``. ``first_reached`` of ``seeds`` have reached it. ``mean`` is their geometric mean,
        ``speedup`` GRPO's divided by it, ``low`` and ``high`` the 95 % interval of that over seeds; all of them NaN
        where a seed of the method (for the last three, or of GRPO) has never reached the level, or begins above it.
    """
    rows: list[dict[str, Any]] = []
    timed = points.merge(seconds, on=[*RUN_COLUMNS, "snapshot"])
    for (env, policy), group in timed.groupby(["env", "policy"], sort=False):
        methods = {method: _seeds(rows_of) for method, rows_of in group.groupby("method", sort=False)}
        named = group.loc[group["paper_row"] == "grpo", "method"]
        grpo = methods[named.iloc[0]] if len(named) else []
        levels = dict(LEVELS)
        if grpo:
            levels["GRPO's end"] = float(np.mean([seed["success"].iloc[-1] for seed in grpo]))

        for method, seeds in methods.items():
            for goal, level in levels.items():
                for unit in UNITS:
                    ours, theirs = (
                        [first_reached(seed, level, unit) for seed in runs] for runs in (seeds, grpo)
                    )
                    mean = math.exp(np.mean(np.log(ours))) if _all(ours) else math.nan
                    compared = grpo and seeds is not grpo and _all(ours + theirs)
                    found = ratio_interval(theirs, ours) if compared else Interval(math.nan)
                    names = (
                        env,
                        policy,
                        method,
                        goal,
                        level,
                        unit,
                        len(seeds),
                        sum(map(math.isfinite, ours)),
                    )
                    values = (*names, mean, found.estimate, found.low, found.high)
                    rows.append(dict(zip(TIME_TO_COLUMNS, values, strict=True)))
    return pd.DataFrame(rows, columns=list(TIME_TO_COLUMNS))


def time_to_rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return ``time_to_table`` for readers: a row for each method and level, a column for each unit, the ratio in generations."""
    rows = []
    for (env, policy, goal, method), group in table.groupby(
        ["env", "policy", "goal", "method"], sort=False
    ):
        units = group.set_index("unit")
        first = units.loc["generations"]
        names = {"env": env, "policy": policy, "goal": goal, "level": first["level"], "method": method}
        reached = {"reached": f"{first['reached']} of {first['seeds']}"}
        speed = {name: first[name] for name in ("speedup", "low", "high")}
        rows.append({**names, **reached, **{unit: units.loc[unit, "mean"] for unit in UNITS}, **speed})
    return rows


def first_reached(seed: pd.DataFrame, level: float, unit: str = "generations") -> float:
    """Return where a curve first has ``level``, in a unit, by straight lines between snapshots; infinity if nowhere."""
    at, success = seed[unit].to_numpy(dtype=np.float64), seed["success"].to_numpy(dtype=np.float64)
    above = np.flatnonzero(success >= level)
    if not len(above):
        return math.inf
    after = int(above[0])
    if after == 0:
        return float(at[0])
    return float(np.interp(level, success[after - 1 : after + 1], at[after - 1 : after + 1]))


def _all(values: Sequence[float]) -> bool:
    """Return whether all seeds have reached a level, none of them before training: only then there are logarithms of all."""
    return all(0 < value < math.inf for value in values)


def _seeds(group: pd.DataFrame) -> list[pd.DataFrame]:
    return [seed.sort_values("snapshot") for _, seed in group.groupby("training_seed", sort=True)]


def _names(run: "Run") -> list[Any]:
    return [run.env, run.policy, run.method, run.seed]


def _clock(timing: pd.DataFrame) -> pd.DataFrame:
    """Return the seconds since the beginning of a run at the end of each epoch."""
    trained = timing.loc[timing["stage"] == "train", [*RUN_COLUMNS, "epoch", "seconds"]].sort_values(
        "epoch"
    )
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
        runs = _runs(group)
        if not runs:
            continue

        # Only where every seed has a value: a mean over changing seeds would jump.
        first = max(run["generations"].iloc[0] for run in runs)
        last = min(run["generations"].iloc[-1] for run in runs)
        grid = np.linspace(first, max(first, last), CURVE_POINTS)
        values = np.stack([np.interp(grid, run["generations"], run["train_success"]) for run in runs])

        names = {"env": env, "policy": policy, "method": method, "seeds": len(runs)}
        rows += [
            {
                **names,
                "generations": at,
                "mean": column.mean(),
                "lowest": column.min(),
                "highest": column.max(),
            }
            for at, column in zip(grid, values.T, strict=True)
        ]
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
    clock = _clock(timing)
    clock["minutes"] = clock["seconds"] / 60
    timed = metrics.merge(clock[[*RUN_COLUMNS, "epoch", "minutes"]], on=[*RUN_COLUMNS, "epoch"])

    ends = timed.groupby(RUN_COLUMNS, sort=False).last()
    means = ends.groupby(ROW, sort=False)[["minutes", "generations"]].mean()
    first = means.groupby(["env", "policy"])["minutes"].min()

    rows = []
    for (env, policy, method), group in timed.groupby(ROW, sort=False):
        minutes, generations = means.loc[(env, policy, method)]
        at, runs = first.loc[(env, policy)], _runs(group)
        # ``interp`` holds the last value after a run's end. Before its first epoch there is none: NaN, also of the mean.
        read = [np.interp(at, run["minutes"], run["train_success"], left=np.nan) for run in runs]
        last = [run["train_success"].iloc[-1] for run in runs]

        values = (
            env, policy, method, group["training_seed"].nunique(), minutes, generations, generations / minutes, at,
            float(np.mean(read)) if read else np.nan, float(np.mean(last)) if last else np.nan,
        )  # fmt: skip
        rows.append(dict(zip(WALL_TIME_COLUMNS, values, strict=True)))
    return pd.DataFrame(rows, columns=list(WALL_TIME_COLUMNS))


def _runs(group: pd.DataFrame) -> list[pd.DataFrame]:
    """Return each seed's epochs that have a success rate; an epoch without a completed path has none."""
    runs = [run.dropna(subset="train_success") for _, run in group.groupby("training_seed", sort=True)]
    return [run for run in runs if len(run)]
