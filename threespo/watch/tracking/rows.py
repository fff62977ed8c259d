"""The rows of a run under the names that users of verl-agent have in their dashboards, so that curves lie over each other.

A step is an epoch of training: a batch of tasks, as ``training/global_step`` is there. What verl-agent has no name for is
called ``threespo/…``; times of this machine are ``timing_s/…`` and ``perf/…``.
"""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from threespo.errors import InputError, format_names
from threespo.methods.registry import searches
from threespo.paths import Paths, Run, RunFolder, parse_run_folder
from threespo.pipeline.stages import Job
from threespo.provenance import records
from threespo.runs.artifacts import RunArtifacts
from threespo.study.config import Study
from threespo.study.load import load_study
from threespo.study.matrix import learning_runs, reference_runs, trained_runs, trial_runs
from threespo.tables import read_table

GLOBAL_STEP = "training/global_step"

ROW_NUMBER = "threespo/row"
"""In every row its number, from 1: a target has as many rows as it has values of this."""

TRACKER_NAMES = {
    "train_success": "episode/success_rate",
    "policy_loss": "actor/pg_loss",
    "kl": "actor/kl_loss",
    "entropy": "actor/entropy_loss",
    "approx_kl": "actor/ppo_kl",
    "clip_fraction": "actor/pg_clipfrac",
    "grad_norm": "actor/grad_norm",
    "advantage_mean": "critic/advantages/mean",
    "seconds": "timing_s/step",
    "update_seconds": "timing_s/update_actor",
    "sampling_seconds": "timing_s/sampling",
    "environment_seconds": "timing_s/environment",
    "method_seconds": "timing_s/method",
    "logging_seconds": "timing_s/logging",
    "generations_per_second": "perf/generations_per_second",
    "peak_memory_mb": "perf/peak_memory_mb",
}
"""Columns of ``metrics`` and ``timing`` by the names that they get; the values are the same."""

TASK_TYPES = {"pick_and_place_simple": "pick_and_place"}
"""verl-agent's name of ALFWorld's first task type; the others are ALFWorld's own."""


@dataclass(frozen=True, slots=True)
class TrackedRow:
    """What is copied of one step."""

    step: int
    """Epochs so far; 0: untrained."""
    time: float
    """When it was known, in seconds since 1970."""
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """A run that is copied."""

    study: Study
    paths: Paths
    run: Run

    @property
    def name(self) -> str:
        """STUDY/ENV/POLICY/METHOD/seed-N."""
        return f"{self.study.name}/{self.run.run_id}"

    @property
    def folder(self) -> RunFolder:
        return self.paths.run(self.run)

    @property
    def live(self) -> RunArtifacts | None:
        """What the run has left so far if it is going on or was interrupted, and not if its results are newer."""
        artifacts = RunArtifacts(self.paths.checkpoints(self.run))
        epochs, metrics = artifacts.written_epochs(), self.folder.metrics
        newer = epochs and not (
            metrics.is_file() and metrics.stat().st_mtime >= artifacts.epoch_end_time(epochs[-1])
        )
        return artifacts if newer else None

    @property
    def trained(self) -> bool:
        """Whether training has ended."""
        return self.live is None and self.folder.metrics.is_file()

    @property
    def complete(self) -> bool:
        """Whether no row can follow: training and all evaluations have ended."""
        curves = [self.folder, _untrained(self)] if self.run in learning_runs(self.study) else []
        files = [self.folder.evaluation, *(folder.learning for folder in curves if folder)]
        return self.trained and all(file.is_file() for file in files)

    def settings(self) -> dict[str, str]:
        """Return the settings that the run is, or was, trained with, as JSON values by dotted name."""
        job = Job("train", self.run.run_id)
        record = records.read_record(self.paths, job) if self.trained else None
        return dict(
            record.field
            if record
            else records.flatten_fields(job.settings(self.study, self.paths).key())
        )

    def identity(self, first: TrackedRow) -> str:
        """Return a name for this training: another one with other settings or other numbers has another name.

        Args:
            first: the run's first row. Times of the machine do not count.
        """
        numbers = {
            key: value
            for key, value in first.values.items()
            if not key.startswith(("timing_s/", "perf/"))
        }
        said = json.dumps([self.name, self.settings(), numbers], sort_keys=True)
        return hashlib.sha256(said.encode()).hexdigest()[:12]


def read_rows(tracked: TrackedRun, after: int = 0) -> Iterator[TrackedRow]:
    """Yield the rows of a run that there are by now, in an order that more of them only adds to.

    The order is: epochs of training, the snapshots' evaluations (``val/…``), the final evaluation (``test/…``).

    Args:
        tracked: the run.
        after: so many rows at the beginning are passed over.

    Raises:
        InputError: if a table cannot be read.
    """
    if live := tracked.live:
        for number in live.written_epochs()[after:]:
            before = live.read_rows("metrics", number - 1) if number > 1 else None
            parts = pd.concat(
                part for part in (before, live.read_rows("metrics", number)) if part is not None
            )
            training = list(
                _training(
                    tracked,
                    parts,
                    live.read_rows("timing", number),
                    live.read_rows("task_types", number),
                )
            )
            yield TrackedRow(
                number, live.epoch_end_time(number), {**training[-1], ROW_NUMBER: float(number)}
            )
        return
    if not tracked.trained:
        return

    folder = tracked.folder
    metrics, timing = read_table(folder.metrics), read_table(folder.timing)
    ended = folder.metrics.stat().st_mtime
    left = timing["seconds"][::-1].cumsum()[::-1].shift(-1, fill_value=0.0)
    training = list(_training(tracked, metrics, timing, read_table(folder.task_types)))
    found = [
        TrackedRow(epoch + 1, ended - wait, values)
        for epoch, (values, wait) in enumerate(zip(training, left, strict=True))
    ]
    for number, row in enumerate([*found, *_evaluations(tracked, len(found))], start=1):
        if number > after:
            yield TrackedRow(row.step, row.time, {**row.values, ROW_NUMBER: float(number)})


def _training(
    tracked: TrackedRun, metrics: pd.DataFrame, timing: pd.DataFrame, types: pd.DataFrame
) -> Iterator[dict[str, float]]:
    """Yield the values of each epoch in ``metrics``; lengths of episodes need the epoch before."""
    method = tracked.study.methods[tracked.run.method].method
    training = tracked.study.at(tracked.run.env).training
    times = {row["epoch"]: row for row in timing.to_dict("records")}
    by_type = (
        {epoch: rows.to_dict("records") for epoch, rows in types.groupby("epoch")} if len(types) else {}
    )
    steps = 0.0
    for row in metrics.to_dict("records"):
        epoch = row.pop("epoch")
        values: dict[str, Any] = {
            "training/epoch": epoch,
            "episode/valid_action_ratio": 1 - row["invalid_rate"],
        }
        values["episode/reward/mean"] = training.success_reward * row["train_success"]
        # A search tries several actions in a state, so its steps by paths are not the length of an episode.
        if row["epoch_paths"] and not searches(method):
            values["episode/length/mean"] = (row["env_steps"] - steps) / row["epoch_paths"]
        steps = row["env_steps"]

        for kind in by_type.get(epoch, ()):
            if kind["completed_paths"]:
                values[f"episode/{_type(kind['task_type'])}_success_rate"] = (
                    kind["successes"] / kind["completed_paths"]
                )
        time = times.get(epoch, {})
        if time:
            values["timing_s/gen"] = time["sampling_seconds"] + time["environment_seconds"]
            values["perf/time_per_step"] = time["seconds"]
        for name, value in {
            **row,
            **{name: value for name, value in time.items() if name != "epoch"},
        }.items():
            values[TRACKER_NAMES.get(name, f"threespo/{name.removeprefix('detail_')}")] = value
        yield _known(values, epoch)


def _evaluations(tracked: TrackedRun, epochs: int) -> Iterator[TrackedRow]:
    """Yield what is known of evaluations, as far as none before it is missing."""
    if tracked.run in learning_runs(tracked.study):
        for folder in (_untrained(tracked), tracked.folder):
            if folder is None:
                continue
            if not folder.learning.is_file():
                return
            written = folder.learning.stat().st_mtime
            for epoch, episodes in read_table(folder.learning).groupby("epoch"):
                yield TrackedRow(int(epoch), written, _known(_measured("val", episodes), int(epoch)))

    file = tracked.folder.evaluation
    if file.is_file() and len(episodes := read_table(file)):
        values: dict[str, float] = {}
        for split, played in episodes.groupby("split"):
            values |= _measured(f"test/{split}", played)
        yield TrackedRow(epochs, file.stat().st_mtime, _known(values, epochs))


def _untrained(tracked: TrackedRun) -> RunFolder | None:
    """Return the folder of the untrained policy that the run began with; it is where its curve begins."""
    run = tracked.run
    bases = [
        one
        for one in reference_runs(tracked.study)
        if one.method == "base" and one in learning_runs(tracked.study)
    ]
    base = next((one for one in bases if (one.env, one.policy) == (run.env, run.policy)), None)
    return tracked.paths.run(base) if base else None


def _measured(prefix: str, episodes: pd.DataFrame) -> dict[str, float]:
    values = {
        f"{prefix}/success_rate": episodes["success"].mean(),
        f"{prefix}/length/mean": episodes["steps"].mean(),
    }
    for kind, played in episodes.groupby("task_type"):
        values[f"{prefix}/{_type(str(kind))}_success_rate"] = played["success"].mean()
    if "score" in episodes:
        values[f"{prefix}/score/mean"] = episodes["score"].mean()
        values[f"{prefix}/valid_action_ratio"] = 1 - episodes["invalid_format"].sum() / max(
            1, episodes["steps"].sum()
        )
    return values


def _type(name: str) -> str:
    return TASK_TYPES.get(name, name)


def _known(values: Mapping[str, Any], step: int) -> dict[str, float]:
    """Return the values that are numbers, in a fixed order, and the step."""
    numbers = {
        name: float(value) for name, value in sorted(values.items()) if math.isfinite(float(value))
    }
    return {**numbers, GLOBAL_STEP: float(step)}


def find_tracked_runs(target: Path) -> list[TrackedRun]:
    """Return the runs that a run's folder or a study's folder of results means; those that are not trained yet too.

    Raises:
        InputError: if it is neither, or the run is not one that the study trains.
    """
    if Paths(target).study.is_file():
        paths = Paths(target)
        study = load_study(paths.study)
        return [TrackedRun(study, paths, run) for run in trained_runs(study)]
    try:
        paths, run_id = parse_run_folder(target)
    except ValueError:
        paths, run_id = Paths(target), ""
    if not paths.study.is_file():
        raise InputError(
            f"{target}: no results of a study; expected results/STUDY, or a run's folder "
            "results/STUDY/runs/ENV/POLICY/METHOD/seed-N"
        )
    study = load_study(paths.study)
    found = {run.run_id: run for run in (*trained_runs(study), *trial_runs(study))}
    if run_id not in found:
        raise InputError(
            f"{target}: study {study.name!r} trains no such run; it trains: {format_names(found)}"
        )
    return [TrackedRun(study, paths, found[run_id])]
