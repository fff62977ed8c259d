"""How much of a run's budget is spent, and which tasks the rest pays for."""

import itertools
import math
import sys

from threespo.envs.base import Task
from threespo.rng import generator
from threespo.runs.checkpoint import Progress
from threespo.runs.settings import TrainSettings


def spent_budget(progress: Progress, settings: TrainSettings) -> int:
    """Return what a run has spent of ``settings.training.budget``, in the budget's own unit."""
    return settings.training.spent_budget(epochs=progress.epoch, generations=progress.generations)


def draw_tasks(tasks: list[Task], progress: Progress, settings: TrainSettings) -> list[Task]:
    """Draw an epoch's tasks; none where the budget is spent to within half a task, or nothing is left to be learned.

    With a budget in epochs all have equally many tasks. With one in generations the last epochs have as many as the rest of
    the budget pays for, at a task's cost in the dearest epoch of the last pass over the pool. A method may refuse all tasks
    of an epoch (3SPO as printed gives up gated ones for good); after three passes without a generation the run ends below
    its budget.

    Args:
        tasks: the run's pool.
        progress: where the run stands.
        settings: of the run; its seed and the epoch's number decide the draw.
    """
    per_epoch = min(settings.training.tasks_per_epoch, len(tasks))
    left = settings.training.budget - spent_budget(progress, settings)

    # ``generations`` in the metrics is a running total; an epoch's own cost is the difference to the row before.
    total = [0, *(row["generations"] for row in progress.metrics)]
    epochs = [
        (row["tasks"], after - before)
        for row, before, after in zip(progress.metrics, total, total[1:], strict=False)
    ]
    # Tasks differ in cost, which also changes as the policy learns: the last pass over the pool has both in it.
    recent = epochs[-math.ceil(len(tasks) / per_epoch) :]
    per_task = max([1.0, *(generations / count for count, generations in recent)])
    idle = sum(count for count, _ in itertools.takewhile(lambda epoch: not epoch[1], reversed(epochs)))
    if idle >= 3 * len(tasks):
        print(
            f"train {settings.run.run_id}: {idle} tasks without a generation: every one is given up",
            file=sys.stderr,
        )
        return []
    if settings.training.generations is None:
        return _sample(tasks, progress, settings, per_epoch) if left > 0 else []
    # With less than half a task left, stopping here comes closer to the budget than one more task.
    if epochs and left < per_task / 2:
        return []
    # Before the first epoch no cost is known, so the budget is divided by the dearest task that there could be.
    dearest = settings.training.max_generations_per_task(settings.episode.max_steps)
    count = math.ceil(left / per_task) if epochs else max(1, left // dearest)
    return _sample(tasks, progress, settings, min(per_epoch, count))


def _sample(tasks: list[Task], progress: Progress, settings: TrainSettings, count: int) -> list[Task]:
    return generator(settings.run.seed, "tasks", progress.epoch).sample(tasks, count)
