"""Where the jobs of a study stand while they are worked on, and how long the rest will take."""

import contextlib
import time
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from threespo.errors import InputError
from threespo.paths import Paths
from threespo.pipeline import journal
from threespo.pipeline.stages import Job, list_jobs
from threespo.provenance import records
from threespo.runs.settings import TrainSettings
from threespo.runs.training_settings import TrainingSettings
from threespo.study.config import Study

if TYPE_CHECKING:
    from threespo.runs.artifacts import RunArtifacts

JobState = Literal["finished", "running", "waiting", "failed"]

RECENT_EPOCHS = 5
"""Epochs from which a run's speed is known: it changes as the policy learns."""


@dataclass(frozen=True, slots=True)
class TrainingProgress:
    """How far a training run is."""

    epoch: int
    spent: int
    """Of the budget."""
    budget: int
    unit: str
    """``generations`` or ``epochs``."""
    rate: float
    """Generations a second in the last epoch."""
    left: float
    """Seconds, at the speed of the last epochs."""


@dataclass(frozen=True, slots=True)
class JobProgress:
    """Where one job stands."""

    job: Job
    state: JobState
    seconds: float = 0.0
    """Since it began, of a running one."""
    training: TrainingProgress | None = None
    killed: bool = False
    """It failed without saying so: its process is gone."""


@dataclass(slots=True)
class Progress:
    """Where all jobs of a study stand."""

    study: Study
    paths: Paths
    _took: dict[Job, float] = field(default_factory=dict)
    """Seconds of finished jobs, so that each record is read once."""
    _settings: dict[Job, TrainingSettings] = field(default_factory=dict)

    def read_jobs(self, unfinished: Collection[Job], left: Collection[Job] = ()) -> list[JobProgress]:
        """Return where every job stands now.

        Args:
            unfinished: jobs that were to run when it was last decided.
            left: jobs that have to run and were not asked for, of which nothing is returned; all others are finished.
        """
        _, last = journal.read_journal(self.paths)
        return [
            self._standing(job, last.get(job), job in unfinished)
            for job in list_jobs(self.study)
            if job not in left
        ]

    def _standing(self, job: Job, event: journal.Event | None, unfinished: bool) -> JobProgress:
        if not unfinished or (event and event.kind == "ended"):
            return JobProgress(job, "finished")
        if event and event.kind == "began" and event.alive is not False:
            if job.stage == "train" and _newer(self.paths.run(job.name).metrics, event.time):
                # Its record is being written, and what it left while it went on is gone.
                return JobProgress(job, "finished")
            return JobProgress(job, "running", time.time() - event.time, self._trained(job))
        if event:
            return JobProgress(job, "failed", training=self._trained(job), killed=event.kind == "began")
        return JobProgress(job, "waiting", training=self._trained(job))

    def _trained(self, job: Job) -> TrainingProgress | None:
        if job.stage != "train":
            return None
        # Only here: it brings pandas along, and every call of the workflow would wait for that.
        from threespo.runs.artifacts import RunArtifacts

        artifacts = RunArtifacts(self.paths.checkpoints(job.name))
        # The run may end, and remove them, while they are looked at.
        with contextlib.suppress(InputError, FileNotFoundError):
            epochs = artifacts.written_epochs()
            return self._after(job, artifacts, epochs) if epochs else None
        return None

    def _after(self, job: Job, artifacts: "RunArtifacts", epochs: list[int]) -> TrainingProgress:
        training, recent = self._training(job), epochs[-RECENT_EPOCHS:]
        timing = [artifacts.read_rows("timing", epoch).iloc[0] for epoch in recent]
        # Of the epochs that are looked at, from the end of the one before them.
        ends = [epochs[-RECENT_EPOCHS - 1], epochs[-1]] if len(epochs) > RECENT_EPOCHS else [epochs[-1]]
        totals = [int(artifacts.read_rows("metrics", epoch).iloc[0]["generations"]) for epoch in ends]
        spent = [
            training.spent_budget(epochs=epoch, generations=total)
            for epoch, total in zip(ends, totals, strict=True)
        ]
        speed = (spent[-1] - (spent[0] if len(spent) > 1 else 0)) / sum(row["seconds"] for row in timing)
        left = max(0, training.budget - spent[-1]) / speed if speed else 0.0
        rate = float(timing[-1]["generations_per_second"])
        return TrainingProgress(
            epochs[-1],
            min(spent[-1], training.budget),
            training.budget,
            training.budget_unit,
            rate,
            left,
        )

    def _training(self, job: Job) -> TrainingSettings:
        if job not in self._settings:
            self._settings[job] = cast(TrainSettings, job.settings(self.study, self.paths)).training
        return self._settings[job]

    def spent(self, standings: list[JobProgress]) -> dict[str, tuple[int, int]]:
        """Return by unit (``generations``, ``epochs``) what training has spent, and what it may spend in all."""
        totals: dict[str, tuple[int, int]] = {}
        for one in standings:
            if one.job.stage == "train":
                training = self._training(one.job)
                spent = (
                    training.budget
                    if one.state == "finished"
                    else one.training.spent
                    if one.training
                    else 0
                )
                before = totals.get(training.budget_unit, (0, 0))
                totals[training.budget_unit] = (before[0] + spent, before[1] + training.budget)
        return totals

    def left(self, standings: list[JobProgress]) -> tuple[float, bool]:
        """Return the seconds that the rest takes at the present number of jobs at once, and whether all of it is in them.

        A job takes what those like it took: of its method, else of its environment, else of its stage. Of a job without any
        nothing is known.
        """
        known = self._known(standings)
        rest, whole = [], True
        for one in standings:
            if one.state in ("running", "waiting"):
                expected = next((known[key] for key in _likes(one.job) if key in known), None)
                if one.training:
                    rest.append(one.training.left)
                elif expected is not None:
                    rest.append(max(0.0, expected - one.seconds))
                else:
                    whole = False
        running = max(1, sum(one.state == "running" for one in standings))
        return max([0.0, sum(rest) / running, *rest]), whole

    def _known(self, standings: list[JobProgress]) -> dict[tuple[str, str], float]:
        """Return the mean seconds of finished jobs by what they have in common."""
        found: dict[tuple[str, str], list[float]] = {}
        for one in standings:
            if one.state == "finished":
                for key in _likes(one.job):
                    found.setdefault(key, []).append(self._seconds(one.job))
        return {key: sum(times) / len(times) for key, times in found.items()}

    def _seconds(self, job: Job) -> float:
        if job not in self._took:
            record = None
            with contextlib.suppress(InputError):
                record = records.read_record(self.paths, job)
            self._took[job] = float(record.cost.get("seconds", 0.0)) if record else 0.0
        return self._took[job]


def count_states(standings: list[JobProgress]) -> Counter[JobState]:
    """Return how many jobs stand where."""
    return Counter(one.state for one in standings)


def _newer(file: Path, moment: float) -> bool:
    return file.is_file() and file.stat().st_mtime > moment


def _likes(job: Job) -> tuple[tuple[str, str], ...]:
    """Return names of groups of jobs like this one, the most alike first."""
    return (
        (job.stage, job.name.rpartition("/")[0]),
        (job.stage, job.name.partition("/")[0]),
        (job.stage, ""),
    )
