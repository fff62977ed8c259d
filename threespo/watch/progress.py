"""How far the jobs of a study are while the workflow runs, and how long the rest will take."""

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
"""Epochs from which a run's speed is computed: the speed changes as the policy learns."""


@dataclass(frozen=True, slots=True)
class TrainingProgress:
    """How far a training run is."""

    epoch: int
    spent: int
    """Part of ``budget`` that is used up."""
    budget: int
    unit: str
    """``generations`` or ``epochs``."""
    rate: float
    """Generations per second in the last epoch."""
    seconds_left: float
    """At the speed of the last ``RECENT_EPOCHS`` epochs."""


@dataclass(frozen=True, slots=True)
class JobProgress:
    """State of one job."""

    job: Job
    state: JobState
    seconds: float = 0.0
    """Time since a running job began."""
    training: TrainingProgress | None = None
    killed: bool = False
    """Failed without reporting it: its process is gone."""


@dataclass(slots=True)
class Progress:
    """State of all jobs of a study."""

    study: Study
    paths: Paths
    _job_seconds: dict[Job, float] = field(default_factory=dict)
    """Durations of finished jobs, so that each record is read once."""
    _training_settings: dict[Job, TrainingSettings] = field(default_factory=dict)

    def read_jobs(
        self, unfinished: Collection[Job], not_asked_for: Collection[Job] = ()
    ) -> list[JobProgress]:
        """Return the present state of every job.

        Args:
            unfinished: jobs that the workflow's last call decided to run; all others are finished.
            left: jobs that have to run but were not asked for; they are not reported.
        """
        _, last_events = journal.read_journal(self.paths)
        return [
            self._read_job(job, last_events.get(job), job in unfinished)
            for job in list_jobs(self.study)
            if job not in not_asked_for
        ]

    def _read_job(self, job: Job, event: journal.Event | None, unfinished: bool) -> JobProgress:
        if not unfinished or (event and event.kind == "ended"):
            return JobProgress(job, "finished")

        training = self._read_training(job)
        if event is None:
            return JobProgress(job, "waiting", training=training)
        if event.kind == "began" and event.is_alive is not False:
            # The journal still says "running" while a trained run's record is written, and its checkpoints are gone.
            if job.stage == "train" and _is_newer(self.paths.run(job.name).metrics, event.time):
                return JobProgress(job, "finished")
            return JobProgress(job, "running", time.time() - event.time, training)
        return JobProgress(job, "failed", training=training, killed=event.kind == "began")

    def _read_training(self, job: Job) -> TrainingProgress | None:
        if job.stage != "train":
            return None
        # Imported here because it loads pandas, which every call of the workflow would wait for.
        from threespo.runs.artifacts import RunArtifacts

        artifacts = RunArtifacts(self.paths.checkpoints(job.name))
        # The run may end, and remove its checkpoints, while they are read.
        with contextlib.suppress(InputError, FileNotFoundError):
            epochs = artifacts.written_epochs()
            if epochs:
                return self._measure_training(job, artifacts, epochs)
        return None

    def _measure_training(
        self, job: Job, artifacts: "RunArtifacts", epochs: list[int]
    ) -> TrainingProgress:
        settings = self._read_settings(job)
        recent = epochs[-RECENT_EPOCHS:]
        timing = [artifacts.read_rows("timing", epoch).iloc[0] for epoch in recent]
        seconds = sum(row["seconds"] for row in timing)

        spent = self._spent_after(settings, artifacts, recent[-1])
        spent_before = 0
        if len(epochs) > RECENT_EPOCHS:
            spent_before = self._spent_after(settings, artifacts, epochs[-RECENT_EPOCHS - 1])
        speed = (spent - spent_before) / seconds

        # Speed 0: no generation in these epochs, of which nothing can be predicted.
        seconds_left = 0.0
        if speed:
            seconds_left = max(0, settings.budget - spent) / speed
        return TrainingProgress(
            epoch=recent[-1],
            spent=min(spent, settings.budget),
            budget=settings.budget,
            unit=settings.budget_unit,
            rate=float(timing[-1]["generations_per_second"]),
            seconds_left=seconds_left,
        )

    @staticmethod
    def _spent_after(settings: TrainingSettings, artifacts: "RunArtifacts", epoch: int) -> int:
        generations = int(artifacts.read_rows("metrics", epoch).iloc[0]["generations"])
        return settings.spent_budget(epochs=epoch, generations=generations)

    def _read_settings(self, job: Job) -> TrainingSettings:
        if job not in self._training_settings:
            settings = cast(TrainSettings, job.settings(self.study, self.paths))
            self._training_settings[job] = settings.training
        return self._training_settings[job]

    def sum_budgets(self, progress: list[JobProgress]) -> dict[str, tuple[int, int]]:
        """Return (spent, budget) of all training jobs in sum, by unit (``generations``, ``epochs``)."""
        totals: dict[str, tuple[int, int]] = {}
        for entry in progress:
            if entry.job.stage != "train":
                continue
            settings = self._read_settings(entry.job)
            spent = 0
            if entry.state == "finished":
                spent = settings.budget
            elif entry.training:
                spent = entry.training.spent
            spent_before, budget_before = totals.get(settings.budget_unit, (0, 0))
            totals[settings.budget_unit] = (spent_before + spent, budget_before + settings.budget)
        return totals

    def estimate_time_left(self, progress: list[JobProgress]) -> tuple[float, bool]:
        """Return the seconds left at the present number of parallel jobs, and whether that covers all jobs.

        A job is expected to take what finished jobs of its method took, else of its environment, else of its stage.
        Where none has finished the job is not covered.
        """
        mean_seconds = self._mean_seconds(progress)
        remaining: list[float] = []
        complete = True
        for entry in progress:
            if entry.state not in ("running", "waiting"):
                continue
            similar = [key for key in _similar_groups(entry.job) if key in mean_seconds]
            if entry.training:
                remaining.append(entry.training.seconds_left)
            elif similar:
                remaining.append(max(0.0, mean_seconds[similar[0]] - entry.seconds))
            else:
                complete = False

        running = sum(entry.state == "running" for entry in progress)
        in_parallel = sum(remaining) / max(1, running)
        # No schedule is shorter than its longest job.
        return max([in_parallel, *remaining]), complete

    def _mean_seconds(self, progress: list[JobProgress]) -> dict[tuple[str, str], float]:
        """Return the mean duration of finished jobs by group of similar jobs."""
        durations: dict[tuple[str, str], list[float]] = {}
        for entry in progress:
            if entry.state == "finished":
                for key in _similar_groups(entry.job):
                    durations.setdefault(key, []).append(self._read_seconds(entry.job))
        return {key: sum(times) / len(times) for key, times in durations.items()}

    def _read_seconds(self, job: Job) -> float:
        if job not in self._job_seconds:
            record = None
            with contextlib.suppress(InputError):
                record = records.read_record(self.paths, job)
            self._job_seconds[job] = float(record.cost.get("seconds", 0.0)) if record else 0.0
        return self._job_seconds[job]


def count_states(progress: list[JobProgress]) -> Counter[JobState]:
    """Return the number of jobs in each state."""
    return Counter(entry.state for entry in progress)


def _is_newer(file: Path, moment: float) -> bool:
    return file.is_file() and file.stat().st_mtime > moment


def _similar_groups(job: Job) -> tuple[tuple[str, str], ...]:
    """Return keys of the groups of similar jobs that a job belongs to, most similar first."""
    same_method = (job.stage, job.name.rpartition("/")[0])
    same_environment = (job.stage, job.name.partition("/")[0])
    same_stage = (job.stage, "")
    return same_method, same_environment, same_stage
