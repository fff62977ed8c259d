"""Training one run: a loop that answers a method's requests with a sampler and a learner until the budget is spent."""

import hashlib
import itertools
import json
import math
import resource
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from threespo.envs.base import Task
from threespo.envs.episode import begin
from threespo.envs.registry import ENVIRONMENTS
from threespo.methods.base import CommonSettings
from threespo.methods.registry import make_method, searches
from threespo.protocol import EpochResult
from threespo.rng import derive, generator
from threespo.runs import checkpoint, snapshots
from threespo.runs.artifacts import RunArtifacts
from threespo.runs.clock import TimedEnvironment, return_free_memory
from threespo.runs.driver import Driver
from threespo.runs.learning_rate import learning_rate
from threespo.runs.setup import load_run_policy, load_tasks, make_sampler, policy_source, prepared, setup_of
from threespo.study.fingerprint import fingerprint
from threespo.study.run_settings import TrainSettings
from threespo.tables import write_table

if TYPE_CHECKING:
    from threespo.learner.critic import DeepSpeedCritic
    from threespo.learner.engine import DeepSpeedLearner
    from threespo.policy.model import Policy

_MEANS = ("loss", "policy_loss", "kl", "entropy", "clip_fraction", "approx_kl", "grad_norm", "sampler_gap")


def train(settings: TrainSettings) -> None:
    """Train a run; write its metrics, times, weights and artifacts (``threespo.runs.artifacts``) into its folder.

    Resumes from the newest checkpoint, to the same bytes as an uninterrupted run.

    Raises:
        InputError: if another process trains the run, or something that it needs is missing or broken.
    """
    with checkpoint.exclusive(settings.paths.checkpoints(settings.run)):
        _train(settings)


def _train(settings: TrainSettings) -> None:
    training, checkpoints = settings.training, settings.paths.checkpoints(settings.run)

    # First, so that a missing policy is reported at once and not after all games are read.
    source = policy_source(settings)
    setup, tasks = setup_of(settings), choose_pool(load_tasks(settings, "train"), training.pool)
    method = make_method(settings.method, settings.options, common_settings(settings, tasks))
    policy, learner, critic = _learners(settings, source, method.critic_rate)
    trained: dict[str, checkpoint.Saves] = {"learner": learner, **({"critic": critic} if critic else {})}

    progress = checkpoint.load(checkpoints, _identity(settings), trained)
    artifacts = RunArtifacts(checkpoints)
    if progress.epoch:
        method.restore(progress.memory)
    else:
        # They may be those of a run with other settings that was killed before its first checkpoint.
        artifacts.clear()

    # Methods step the environment themselves: without this, its time would count as the method's.
    timed = TimedEnvironment(setup.env)
    setup = replace(setup, env=timed)
    sampler = make_sampler(settings.sampling, policy)
    logging_seconds = 0.0

    while drawn := _draw(tasks, progress, settings):
        driver = Driver(sampler, learner, critic, derive(settings.run.seed, "training"), training.temperature)
        start, timed.seconds = time.perf_counter(), 0.0
        result = driver.drive(method, progress.epoch, [begin(setup, task) for task in drawn])
        driven, before = time.perf_counter(), progress.generations

        _record(progress, result, driver, len(drawn))
        _record_time(progress, driver, driven - start, timed.seconds, logging_seconds)
        progress.memory = method.dump()
        artifacts.epoch(progress.epoch, result)
        if number := snapshots.due(training.snapshots, training.generations, before, progress.generations):
            artifacts.snapshot(number, learner, progress.memory if searches(settings.method) else None)
        _show(progress, settings)
        if progress.epoch % training.checkpoint_every == 0:
            _save(checkpoints, progress, trained)
        return_free_memory()
        # Known only now, when the epoch's row is saved: it counts with the next epoch.
        logging_seconds = time.perf_counter() - driven

    folder = settings.paths.run(settings.run)
    learner.export(folder.weights)
    kept = snapshots.taken(progress.metrics, training.snapshots, training.generations)
    if kept:
        artifacts.snapshot(kept[-1].number, None, progress.memory if searches(settings.method) else None)
    artifacts.deliver(folder, progress.epoch, kept)
    write_table(folder.timing, _in_order(progress.timing))
    write_table(folder.metrics, _in_order(progress.metrics))
    # A finished run needs none. Left behind, they would stop a later run with other settings (``checkpoint.load``).
    shutil.rmtree(checkpoints, ignore_errors=True)


def _save(checkpoints: Path, progress: checkpoint.Progress, trained: Mapping[str, checkpoint.Saves]) -> None:
    first = not checkpoint.there(checkpoints)
    checkpoint.save(checkpoints, progress, trained)
    if first:
        size = checkpoint.size(checkpoints) / 1e6
        print(f"checkpoints: {size:.1f} MB each, the last two kept, in {checkpoints}", file=sys.stderr)


def _learners(
    settings: TrainSettings, source: str, critic_rate: float | None
) -> "tuple[Policy, DeepSpeedLearner, DeepSpeedCritic | None]":
    """Return the policy that is trained from the weights in ``source``, what trains it, and the method's critic if any."""
    import torch

    from threespo.learner.critic import DeepSpeedCritic
    from threespo.learner.engine import DeepSpeedLearner
    from threespo.learner.optim import OptimSettings

    torch.set_num_threads(settings.threads)
    training = settings.training
    policy = load_run_policy(settings, source)
    reference = load_run_policy(settings, source) if training.kl_coef else None
    optim = OptimSettings(
        lr=learning_rate(settings) * settings.learning_rate_scale,
        weight_decay=training.weight_decay,
        grad_clip=training.grad_clip,
        zero_stage=training.zero_stage,
        micro_batch_tokens=training.micro_batch_tokens,
        dtype=settings.sampling.dtype,
        temperature=training.temperature,
    )

    inspect = settings.paths.checkpoints(settings.run) / "failed-updates"
    learner = DeepSpeedLearner(policy, reference, optim, inspect)
    if critic_rate is None:
        return policy, learner, None
    backbone = load_run_policy(settings, source)
    return policy, learner, DeepSpeedCritic(backbone, replace(optim, lr=optim.lr * critic_rate), inspect)


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
    )


def _identity(settings: TrainSettings) -> str:
    """Hash what decides the run's bytes: code, settings, games and base policy, not labels, evaluation or other runs."""
    run = settings.run
    decides: dict[str, Any] = {
        "settings": settings.key(),
        "code": fingerprint((__name__, ENVIRONMENTS[run.env], f"threespo.methods.{settings.method}")),
        "learning_rate": learning_rate(settings),
        **prepared(settings),
    }
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()


def _draw(tasks: list[Task], progress: checkpoint.Progress, settings: TrainSettings) -> list[Task]:
    """Draw an epoch's tasks; none where the budget is spent to within half a task, or nothing is left to be learned.

    The last epochs have as many tasks as the rest of the budget pays for, at a task's cost in the dearest epoch of the last
    pass over the pool. A method may refuse all tasks of an epoch (3SPO as printed gives up gated ones for good); after three
    passes without a generation the run ends below its budget.
    """
    per_epoch = min(settings.training.tasks_per_epoch, len(tasks))
    left = settings.training.generations - progress.generations

    # ``generations`` in the metrics is a running total; an epoch's own cost is the difference to the row before.
    spent = [0, *(row["generations"] for row in progress.metrics)]
    epochs = [(row["tasks"], after - before) for row, before, after in zip(progress.metrics, spent, spent[1:], strict=False)]
    # Tasks differ in cost, which also changes as the policy learns: the last pass over the pool has both in it.
    recent = epochs[-math.ceil(len(tasks) / per_epoch) :]
    per_task = max([1.0, *(generations / count for count, generations in recent)])
    idle = sum(count for count, _ in itertools.takewhile(lambda epoch: not epoch[1], reversed(epochs)))
    if idle >= 3 * len(tasks):
        print(f"train {settings.run.run_id}: {idle} tasks without a generation: every one is given up", file=sys.stderr)
        return []
    # With less than half a task left, stopping here comes closer to the budget than one more task.
    if epochs and left < per_task / 2:
        return []
    # Before the first epoch no cost is known, so the budget is divided by the dearest task that there could be.
    dearest = settings.training.longest_task(settings.episode.max_steps)
    count = math.ceil(left / per_task) if epochs else max(1, left // dearest)
    return generator(settings.run.seed, "tasks", progress.epoch).sample(tasks, min(per_epoch, count))


def _record(progress: checkpoint.Progress, result: EpochResult, driver: Driver, tasks: int) -> None:
    progress.epoch += 1
    progress.generations += driver.generations
    progress.env_steps += result.env_steps
    progress.completed_paths += result.completed_paths
    progress.optimizer_steps += len(driver.updates)

    # Statistics of a step are means over its tokens, so steps are weighted by their tokens.
    tokens = sum(stats.tokens for stats in driver.updates)
    means = {
        name: sum(getattr(stats, name) * stats.tokens for stats in driver.updates) / tokens if tokens else math.nan
        for name in _MEANS
    }
    paths, steps = result.completed_paths, max(1, result.env_steps)
    progress.metrics.append(
        {
            "epoch": progress.epoch,
            "tasks": tasks,
            **{name: getattr(progress, name) for name in ("generations", "env_steps", "completed_paths")},
            "optimizer_steps": progress.optimizer_steps,
            "epoch_paths": paths,
            "epoch_successes": result.successes,
            "train_success": result.successes / paths if paths else math.nan,
            "invalid_rate": result.invalid_format / steps,
            "inadmissible_rate": result.inadmissible / steps,
            "nothing_rate": result.nothing_happens / steps,
            **means,
            **_spread(driver.advantages),
            **{f"detail_{name}": value for name, value in result.details.items()},
        }
    )


def _spread(advantages: list[float]) -> dict[str, float]:
    rows = len(advantages)
    mean = math.fsum(advantages) / rows if rows else math.nan
    return {
        "rows": float(rows),
        "advantage_mean": mean,
        "advantage_std": math.sqrt(math.fsum((value - mean) ** 2 for value in advantages) / rows) if rows else math.nan,
        "advantage_max": max(map(abs, advantages), default=math.nan),
    }


def _record_time(progress: checkpoint.Progress, driver: Driver, seconds: float, environment: float, logging: float) -> None:
    """Add an epoch's times. ``logging`` (metrics, progress, checkpoints) was spent between the epoch before and this."""
    progress.timing.append(
        {
            "epoch": progress.epoch,
            "seconds": seconds + logging,
            "sampling_seconds": driver.sampling_seconds,
            "update_seconds": driver.update_seconds,
            "environment_seconds": environment,
            "method_seconds": seconds - driver.sampling_seconds - driver.update_seconds - environment,
            "logging_seconds": logging,
            "generations_per_second": driver.generations / seconds,
            "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }
    )


def _in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sort the columns, ``epoch`` first: rows that went through a checkpoint have lost the order they were made in."""
    return [{"epoch": row["epoch"], **dict(sorted(row.items()))} for row in rows]


def _show(progress: checkpoint.Progress, settings: TrainSettings) -> None:
    budget = settings.training.generations
    metrics, timing = progress.metrics[-1], progress.timing[-1]
    elapsed = sum(row["seconds"] for row in progress.timing)
    left = elapsed * max(0, budget - progress.generations) / progress.generations
    print(
        f"train {settings.run.run_id} epoch {progress.epoch}: success {metrics['train_success']:.1%}"
        f" of {metrics['epoch_paths']} paths, {progress.generations:,}/{budget:,} generations,"
        f" {timing['generations_per_second']:.0f}/s, {left / 60:.1f} min left",
        file=sys.stderr,
        flush=True,
    )
