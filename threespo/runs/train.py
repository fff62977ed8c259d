"""Training one run: a loop that answers a method's requests with a sampler and a learner until the budget is spent."""

import hashlib
import itertools
import json
import math
import resource
import shutil
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from threespo.envs.base import Task
from threespo.envs.episode import begin
from threespo.methods.base import CommonSettings
from threespo.methods.registry import make_method
from threespo.protocol import EpochResult
from threespo.rng import derive, generator
from threespo.runs import checkpoint
from threespo.runs.answers import Answers
from threespo.runs.clock import TimedEnvironment, return_free_memory
from threespo.runs.data import load_tasks
from threespo.runs.keepsakes import Keepsakes
from threespo.runs.rates import learning_rate
from threespo.runs.worlds import load_run_policy, make_sampler, make_world, policy_source
from threespo.study import stages
from threespo.study.matrix import snapshots_of
from threespo.tables import write_table

if TYPE_CHECKING:
    from threespo.learner.critic import DeepSpeedCritic
    from threespo.learner.engine import DeepSpeedLearner
    from threespo.policy.model import Policy
    from threespo.study.config import Study
    from threespo.study.matrix import Paths, Run

_MEANS = ("loss", "policy_loss", "kl", "entropy", "clip_fraction", "approx_kl", "grad_norm", "sampler_gap")


def train(study: "Study", run: "Run", paths: "Paths") -> None:
    """Train ``run``; write its metrics, times, weights and keepsakes (``threespo.runs.keepsakes``) into its folder.

    Resumes from the newest checkpoint, to the same bytes as an uninterrupted run.

    Raises:
        InputError: if another process trains the run, or something that it needs is missing or broken.
    """
    with checkpoint.exclusive(paths.checkpoints(run)):
        _train(study.at(run.env), run, paths)


def _train(study: "Study", run: "Run", paths: "Paths") -> None:
    training, entry = study.training, study.methods[run.method]
    # Named before games are read, which takes longer.
    source = policy_source(study, paths, run)
    data = paths.data(run.env)
    world, tasks = make_world(study, run.env, data), choose_pool(load_tasks(run.env, data, "train"), training.pool)
    method = make_method(entry.method, entry.options, common_settings(study, run, tasks))
    policy, learner, critic = _learners(study, run, paths, source, method.critic_rate)
    trained: dict[str, checkpoint.Saves] = {"learner": learner, **({"critic": critic} if critic else {})}
    budget = study.tuning.generations if study.tuning and run.rate is not None else training.generations
    progress = checkpoint.load(paths.checkpoints(run), _identity(study, run, paths), trained)
    method.restore(progress.memory) if progress.epoch else None
    keepsakes, snapshots = Keepsakes(paths.checkpoints(run)), snapshots_of(study, run)
    if not progress.epoch:
        # What a run that was killed before its first checkpoint has left may be another run's.
        keepsakes.clear()
    timed = TimedEnvironment(world.env)
    world = replace(world, env=timed)
    sampler = make_sampler(study, policy, run.policy)
    logging_seconds = 0.0
    while drawn := _draw(tasks, progress, study, run, budget):
        answers = Answers(sampler, learner, critic, derive(run.seed, "training"), training.temperature)
        start, timed.seconds = time.perf_counter(), 0.0
        result = answers.drive(method, progress.epoch, [begin(world, task) for task in drawn])
        driven, before = time.perf_counter(), progress.generations
        _record(progress, result, answers, len(drawn))
        _record_time(progress, answers, driven - start, timed.seconds, logging_seconds)
        progress.memory = method.dump()
        keepsakes.epoch(progress.epoch, result)
        # In the middles of equal parts of the budget, since a run may end a little short of it.
        due = [min(snapshots, math.floor(snapshots * at / budget + 0.5)) for at in (before, progress.generations)]
        if due[0] < due[1]:
            keepsakes.snapshot(due[1], progress.epoch, learner, progress.memory)
        _show(progress, run, budget)
        if progress.epoch % training.checkpoint_every == 0:
            first = not checkpoint.there(paths.checkpoints(run))
            checkpoint.save(paths.checkpoints(run), progress, trained)
            if first:
                size = checkpoint.size(paths.checkpoints(run)) / 1e6
                print(f"checkpoints: {size:.1f} MB each, the last two kept, in {paths.checkpoints(run)}", file=sys.stderr)
        return_free_memory()
        logging_seconds = time.perf_counter() - driven
    learner.export(paths.run(run) / "weights")
    keepsakes.deliver(paths.run(run), progress.epoch)
    write_table(paths.run(run) / "timing.parquet", _in_order(progress.timing))
    write_table(paths.run(run) / "metrics.parquet", _in_order(progress.metrics))
    # A finished run needs none; left behind, they would answer for a run with other settings.
    shutil.rmtree(paths.checkpoints(run), ignore_errors=True)


def _learners(
    study: "Study", run: "Run", paths: "Paths", source: str, critic_rate: float | None
) -> "tuple[Policy, DeepSpeedLearner, DeepSpeedCritic | None]":
    """Return the policy that is trained from the weights in ``source``, what trains it, and the method's critic if any."""
    import torch

    from threespo.learner.critic import DeepSpeedCritic
    from threespo.learner.engine import DeepSpeedLearner, OptimSettings

    torch.set_num_threads(study.training.threads)
    training = study.training
    policy = load_run_policy(study, source, run.policy)
    reference = load_run_policy(study, source, run.policy) if training.kl_coef else None
    optim = OptimSettings(
        lr=learning_rate(study, run, paths) * study.policies[run.policy].learning_rate_scale,
        weight_decay=training.weight_decay,
        grad_clip=training.grad_clip,
        zero_stage=training.zero_stage,
        micro_batch_tokens=training.micro_batch_tokens,
        dtype=study.policies[run.policy].dtype,
        temperature=training.temperature,
    )
    inspect = paths.checkpoints(run) / "failed-updates"
    learner = DeepSpeedLearner(policy, reference, optim, inspect)
    if critic_rate is None:
        return policy, learner, None
    backbone = load_run_policy(study, source, run.policy)
    return policy, learner, DeepSpeedCritic(backbone, replace(optim, lr=optim.lr * critic_rate), inspect)


def choose_pool(tasks: list[Task], size: int | None) -> list[Task]:
    """Return the games that a run draws from: the same in every run, chosen by a hash of their ids.

    Not the first ones: tasks come sorted by id, which begins with the task type.
    """
    return sorted(tasks, key=lambda task: derive("pool", task.task_id))[:size]


def common_settings(study: "Study", run: "Run", pool: list[Task]) -> CommonSettings:
    """Return what the run's method shares with the others, given the games that it draws from."""
    training = study.training
    return CommonSettings(
        seed=run.seed,
        group_size=training.group_size,
        clip=training.clip,
        kl_coef=training.kl_coef,
        invalid_penalty=training.invalid_penalty,
        inadmissible_penalty=training.inadmissible_penalty,
        success_reward=training.success_reward,
        minibatch=study.methods[run.method].minibatch or training.minibatch,
        statistics="trajectories" if training.terms == "equalised" else "rows",
        recorded=frozenset(task.task_id for task in pool[: training.recorded_tasks]),
    )


def _identity(study: "Study", run: "Run", paths: "Paths") -> str:
    """Hash what decides the run's bytes: code, settings, games and base policy, not labels, evaluation or other runs."""
    decides: dict[str, Any] = {
        "run": run.run_id,
        "code": stages.code("train", study, run),
        "settings": stages.train_settings(study, run),
        "learning_rate": learning_rate(study, run, paths),
        "base": json.loads((paths.policy(run.env, run.policy) / "policy.json").read_text()),
        "tasks": json.loads((paths.data(run.env) / "manifest.json").read_text()),
    }
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()


def _draw(tasks: list[Task], progress: checkpoint.Progress, study: "Study", run: "Run", budget: int) -> list[Task]:
    """Draw an epoch's tasks; none where the budget is spent to within half a task, or nothing is left to be learned.

    The last epochs are shortened to what the budget has left, as the dearest epoch of the last pass over the pool lets
    expect. A method may refuse all tasks of an epoch (3SPO as printed gives up gated ones for good); after three passes
    without a generation the run ends below its budget.
    """
    per_epoch = min(study.training.tasks_per_epoch, len(tasks))
    left = budget - progress.generations
    spent = [0, *(row["generations"] for row in progress.metrics)]
    epochs = [(row["tasks"], after - before) for row, before, after in zip(progress.metrics, spent, spent[1:], strict=False)]
    recent = epochs[-math.ceil(len(tasks) / per_epoch) :]
    per_task = max([1.0, *(generations / count for count, generations in recent)])
    idle = sum(count for count, _ in itertools.takewhile(lambda epoch: not epoch[1], reversed(epochs)))
    if idle >= 3 * len(tasks):
        print(f"train {run.run_id}: {idle} tasks without a generation: every one is given up", file=sys.stderr)
        return []
    if left < per_task / 2:
        return []
    count = min(per_epoch, math.ceil(left / per_task))
    return generator(run.seed, "tasks", progress.epoch).sample(tasks, count)


def _record(progress: checkpoint.Progress, result: EpochResult, answers: Answers, tasks: int) -> None:
    progress.epoch += 1
    progress.generations += answers.generations
    progress.env_steps += result.env_steps
    progress.completed_paths += result.completed_paths
    progress.optimizer_steps += len(answers.updates)
    tokens = sum(stats.tokens for stats in answers.updates)
    means = {
        name: sum(getattr(stats, name) * stats.tokens for stats in answers.updates) / tokens if tokens else math.nan
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
            **_spread(answers.advantages),
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


def _record_time(
    progress: checkpoint.Progress, answers: Answers, seconds: float, environment: float, logging: float
) -> None:
    """Add an epoch's times. ``logging`` (metrics, progress, checkpoints) was spent between the epoch before and this."""
    progress.timing.append(
        {
            "epoch": progress.epoch,
            "seconds": seconds + logging,
            "sampling_seconds": answers.sampling_seconds,
            "update_seconds": answers.update_seconds,
            "environment_seconds": environment,
            "method_seconds": seconds - answers.sampling_seconds - answers.update_seconds - environment,
            "logging_seconds": logging,
            "generations_per_second": answers.generations / seconds,
            "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }
    )


def _in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sort the columns, ``epoch`` first: rows that went through a checkpoint have lost the order they were made in."""
    return [{"epoch": row["epoch"], **dict(sorted(row.items()))} for row in rows]


def _show(progress: checkpoint.Progress, run: "Run", budget: int) -> None:
    metrics, timing = progress.metrics[-1], progress.timing[-1]
    elapsed = sum(row["seconds"] for row in progress.timing)
    left = elapsed * max(0, budget - progress.generations) / progress.generations
    print(
        f"train {run.run_id} epoch {progress.epoch}: success {metrics['train_success']:.1%} of {metrics['epoch_paths']}"
        f" paths, {progress.generations:,}/{budget:,} generations, {timing['generations_per_second']:.0f}/s,"
        f" {left / 60:.1f} min left",
        file=sys.stderr,
        flush=True,
    )
