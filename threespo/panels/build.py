"""Writes the panels of this package from the data: ``python -m threespo.panels.build [--alfworld DIR] [--webshop DIR]``.

Generated panels need no data; panels of real data are written where their folder is given.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from threespo.envs.alfworld import Alfworld, compile_game, embedded, sources
from threespo.envs.alfworld.model import Game
from threespo.envs.alfworld.prepare import prepare as prepare_games
from threespo.envs.alfworld.settings import BASE_SPLITS, AlfworldTasks
from threespo.envs.webshop.data import load_goals, prepare_shop, read_shop_products
from threespo.files import write_text
from threespo.panels.openings import find_opening
from threespo.panels.panel import FORMAT, GENERATED_SEED, HELD_OUT, PRODUCTS, content_hash
from threespo.rng import derive

GENERATED_GAMES = {"train": 1000, "calibration": 200, "valid_seen": 140, "valid_unseen": 134}
"""The tested splits have as many games as the official ones."""
SHOP_SPLITS = ("train", "calibration", "test")


def generated_games() -> Iterable[tuple[str, Any]]:
    """Yield split and game of the generated games of full size."""
    for split, count in GENERATED_GAMES.items():
        for index in range(count):
            yield split, compile_game(embedded.generate_game(split, GENERATED_SEED, "full", index))


def real_games(folder: Path) -> Iterable[tuple[str, Any]]:
    """Yield split and game of real games, as a study prepares them, each split in the order of a hash of the ids."""
    with tempfile.TemporaryDirectory() as temporary:
        out = Path(temporary) / "games"
        prepare_games(AlfworldTasks(source="path", path=folder), out)
        for split in BASE_SPLITS:
            # The keys with which a study orders its splits (``threespo.envs.alfworld``): its first n games are the panel's.
            order = "calibration" if split in HELD_OUT else "choice"
            records = sorted(
                sources.load_games(out, split), key=lambda record: derive(order, record.game_id)
            )
            yield from ((split, compile_game(record)) for record in records)


def goals(folder: Path | None) -> Iterable[tuple[str, Any]]:
    """Yield split and goal of a folder of WebShop's files, or of the generated shop, in the order of a hash of the ids."""
    with tempfile.TemporaryDirectory() as temporary:
        out = Path(temporary) / "shop"
        source = (
            read_shop_products("path", path=folder)
            if folder
            else read_shop_products("embedded", count=PRODUCTS, seed=GENERATED_SEED)
        )
        prepare_shop(out, source)
        yield from ((split, goal) for split in SHOP_SPLITS for goal in load_goals(out, split))


def write(name: str, facts: Mapping[str, Any], tasks: Iterable[tuple[str, Any]]) -> None:
    """Write a panel into the package.

    Args:
        name: of the panel.
        facts: its fields besides the tasks.
        tasks: split and task of all tasks, in the order in which they are played.
    """
    splits: dict[str, list[str]] = {}
    openings: dict[str, list[str]] = {}
    for split, task in tasks:
        splits.setdefault(split, []).append(f"{task.task_id} {content_hash(task)}")
        # Logs of games often name no game: the first observation then tells which one was played.
        opening = find_opening(Alfworld().initial(task).observation) if isinstance(task, Game) else None
        if opening:
            openings.setdefault(split, []).append(" ".join(opening))
    path = Path(__file__).parent / f"{name}.json"
    said = {"openings": openings} if openings else {}
    write_text(path, json.dumps({"format": FORMAT, **facts, "splits": splits, **said}, indent=0) + "\n")
    print(path, {split: len(lines) for split, lines in splits.items()}, file=sys.stderr)


def main() -> None:
    """Write the panels."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--alfworld", type=Path, metavar="DIR", help="the 3,827 games of ALFWorld's version 2.1.3"
    )
    parser.add_argument("--webshop", type=Path, metavar="DIR", help="WebShop's files of 1,000 products")
    parsed = parser.parse_args()

    game = {"environment": "alfworld", "max_steps": 50, "failure_ends": False, "wording": "move"}
    shop = {"environment": "webshop", "max_steps": 15, "failure_ends": True}
    made = f"seed {GENERATED_SEED}"
    write(
        "alfworld-generated",
        {**game, "about": f"generated games of full size, {made}"},
        generated_games(),
    )
    write(
        "webshop-generated",
        {**shop, "about": f"a generated shop of {PRODUCTS} products, {made}"},
        goals(None),
    )
    if parsed.alfworld:
        about = "ALFWorld's text games, version 2.1.3: the solvable ones without movable receptacles and sliced objects"
        write("alfworld-official", {**game, "about": about}, real_games(parsed.alfworld))
    if parsed.webshop:
        about = "WebShop's synthetic goals for its 1,000 products (items_shuffle_1000, items_ins_v2_1000), equal wishes once"
        write("webshop-1k", {**shop, "about": about}, goals(parsed.webshop))


if __name__ == "__main__":
    main()
