"""ALFWorld's entry in the registry of environments."""

import functools
from pathlib import Path
from typing import Any

# A spec is loaded at every start of a command, so its functions import what they need when they are called.
from threespo.envs.alfworld.settings import SPLITS, AlfworldEpisode, AlfworldSettings, AlfworldTasks
from threespo.envs.alfworld.text import TEXT
from threespo.envs.base import Environment
from threespo.envs.spec import EnvironmentSpec, Playable, RealData


def _make_environment(settings: AlfworldEpisode, _: Path) -> Environment[Any, Any]:
    if settings.engine == "textworld":
        from threespo.envs.alfworld.textworld import TextWorldAlfworld

        return TextWorldAlfworld()

    from threespo.envs.alfworld import Alfworld

    return Alfworld()


def _load_tasks(data: Path, split: str) -> list[Any]:
    from threespo.envs.alfworld import compile_game, sources

    return [compile_game(record) for record in sources.load_games(data, split)]


def _recognizes(path: Path) -> bool:
    from threespo.envs.alfworld.sources import GAME_FILE, contains_games

    if path.is_file():
        return path.name == GAME_FILE or (".jsonl" in path.name and contains_games(path.parent))
    return (path / GAME_FILE).exists() or contains_games(path)


def _splits_in(path: Path) -> list[str]:
    from threespo.envs.alfworld.sources import find_splits

    if _find_game_file(path):
        return ["game"]
    # A file of games is a split of its folder.
    if path.is_file():
        return [path.name.split(".jsonl", 1)[0]]
    return sorted(find_splits(path), key=lambda split: (split != "train", split))


def _tasks_in(path: Path, split: str) -> list[Playable]:
    from threespo.envs.alfworld import compile_game
    from threespo.envs.alfworld.sources import load_games, read_game

    game_file = _find_game_file(path)
    folder = path.parent if path.is_file() else path
    records = [read_game(game_file)] if game_file else load_games(folder, split)
    return [
        Playable(
            record.game_id, record.task_type, record.goal, open=functools.partial(compile_game, record)
        )
        for record in records
    ]


def _find_game_file(path: Path) -> Path | None:
    """Return the game file if a path is one, or the folder of one."""
    from threespo.envs.alfworld.sources import GAME_FILE

    if path.is_dir() and (path / GAME_FILE).exists():
        return path / GAME_FILE
    return path if path.name == GAME_FILE else None


def _describe_missing_files(folder: Path) -> str | None:
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
    make=_make_environment,
    load_tasks=_load_tasks,
    recognises=_recognizes,
    splits_in=_splits_in,
    tasks_in=_tasks_in,
    playable="a game.tw-pddl, a .jsonl(.xz) file of games, a folder of ALFWorld games",
    real=RealData(
        "games",
        "ALFWorld games, either as alfworld-download lays them out or compact (*.jsonl.xz, alfred.pddl, grammar.twl2)",
        files=("*.jsonl", "*.jsonl.xz", "*.pddl", "*.twl2"),
        explain_missing=_describe_missing_files,
        listed=("game.tw-pddl",),
    ),
    has_curriculum=True,
)
