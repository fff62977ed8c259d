"""The report's tables: what its template shows, from the study's tables."""

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any

import pandas as pd

from threespo.envs.registry import presentation
from threespo.results.labels import label, titled
from threespo.results.tables import COSTS

if TYPE_CHECKING:
    from threespo.study.config import Study

TIME_PARTS = ("sampling", "update", "environment", "method", "logging")
"""What a training run's time is made of."""

CELL_NUMBERS = ("mean", "std", "evaluation_std", "low", "high")
"""What a cell of the main table shows of a measure, beside the paper's value."""


def describe_tasks(study: "Study") -> str:
    """Return what the tasks are, of every environment."""
    return "; ".join(presentation(env).describe(section) for env, section in study.environments.items())


def format_per_environment(study: "Study", values: dict[str, str]) -> str:
    """Return the value of every environment, named where they differ."""
    if len(set(values.values())) == 1:
        return next(iter(values.values()))
    return " and ".join(f"{values[env]} ({label(env)})" for env in study.environments)


def main_tables(study: "Study", main: pd.DataFrame) -> list[dict[str, Any]]:
    """Return a table for each environment and base policy: per method a cell for each split and measure.

    Args:
        study: the study, which gives the order of tables and columns.
        main: the table ``main``, whose rows are in the study's order.
    """
    return [
        _main_table(study, main[(main["env"] == env) & (main["policy"] == policy)], env, policy)
        for env in study.environments
        for policy in study.policies
    ]


def _main_table(study: "Study", main: pd.DataFrame, env: str, policy: str) -> dict[str, Any]:
    measures, splits = presentation(env).measures, study.at(env).evaluation.splits
    columns = [(split, measure) for split in splits for measure in measures]
    rows = []

    for method, group in main.groupby("method", sort=False):
        cells = {row["split"]: row for row in group.to_dict("records")}
        several = method in study.agents and study.agents[method].agent in ("retry", "reflexion")
        shown = [_cell(cells[split], measure, several) for split, measure in columns]
        # ``any``: one split's row, for what the template shows once per method.
        rows.append({"method": method, "cells": shown, "any": next(iter(cells.values()))})

    return {
        "env": env,
        "policy": policy,
        "name": titled(policy, env, study.environments),
        "stands_for": study.policies[policy].stands_for,
        "columns": [
            f"{label(split, env)}: {label(one, env)}" if len(measures) > 1 else label(split, env)
            for split, one in columns
        ],
        "rows": rows,
    }


def _cell(row: dict[Hashable, Any], measure: str, several: bool) -> dict[str, Any]:
    """Return one measure of a row; ``several`` says that success is that of any of several attempts."""
    prefix = "" if measure == "success" else f"{measure}_"
    return {
        **{name: row[prefix + name] for name in CELL_NUMBERS},
        "paper_mean": row[f"paper_{prefix}mean"],
        "paper_std": row[f"paper_{prefix}std"],
        "first_mean": row["first_mean"] if several and measure == "success" else None,
        "episodes": row["episodes"],
        "note": row["note"],
    }


def task_types(study: "Study", episodes: pd.DataFrame) -> list[dict[str, Any]]:
    """Return success by task type on the last split of each environment.

    Args:
        study: the study.
        episodes: the table ``episodes``, a row for each evaluated episode.

    Returns:
        For each environment ``env``, ``name``, ``types`` (name, number of tasks) and ``rows`` with ``policy``, ``method``
        and ``values`` in percent.
    """
    return [_task_types(study, episodes[episodes["env"] == env], env) for env in study.environments]


def _task_types(study: "Study", episodes: pd.DataFrame, env: str) -> dict[str, Any]:
    split = study.at(env).evaluation.splits[-1]
    played = episodes[episodes["split"] == split]
    wide = 100 * played.pivot_table(
        index=["policy", "method"], columns="task_type", values="success", aggfunc="mean"
    )
    games = played.groupby("task_type")["task_id"].nunique()

    # ``wide`` has the rows that were played; this is the order of the main table.
    rows = [
        {"policy": policy, "method": method, "values": wide.loc[policy, method].to_list()}
        for policy in study.policies
        for method in ("base", *study.agents, *study.methods, "strong")
        if (policy, method) in wide.index
    ]
    types = [(name, games[name]) for name in wide]
    return {
        "env": env,
        "name": titled(label(split, env), env, study.environments),
        "types": types,
        "rows": rows,
    }


def costs(metrics: pd.DataFrame, timing: pd.DataFrame) -> list[dict[str, Any]]:
    """Return what each method's runs spent, averaged over training seeds.

    Args:
        metrics: the table ``metrics``, a row per training epoch.
        timing: the table ``timing``, of which rows of ``stage`` ``train`` are read.

    Returns:
        For each environment, policy and method: the counts at the end, ``minutes`` of a run, ``shares`` of its time in
        percent (in the order of ``TIME_PARTS``), and the largest ``memory`` in MB.
    """
    rows = []
    spent = timing[timing["stage"] == "train"].groupby(["env", "policy", "method", "training_seed"])
    for (env, policy, method), group in metrics.groupby(["env", "policy", "method"], sort=False):
        runs = group.groupby("training_seed").last()
        times = [spent.get_group((env, policy, method, seed)) for seed in runs.index]
        seconds = [frame["seconds"].sum() for frame in times]

        rows.append(
            {
                **{"env": env, "policy": policy, "method": method},
                **{name: runs[name].mean() for name in ("epoch", *COSTS)},
                "shares": [_share(times, f"{name}_seconds") for name in TIME_PARTS],
                "minutes": sum(seconds) / len(seconds) / 60,
                "memory": max(frame["peak_memory_mb"].max() for frame in times),
            }
        )
    return rows


def _share(times: list[pd.DataFrame], column: str) -> float:
    return float(
        100
        * sum(frame[column].sum() for frame in times)
        / sum(frame["seconds"].sum() for frame in times)
    )


def tried_rates(tuning: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the learning rates that were tried by environment, policy and method; none where they are given by hand.

    Returns:
        ``env``, ``policy``, ``method`` and ``rates``, with ``learning_rate``, ``success`` (the mean over trials), ``runs``
        (of each trial) and ``chosen``.
    """
    names = ["env", "policy", "method"]
    groups: Iterable[tuple[Any, pd.DataFrame]] = tuning.groupby(names, sort=False)
    found = []
    for key, rows in groups:
        rates = rows.groupby("learning_rate", sort=False).agg(
            success=("success", "mean"), runs=("success", list), chosen=("chosen", "first")
        )
        found.append(
            {**dict(zip(names, key, strict=True)), "rates": rates.reset_index().to_dict("records")}
        )
    return found


def decision_tree_families(laboratory: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows on decision trees by family of trees, the best first."""
    return [
        {
            "name": name,
            "rows": rows.sort_values("mean", ascending=False, kind="stable").to_dict("records"),
        }
        for name, rows in laboratory.groupby("family", sort=False)
    ]


def stages(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return what each stage took: its jobs, their time together, and the most memory that one of them had."""
    return [
        {
            "stage": name,
            "jobs": len(jobs),
            "seconds": jobs["seconds"].sum(),
            "memory": jobs["peak_memory_mb"].max(),
        }
        for name, jobs in table.groupby("stage", sort=False)
    ]


def provenance(table: pd.DataFrame) -> dict[str, list[tuple[str, str]]]:
    """Return (name, value) pairs by section."""
    return {
        str(section): list(zip(group["name"], group["value"], strict=True))
        for section, group in table.groupby("section", sort=False)
    }
