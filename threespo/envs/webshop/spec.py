"""WebShop's entry in the registry of environments."""

import functools
from pathlib import Path
from typing import Any

from threespo.envs.base import Environment
from threespo.envs.spec import EnvironmentSpec, Playable, RealData
from threespo.envs.webshop.settings import SPLITS, WebshopEpisode, WebshopSettings, WebshopTasks
from threespo.envs.webshop.text import TEXT

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


def _splits_in(folder: Path) -> list[str]:
    return [
        split
        for split in ("train", *sorted({*SPLITS} - {"train"}))
        if (folder / f"{split}.jsonl.xz").exists()
    ]


def _tasks_in(folder: Path, split: str) -> list[Playable]:
    from threespo.envs.webshop import Catalogue
    from threespo.envs.webshop.data import load_goals

    goals = load_goals(folder, split, Catalogue(folder / CATALOGUE))
    return [
        Playable(goal.task_id, goal.task_type, goal.goal, functools.partial(lambda one: one, goal))
        for goal in goals
    ]


def _shown(shop: Any, state: Any) -> str:
    from threespo.envs.webshop.terminal import page_for_person

    return page_for_person(shop, state)


def _unlearnable(settings: WebshopSettings) -> str | None:
    # What the scripted expert decides by must be in the prompt.
    if settings.mode != "text":
        return "mode: tiny policies learn to read 'text' only"
    if settings.fidelity == "original" and not settings.history_length:
        return "history_length: expected 1 or more, as original pages do not show what is chosen"
    return None


def _lacks(folder: Path) -> str | None:
    from threespo.envs.webshop.sources import find_file

    return None if find_file(folder, "items") else "no file of products (items.json)"


SPEC = EnvironmentSpec(
    name="webshop",
    settings=WebshopSettings,
    tasks=WebshopTasks,
    episode=WebshopEpisode,
    splits=SPLITS,
    evaluated=("test",),
    text=TEXT,
    make=_make,
    load_tasks=_load_tasks,
    recognises=_recognises,
    splits_in=_splits_in,
    tasks_in=_tasks_in,
    shown=_shown,
    playable="the data folder of a study, which holds a shop's catalogue",
    real=RealData(
        "shop",
        "WebShop's files: items, instructions and human_goals (.json or .json.xz, or their own names)",
        files=("*.json", "*.json.xz"),
        explain_missing=_lacks,
    ),
    has_curriculum=True,
    explain_unlearnable=_unlearnable,
)
