"""Preparing the games of a study, from any source, in the compact form with a manifest."""

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

_DEFAULT_CALIBRATION_GAMES = 200
_EMBEDDED_SEED = 7
# Of its own, so that no draw for a game of this panel was ever used for another game.
_CONFIRMATION_SEED = 2029


def prepare(settings: AlfworldTasks, out: Path) -> None:
    """Write the games of every split, domain, grammar and ``manifest.json`` (counts, wording and checksums) into a folder.

    Calibration games of real sources are held out of the training split, chosen by a hash of their ids, so they are the
    same in every study. The folder ``out`` is written whole or not at all.

    Raises:
        InputError: if the source has no games, or too few.
    """
    make_splits = _generate_splits if settings.source == "embedded" else _load_splits
    records = make_splits(settings)
    check_panels(records)
    with replace_folder(out) as folder:
        everything = [record for games in records.values() for record in games]
        sources.write_compact(everything, folder)
        files = sorted(path for path in folder.iterdir() if path.is_file())
        manifest = {
            "source": settings.source,
            "games": {split: len(games) for split, games in records.items()},
            "wording": everything[0].wording,
            "sha256": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files},
        }
        write_json(folder / "manifest.json", manifest)
    print(
        f"data: {manifest['games']} games ({settings.source}, wording '{manifest['wording']}')",
        file=sys.stderr,
    )


def _generate_splits(settings: AlfworldTasks) -> dict[str, list[GameRecord]]:
    counts = settings.games.model_dump()
    seeds = {CONFIRMATION: _CONFIRMATION_SEED}
    return {
        split: generate_games(
            split, counts[split], seeds.get(split, _EMBEDDED_SEED), settings.difficulty
        )
        for split in settings.splits
    }


def check_panels(records: Mapping[str, Sequence[GameRecord]]) -> None:
    """Check that no game of a panel is in another split, by the games' contents, whatever their ids.

    Raises:
        InputError: naming both splits and a game.
    """
    by_content = {split: {game.content: game for game in games} for split, games in records.items()}
    contents = {split: games.keys() for split, games in by_content.items()}
    for panel, other, shared in find_overlaps(contents):
        example = by_content[panel][shared[0]]
        raise InputError(
            f"alfworld: {len(shared)} games of the panel {panel!r} are in {other!r} too, such as "
            f"{example.game_id}; a panel must have games of its own"
        )


def contents(folder: Path, split: str) -> dict[str, str]:
    """Return id -> content of the games of a split (``GameRecord.content``)."""
    return {record.game_id: record.content for record in sources.load_games(folder, split)}


def _load_splits(settings: AlfworldTasks) -> dict[str, list[GameRecord]]:
    if settings.source == "official":
        folder = fetch_release(settings.path or Path("downloads") / "alfworld")
    else:
        # The settings class refuses a 'path' source without one.
        assert settings.path is not None
        folder = settings.path

    counts = settings.games
    held_out = counts.calibration or _DEFAULT_CALIBRATION_GAMES
    training_games = sources.load_games(folder, "train")
    training_games.sort(key=lambda record: derive("calibration", record.game_id))
    if len(training_games) <= held_out:
        raise InputError(
            f"{folder}: {len(training_games)} training games, of which {held_out} are to be held out for calibration: "
            "none is left. Lower alfworld.games.calibration or give a folder with more games."
        )

    return {
        "calibration": [replace(record, split="calibration") for record in training_games[:held_out]],
        "train": training_games[held_out:][: counts.train],
        "valid_seen": _choose_games(sources.load_games(folder, "valid_seen"), counts.valid_seen),
        "valid_unseen": _choose_games(sources.load_games(folder, "valid_unseen"), counts.valid_unseen),
    }


def _choose_games(records: list[GameRecord], count: int | None) -> list[GameRecord]:
    """Return ``count`` games, chosen by a hash of their ids: the list is ordered by scene, so its first are alike."""
    return sorted(records, key=lambda record: derive("choice", record.game_id))[:count]
