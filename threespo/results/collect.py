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
    frame = _concatenate(evaluated_runs(study), paths, "evaluation", _may_be_empty(study))

    # A repeated row would count twice in every mean.
    doubled = frame[frame.duplicated(EPISODE_KEY)]
    if len(doubled):
        first = doubled.iloc[0][EPISODE_KEY].to_dict()
        raise InputError(
            f"{paths.root}: an evaluated episode occurs twice: {first}. Delete that run's folder and run again."
        )
    return frame.sort_values(EPISODE_KEY, ignore_index=True)


def read_metrics(study: "Study", paths: Paths) -> pd.DataFrame:
    """Return one row per epoch of every trained run; a method's own columns are NaN for the others."""
    frame = _concatenate(trained_runs(study), paths, "metrics")
    # Methods report different details: sorted, so that the columns do not depend on which method comes first.
    details = sorted(name for name in frame.columns if name.startswith("detail_"))
    common = [name for name in frame.columns if name not in details]
    return frame[common + details].sort_values([*RUN_COLUMNS, "epoch"], ignore_index=True)


def read_task_types(study: "Study", paths: Paths) -> pd.DataFrame:
    """Return one row per epoch and task type of every trained run."""
    frame = _concatenate(trained_runs(study), paths, "task_types")
    return frame.sort_values([*RUN_COLUMNS, "epoch", "task_type"], ignore_index=True)


def read_snapshots(study: "Study", paths: "Paths") -> pd.DataFrame:
    """Return one row per episode of every snapshot's evaluation, those of the bases included (``runs/learning.py``)."""
    runs = learning_runs(study)
    return (
        _concatenate(runs, paths, "learning")
        if runs
        else pd.DataFrame(columns=[*RUN_COLUMNS, "snapshot"])
    )


def read_probes(study: "Study", paths: Paths) -> pd.DataFrame:
    """Return one row per probed state: its scores and its estimated success probability (``runs/probe.py``)."""
    runs = probed_runs(study)
    return (
        _concatenate(runs, paths, "probe") if runs else pd.DataFrame(columns=[*RUN_COLUMNS, "snapshot"])
    )


def read_timing(study: "Study", paths: Paths) -> pd.DataFrame:
    """Return where the time went: one row per training epoch and per evaluation pass, told apart by ``stage``."""
    evaluations = _concatenate(evaluated_runs(study), paths, "evaluation_timing", _may_be_empty(study))
    parts = [
        _concatenate(trained_runs(study), paths, "timing").assign(stage="train"),
        evaluations.assign(stage="evaluate"),
    ]
    frame = pd.concat(parts, ignore_index=True)

    # Stable: the rows of a run stay in the order of its epochs or passes.
    first = ["stage", *RUN_COLUMNS]
    return frame[first + [name for name in frame.columns if name not in first]].sort_values(
        first, ignore_index=True, kind="stable"
    )


def read_stage_costs(jobs: Iterable[JobId], paths: Paths) -> pd.DataFrame:
    """Return what every job took when it last ran: seconds, processor seconds, peak memory, energy (NaN if unknown).

    Without notebooks: some read no table, and it would be chance whether they have run by now.
    """
    before = [job for job in jobs if job.stage not in ("tables", "notebook", "report")]
    done = [(job, records.read_record(paths, job)) for job in before]
    rows = [{"stage": job.stage, "name": job.name, **record.cost} for job, record in done if record]
    return pd.DataFrame(rows, columns=["stage", "name", *COST_COLUMNS])


def describe_runs(study: "Study", paths: Paths, metrics: pd.DataFrame) -> pd.DataFrame:
    """Return one row per training run: what it cost, the commit that it ran at, and where its files lie.

    Args:
        study: the study.
        paths: where its results lie; ``folder``, ``log`` and ``record`` (settings and digests; "" if there is none) are
            relative to the study's folder.
        metrics: as :func:`metrics` returns it.
    """
    ends = metrics.groupby(RUN_COLUMNS)[["generations", "optimizer_steps"]].last()
    rows = []
    for run in trained_runs(study):
        job, given = JobId("train", run.run_id), study.at(run.env).methods[run.method].learning_rate
        record = records.read_record(paths, job)
        cost = ends.loc[(run.env, run.policy, run.method, run.seed)]
        rows.append(
            {
                **dict(zip(RUN_COLUMNS, (run.env, run.policy, run.method, run.seed), strict=True)),
                **{name: float(value) for name, value in cost.items()},
                "seconds": record.cost["seconds"] if record else math.nan,
                "learning_rate": given or chosen_rate(paths, run),
                "commit": _short(record.environment.get("commit", "unknown")) if record else "unknown",
                "folder": paths.run(run).folder.relative_to(paths.root).as_posix(),
                "log": paths.log(job.stage, job.name).relative_to(paths.root).as_posix(),
                "record": paths.record(job.stage, job.name).relative_to(paths.root).as_posix()
                if record
                else "",
            }
        )
    return pd.DataFrame(rows)


def _short(commit: str) -> str:
    """Return the first digits of a commit, with a plus where files differed from it."""
    found, _, changed = commit.partition(" ")
    return found[:12] + "+" * changed.startswith("with")


def find_runs_without_episodes(study: "Study", paths: Paths) -> list[Run]:
    """Return the rows of closed models that were not run, since there was no key and no recorded reply."""
    closed = [run for run in prompted_runs(study) if run.policy in _may_be_empty(study)]
    return [run for run in closed if read_table(paths.run(run).evaluation).empty]


def add_notes(main: pd.DataFrame, study: "Study", paths: Paths) -> pd.DataFrame:
    """Return the table ``main`` with a note at each closed model's row that counts refusals or left the temperature out."""
    notes = {(run.env, run.policy, run.method): _note(run, study, paths) for run in prompted_runs(study)}
    rows = zip(main["env"], main["policy"], main["method"], main["note"], strict=True)
    return main.assign(
        note=[note or notes.get((env, policy, method), "") for env, policy, method, note in rows]
    )


def _note(run: Run, study: "Study", paths: Paths) -> str:
    endpoint = study.policies[run.policy].endpoint
    if endpoint is None:
        return ""
    temperature = "" if endpoint.send_temperature else "sampled at the service's own temperature"
    return "; ".join(
        filter(None, (temperature, describe_refusals(read_replies(paths.cassette(run))[0])))
    )


def _may_be_empty(study: "Study") -> set[str]:
    """Return the policies whose rows may be missing: closed models."""
    return set(study.policies) - set(local_policies(study))


def _concatenate(
    runs: Iterable[Run], paths: Paths, name: str, may_be_empty: Collection[str] = ()
) -> pd.DataFrame:
    """Join the tables ``name`` of all runs; only those of the policies in ``may_be_empty`` may have no rows."""
    frames = [_of_run(run, paths, name, run.policy in may_be_empty) for run in runs]
    # Without empty frames: their columns have no type, and would change that of the others.
    return pd.concat([frame for frame in frames if len(frame)], ignore_index=True)


def _of_run(run: Run, paths: Paths, name: str, may_be_empty: bool) -> pd.DataFrame:
    """Read one run's table and put the run's names before its columns."""
    path: Path = getattr(paths.run(run), name)
    frame = read_table(path)
    if frame.empty and not may_be_empty:
        raise InputError(f"{path}: has no rows; the workflow makes it anew where it is missing")

    # Evaluations name their run themselves. Other names mean that the folder was copied from another run.
    for position, (column, value) in enumerate(
        zip(RUN_COLUMNS, (run.env, run.policy, run.method, run.seed), strict=True)
    ):
        if column not in frame:
            frame.insert(position, column, value)
        elif (frame[column] != value).any():
            raise InputError(
                f"{path}: column {column} holds {frame[column].iloc[0]!r}, expected {value!r}: "
                "it belongs to another run"
            )
    return frame
