"""The data stage: the tasks of a study, from any source, in one compact form with a manifest."""

import hashlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from threespo.envs.alfworld import compile_game, sources
from threespo.envs.alfworld.embedded import generate
from threespo.errors import InputError
from threespo.files import atomic_folder, atomic_json
from threespo.rng import derive
from threespo.study.environments import ALFWORLD_SPLITS, AlfworldSettings, WebshopSettings

if TYPE_CHECKING:
    from threespo.envs.alfworld.game import GameRecord
    from threespo.envs.base import Task
    from threespo.study.config import Study

CATALOGUE = "catalogue"
"""Folder of a shop's compiled catalogue, in its data folder."""

_CALIBRATION_DEFAULT = 200
_EMBEDDED_SEED = 7


def prepare(study: "Study", env: str, out: Path) -> None:
    """Write the tasks of every split and ``manifest.json`` (counts and checksums) into ``out``."""
    settings = study.environments[env]
    if isinstance(settings, WebshopSettings):
        _prepare_shop(settings, out)
    else:
        assert isinstance(settings, AlfworldSettings)
        _prepare_games(settings, out)


def load_tasks(env: str, data: Path, split: str) -> "list[Task]":
    """Return the tasks of one split of a study's data folder."""
    if env == "webshop":
        from threespo.envs.webshop import Catalogue
        from threespo.envs.webshop.data import load_goals

        return [*load_goals(data, split, Catalogue(data / CATALOGUE))]
    return [compile_game(record) for record in sources.load(data, split)]


def _prepare_shop(settings: WebshopSettings, out: Path) -> None:
    from threespo.envs.webshop.data import prepare_shop, products_of

    manifest = prepare_shop(
        out,
        products_of(settings.source, path=settings.folder, count=settings.products, seed=_EMBEDDED_SEED),
        goals=settings.goal_kind,
        limits={split: count for split, count in settings.goals.model_dump().items() if count is not None},
    )
    print(f"data: {manifest['products']} products, {manifest['goals']} goals ({settings.source})", file=sys.stderr)


def _prepare_games(settings: AlfworldSettings, out: Path) -> None:
    """Write games, domain and grammar.

    Calibration games of real sources are held out of the training split, chosen by a hash of their ids, so they are the
    same in every study.
    """
    records = _embedded(settings) if settings.source == "embedded" else _real(settings)
    with atomic_folder(out) as folder:
        sources.write_compact([record for split in ALFWORLD_SPLITS for record in records[split]], folder)
        files = sorted(path for path in folder.iterdir() if path.is_file())
        manifest = {
            "source": settings.source,
            "games": {split: len(records[split]) for split in ALFWORLD_SPLITS},
            "sha256": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files},
        }
        atomic_json(folder / "manifest.json", manifest)
    print(f"data: {manifest['games']} games ({settings.source})", file=sys.stderr)


def _embedded(settings: AlfworldSettings) -> "dict[str, list[GameRecord]]":
    counts = settings.games.model_dump()
    return {split: generate(split, counts[split], _EMBEDDED_SEED, settings.difficulty) for split in ALFWORLD_SPLITS}


def _real(settings: AlfworldSettings) -> "dict[str, list[GameRecord]]":
    if settings.source == "official":
        from threespo.envs.alfworld.official import fetch

        folder = fetch(settings.path or Path("downloads") / "alfworld")
    else:
        assert settings.path is not None  # the settings class refuses a 'path' source without one
        folder = settings.path
    counts = settings.games
    wanted = counts.calibration or _CALIBRATION_DEFAULT
    pool = sorted(sources.load(folder, "train"), key=lambda record: derive("calibration", record.game_id))
    if len(pool) <= wanted:
        raise InputError(
            f"{folder}: {len(pool)} training games, of which {wanted} are to be held out for calibration: none is left. "
            "Lower alfworld.games.calibration or give a folder with more games."
        )
    return {
        "calibration": _in_split(pool[:wanted], "calibration"),
        "train": pool[wanted:][: counts.train],
        "valid_seen": _some(sources.load(folder, "valid_seen"), counts.valid_seen),
        "valid_unseen": _some(sources.load(folder, "valid_unseen"), counts.valid_unseen),
    }


def _some(records: "list[GameRecord]", count: int | None) -> "list[GameRecord]":
    """Return ``count`` games of a list ordered by scene, spread over it by a hash of their ids."""
    return sorted(records, key=lambda record: derive("choice", record.game_id))[:count]


def _in_split(records: "list[GameRecord]", split: str) -> "list[GameRecord]":
    from dataclasses import replace

    return [replace(record, split=split) for record in records]
