"""Training one run: a loop that answers a method's requests with a sampler and a learner until the budget is spent."""

import hashlib
import json
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from threespo.envs.base import Task
from threespo.envs.episode import EpisodeSetup, start_episode
from threespo.methods.base import CommonSettings, Method
from threespo.methods.registry import make_method, searches
from threespo.protocol import EpochResult
from threespo.rng import derive
from threespo.runs import checkpoint, snapshots
from threespo.runs.artifacts import RunArtifacts
from threespo.runs.budget import draw_tasks, spent_budget
from threespo.runs.checkpoint import Checkpointable, Progress
from threespo.runs.clock import TimedEnvironment, return_free_memory
from threespo.runs.driver import Driver
from threespo.runs.learning_rate import decay_factor, learning_rate
from threespo.runs.metrics import record_epoch, record_timing, sort_columns
from threespo.runs.parts import RunParts
from threespo.runs.settings import TrainSettings
from threespo.runs.setup import (
    check_sampler_installed,
    episode_setup,
    initial_weights,
    load_tasks,
    read_prepared_inputs,
)
from threespo.runs.training_settings import TrainingSettings
from threespo.tables import write_table


class TrainedEpoch(NamedTuple):
    """What an epoch led to, and where its time went."""

    result: EpochResult
    driver: Driver
    seconds: float
    environment_seconds: float


def train(settings: TrainSettings) -> None:
    """Train a run; write its metrics, times, weights and artifacts (``threespo.runs.artifacts``) into its folder.

    Resumes from the newest checkpoint, to the same bytes as an uninterrupted run.

    Raises:
        InputError: if another process trains the run, or something that it needs is missing or broken.
    """
    from threespo.runs.launch import launch_ranks

    with checkpoint.lock_run(settings.paths.checkpoints(settings.run)):
        if settings.ranks == 1:
            train_on_rank_0(settings)
        else:
            launch_ranks(settings, train_on_rank_0)


def train_on_rank_0(settings: TrainSettings) -> None:
    """Train a run whose checkpoints this process may write, as its only rank or as rank 0."""
    from threespo.runs.ranks import parts_on_all_ranks

    # First, so that what is missing is reported at once and not after all games are read.
    source = initial_weights(settings)
    check_sampler_installed(settings.sampling)
    setup = episode_setup(settings)
    # Methods step the environment themselves: without this, its time would count as the method's.
    timed_env = TimedEnvironment(setup.env)
    setup = replace(setup, env=timed_env)
    tasks = choose_pool(load_tasks(settings, "train"), settings.training, settings.run.seed)
    method = make_method(settings.method, settings.options, common_settings(settings, tasks))
    with parts_on_all_ranks(settings, source, method.critic_rate) as parts:
        TrainingRun(settings, setup, timed_env, tasks, method, parts).run()


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """A run that is being trained: per epoch collect and learn, record, checkpoint."""

    settings: TrainSettings
    setup: EpisodeSetup
    timed_env: TimedEnvironment
    """The environment of ``setup``, for its time."""
    tasks: list[Task]
    """The games that the run draws from."""
    method: Method
    parts: RunParts

    @property
    def checkpoints(self) -> Path:
        """Folder of the run's checkpoints and unfinished artifacts."""
        return self.settings.paths.checkpoints(self.settings.run)

    @property
    def artifacts(self) -> RunArtifacts:
        """What the run leaves besides weights and metrics."""
        return RunArtifacts(self.checkpoints)

    def run(self) -> None:
        """Train until the budget is spent and deliver the results."""
        progress = self._resume()
        logging_seconds = 0.0

        while drawn := draw_tasks(self.tasks, progress, self.settings):
            # Collect and learn.
            epoch = self._train_epoch(progress, drawn)
            epoch_end = time.perf_counter()

            # Record.
            spent_before = spent_budget(progress, self.settings)
            record_epoch(progress, epoch.result, epoch.driver, len(drawn))
            record_timing(
                progress, epoch.driver, epoch.seconds, epoch.environment_seconds, logging_seconds
            )
            progress.memory = self.method.dump()
            self._write_artifacts(progress, epoch.result, spent_before)
            _print_progress(progress, self.settings)

            # Checkpoint.
            if progress.epoch % self.settings.training.checkpoint_every == 0:
                self._save_checkpoint(progress)
            return_free_memory()
            # Known only now, when the epoch's row is saved: it counts with the next epoch.
            logging_seconds = time.perf_counter() - epoch_end

        self._deliver(progress)

    def _resume(self) -> Progress:
        """Return where the run stands, with learner, critic and method in the state of the newest checkpoint."""
        progress = checkpoint.load_checkpoint(
            self.checkpoints,
            training_identity(self.settings),
            self._trained_models(),
            self.settings.ranks,
        )
        # Before the first epoch, not after it: two checkpoints are kept while one is written. On
        # resuming, what is there is replaced one by one.
        count = 1 if progress.epoch else 3
        checkpoint.check_disk_space(self.checkpoints, self._trained_models(), count)
        if progress.epoch:
            self.method.restore(progress.memory)
        else:
            # They may be those of a run with other settings that was killed before its first checkpoint.
            self.artifacts.remove_earlier()
        return progress

    def _trained_models(self) -> dict[str, Checkpointable]:
        """Return learner and critic, by the names of their folders in a checkpoint."""
        trained: dict[str, Checkpointable] = {"learner": self.parts.learner}
        if self.parts.critic:
            trained["critic"] = self.parts.critic
        return trained

    def _train_epoch(self, progress: Progress, drawn: list[Task]) -> TrainedEpoch:
        """Answer the method's requests for one epoch on the tasks drawn."""
        settings = self.settings
        # A resumed run has read no prompts: this one must not know more, or roundings would differ.
        self.parts.sampler.forget()
        factor = decay_factor(settings, spent_budget(progress, settings))
        self.parts.learner.scale_rate(factor)
        if self.parts.critic:
            self.parts.critic.scale_rate(factor)

        seed = derive(settings.run.seed, "training")
        driver = Driver(
            self.parts.sampler,
            self.parts.learner,
            self.parts.critic,
            seed,
            settings.training.temperature,
        )
        self.timed_env.seconds = 0.0
        start = time.perf_counter()
        episodes = [start_episode(self.setup, task) for task in drawn]
        result = driver.run_epoch(self.method, progress.epoch, episodes)
        seconds = time.perf_counter() - start
        return TrainedEpoch(result, driver, seconds, self.timed_env.seconds)

    def _write_artifacts(self, progress: Progress, result: EpochResult, spent_before: int) -> None:
        """Write what the epoch that has just ended leaves, and a snapshot if one is due."""
        self.artifacts.write_epoch(progress.epoch, result)
        self.artifacts.write_progress(progress.epoch, progress.metrics[-1], progress.timing[-1])

        training = self.settings.training
        spent_after = spent_budget(progress, self.settings)
        number = snapshots.due_snapshot(training.snapshots, training.budget, spent_before, spent_after)
        if number:
            self.artifacts.write_snapshot(number, self.parts.learner, self._search_memory(progress))

    def _search_memory(self, progress: Progress) -> Mapping[str, Any] | None:
        """Return what a search remembers, which ``probe`` scores states with; ``None`` for other methods."""
        return progress.memory if searches(self.settings.method) else None

    def _save_checkpoint(self, progress: Progress) -> None:
        is_first = not checkpoint.has_checkpoint(self.checkpoints)
        checkpoint.save_checkpoint(self.checkpoints, progress, self._trained_models())
        if is_first:
            megabytes = checkpoint.newest_checkpoint_bytes(self.checkpoints) / 1e6
            print(
                f"checkpoints: {megabytes:.1f} MB each, the last two kept, in {self.checkpoints}",
                file=sys.stderr,
            )

    def _deliver(self, progress: Progress) -> None:
        """Write the results of a finished run into its folder."""
        folder = self.settings.paths.run(self.settings.run)
        self.parts.learner.export(folder.weights)
        delivered = snapshots.list_snapshots(progress.metrics, self.settings.training)
        if delivered:
            self.artifacts.write_snapshot(delivered[-1].number, None, self._search_memory(progress))
        self.artifacts.deliver(folder, progress.epoch, delivered)
        write_table(folder.timing, sort_columns(progress.timing))
        # Last: monitoring takes a run with metrics for finished.
        write_table(folder.metrics, sort_columns(progress.metrics))
        # A finished run needs no checkpoints. They would stop a later run with other settings
        # (``load_checkpoint``).
        shutil.rmtree(self.checkpoints, ignore_errors=True)


def choose_pool(tasks: list[Task], training: TrainingSettings, seed: int) -> list[Task]:
    """Return the games that a run draws from, chosen by a hash of their ids.

    Args:
        tasks: all games of the training split.
        training: how many games the pool has (``None``: all), and whether each training seed has a pool of its own.
        seed: training seed of the run.
    """
    # Not the first ones: tasks are sorted by id, which begins with the task type.
    drawn_by = ("pool", seed) if training.pool_by_seed else ("pool",)
    return sorted(tasks, key=lambda task: derive(*drawn_by, task.task_id))[: training.pool]


def common_settings(settings: TrainSettings, pool: list[Task]) -> CommonSettings:
    """Return what the run's method shares with the others, given the games that it draws from."""
    training = settings.training
    recorded = pool[: training.recorded_tasks]
    return CommonSettings(
        seed=settings.run.seed,
        group_size=training.group_size,
        clip=training.clip,
        kl_coef=training.kl_coef,
        invalid_penalty=training.invalid_penalty,
        inadmissible_penalty=training.inadmissible_penalty,
        success_reward=training.success_reward,
        minibatch=settings.minibatch,
        statistics="trajectories" if training.terms == "equalised" else "rows",
        recorded=frozenset(task.task_id for task in recorded),
        entropy_coef=training.entropy_coef,
    )


def training_identity(settings: TrainSettings) -> str:
    """Hash what decides the run's bytes: code, settings, games and base policy, not labels, evaluation or other runs."""
    decisive: dict[str, Any] = {
        "settings": settings.key(),
        "code": settings.code,
        "learning_rate": learning_rate(settings),
        **read_prepared_inputs(settings),
    }
    return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()


def _print_progress(progress: Progress, settings: TrainSettings) -> None:
    training = settings.training
    metrics = progress.metrics[-1]
    timing = progress.timing[-1]

    elapsed = sum(row["seconds"] for row in progress.timing)
    spent = spent_budget(progress, settings)
    # At least 1: no generation yet if every task of the first epoch was refused, and nothing is known of
    # the rest.
    seconds_left = elapsed * max(0, training.budget - spent) / max(1, spent)

    epoch = f"epoch {progress.epoch}"
    if training.epochs:
        epoch += f"/{training.epochs}"
    generations = f"{progress.generations:,}"
    if training.generations:
        generations += f"/{training.generations:,}"
    print(
        f"train {settings.run.run_id} {epoch}: success {metrics['train_success']:.1%}"
        f" of {metrics['epoch_paths']} paths, {generations} generations,"
        f" {timing['generations_per_second']:.0f}/s, {seconds_left / 60:.1f} min left",
        file=sys.stderr,
        flush=True,
    )
