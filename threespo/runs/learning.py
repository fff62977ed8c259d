"""Learning curves on unseen games: every snapshot of a run plays the same games, plain single episodes (figures 3a, 3d).

Training takes the snapshots and this stage plays them, so another choice of games, seeds or temperature
trains nothing.
"""

import sys
from typing import Any

from threespo.agents.rollout import play_episodes
from threespo.envs.base import Task
from threespo.envs.episode import EpisodeSetup
from threespo.errors import InputError
from threespo.protocol import Sampler
from threespo.rng import derive
from threespo.runs.settings import DEFAULT_CURVE_GAMES, LearningRunSettings
from threespo.runs.setup import episode_setup, initial_weights, iterate_samplers, load_tasks
from threespo.runs.snapshots import UNTRAINED, Snapshot, read_snapshot_index
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
    folder = settings.paths.run(settings.run)
    split = str(settings.learning.split)
    setup = episode_setup(settings)
    games = choose_games(load_tasks(settings, split), settings)
    if settings.weights == "run":
        snapshots = read_snapshot_index(folder)
        sources = [str(snapshot.weights(folder)) for snapshot in snapshots]
    else:
        snapshots = [UNTRAINED]
        sources = [initial_weights(settings)]

    rows: list[dict[str, Any]] = []
    samplers = iterate_samplers(settings, sources)
    for snapshot, sampler in zip(snapshots, samplers, strict=True):
        snapshot_rows = _play_snapshot(settings, setup, games, snapshot, sampler)
        rows += snapshot_rows

        success = sum(row["success"] for row in snapshot_rows) / len(snapshot_rows)
        print(
            f"learning {settings.run.run_id} {split} snapshot {snapshot.number}, {snapshot.generations:,} generations: "
            f"{success:.1%} of {len(snapshot_rows)}",
            file=sys.stderr,
            flush=True,
        )
    write_table(folder.learning, rows, COLUMNS)


def _play_snapshot(
    settings: LearningRunSettings,
    setup: EpisodeSetup,
    games: list[Task],
    snapshot: Snapshot,
    sampler: Sampler,
) -> list[dict[str, Any]]:
    """Return a row for each game with each evaluation seed."""
    split = str(settings.learning.split)
    rows = []
    for seed in settings.learning.seeds:
        records = play_episodes(
            setup,
            games,
            sampler,
            seed=seed,
            temperature=settings.temperature,
            # The split is part of the key, so that no two splits share random numbers.
            key=("evaluate", split),
        )
        for record in records:
            task = record.episode.task
            values = (
                snapshot.number, snapshot.epoch, snapshot.generations, snapshot.optimizer_steps, split, seed,
                task.task_id, task.task_type, record.episode.won, record.steps,
            )  # fmt: skip
            rows.append(dict(zip(COLUMNS, values, strict=True)))
    return rows


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
    shuffled = sorted(tasks, key=lambda task: derive("learning", task.task_id))
    return shuffled[: wanted or DEFAULT_CURVE_GAMES]
