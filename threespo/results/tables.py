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
from threespo.results.analysis.credit import credit_table
from threespo.results.analysis.curves import (
    learning_table,
    learning_time_table,
    time_to_table,
    training_curves,
    wall_time_table,
)
from threespo.results.analysis.rates import note_edges, rate_table, rows_at_edge, tuning_table
from threespo.results.analysis.search_facts import collect_search_facts
from threespo.results.analysis.statistics import Units, mean_interval
from threespo.results.analysis.summaries import (
    Summary,
    episode_array,
    interval_unit,
    summarize,
    task_clusters,
)
from threespo.results.claims.evidence import Evidence
from threespo.results.claims.judging import judge_claims
from threespo.results.claims.rules import read_claims
from threespo.results.dvc_files import write_dvc_files
from threespo.results.labels import looks_of_study
from threespo.results.paper.case_study import case_study_table
from threespo.results.paper.cells import compare_with_paper, or_nan
from threespo.results.paper.reasoning import reasoning_table
from threespo.results.paper.state_scores import state_score_table
from threespo.results.paper_numbers import PROMPTED_BASE, PaperNumbers, PaperResults, read_paper
from threespo.results.provenance import provenance_table
from threespo.results.settings import ResultSettings
from threespo.study.matrix import decision_tree_rows, units_of_seeds
from threespo.tables import read_table, select_rows, write_table
from threespo.theory.bandit import regret_table

if TYPE_CHECKING:
    from threespo.paths import Paths, Run
    from threespo.study.config import Study

PROTOCOL_ONLY = "checks the protocol"
"""Note in the rows of prompting agents on tiny policies, which follow no instructions."""

NOT_PRINTED = {"paper_rollouts": np.nan, "paper_states": np.nan}
"""The paper's columns of the table ``efficiency`` where it prints nothing."""

COSTS = ("generations", "env_steps", "completed_paths", "optimizer_steps")


def make_tables(settings: ResultSettings) -> None:
    """The tables stage: write the tables named in ``TABLES``, and what DVC compares between commits.

    Raises:
        InputError: if a run's results are missing or do not belong together.
    """
    study = settings.study
    paths = settings.paths

    # The runs' own tables.
    episodes = collect.read_episodes(study, paths)
    metrics = collect.read_metrics(study, paths)
    timing = collect.read_timing(study, paths)
    types = collect.read_task_types(study, paths)
    probes = collect.read_probes(study, paths)
    points = learning_table(study, collect.read_snapshots(study, paths))
    paper = read_paper()

    # Intermediate results that several tables need.
    timed_points = learning_time_table(points, timing)
    without_episodes = collect.find_runs_without_episodes(study, paths)
    main = main_results_table(study, episodes, metrics, paper.results, without_episodes)
    main = collect.add_notes(main, study, paths)
    rates = rate_table(study, paths)
    edges = rows_at_edge(rates)
    main = note_edges(main, edges)
    costs = efficiency_table(study, metrics, paper)
    evidence = Evidence(
        study,
        episodes,
        metrics,
        types,
        paper,
        learning=points,
        probes=probes,
        searches=collect_search_facts(study, paths),
        edges=edges,
    )

    tables = {
        "episodes": episodes,
        "metrics": metrics,
        "timing": timing,
        "wall_time": wall_time_table(metrics, timing),
        "stages": collect.read_stage_costs(settings.jobs, paths),
        "runs": collect.describe_runs(study, paths, metrics),
        "main": main,
        "rows": looks_of_study(study),
        **compare_with_paper(study, main, costs, paper),
        "curves": training_curves(metrics),
        "learning": points,
        "learning_time": timed_points,
        "time_to": time_to_table(points, timed_points),
        "task_types": types,
        "state_scores": state_score_table(study, paths, metrics),
        "efficiency": costs,
        "probes": probes,
        "credit": credit_table(study, paths),
        "case_study": case_study_table(study, paths),
        "reasoning": reasoning_table(study, paths),
        "tuning": tuning_table(rates),
        "rates": rates,
        "laboratory": decision_tree_table(study, paths),
        "claims": judge_claims(read_claims(), evidence),
        "regret": regret_table(),
        "provenance": provenance_table(settings, timing),
    }
    write_dvc_files(paths, tables["main"], tables["curves"])
    for name, frame in tables.items():
        write_table(paths.table(name), frame)

    runs = episodes.groupby(collect.RUN_COLUMNS).ngroups
    print(f"tables: {len(episodes)} episodes of {runs} runs", file=sys.stderr)
    warning = warn_of_few_seeds(study)
    if warning:
        print(f"tables: {warning}", file=sys.stderr)


def main_results_table(
    study: "Study",
    episodes: pd.DataFrame,
    metrics: pd.DataFrame,
    paper: PaperResults,
    not_run: Sequence["Run"] = (),
) -> pd.DataFrame:
    """Return success by environment, policy, method and split, in percent, and the paper's value.

    Args:
        study: the study.
        episodes: a row per evaluated episode, as ``collect.read_episodes`` returns it; ``success`` and ``score`` in 0 to 1.
        metrics: a row per training epoch, as ``collect.read_metrics`` returns it, for what training cost.
        paper: the paper's main table.
        not_run: rows of closed models that were not played. They have no numbers, and ``note`` says why.

    Returns:
        Rows in the study's order: the untrained base, prompting agents, trained methods, the strong clone (the ceiling);
        ``kind`` tells them apart. Columns are those of ``summaries.Summary``, the same with ``score_`` before their
        names where the environment has a graded score, the paper's values, and the costs of training. ``interval`` says
        what the intervals are over: training seeds, or clusters of tasks (there are ``clusters``) where one policy is
        judged; empty if there is none.
    """
    rows = []
    keys = ["env", "policy", "method", "split"]
    for values, group in episodes.groupby(keys, sort=True):
        row_names = dict(zip(keys, values, strict=True))
        rows.append(_main_row(study, group, metrics, paper, row_names))

    # A closed model that was not run still has its rows, so that a reader sees that it is missing, and why.
    counts = ("seeds", "evaluation_seeds", "games", "episodes", "clusters")
    for run in not_run:
        for split in study.at(run.env).evaluation.splits:
            row_names = {"env": run.env, "policy": run.policy, "method": run.method, "split": split}
            labels = _describing_columns(study, row_names, paper, NOT_RUN)
            rows.append({**labels, **dict.fromkeys(counts, 0), "interval": ""})

    # In the study's order; untrained rows first, the ceiling last.
    envs = list(study.environments)
    policies = list(study.policies)
    methods = ["base", *study.agents, *study.methods, "strong"]

    def position(row: dict[str, Any]) -> tuple[int, int, int, str]:
        env = envs.index(row["env"])
        policy = policies.index(row["policy"])
        method = methods.index(row["method"])
        return env, policy, method, row["split"]

    return pd.DataFrame(sorted(rows, key=position))


def efficiency_table(study: "Study", metrics: pd.DataFrame, paper: PaperNumbers) -> pd.DataFrame:
    """Return what each method's runs cost and how many different states they met, as means over training seeds.

    Returns:
        ``states`` counts the different observations in a run; ``ratio`` is states per generation.
    """
    rows = []
    for (env, policy, method), group in metrics.groupby(["env", "policy", "method"], sort=False):
        # Running totals: a seed's last epoch has what the run cost.
        run_totals = group.groupby("training_seed").last()
        costs = {name: float(run_totals[name].mean()) for name in COSTS}
        states = float(run_totals["detail_state_met"].mean())
        paper_row = study.methods[method].paper_row or ""
        # Most rows are not in the paper's table.
        printed = paper.efficiency.get((env, paper_row), NOT_PRINTED)
        rows.append(
            {
                "env": env,
                "policy": policy,
                "method": method,
                **costs,
                "states": states,
                "ratio": states / costs["generations"],
                **printed,
            }
        )

    envs = list(study.environments)
    policies = list(study.policies)
    methods = list(study.methods)

    def position(row: dict[str, Any]) -> tuple[int, int, int]:
        env = envs.index(row["env"])
        policy = policies.index(row["policy"])
        method = methods.index(row["method"])
        return env, policy, method

    return pd.DataFrame(sorted(rows, key=position))


def decision_tree_table(study: "Study", paths: "Paths") -> pd.DataFrame:
    """Return each method's success on each family of decision trees, with what it cost.

    Returns:
        ``start`` is the success before training, ``mean`` the final one with its 95 % interval over seeds, in percent.
    """
    units = ("generations", "optimizer_steps", "coverage", "allocation", "regret")
    rows = []
    for family, method in decision_tree_rows(study):
        frame = read_table(paths.decision_trees(family, method))
        by_seed = frame.groupby("seed")
        last_epochs = by_seed.last()

        # Success is computed exactly on each seed's trees, so seeds are all that varies.
        percent = 100.0 * last_epochs["success"]
        interval = mean_interval(percent.to_list())
        rows.append(
            {
                "family": family,
                "method": method,
                "learning_rate": frame["learning_rate"].iloc[0],
                "seeds": len(last_epochs),
                "start": 100.0 * float(by_seed["success"].first().mean()),
                "mean": interval.estimate,
                "low": interval.low,
                "high": interval.high,
                **{name: float(last_epochs[name].mean()) for name in units},
            }
        )
    columns = ["family", "method", "learning_rate", "seeds", "start", "mean", "low", "high", *units]
    return pd.DataFrame(rows, columns=columns)


def _main_row(
    study: "Study",
    group: pd.DataFrame,
    metrics: pd.DataFrame,
    paper: PaperResults,
    names: dict[str, str],
) -> dict[str, Any]:
    # Seeds by evaluation seeds by games, in 0 to 1.
    success = episode_array(group, names)
    clusters = task_clusters(names["env"], sorted(group["task_id"].unique()))
    units = units_of_seeds(study, names["env"], names["policy"])
    shared = None
    if units is not None and names["method"] in study.methods:
        shared = [units[seed] for seed in sorted(group["training_seed"].unique())]
    return {
        **_describing_columns(study, names, paper),
        "seeds": success.shape[0],
        "evaluation_seeds": success.shape[1],
        "games": success.shape[2],
        "episodes": success.size,
        "clusters": len(set(clusters)),
        "interval": interval_unit(len(success)),
        **asdict(summarize(success, clusters, shared)),
        "first_mean": 100.0 * float(episode_array(group, names, "first_success").mean()),
        **_score_columns(group, names, clusters, shared),
        "mean_steps": float(group["steps"].mean()),
        **_cost_columns(metrics, names),
    }


def _score_columns(
    group: pd.DataFrame, names: dict[str, str], clusters: Sequence[str], units: Units
) -> dict[str, float]:
    """Return the numbers of the score; NaN in environments that have success only."""
    if "score" not in presentation(names["env"]).measures:
        return {f"score_{field.name}": np.nan for field in fields(Summary)}
    summary = summarize(episode_array(group, names, "score"), clusters, units)
    return {f"score_{name}": value for name, value in asdict(summary).items()}


def _describing_columns(
    study: "Study", names: dict[str, str], paper: PaperResults, note: str = ""
) -> dict[str, Any]:
    """Return the columns that describe a row, and the paper's values for it."""
    method = names["method"]
    policy = study.policies[names["policy"]]
    # References are the untrained base and the strong clone; the paper has a row of the base only.
    kind = "reference"
    paper_row: str | None = PROMPTED_BASE if method == "base" else None
    if method in study.methods:
        kind = "trained"
        paper_row = study.methods[method].paper_row
    elif method in study.agents:
        kind = "prompted"
        paper_row = study.agents[method].paper_row
    # Tiny policies and clones follow no other instructions: their rows show that a prompting agent runs, not how good it is.
    is_clone = policy.kind == "tiny" or policy.warm_start is not None
    if not note and kind == "prompted" and is_clone:
        note = PROTOCOL_ONLY

    cell = (paper_row, policy.stands_for, names["env"], names["split"])
    success = paper.value(*cell, "success")
    score = paper.value(*cell, "score")
    return {
        **names,
        "stands_for": policy.stands_for,
        "paper_row": paper_row or "",
        "kind": kind,
        "trained": kind == "trained",
        "note": note,
        "paper_mean": or_nan(success.mean),
        "paper_std": or_nan(success.std),
        "paper_score_mean": or_nan(score.mean),
        "paper_score_std": or_nan(score.std),
    }


def _cost_columns(metrics: pd.DataFrame, names: dict[str, str]) -> dict[str, float]:
    """Return what a run spent, averaged over seeds, in all four units; zero for untrained rows."""
    epochs = select_rows(metrics, env=names["env"], policy=names["policy"], method=names["method"])
    if epochs.empty:
        return dict.fromkeys(COSTS, 0.0)
    run_totals = epochs.groupby("training_seed")[list(COSTS)].last()
    return {name: float(run_totals[name].mean()) for name in COSTS}
