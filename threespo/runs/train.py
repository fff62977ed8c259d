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
from threespo.envs.episode import EpisodeSetup, begin
from threespo.methods.base import CommonSettings, Method
from threespo.methods.registry import make_method, searches
from threespo.rng import derive
from threespo.runs import checkpoint, snapshots
from threespo.runs.artifacts import RunArtifacts
from threespo.runs.budget import draw, spent
from threespo.runs.clock import TimedEnvironment, return_free_memory
from threespo.runs.driver import Driver
from threespo.runs.learning_rate import decay, learning_rate
from threespo.runs.metrics import in_order, record, record_time
from threespo.runs.parts import Parts
from threespo.runs.settings import TrainSettings
from threespo.runs.setup import check_sampler, load_tasks, policy_source, prepared, setup_of
from threespo.tables import write_table


def train(settings: TrainSettings) -> None:
    """Train a run; write its metrics, times, weights and artifacts (``threespo.runs.artifacts``) into its folder.

    Resumes from the newest checkpoint, to the same bytes as an uninterrupted run.

    Raises:
        InputError: if another process trains the run, or something that it needs is missing or broken.
    """
    from threespo.runs.launch import launch

    with checkpoint.exclusive(settings.paths.checkpoints(settings.run)):
        if settings.ranks == 1:
            work(settings)
        else:
            launch(settings, work)


def work(settings: TrainSettings) -> None:
    """Train a run whose checkpoints this process may write, as its only rank or as rank 0."""
    from threespo.runs.ranks import parts_of

    # First, so that what is missing is reported at once and not after all games are read.
    source = policy_source(settings)
    check_sampler(settings.sampling)
    setup, tasks = setup_of(settings), choose_pool(load_tasks(settings, "train"), settings.training.pool)
    method = make_method(settings.method, settings.options, common_settings(settings, tasks))
    with parts_of(settings, source, method.critic_rate) as parts:
        _train(settings, setup, tasks, method, parts)


def _train(
    settings: TrainSettings, setup: EpisodeSetup, tasks: list[Task], method: Method, parts: Parts
) -> None:
    training, checkpoints = settings.training, settings.paths.checkpoints(settings.run)
    learner, critic = parts.learner, parts.critic
    trained: dict[str, checkpoint.Saves] = {"learner": learner, **({"critic": critic} if critic else {})}

    progress = checkpoint.load(checkpoints, _identity(settings), trained, settings.ranks)
    # Before the first epoch, not after it. What is there by now is replaced one by one.
    checkpoint.check_disk(checkpoints, trained, 1 if progress.epoch else 3)
    artifacts = RunArtifacts(checkpoints)
    if progress.epoch:
        method.restore(progress.memory)
    else:
        # They may be those of a run with other settings that was killed before its first checkpoint.
        artifacts.clear()

    # Methods step the environment themselves: without this, its time would count as the method's.
    timed = TimedEnvironment(setup.env)
    setup = replace(setup, env=timed)
    logging_seconds = 0.0

    while drawn := draw(tasks, progress, settings):
        # A resumed run has read no prompts: this one must not know more, or roundings would differ.
        parts.sampler.forget()
        factor = decay(settings, spent(progress, settings))
        learner.scale_rate(factor)
        if critic:
            critic.scale_rate(factor)
        driver = Driver(
            parts.sampler, learner, critic, derive(settings.run.seed, "training"), training.temperature
        )
        start, timed.seconds = time.perf_counter(), 0.0
        result = driver.drive(method, progress.epoch, [begin(setup, task) for task in drawn])
        driven, before = time.perf_counter(), spent(progress, settings)

        record(progress, result, driver, len(drawn))
        record_time(progress, driver, driven - start, timed.seconds, logging_seconds)
        progress.memory = method.dump()
        artifacts.epoch(progress.epoch, result)
        artifacts.watched(progress.epoch, progress.metrics[-1], progress.timing[-1])
        if number := snapshots.due(
            training.snapshots, training.budget, before, spent(progress, settings)
        ):
            artifacts.snapshot(number, learner, progress.memory if searches(settings.method) else None)
        _show(progress, settings)
        if progress.epoch % training.checkpoint_every == 0:
            _save(checkpoints, progress, trained)
        return_free_memory()
        # Known only now, when the epoch's row is saved: it counts with the next epoch.
        logging_seconds = time.perf_counter() - driven

    folder = settings.paths.run(settings.run)
    learner.export(folder.weights)
    kept = snapshots.taken(progress.metrics, training)
    if kept:
        artifacts.snapshot(kept[-1].number, None, progress.memory if searches(settings.method) else None)
    artifacts.deliver(folder, progress.epoch, kept)
    write_table(folder.timing, in_order(progress.timing))
    write_table(folder.metrics, in_order(progress.metrics))
    # A finished run needs none. Left behind, they would stop a later run with other settings (``checkpoint.load``).
    shutil.rmtree(checkpoints, ignore_errors=True)


def _save(
    checkpoints: Path, progress: checkpoint.Progress, trained: Mapping[str, checkpoint.Saves]
) -> None:
    first = not checkpoint.there(checkpoints)
    checkpoint.save(checkpoints, progress, trained)
    if first:
        size = checkpoint.size(checkpoints) / 1e6
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
        **prepared(settings),
    }
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()


def _show(progress: checkpoint.Progress, settings: TrainSettings) -> None:
    training, used = settings.training, spent(progress, settings)
    metrics, timing = progress.metrics[-1], progress.timing[-1]
    elapsed = sum(row["seconds"] for row in progress.timing)
    # No generation yet: every task of the first epoch was refused, and nothing is known of the rest.
    left = elapsed * max(0, training.budget - used) / max(1, used)
    of = f"epoch {progress.epoch}" + (f"/{training.epochs}" if training.epochs else "")
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
