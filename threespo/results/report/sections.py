"""The report's tables: what its template shows, from the study's tables."""

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import pandas as pd

from threespo.envs.registry import presentation
from threespo.results.collect import RUN_COLUMNS
from threespo.results.labels import label, titled
from threespo.results.tables import COSTS
from threespo.tables import select_rows

if TYPE_CHECKING:
    from threespo.study.config import Study

TIME_PARTS = ("sampling", "update", "environment", "method", "logging")
"""What a training run's time is made of."""

CELL_NUMBERS = ("mean", "std", "evaluation_std", "low", "high")
"""What a cell of the main table shows of a measure, besides the paper's value."""


def describe_tasks(study: "Study") -> str:
    """Return what the tasks are, of every environment."""
    descriptions = []
    for env, section in study.environments.items():
        descriptions.append(presentation(env).describe(section))
    return "; ".join(descriptions)


def format_per_environment(study: "Study", values: dict[str, str]) -> str:
    """Return the value of every environment, named where they differ."""
    if len(set(values.values())) == 1:
        return next(iter(values.values()))
    named_values = [f"{values[env]} ({label(env)})" for env in study.environments]
    return " and ".join(named_values)


def main_tables(study: "Study", main: pd.DataFrame) -> list[dict[str, Any]]:
    """Return a table for each environment and base policy: per method a cell for each split and measure."""
    tables = []
    for env in study.environments:
        for policy in study.policies:
            rows = select_rows(main, env=env, policy=policy)
            tables.append(_main_table(study, rows, env, policy))
    return tables


def _main_table(study: "Study", main: pd.DataFrame, env: str, policy: str) -> dict[str, Any]:
    measures = presentation(env).measures
    headings = []
    columns = []
    for split in study.at(env).evaluation.splits:
        for measure in measures:
            heading = label(split, env)
            # An environment with success only needs no name for it.
            if len(measures) > 1:
                heading = f"{heading}: {label(measure, env)}"
            headings.append(heading)
            columns.append((split, measure))

    rows = []
    for method, group in main.groupby("method", sort=False):
        by_split = {row["split"]: row for row in group.to_dict("records")}
        agent = study.agents.get(str(method))
        # These agents play a game again after a failure, so their success is not comparable with that of one attempt:
        # the success of the first attempt is shown as well.
        several_attempts = agent is not None and agent.agent in ("retry", "reflexion")
        cells = [_main_cell(by_split[split], measure, several_attempts) for split, measure in columns]
        # ``any``: one split's row, for what the template shows once per method.
        rows.append({"method": method, "cells": cells, "any": next(iter(by_split.values()))})
    return {
        "env": env,
        "policy": policy,
        "name": titled(policy, env, study.environments),
        "stands_for": study.policies[policy].stands_for,
        "columns": headings,
        "rows": rows,
    }


def _main_cell(row: dict[Hashable, Any], measure: str, several_attempts: bool) -> dict[str, Any]:
    """Return one measure of a row; with ``several_attempts`` success is that of any of them."""
    prefix = "" if measure == "success" else f"{measure}_"
    shows_first = several_attempts and measure == "success"
    return {
        **{name: row[prefix + name] for name in CELL_NUMBERS},
        "paper_mean": row[f"paper_{prefix}mean"],
        "paper_std": row[f"paper_{prefix}std"],
        "first_mean": row["first_mean"] if shows_first else None,
        "episodes": row["episodes"],
        "note": row["note"],
    }


def task_types(study: "Study", episodes: pd.DataFrame) -> list[dict[str, Any]]:
    """Return success by task type on the last split of each environment, from the table ``episodes``.

    Returns:
        For each environment ``env``, ``name``, ``types`` (name, number of tasks) and ``rows`` with ``policy``, ``method``
        and ``values`` in percent.
    """
    return [_task_types_of(study, episodes, env) for env in study.environments]


def _task_types_of(study: "Study", episodes: pd.DataFrame, env: str) -> dict[str, Any]:
    split = study.at(env).evaluation.splits[-1]
    played = select_rows(episodes, env=env, split=split)
    games = played.groupby("task_type")["task_id"].nunique()
    # All seeds are pooled, since some types have only a few tasks.
    success = played.pivot_table(
        index=["policy", "method"], columns="task_type", values="success", aggfunc="mean"
    )
    percent = 100 * success

    # In the order of the main table; what was not played has no row.
    rows = []
    for policy in study.policies:
        for method in ("base", *study.agents, *study.methods, "strong"):
            if (policy, method) in percent.index:
                values = percent.loc[policy, method].to_list()
                rows.append({"policy": policy, "method": method, "values": values})
    return {
        "env": env,
        "name": titled(label(split, env), env, study.environments),
        "types": [(name, games[name]) for name in percent],
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
    training = select_rows(timing, stage="train").groupby(RUN_COLUMNS)
    for (env, policy, method), group in metrics.groupby(["env", "policy", "method"], sort=False):
        # Counts are running totals: a seed's last epoch has what the run cost.
        run_totals = group.groupby("training_seed").last()
        times = [training.get_group((env, policy, method, seed)) for seed in run_totals.index]
        # Run by run, and then over runs, in the order of the seeds: sums of floats depend on their order.
        seconds = sum(run["seconds"].sum() for run in times)

        shares = []
        for part in TIME_PARTS:
            part_seconds = sum(run[f"{part}_seconds"].sum() for run in times)
            shares.append(float(100 * part_seconds / seconds))
        rows.append(
            {
                "env": env,
                "policy": policy,
                "method": method,
                **{name: run_totals[name].mean() for name in ("epoch", *COSTS)},
                "shares": shares,
                "minutes": seconds / len(times) / 60,
                "memory": max(run["peak_memory_mb"].max() for run in times),
            }
        )
    return rows


def tried_rates(tuning: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the learning rates that were tried by environment, policy and method; none where they are given by hand.

    Returns:
        ``env``, ``policy``, ``method`` and ``rates``, with ``learning_rate``, ``success`` (the mean over trials; NaN
        where only other methods tried the rate), ``runs`` (of each trial) and ``chosen``.
    """
    found = []
    # Methods may have tried other rates beyond the grid, and the columns are the same for all.
    columns = sorted(set(tuning["learning_rate"]))
    for (env, policy, method), rows in tuning.groupby(["env", "policy", "method"], sort=False):
        rates = []
        for rate in columns:
            trials = select_rows(rows, learning_rate=rate)
            rates.append(
                {
                    "learning_rate": rate,
                    "success": trials["success"].mean(),
                    "runs": trials["success"].to_list(),
                    "chosen": bool(trials["chosen"].any()),
                }
            )
        found.append({"env": env, "policy": policy, "method": method, "rates": rates})
    return found


def decision_tree_families(laboratory: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows on decision trees by family of trees, the best first."""
    # None in a study without decision trees.
    families = []
    for name, rows in laboratory.groupby("family", sort=False):
        best_first = rows.sort_values("mean", ascending=False, kind="stable")
        families.append({"name": name, "rows": best_first.to_dict("records")})
    return families


def stages(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return what each stage cost: its jobs, their time together, and the most memory that one of them had."""
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
