"""The tables stage: all runs' results in a handful of parquet files, the same bytes for the same results.

``timing``, ``wall_time``, ``learning_time``, ``time_to``, ``stages``, ``runs`` and ``provenance`` hold what differs between
two equal runs (times, machines, commits) and are not compared.
"""

import sys
from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from threespo.envs.registry import presentation
from threespo.policy.endpoint import NOT_RUN
from threespo.results import collect
from threespo.results.analysis.caveats import warn_of_few_seeds
from threespo.results.analysis.curves import (
    learning_table,
    learning_time_table,
    time_to_table,
    training_curves,
    wall_time_table,
)
from threespo.results.analysis.search_facts import collect_search_facts
from threespo.results.analysis.statistics import mean_interval
from threespo.results.analysis.summaries import (
    Summary,
    episode_array,
    interval_unit,
    summarize,
    task_clusters,
)
from threespo.results.claims.finding import Evidence
from threespo.results.claims.judging import judge_claims
from threespo.results.claims.reading import read_claims
from threespo.results.dvc_files import write_dvc_files
from threespo.results.paper.case_study import case_study_table
from threespo.results.paper.cells import compare_with_paper, or_nan
from threespo.results.paper.reasoning import reasoning_table
from threespo.results.paper.state_scores import state_score_table
from threespo.results.paper_numbers import PROMPTED_BASE, PaperNumbers, PaperResults, read_paper
from threespo.results.provenance import provenance_table
from threespo.results.settings import ResultSettings
from threespo.runs.learning_rate import chosen_rate, trial_success
from threespo.study.matrix import decision_tree_rows, trial_runs
from threespo.tables import read_table, write_table
from threespo.theory.bandit import regret_table

if TYPE_CHECKING:
    from threespo.paths import Paths, Run
    from threespo.study.config import Study

PROTOCOL_ONLY = "checks the protocol"
"""Note in the rows of prompting agents on tiny policies, which follow no instructions."""

COSTS = ("generations", "env_steps", "completed_paths", "optimizer_steps")


def make_tables(settings: ResultSettings) -> None:
    """The tables stage: write the tables named in ``TABLES``, and what DVC compares between commits.

    Raises:
        InputError: if a run's results are missing or do not belong together.
    """
    study, paths = settings.study, settings.paths
    episodes, metrics, timing = (
        collect.read_episodes(study, paths),
        collect.read_metrics(study, paths),
        collect.read_timing(study, paths),
    )
    types, paper, probes = (
        collect.read_task_types(study, paths),
        read_paper(),
        collect.read_probes(study, paths),
    )
    points = learning_table(study, collect.read_snapshots(study, paths))
    clocked = learning_time_table(points, timing)
    facts = collect_search_facts(study, paths)
    evidence = Evidence(
        study, episodes, metrics, types, paper, learning=points, probes=probes, searches=facts
    )
    absent = collect.find_runs_without_episodes(study, paths)
    main = collect.add_notes(
        main_results_table(study, episodes, metrics, paper.results, absent), study, paths
    )
    costs = efficiency_table(study, metrics, paper)

    tables = {
        "episodes": episodes,
        "metrics": metrics,
        "timing": timing,
        "wall_time": wall_time_table(metrics, timing),
        "stages": collect.read_stage_costs(settings.jobs, paths),
        "runs": collect.describe_runs(study, paths, metrics),
        "main": main,
        **compare_with_paper(study, main, costs, paper),
        "curves": training_curves(metrics),
        "learning": points,
        "learning_time": clocked,
        "time_to": time_to_table(points, clocked),
        "task_types": types,
        "state_scores": state_score_table(study, paths, metrics),
        "efficiency": costs,
        "probes": probes,
        "case_study": case_study_table(study, paths),
        "reasoning": reasoning_table(study, paths),
        "tuning": tuning_table(study, paths),
        "laboratory": decision_tree_table(study, paths),
        "claims": judge_claims(read_claims(), evidence),
        "regret": regret_table(),
        "provenance": provenance_table(settings, timing),
    }

    write_dvc_files(paths, tables["main"], tables["curves"])
    for name, frame in tables.items():
        write_table(paths.table(name), frame)
    print(
        f"tables: {len(episodes)} episodes of {episodes.groupby(collect.RUN_COLUMNS).ngroups} runs",
        file=sys.stderr,
    )
    if few := warn_of_few_seeds(study):
        print(f"tables: {few}", file=sys.stderr)


def main_results_table(
    study: "Study",
    episodes: pd.DataFrame,
    metrics: pd.DataFrame,
    paper: PaperResults,
    not_run: Sequence["Run"] = (),
) -> pd.DataFrame:
    """Return success by environment, policy, method and split, in percent, with the paper's value beside it.

    Args:
        study: the study.
        episodes: a row per evaluated episode, as ``collect.episodes`` returns it; ``success`` and ``score`` in 0 to 1.
        metrics: a row per training epoch, as ``collect.metrics`` returns it, for what training cost.
        paper: the paper's main table.
        not_run: rows of closed models that were not played. They have no numbers, and ``note`` says why.

    Returns:
        Rows in the study's order: the untrained base, prompting agents, trained methods, the strong clone (the ceiling);
        ``kind`` tells them apart. Columns are those of ``summaries.Summary``, the same with ``score_`` before their
        names where the environment has a graded score, the paper's values, and the costs of training. ``interval`` says
        what the intervals are over: training seeds, or clusters of tasks (there are ``clusters``) where one policy is
        judged; empty if there is none.
    """
    order = ["base", *study.agents, *study.methods, "strong"]
    rows = [
        _main_row(
            study,
            group,
            metrics,
            paper,
            dict(zip(("env", "policy", "method", "split"), names, strict=True)),
        )
        for names, group in episodes.groupby(["env", "policy", "method", "split"], sort=True)
    ]

    rows += [
        {
            **_labels(
                study,
                {"env": run.env, "policy": run.policy, "method": run.method, "split": split},
                paper,
                NOT_RUN,
            ),
            **dict.fromkeys(("seeds", "evaluation_seeds", "games", "episodes", "clusters"), 0),
            "interval": "",
        }
        for run in not_run
        for split in study.at(run.env).evaluation.splits
    ]

    envs, policies = list(study.environments), list(study.policies)
    rows.sort(
        key=lambda row: (
            *(envs.index(row["env"]), policies.index(row["policy"]), order.index(row["method"])),
            row["split"],
        )
    )
    return pd.DataFrame(rows)


def tuning_table(study: "Study", paths: "Paths") -> pd.DataFrame:
    """Return each trial's success on the calibration split, in percent; no rows where rates are given by hand."""
    rows = [
        {
            "env": run.env,
            "policy": run.policy,
            "method": run.method,
            "learning_rate": run.rate,
            "training_seed": run.seed,
            "success": 100.0 * trial_success(run, paths),
            "chosen": run.rate == chosen_rate(paths, run),
        }
        for run in trial_runs(study)
    ]
    return pd.DataFrame(
        rows, columns=["env", "policy", "method", "learning_rate", "training_seed", "success", "chosen"]
    )


def efficiency_table(study: "Study", metrics: pd.DataFrame, paper: PaperNumbers) -> pd.DataFrame:
    """Return what each method's runs cost and how many different states they met, as means over training seeds.

    Args:
        study: gives the order of the rows.
        metrics: a row per training epoch; ``detail_state_met`` and the columns ``COSTS`` are running totals.
        paper: its rollouts and unique states (tab:efficiency) stand beside ours.

    Returns:
        ``states`` counts the different observations in a run; ``ratio`` is states per generation.
    """
    rows = []
    for (env, policy, method), group in metrics.groupby(["env", "policy", "method"], sort=False):
        ends = group.groupby("training_seed").last()
        units = {name: float(ends[name].mean()) for name in COSTS}
        states = float(ends["detail_state_met"].mean())
        entry = study.methods[method]

        rows.append(
            {
                **{"env": env, "policy": policy, "method": method, **units, "states": states},
                "ratio": states / units["generations"],
                **paper.efficiency.get(
                    (env, entry.paper_row or ""), {"paper_rollouts": np.nan, "paper_states": np.nan}
                ),
            }
        )

    orders = {
        "env": list(study.environments),
        "policy": list(study.policies),
        "method": list(study.methods),
    }
    return pd.DataFrame(
        sorted(rows, key=lambda row: [order.index(row[name]) for name, order in orders.items()])
    )


def decision_tree_table(study: "Study", paths: "Paths") -> pd.DataFrame:
    """Return each method's success on each family of decision trees, with what it cost.

    Returns:
        ``start`` is the success before training, ``mean`` the final one with its 95 % interval over seeds, in percent.
    """
    units = ("generations", "optimizer_steps", "coverage", "allocation", "regret")
    names = ["family", "method", "learning_rate", "seeds", "start", "mean", "low", "high", *units]
    rows = []
    for family, method in decision_tree_rows(study):
        frame = read_table(paths.decision_trees(family, method))
        ends = frame.groupby("seed").last()
        percent = 100.0 * ends["success"]

        # Success is computed exactly on each seed's trees, so seeds are all that varies.
        found = mean_interval(percent.to_list())
        means = {name: float(ends[name].mean()) for name in units}
        start = 100.0 * float(frame.groupby("seed")["success"].first().mean())

        row = {
            "family": family,
            "method": method,
            "learning_rate": frame["learning_rate"].iloc[0],
            "seeds": len(ends),
        }
        rows.append(
            {
                **row,
                "start": start,
                "mean": found.estimate,
                "low": found.low,
                "high": found.high,
                **means,
            }
        )
    return pd.DataFrame(rows, columns=names)


def _main_row(
    study: "Study",
    group: pd.DataFrame,
    metrics: pd.DataFrame,
    paper: PaperResults,
    names: dict[str, str],
) -> dict[str, Any]:
    success, clusters = (
        episode_array(group, names),
        task_clusters(names["env"], sorted(group["task_id"].unique())),
    )
    return {
        **_labels(study, names, paper),
        "seeds": success.shape[0],
        "evaluation_seeds": success.shape[1],
        "games": success.shape[2],
        "episodes": success.size,
        "clusters": len(set(clusters)),
        "interval": interval_unit(len(success)),
        **asdict(summarize(success, clusters)),
        "first_mean": 100.0 * float(episode_array(group, names, "first_success").mean()),
        **_score(group, names, clusters),
        "mean_steps": float(group["steps"].mean()),
        **_costs(metrics, names),
    }


def _score(group: pd.DataFrame, names: dict[str, str], clusters: Sequence[str]) -> dict[str, float]:
    """Return the numbers of the score; NaN in environments that have success only."""
    if "score" not in presentation(names["env"]).measures:
        return {f"score_{field.name}": np.nan for field in fields(Summary)}
    summary = summarize(episode_array(group, names, "score"), clusters)
    return {f"score_{name}": value for name, value in asdict(summary).items()}


def _labels(
    study: "Study", names: dict[str, str], paper: PaperResults, note: str = ""
) -> dict[str, Any]:
    """Return the columns that describe a row, and the paper's values for it."""
    method, stands_for = names["method"], study.policies[names["policy"]].stands_for
    kind = (
        "trained" if method in study.methods else "prompted" if method in study.agents else "reference"
    )
    row = _paper_row(study, method)
    success, score = (
        paper.value(row, stands_for, names["env"], names["split"], one) for one in ("success", "score")
    )

    if not note and kind == "prompted" and study.policies[names["policy"]].kind == "tiny":
        note = PROTOCOL_ONLY
    return {
        **names,
        "stands_for": stands_for,
        "paper_row": row or "",
        "kind": kind,
        "trained": kind == "trained",
        "note": note,
        "paper_mean": or_nan(success.mean),
        "paper_std": or_nan(success.std),
        "paper_score_mean": or_nan(score.mean),
        "paper_score_std": or_nan(score.std),
    }


def _costs(metrics: pd.DataFrame, names: dict[str, str]) -> dict[str, float]:
    """Return what a run spent, averaged over seeds, in all four units; zero for untrained rows."""
    same = (
        (metrics["env"] == names["env"])
        & (metrics["policy"] == names["policy"])
        & (metrics["method"] == names["method"])
    )
    # Running totals: a seed's last epoch has what the run cost.
    last = metrics[same].groupby("training_seed")[list(COSTS)].last()
    return {name: float(last[name].mean()) if len(last) else 0.0 for name in COSTS}


def _paper_row(study: "Study", method: str) -> str | None:
    entry = study.methods.get(method) or study.agents.get(method)
    if entry is None:
        return PROMPTED_BASE if method == "base" else None
    return entry.paper_row
