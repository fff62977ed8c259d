"""ALFWorld's entry in the registry of environments."""

from pathlib import Path
from typing import Any

from threespo.envs.alfworld.settings import SPLITS, AlfworldEpisode, AlfworldSettings, AlfworldTasks
from threespo.envs.alfworld.text import TEXT
from threespo.envs.base import Environment
from threespo.envs.spec import EnvironmentSpec, RealData
from threespo.errors import InputError


def _make(settings: AlfworldEpisode, _: Path) -> Environment[Any, Any]:
    if settings.engine == "textworld":
        from threespo.envs.alfworld.textworld import TextWorldAlfworld

        return TextWorldAlfworld()

    from threespo.envs.alfworld import Alfworld

    return Alfworld()


def _load_tasks(data: Path, split: str) -> list[Any]:
    from threespo.envs.alfworld import compile_game, sources

    return [compile_game(record) for record in sources.load(data, split)]


def _recognises(path: Path) -> bool:
    from threespo.envs.alfworld.sources import GAME_FILE, holds_games

    if path.is_file():
        return path.name == GAME_FILE or (".jsonl" in path.name and holds_games(path.parent))
    return (path / GAME_FILE).exists() or holds_games(path)


def _open_task(path: Path, game_id: str | None) -> tuple[Environment[Any, Any], Any]:
    from threespo.envs.alfworld import Alfworld, compile_game
    from threespo.envs.alfworld.sources import GAME_FILE, load, read_game, splits

    if path.is_dir() and (path / GAME_FILE).exists():
        path = path / GAME_FILE
    if path.name == GAME_FILE:
        return Alfworld(), compile_game(read_game(path))

    # A file of games is a split of the folder that it lies in.
    folder, names = (path.parent, [path.name.split(".jsonl", 1)[0]]) if path.is_file() else (path, splits(path))
    for record in (record for name in names for record in load(folder, name)):
        if game_id in (None, record.game_id):
            return Alfworld(), compile_game(record)
    raise InputError(f"{path}: no game {game_id!r} there; expected TASK/TRIAL, as in its files of games")


def _lacks(folder: Path) -> str | None:
    from threespo.envs.alfworld.sources import lacks

    return lacks(folder)


SPEC = EnvironmentSpec(
    name="alfworld",
    settings=AlfworldSettings,
    tasks=AlfworldTasks,
    episode=AlfworldEpisode,
    splits=SPLITS,
    evaluated=("valid_seen", "valid_unseen"),
    text=TEXT,
    make=_make,
    prepare="threespo.envs.alfworld.prepare:prepare_games",
    load_tasks=_load_tasks,
    recognises=_recognises,
    open_task=_open_task,
    playable="a game.tw-pddl, a .jsonl(.xz) file of games, a folder of ALFWorld games",
    real=RealData(
        "games",
        "ALFWorld games, either as alfworld-download lays them out or compact (*.jsonl.xz, alfred.pddl, grammar.twl2)",
        files=("*.jsonl", "*.jsonl.xz", "*.pddl", "*.twl2"),
        lacks=_lacks,
        listed=("game.tw-pddl",),
    ),
    curriculum="threespo.imitation.alfworld.curriculum:curriculum",
    presentation="threespo.envs.alfworld.presentation:PRESENTATION",
)
