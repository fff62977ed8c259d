"""Training one run: a loop that answers a method's requests with a sampler and a learner until the budget is spent."""

import hashlib
import json
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from threespo.envs.base import Task
from threespo.envs.episode import EpisodeSetup, start_episode
from threespo.methods.base import CommonSettings, Method
from threespo.methods.registry import make_method, searches
from threespo.rng import derive
from threespo.runs import checkpoint, snapshots
from threespo.runs.artifacts import RunArtifacts
from threespo.runs.budget import draw_tasks, spent_budget
from threespo.runs.clock import TimedEnvironment, return_free_memory
from threespo.runs.driver import Driver
from threespo.runs.learning_rate import decay, learning_rate
from threespo.runs.metrics import record_epoch, record_timing, sort_columns
from threespo.runs.parts import RunParts
from threespo.runs.settings import TrainSettings
from threespo.runs.setup import (
    check_sampler_installed,
    episode_setup,
    load_tasks,
    read_prepared_inputs,
    untrained_weights,
)
from threespo.tables import write_table


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
    source = untrained_weights(settings)
    check_sampler_installed(settings.sampling)
    setup, tasks = (
        episode_setup(settings),
        choose_pool(load_tasks(settings, "train"), settings.training.pool),
    )
    method = make_method(settings.method, settings.options, common_settings(settings, tasks))
    with parts_on_all_ranks(settings, source, method.critic_rate) as parts:
        _train(settings, setup, tasks, method, parts)


def _train(
    settings: TrainSettings, setup: EpisodeSetup, tasks: list[Task], method: Method, parts: RunParts
) -> None:
    training, checkpoints = settings.training, settings.paths.checkpoints(settings.run)
    learner, critic = parts.learner, parts.critic
    trained: dict[str, checkpoint.Checkpointable] = {
        "learner": learner,
        **({"critic": critic} if critic else {}),
    }

    progress = checkpoint.load_checkpoint(checkpoints, _identity(settings), trained, settings.ranks)
    # Before the first epoch, not after it. What is there by now is replaced one by one.
    checkpoint.check_disk_space(checkpoints, trained, 1 if progress.write_epoch else 3)
    artifacts = RunArtifacts(checkpoints)
    if progress.write_epoch:
        method.restore(progress.memory)
    else:
        # They may be those of a run with other settings that was killed before its first checkpoint.
        artifacts.clear()

    # Methods step the environment themselves: without this, its time would count as the method's.
    timed = TimedEnvironment(setup.env)
    setup = replace(setup, env=timed)
    logging_seconds = 0.0

    while drawn := draw_tasks(tasks, progress, settings):
        # A resumed run has read no prompts: this one must not know more, or roundings would differ.
        parts.sampler.forget()
        factor = decay(settings, spent_budget(progress, settings))
        learner.scale_rate(factor)
        if critic:
            critic.scale_rate(factor)
        driver = Driver(
            parts.sampler, learner, critic, derive(settings.run.seed, "training"), training.temperature
        )
        start, timed.seconds = time.perf_counter(), 0.0
        result = driver.run_epoch(
            method, progress.write_epoch, [start_episode(setup, task) for task in drawn]
        )
        driven, before = time.perf_counter(), spent_budget(progress, settings)

        record_epoch(progress, result, driver, len(drawn))
        record_timing(progress, driver, driven - start, timed.seconds, logging_seconds)
        progress.memory = method.dump()
        artifacts.write_epoch(progress.write_epoch, result)
        artifacts.write_progress(progress.write_epoch, progress.metrics[-1], progress.timing[-1])
        if number := snapshots.due_snapshot(
            training.snapshots, training.budget, before, spent_budget(progress, settings)
        ):
            artifacts.write_snapshot(
                number, learner, progress.memory if searches(settings.method) else None
            )
        _show(progress, settings)
        if progress.write_epoch % training.checkpoint_every == 0:
            _save(checkpoints, progress, trained)
        return_free_memory()
        # Known only now, when the epoch's row is saved: it counts with the next epoch.
        logging_seconds = time.perf_counter() - driven

    folder = settings.paths.run(settings.run)
    learner.export(folder.weights)
    kept = snapshots.list_snapshots(progress.metrics, training)
    if kept:
        artifacts.write_snapshot(
            kept[-1].number, None, progress.memory if searches(settings.method) else None
        )
    artifacts.deliver(folder, progress.write_epoch, kept)
    write_table(folder.timing, sort_columns(progress.timing))
    write_table(folder.metrics, sort_columns(progress.metrics))
    # A finished run needs none. Left behind, they would stop a later run with other settings (``checkpoint.load``).
    shutil.rmtree(checkpoints, ignore_errors=True)


def _save(
    checkpoints: Path, progress: checkpoint.Progress, trained: Mapping[str, checkpoint.Checkpointable]
) -> None:
    first = not checkpoint.has_checkpoint(checkpoints)
    checkpoint.save_checkpoint(checkpoints, progress, trained)
    if first:
        size = checkpoint.newest_checkpoint_bytes(checkpoints) / 1e6
        print(f"checkpoints: {size:.1f} MB each, the last two kept, in {checkpoints}", file=sys.stderr)


def choose_pool(tasks: list[Task], size: int | None) -> list[Task]:
    """Return the games that a run draws from: the same in every run, chosen by a hash of their ids.

    ``size`` None takes all. Not the first ones: tasks are sorted by id, which begins with the task type.
    """
    return sorted(tasks, key=lambda task: derive("pool", task.task_id))[:size]


def common_settings(settings: TrainSettings, pool: list[Task]) -> CommonSettings:
    """Return what the run's method shares with the others, given the games that it draws from."""
    training = settings.training
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
        recorded=frozenset(task.task_id for task in pool[: training.recorded_tasks]),
        entropy_coef=training.entropy_coef,
    )


def _identity(settings: TrainSettings) -> str:
    """Hash what decides the run's bytes: code, settings, games and base policy, not labels, evaluation or other runs."""
    decides: dict[str, Any] = {
        "settings": settings.key(),
        "code": settings.code,
        "learning_rate": learning_rate(settings),
        **read_prepared_inputs(settings),
    }
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()


def _show(progress: checkpoint.Progress, settings: TrainSettings) -> None:
    training, used = settings.training, spent_budget(progress, settings)
    metrics, timing = progress.metrics[-1], progress.timing[-1]
    elapsed = sum(row["seconds"] for row in progress.timing)
    # No generation yet: every task of the first epoch was refused, and nothing is known of the rest.
    left = elapsed * max(0, training.budget - used) / max(1, used)
    of = f"epoch {progress.write_epoch}" + (f"/{training.epochs}" if training.epochs else "")
    generations = f"{progress.generations:,}" + (
        f"/{training.generations:,}" if training.generations else ""
    )
    print(
        f"train {settings.run.run_id} {of}: success {metrics['train_success']:.1%}"
        f" of {metrics['epoch_paths']} paths, {generations} generations,"
        f" {timing['generations_per_second']:.0f}/s, {left / 60:.1f} min left",
        file=sys.stderr,
        flush=True,
    )
