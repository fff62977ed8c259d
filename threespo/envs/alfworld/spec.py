"""ALFWorld's entry in the registry of environments."""

import functools
from pathlib import Path
from typing import Any

from threespo.envs.alfworld.settings import SPLITS, AlfworldEpisode, AlfworldSettings, AlfworldTasks
from threespo.envs.alfworld.text import TEXT
from threespo.envs.base import Environment
from threespo.envs.spec import EnvironmentSpec, Playable, RealData


def _make(settings: AlfworldEpisode, _: Path) -> Environment[Any, Any]:
    if settings.engine == "textworld":
        from threespo.envs.alfworld.textworld import TextWorldAlfworld

        return TextWorldAlfworld()

    from threespo.envs.alfworld import Alfworld

    return Alfworld()


def _load_tasks(data: Path, split: str) -> list[Any]:
    from threespo.envs.alfworld import compile_game, sources

    return [compile_game(record) for record in sources.load_games(data, split)]


def _recognises(path: Path) -> bool:
    from threespo.envs.alfworld.sources import GAME_FILE, contains_games

    if path.is_file():
        return path.name == GAME_FILE or (".jsonl" in path.name and contains_games(path.parent))
    return (path / GAME_FILE).exists() or contains_games(path)


def _splits_in(path: Path) -> list[str]:
    from threespo.envs.alfworld.sources import find_splits

    if _one_game(path):
        return ["game"]
    # A file of games is a split of the folder that it lies in.
    found = [path.name.split(".jsonl", 1)[0]] if path.is_file() else find_splits(path)
    return sorted(found, key=lambda split: (split != "train", split))


def _tasks_in(path: Path, split: str) -> list[Playable]:
    from threespo.envs.alfworld import compile_game
    from threespo.envs.alfworld.sources import load_games, read_game

    single = _one_game(path)
    records = (
        [read_game(single)] if single else load_games(path.parent if path.is_file() else path, split)
    )
    opened = [functools.partial(compile_game, record) for record in records]
    return [
        Playable(game.game_id, game.task_type, game.goal, open)
        for game, open in zip(records, opened, strict=True)
    ]


def _one_game(path: Path) -> Path | None:
    from threespo.envs.alfworld.sources import GAME_FILE

    if path.is_dir() and (path / GAME_FILE).exists():
        return path / GAME_FILE
    return path if path.name == GAME_FILE else None


def _lacks(folder: Path) -> str | None:
    from threespo.envs.alfworld.sources import describe_missing_files

    return describe_missing_files(folder)


SPEC = EnvironmentSpec(
    name="alfworld",
    settings=AlfworldSettings,
    tasks=AlfworldTasks,
    episode=AlfworldEpisode,
    splits=SPLITS,
    evaluated=("valid_seen", "valid_unseen"),
    text=TEXT,
    make=_make,
    load_tasks=_load_tasks,
    recognises=_recognises,
    splits_in=_splits_in,
    tasks_in=_tasks_in,
    playable="a game.tw-pddl, a .jsonl(.xz) file of games, a folder of ALFWorld games",
    real=RealData(
        "games",
        "ALFWorld games, either as alfworld-download lays them out or compact (*.jsonl.xz, alfred.pddl, grammar.twl2)",
        files=("*.jsonl", "*.jsonl.xz", "*.pddl", "*.twl2"),
        explain_missing=_lacks,
        listed=("game.tw-pddl",),
    ),
    has_curriculum=True,
)
