"""The corridor's entry in the registry of environments: its section of a study, its tasks on disk, and how it is played."""

import json
from pathlib import Path

from pydantic import Field
from threespo.envs.corridor.corridor import COLOURS, Corridor, CorridorTask

from threespo.envs.settings import EnvironmentSettings, EpisodeSettings, TaskSettings
from threespo.envs.spec import EnvironmentSpec, Playable
from threespo.rng import generator

SPLITS = ("train", "calibration", "test")


class CorridorTasks(TaskSettings):
    """Which corridors."""

    corridors: int = Field(default=8, ge=1)
    """Corridors of each split."""


class CorridorEpisode(EpisodeSettings):
    """How an episode runs."""

    max_steps: int = Field(default=6, ge=1)


class CorridorSettings(CorridorTasks, CorridorEpisode, EnvironmentSettings):
    """The section ``corridor`` of a study."""


def task(name: str) -> CorridorTask:
    """Return the corridor of a name."""
    rng = generator("corridor", name)
    return CorridorTask(name, tuple(rng.sample(COLOURS, len(COLOURS))), rng.choice(COLOURS))


def load_tasks(data: Path, split: str) -> list[CorridorTask]:
    return [task(name) for name in json.loads((data / "manifest.json").read_text())[split]]


def playable(data: Path, split: str) -> list[Playable]:
    return [
        Playable(one.task_id, one.task_type, one.goal, lambda one=one: one)
        for one in load_tasks(data, split)
    ]


SPEC = EnvironmentSpec(
    name="corridor",
    settings=CorridorSettings,
    tasks=CorridorTasks,
    episode=CorridorEpisode,
    splits=SPLITS,
    evaluated=("test",),
    text=Corridor.text,
    make=lambda settings, data: Corridor(),
    load_tasks=load_tasks,
    recognises=lambda path: path.name == "corridor" and (path / "manifest.json").is_file(),
    splits_in=lambda path: SPLITS,
    tasks_in=playable,
    playable="the data folder of a study in the corridor",
    has_curriculum=True,
)
