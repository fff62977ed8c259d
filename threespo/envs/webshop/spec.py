"""WebShop's entry in the registry of environments."""

from pathlib import Path
from typing import Any

from threespo.envs.base import Environment
from threespo.envs.panels import PANELS
from threespo.envs.spec import EnvironmentSpec, RealData
from threespo.envs.webshop.settings import SPLITS, WebshopEpisode, WebshopSettings, WebshopTasks
from threespo.envs.webshop.text import TEXT
from threespo.errors import InputError

CATALOGUE = "catalogue"
"""Folder of a shop's compiled catalogue, in its data folder."""


def _make(settings: WebshopEpisode, data: Path) -> Environment[Any, Any]:
    from threespo.envs.webshop import Catalogue, WebShop

    return WebShop(Catalogue(data / CATALOGUE), mode=settings.mode, fidelity=settings.fidelity)


def _load_tasks(data: Path, split: str) -> list[Any]:
    from threespo.envs.webshop import Catalogue
    from threespo.envs.webshop.data import load_goals

    return [*load_goals(data, split, Catalogue(data / CATALOGUE))]


def _recognises(path: Path) -> bool:
    return (path / CATALOGUE).is_dir()


def _open_task(folder: Path, goal_id: str | None) -> tuple[Environment[Any, Any], Any]:
    from threespo.envs.webshop import Catalogue, WebShop
    from threespo.envs.webshop.data import load_goals

    catalogue = Catalogue(folder / CATALOGUE)
    panels = [panel for panel in PANELS if (folder / f"{panel}.jsonl.xz").exists()]
    for split in ("test", "calibration", "train", *panels):
        for goal in load_goals(folder, split, catalogue):
            if goal_id in (None, goal.task_id):
                return WebShop(catalogue), goal
    raise InputError(f"{folder}: no goal {goal_id!r} there; expected ASIN/NUMBER as in its .jsonl.xz files")


def _unlearnable(settings: WebshopSettings) -> str | None:
    # What the scripted expert decides by must be in the prompt.
    if settings.mode != "text":
        return "mode: tiny policies learn to read 'text' only"
    if settings.fidelity == "original" and not settings.history_length:
        return "history_length: expected 1 or more, as original pages do not show what is chosen"
    return None


def _lacks(folder: Path) -> str | None:
    from threespo.envs.webshop.sources import find

    return None if find(folder, "items") else "no file of products (items.json)"


SPEC = EnvironmentSpec(
    name="webshop",
    settings=WebshopSettings,
    tasks=WebshopTasks,
    episode=WebshopEpisode,
    splits=SPLITS,
    evaluated=("test",),
    text=TEXT,
    make=_make,
    prepare="threespo.envs.webshop.prepare:prepare",
    load_tasks=_load_tasks,
    recognises=_recognises,
    open_task=_open_task,
    playable="the data folder of a study, which holds a shop's catalogue",
    real=RealData(
        "shop",
        "WebShop's files: items, instructions and human_goals (.json or .json.xz, or their own names)",
        files=("*.json", "*.json.xz"),
        lacks=_lacks,
    ),
    curriculum="threespo.imitation.webshop.curriculum:curriculum",
    unlearnable=_unlearnable,
    presentation="threespo.envs.webshop.presentation:PRESENTATION",
)
