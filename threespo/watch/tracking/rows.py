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
        """Checkpoints of a run that is going on or was interrupted; None if its results are newer."""
        artifacts = RunArtifacts(self.paths.checkpoints(self.run))
        epochs = artifacts.written_epochs()
        if not epochs:
            return None
        metrics = self.folder.metrics
        if metrics.is_file() and metrics.stat().st_mtime >= artifacts.epoch_end_time(epochs[-1]):
            return None
        return artifacts

    @property
    def trained(self) -> bool:
        """Whether training has ended."""
        return self.live is None and self.folder.metrics.is_file()

    @property
    def complete(self) -> bool:
        """Whether no row can follow: training and all evaluations have ended."""
        if not self.trained:
            return False
        files = [self.folder.evaluation]
        if self.run in learning_runs(self.study):
            curve_folders = [self.folder, _find_untrained(self)]
            files += [folder.learning for folder in curve_folders if folder]
        return all(file.is_file() for file in files)

    def settings(self) -> dict[str, str]:
        """Return the settings that the run is, or was, trained with, as JSON values by dotted name."""
        job = Job("train", self.run.run_id)
        # A finished run's are in its record, since the study's file may have been edited after it.
        record = records.read_record(self.paths, job) if self.trained else None
        if record:
            return dict(record.field)
        return dict(records.flatten_fields(job.settings(self.study, self.paths).key()))

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
        description = json.dumps([self.name, self.settings(), numbers], sort_keys=True)
        return hashlib.sha256(description.encode()).hexdigest()[:12]


def read_rows(tracked: TrackedRun, after: int = 0) -> Iterator[TrackedRow]:
    """Yield the rows that a run has so far, in an order that later rows only extend.

    The order is: epochs of training, evaluations of snapshots (``val/…``), the final evaluation (``test/…``).

    Args:
        tracked: the run.
        after: number of rows at the beginning to skip.

    Raises:
        InputError: if a table cannot be read.
    """
    live = tracked.live
    if live:
        yield from _read_live_rows(tracked, live, after)
        return
    if not tracked.trained:
        return

    folder = tracked.folder
    metrics = read_table(folder.metrics)
    timing = read_table(folder.timing)
    ended = folder.metrics.stat().st_mtime
    # Seconds from the end of each epoch to the end of training: the sum of the later epochs, added up from the end.
    until_end_with_epoch = timing["seconds"][::-1].cumsum()[::-1]
    until_end = until_end_with_epoch.shift(-1, fill_value=0.0)
    training = _compute_training_values(tracked, metrics, timing, read_table(folder.task_types))
    rows = [
        TrackedRow(epoch, ended - seconds, values)
        for epoch, (values, seconds) in enumerate(zip(training, until_end, strict=True), start=1)
    ]
    rows += _read_evaluations(tracked, len(rows))
    for number, row in enumerate(rows, start=1):
        if number > after:
            yield TrackedRow(row.step, row.time, {**row.values, ROW_NUMBER: float(number)})


def _read_live_rows(tracked: TrackedRun, live: RunArtifacts, after: int) -> Iterator[TrackedRow]:
    for epoch in live.written_epochs()[after:]:
        metrics = live.read_rows("metrics", epoch)
        if epoch > 1:
            # Lengths of episodes are differences to the epoch before.
            metrics = pd.concat([live.read_rows("metrics", epoch - 1), metrics])
        timing = live.read_rows("timing", epoch)
        task_types = live.read_rows("task_types", epoch)
        *_, values = _compute_training_values(tracked, metrics, timing, task_types)
        yield TrackedRow(epoch, live.epoch_end_time(epoch), {**values, ROW_NUMBER: float(epoch)})


def _compute_training_values(
    tracked: TrackedRun, metrics: pd.DataFrame, timing: pd.DataFrame, task_types: pd.DataFrame
) -> Iterator[dict[str, float]]:
    """Yield the values of each epoch in ``metrics``; lengths of episodes need the epoch before."""
    method = tracked.study.methods[tracked.run.method].method
    training = tracked.study.at(tracked.run.env).training
    timing_by_epoch = {row["epoch"]: row for row in timing.to_dict("records")}
    types_by_epoch: dict[Any, list[dict[Any, Any]]] = {}
    for row in task_types.to_dict("records"):
        types_by_epoch.setdefault(row["epoch"], []).append(row)

    steps_before = 0.0
    for row in metrics.to_dict("records"):
        epoch = row.pop("epoch")
        values: dict[str, Any] = {
            "training/epoch": epoch,
            "episode/valid_action_ratio": 1 - row["invalid_rate"],
            "episode/reward/mean": training.success_reward * row["train_success"],
        }
        # A search tries several actions in a state, so its steps by paths are not the length of an episode.
        if row["epoch_paths"] and not searches(method):
            values["episode/length/mean"] = (row["env_steps"] - steps_before) / row["epoch_paths"]
        steps_before = row["env_steps"]

        for task_type in types_by_epoch.get(epoch, ()):
            if task_type["completed_paths"]:
                name = f"episode/{_translate_task_type(task_type['task_type'])}_success_rate"
                values[name] = task_type["successes"] / task_type["completed_paths"]

        times = dict(timing_by_epoch.get(epoch, {}))
        times.pop("epoch", None)
        if times:
            values["timing_s/gen"] = times["sampling_seconds"] + times["environment_seconds"]
            values["perf/time_per_step"] = times["seconds"]
        for column, value in {**row, **times}.items():
            name = TRACKER_NAMES.get(column, f"threespo/{column.removeprefix('detail_')}")
            values[name] = value
        yield _select_numbers(values, epoch)


def _read_evaluations(tracked: TrackedRun, epochs: int) -> Iterator[TrackedRow]:
    """Yield the evaluations up to the first that is missing."""
    if tracked.run in learning_runs(tracked.study):
        for folder in (_find_untrained(tracked), tracked.folder):
            if folder is None:
                continue
            if not folder.learning.is_file():
                return
            written = folder.learning.stat().st_mtime
            for epoch, episodes in read_table(folder.learning).groupby("epoch"):
                values = _measure_episodes("val", episodes)
                yield TrackedRow(int(epoch), written, _select_numbers(values, int(epoch)))

    file = tracked.folder.evaluation
    if not file.is_file():
        return
    episodes = read_table(file)
    if len(episodes):
        test_values: dict[str, float] = {}
        for split, split_episodes in episodes.groupby("split"):
            test_values |= _measure_episodes(f"test/{split}", split_episodes)
        yield TrackedRow(epochs, file.stat().st_mtime, _select_numbers(test_values, epochs))


def _find_untrained(tracked: TrackedRun) -> RunFolder | None:
    """Return the folder of the untrained policy that the run started from: its learning curve begins there."""
    curves = learning_runs(tracked.study)
    for base in reference_runs(tracked.study):
        same_policy = (base.env, base.policy) == (tracked.run.env, tracked.run.policy)
        number = tracked.study.policies[base.policy].base_of_seed(tracked.run.seed)
        is_start = base.method == "base" and base.seed == number
        if is_start and base in curves and same_policy:
            return tracked.paths.run(base)
    return None


def _measure_episodes(prefix: str, episodes: pd.DataFrame) -> dict[str, float]:
    values = {
        f"{prefix}/success_rate": episodes["success"].mean(),
        f"{prefix}/length/mean": episodes["steps"].mean(),
    }
    for task_type, played in episodes.groupby("task_type"):
        name = _translate_task_type(str(task_type))
        values[f"{prefix}/{name}_success_rate"] = played["success"].mean()
    if "score" in episodes:
        steps = max(1, episodes["steps"].sum())
        values[f"{prefix}/score/mean"] = episodes["score"].mean()
        values[f"{prefix}/valid_action_ratio"] = 1 - episodes["invalid_format"].sum() / steps
    return values


def _translate_task_type(name: str) -> str:
    return TASK_TYPES.get(name, name)


def _select_numbers(values: Mapping[str, Any], step: int) -> dict[str, float]:
    """Return the finite values, sorted by name, and the step."""
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
        paths = Paths(target)
        run_id = ""
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
