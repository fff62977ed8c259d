"""Learning curves on unseen games: every snapshot of a run plays the same games, plain single episodes (figures 3a, 3d).

Training takes the snapshots and this stage plays them, so another choice of games, seeds or temperature trains nothing.
"""

import sys
from typing import Any

from threespo.agents.rollout import play_episodes
from threespo.envs.base import Task
from threespo.errors import InputError
from threespo.rng import derive
from threespo.runs.settings import DEFAULT_CURVE_GAMES, LearningRunSettings
from threespo.runs.setup import episode_setup, iterate_samplers, load_tasks, untrained_weights
from threespo.runs.snapshots import UNTRAINED, read_snapshot_index
from threespo.tables import write_table

COLUMNS = (
    "snapshot", "epoch", "generations", "optimizer_steps", "split", "evaluation_seed", "task_id", "task_type", "success",
    "steps",
)  # fmt: skip


def evaluate_snapshots(settings: LearningRunSettings) -> None:
    """Write ``learning.parquet``: one row per episode of each of the run's snapshots, or of the untrained policy.

    A game is drawn with the same random numbers as in the run's evaluation (``threespo.runs.evaluate``).

    Raises:
        InputError: if the split has fewer games than asked for, or weights are missing.
    """
    import torch

    torch.set_num_threads(settings.threads)
    run, folder, learning = settings.run, settings.paths.run(settings.run), settings.learning
    split = str(learning.split)
    setup, games = episode_setup(settings), choose_games(load_tasks(settings, split), settings)
    if settings.weights == "run":
        policies = [
            (snapshot, str(snapshot.weights(folder))) for snapshot in read_snapshot_index(folder)
        ]
    else:
        policies = [(UNTRAINED, untrained_weights(settings))]

    rows: list[dict[str, Any]] = []
    samplers = iterate_samplers(settings, (source for _, source in policies))
    for (snapshot, _), sampler in zip(policies, samplers, strict=True):
        before = len(rows)
        for seed in learning.seeds:
            # The split is part of the key, so that no two splits share random numbers.
            draws: dict[str, Any] = {
                "seed": seed,
                "temperature": settings.temperature,
                "key": ("evaluate", split),
            }
            for record in play_episodes(setup, games, sampler, **draws):
                task = record.episode.task
                values = (
                    snapshot.number, snapshot.epoch, snapshot.generations, snapshot.optimizer_steps, split, seed,
                    task.task_id, task.task_type, record.episode.won, record.steps,
                )  # fmt: skip
                rows.append(dict(zip(COLUMNS, values, strict=True)))

        won = sum(row["success"] for row in rows[before:]) / (len(rows) - before)
        at = f"snapshot {snapshot.number}, {snapshot.generations:,} generations"
        print(
            f"learning {run.run_id} {split} {at}: {won:.1%} of {len(rows) - before}",
            file=sys.stderr,
            flush=True,
        )
    write_table(folder.learning, rows, COLUMNS)


def choose_games(tasks: list[Task], settings: LearningRunSettings) -> list[Task]:
    """Return the games of the curves: the same for every run, chosen by a hash of their ids.

    Raises:
        InputError: if the study asks for more than there are.
    """
    wanted = settings.learning.games
    if wanted is not None and wanted > len(tasks):
        raise InputError(
            f"evaluation.learning.games: found {wanted}, but split {settings.learning.split!r} of {settings.run.env} in "
            f"{settings.paths.data(settings.run.env)} has {len(tasks)}; lower it, or leave it out for as many as there are"
        )
    # Not the first ones: tasks are sorted by id, which begins with the task type.
    return sorted(tasks, key=lambda task: derive("learning", task.task_id))[
        : wanted or DEFAULT_CURVE_GAMES
    ]
