"""Success during training: against generations, and against time."""

from typing import Any

import numpy as np
import pandas as pd

from threespo.results.collect import RUN_COLUMNS

CURVE_POINTS = 60
"""Points of a mean training curve."""

ROW = ["env", "policy", "method"]

WALL_TIME_COLUMNS = (
    *ROW, "seeds", "minutes", "generations", "generations_per_minute", "at_minutes", "success_at", "success_end",
)  # fmt: skip


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
            {**names, "generations": at, "mean": column.mean(), "lowest": column.min(), "highest": column.max()}
            for at, column in zip(grid, values.T, strict=True)
        ]
    return pd.DataFrame(rows)


def wall_time(metrics: pd.DataFrame, timing: pd.DataFrame) -> pd.DataFrame:
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
    # Time since the beginning of the run, at the end of each epoch.
    trained = timing.loc[timing["stage"] == "train", [*RUN_COLUMNS, "epoch", "seconds"]]
    clock = trained.sort_values("epoch").assign(minutes=trained["seconds"] / 60)
    clock["minutes"] = clock.groupby(RUN_COLUMNS)["minutes"].cumsum()
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
