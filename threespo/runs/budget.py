"""How much of a run's budget is spent, and which tasks the rest pays for."""

import math
import sys
from typing import NamedTuple

from threespo.envs.base import Task
from threespo.rng import generator
from threespo.runs.checkpoint import Progress
from threespo.runs.settings import TrainSettings

MAX_IDLE_PASSES = 3
"""Passes over the pool without a generation, after which a run ends: its method has given up every task."""


class EpochCost(NamedTuple):
    """What an epoch has spent."""

    tasks: int
    generations: int


def spent_budget(progress: Progress, settings: TrainSettings) -> int:
    """Return what a run has spent of ``settings.training.budget``, in the budget's own unit."""
    return settings.training.spent_budget(epochs=progress.epoch, generations=progress.generations)


def draw_tasks(tasks: list[Task], progress: Progress, settings: TrainSettings) -> list[Task]:
    """Draw an epoch's tasks; none where the budget is spent to within half a task, or nothing is left to be learned.

    With a budget in epochs all have equally many tasks. With one in generations the last epochs have as
    many as the rest of the budget pays for, at a task's cost in the dearest epoch of the last pass over
    the pool. A method may refuse all tasks of an epoch (3SPO as printed gives up gated ones for good);
    after three passes without a generation the run ends below its budget.

    Args:
        tasks: the run's pool.
        progress: how far the run is.
        settings: of the run; its seed and the epoch's number decide the draw.
    """
    training = settings.training
    per_epoch = min(training.tasks_per_epoch, len(tasks))
    left = training.budget - spent_budget(progress, settings)
    costs = _epoch_costs(progress)

    idle_tasks = _count_idle_tasks(costs)
    if idle_tasks >= MAX_IDLE_PASSES * len(tasks):
        print(
            f"train {settings.run.run_id}: {idle_tasks} tasks without a generation: every one is given up",
            file=sys.stderr,
        )
        return []

    if training.generations is None:
        count = per_epoch if left > 0 else 0
    elif costs:
        # Tasks differ in cost, which also changes as the policy learns: the last pass over the pool has
        # both in it.
        recent = costs[-math.ceil(len(tasks) / per_epoch) :]
        per_task = max([1.0, *(cost.generations / cost.tasks for cost in recent)])
        # With less than half a task left, stopping here comes closer to the budget than one more task.
        count = 0 if left < per_task / 2 else math.ceil(left / per_task)
    else:
        # Before the first epoch no cost is known, so the budget is divided by the dearest task that
        # there could be.
        max_cost = training.max_generations_per_task(settings.episode.max_steps)
        count = max(1, left // max_cost)

    if count == 0:
        return []
    rng = generator(settings.run.seed, "tasks", progress.epoch)
    return rng.sample(tasks, min(per_epoch, count))


def _epoch_costs(progress: Progress) -> list[EpochCost]:
    """Return what each epoch has spent: ``generations`` in the metrics is a running total."""
    costs = []
    before = 0
    for row in progress.metrics:
        costs.append(EpochCost(row["tasks"], row["generations"] - before))
        before = row["generations"]
    return costs


def _count_idle_tasks(costs: list[EpochCost]) -> int:
    """Return the tasks of the last epochs in a row that had no generation."""
    idle_tasks = 0
    for cost in reversed(costs):
        if cost.generations:
            break
        idle_tasks += cost.tasks
    return idle_tasks
