"""Every run's tables as one, each row with the run that it belongs to, in a fixed order."""

import math
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from threespo.errors import InputError
from threespo.paths import JobId, Paths, Run
from threespo.policy.cassette import describe_refusals, read_replies
from threespo.provenance import records
from threespo.runs.learning_rate import chosen_rate
from threespo.study.matrix import (
    evaluated_runs,
    learning_runs,
    local_policies,
    probed_runs,
    prompted_runs,
    trained_runs,
)
from threespo.tables import read_table

if TYPE_CHECKING:
    from threespo.study.config import Study

RUN_COLUMNS = ["env", "policy", "method", "training_seed"]
COST_COLUMNS = ("seconds", "processor_seconds", "peak_memory_mb", "energy_joules")
EPISODE_KEY = [*RUN_COLUMNS, "split", "evaluation_seed", "task_id"]


def read_episodes(study: "Study", paths: Paths) -> pd.DataFrame:
    """Return one row per evaluated episode of every run, untrained ones included.

    Raises:
        InputError: if a run's table is missing, belongs to another run, or holds an episode twice.
    """
    frame = _read_runs(evaluated_runs(study), paths, "evaluation", _closed_models(study))

    # A repeated row would count twice in every mean.
    repeated = frame[frame.duplicated(EPISODE_KEY)]
    if len(repeated):
        first = repeated.iloc[0][EPISODE_KEY].to_dict()
        raise InputError(
            f"{paths.root}: an evaluated episode occurs twice: {first}. Delete that run's folder and run again."
        )
    return frame.sort_values(EPISODE_KEY, ignore_index=True)


def read_metrics(study: "Study", paths: Paths) -> pd.DataFrame:
    """Return one row per epoch of every trained run; a method's own columns are NaN for the others."""
    frame = _read_runs(trained_runs(study), paths, "metrics")
    # Methods report different details: sorted, so that the columns do not depend on which method comes first.
    details = sorted(name for name in frame.columns if name.startswith("detail_"))
    common = [name for name in frame.columns if name not in details]
    return frame[common + details].sort_values([*RUN_COLUMNS, "epoch"], ignore_index=True)


def read_task_types(study: "Study", paths: Paths) -> pd.DataFrame:
    """Return one row per epoch and task type of every trained run."""
    frame = _read_runs(trained_runs(study), paths, "task_types")
    return frame.sort_values([*RUN_COLUMNS, "epoch", "task_type"], ignore_index=True)


def read_snapshots(study: "Study", paths: Paths) -> pd.DataFrame:
    """Return one row per episode of every snapshot's evaluation, those of the bases included (``runs/learning.py``)."""
    runs = learning_runs(study)
    if not runs:
        return pd.DataFrame(columns=[*RUN_COLUMNS, "snapshot"])
    return _read_runs(runs, paths, "learning")


def read_probes(study: "Study", paths: Paths) -> pd.DataFrame:
    """Return one row per probed state: its scores and its estimated success probability (``runs/probe.py``)."""
    runs = probed_runs(study)
    if not runs:
        return pd.DataFrame(columns=[*RUN_COLUMNS, "snapshot"])
    return _read_runs(runs, paths, "probe")


def read_timing(study: "Study", paths: Paths) -> pd.DataFrame:
    """Return where the time went: one row per training epoch and per evaluation pass; ``stage`` says which."""
    training = _read_runs(trained_runs(study), paths, "timing")
    evaluation = _read_runs(evaluated_runs(study), paths, "evaluation_timing", _closed_models(study))
    frame = pd.concat(
        [training.assign(stage="train"), evaluation.assign(stage="evaluate")], ignore_index=True
    )

    # Stable: the rows of a run stay in the order of its epochs or passes.
    first_columns = ["stage", *RUN_COLUMNS]
    other_columns = [name for name in frame.columns if name not in first_columns]
    return frame[first_columns + other_columns].sort_values(
        first_columns, ignore_index=True, kind="stable"
    )


def read_stage_costs(jobs: Iterable[JobId], paths: Paths) -> pd.DataFrame:
    """Return what every job cost when it last ran: seconds, processor seconds, peak memory, energy (NaN if unknown)."""
    rows = []
    for job in jobs:
        # Some notebooks read no table, and it would be chance whether they have run by now.
        if job.stage in ("tables", "notebook", "report"):
            continue
        record = records.read_record(paths, job)
        if record is not None:
            rows.append({"stage": job.stage, "name": job.name, **record.cost})
    return pd.DataFrame(rows, columns=["stage", "name", *COST_COLUMNS])


def describe_runs(study: "Study", paths: Paths, metrics: pd.DataFrame) -> pd.DataFrame:
    """Return one row per training run: what it cost, the commit that it ran at, and where its files are.

    ``folder``, ``log`` and ``record`` (settings and digests; "" if there is none) are relative to the study's folder.
    ``metrics`` is as :func:`read_metrics` returns it.
    """
    # Both are running totals: a run's last epoch has what the run cost.
    run_totals = metrics.groupby(RUN_COLUMNS)[["generations", "optimizer_steps"]].last()
    rows = []
    for run in trained_runs(study):
        job = JobId("train", run.run_id)
        record = records.read_record(paths, job)
        totals = run_totals.loc[(run.env, run.policy, run.method, run.seed)]
        # A rate that the study gives by hand takes the place of trials.
        given_rate = study.at(run.env).methods[run.method].learning_rate
        # Without a record, as after a deleted folder ``stages``, the cost and the commit are unknown.
        row = {
            **_run_columns(run),
            **{name: float(value) for name, value in totals.items()},
            "seconds": math.nan,
            "learning_rate": given_rate or chosen_rate(paths, run),
            "commit": "unknown",
            "folder": paths.run(run).folder.relative_to(paths.root).as_posix(),
            "log": paths.log(job.stage, job.name).relative_to(paths.root).as_posix(),
            "record": "",
        }
        if record is not None:
            row["seconds"] = record.cost["seconds"]
            row["commit"] = _shorten_commit(record.environment.get("commit", "unknown"))
            row["record"] = paths.record(job.stage, job.name).relative_to(paths.root).as_posix()
        rows.append(row)
    return pd.DataFrame(rows)


def _shorten_commit(commit: str) -> str:
    """Return the first digits of a commit, with a plus where files differed from it."""
    digits, _, remark = commit.partition(" ")
    return f"{digits[:12]}+" if remark.startswith("with") else digits[:12]


def find_runs_without_episodes(study: "Study", paths: Paths) -> list[Run]:
    """Return the rows of closed models that were not run, since there was no key and no recorded reply."""
    closed_models = _closed_models(study)
    runs = [run for run in prompted_runs(study) if run.policy in closed_models]
    # The evaluation of such a run writes a table without rows, so that the workflow can go on.
    return [run for run in runs if read_table(paths.run(run).evaluation).empty]


def add_notes(main: pd.DataFrame, study: "Study", paths: Paths) -> pd.DataFrame:
    """Return the table ``main`` with a note at each closed model's row that counts refusals or left the temperature out."""
    notes_by_row = {}
    for run in prompted_runs(study):
        notes_by_row[run.env, run.policy, run.method] = _note_on_endpoint(run, study, paths)

    # Rows that have a note already, not run or of a tiny policy, have no replies to count.
    notes = []
    for row in main.to_dict("records"):
        endpoint_note = notes_by_row.get((row["env"], row["policy"], row["method"]), "")
        notes.append(row["note"] or endpoint_note)
    return main.assign(note=notes)


def _note_on_endpoint(run: Run, study: "Study", paths: Paths) -> str:
    endpoint = study.policies[run.policy].endpoint
    if endpoint is None:
        return ""
    # Refused prompts count as failures, and the note counts them.
    replies, *_ = read_replies(paths.cassette(run))
    notes = []
    # Some services reject requests that name a temperature.
    if not endpoint.send_temperature:
        notes.append("sampled at the service's own temperature")
    notes.append(describe_refusals(replies))
    return "; ".join(note for note in notes if note)


def _closed_models(study: "Study") -> set[str]:
    """Return the policies behind endpoints, whose rows may be missing."""
    return set(study.policies) - set(local_policies(study))


def _read_runs(
    runs: Iterable[Run], paths: Paths, name: str, may_be_empty: Collection[str] = ()
) -> pd.DataFrame:
    """Join the tables ``name`` of all runs; only those of the policies in ``may_be_empty`` may have no rows."""
    frames = [_read_run(run, paths, name, run.policy in may_be_empty) for run in runs]
    # Without empty frames: their columns have no type, and would change that of the others.
    return pd.concat([frame for frame in frames if len(frame)], ignore_index=True)


def _read_run(run: Run, paths: Paths, name: str, may_be_empty: bool) -> pd.DataFrame:
    """Read one run's table and put the run's names before its columns."""
    path: Path = getattr(paths.run(run), name)
    frame = read_table(path)
    if frame.empty and not may_be_empty:
        raise InputError(f"{path}: has no rows; delete it, and the workflow makes it again")

    # Evaluations name their run themselves. Other names mean that the folder was copied from another run.
    for position, (column, value) in enumerate(_run_columns(run).items()):
        if column not in frame:
            frame.insert(position, column, value)
        elif (frame[column] != value).any():
            raise InputError(
                f"{path}: column {column} holds {frame[column].iloc[0]!r}, expected {value!r}: "
                "it belongs to another run"
            )
    return frame


def _run_columns(run: Run) -> dict[str, str | int]:
    return {
        "env": run.env,
        "policy": run.policy,
        "method": run.method,
        "training_seed": run.seed,
    }
