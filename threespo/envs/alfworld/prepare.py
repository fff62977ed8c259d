"""The games of a study, from any source, in the compact form with a manifest."""

import hashlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from threespo.envs.alfworld import sources
from threespo.envs.alfworld.embedded import generate_games
from threespo.envs.alfworld.game import GameRecord
from threespo.envs.alfworld.official import fetch_release
from threespo.envs.alfworld.settings import AlfworldTasks
from threespo.envs.optional_splits import CONFIRMATION, find_overlaps
from threespo.errors import InputError
from threespo.files import replace_folder, write_json
from threespo.rng import derive

_CALIBRATION_DEFAULT = 200
_EMBEDDED_SEED = 7
_CONFIRMATION_SEED = 2029
"""Nothing of a game of this panel has ever been drawn for another."""


def prepare(settings: AlfworldTasks, out: Path) -> None:
    """Write the games of every split, domain, grammar and ``manifest.json`` (counts, wording and checksums) into a folder.

    Calibration games of real sources are held out of the training split, chosen by a hash of their ids, so they are the
    same in every study.

    Args:
        settings: which games.
        out: the folder; written whole or not at all.

    Raises:
        InputError: if the source has no games, or too few.
    """
    records = _embedded(settings) if settings.source == "embedded" else _real(settings)
    check_panels(records)
    with replace_folder(out) as folder:
        sources.write_compact([record for games in records.values() for record in games], folder)
        files = sorted(path for path in folder.iterdir() if path.is_file())
        manifest = {
            "source": settings.source,
            "games": {split: len(games) for split, games in records.items()},
            "wording": next(game.wording for games in records.values() for game in games),
            "sha256": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files},
        }
        write_json(folder / "manifest.json", manifest)
    print(
        f"data: {manifest['games']} games ({settings.source}, wording '{manifest['wording']}')",
        file=sys.stderr,
    )


def _embedded(settings: AlfworldTasks) -> dict[str, list[GameRecord]]:
    counts = settings.games.model_dump()
    seeds = {CONFIRMATION: _CONFIRMATION_SEED}
    return {
        split: generate_games(
            split, counts[split], seeds.get(split, _EMBEDDED_SEED), settings.difficulty
        )
        for split in settings.splits
    }


def check_panels(records: Mapping[str, Sequence[GameRecord]]) -> None:
    """Check that games for developing or confirming are in no other split, by what is in them and not by their names.

    Raises:
        InputError: naming both splits and a game.
    """
    contents = {split: {game.content: game for game in games} for split, games in records.items()}
    for panel, other, shared in find_overlaps(
        {split: games.keys() for split, games in contents.items()}
    ):
        raise InputError(
            f"alfworld: {len(shared)} games of the panel {panel!r} are in {other!r} too, such as "
            f"{contents[panel][shared[0]].game_id}; a panel must have games of its own"
        )


def contents(folder: Path, split: str) -> dict[str, str]:
    """Return id -> content of the games of a split (``GameRecord.content``)."""
    return {record.game_id: record.content for record in sources.load_games(folder, split)}


def _real(settings: AlfworldTasks) -> dict[str, list[GameRecord]]:
    if settings.source == "official":
        folder = fetch_release(settings.path or Path("downloads") / "alfworld")
    else:
        assert settings.path is not None  # the settings class refuses a 'path' source without one
        folder = settings.path

    counts = settings.games
    wanted = counts.calibration or _CALIBRATION_DEFAULT
    pool = sorted(
        sources.load_games(folder, "train"), key=lambda record: derive("calibration", record.game_id)
    )
    if len(pool) <= wanted:
        raise InputError(
            f"{folder}: {len(pool)} training games, of which {wanted} are to be held out for calibration: none is left. "
            "Lower alfworld.games.calibration or give a folder with more games."
        )

    return {
        "calibration": _in_split(pool[:wanted], "calibration"),
        "train": pool[wanted:][: counts.train],
        "valid_seen": _some(sources.load_games(folder, "valid_seen"), counts.valid_seen),
        "valid_unseen": _some(sources.load_games(folder, "valid_unseen"), counts.valid_unseen),
    }


def _some(records: list[GameRecord], count: int | None) -> list[GameRecord]:
    """Return ``count`` games of a list ordered by scene, spread over it by a hash of their ids."""
    return sorted(records, key=lambda record: derive("choice", record.game_id))[:count]


def _in_split(records: list[GameRecord], split: str) -> list[GameRecord]:
    return [replace(record, split=split) for record in records]
