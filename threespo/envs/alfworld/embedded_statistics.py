"""Sizes of embedded games, compared with official ones.

``python -m threespo.envs.alfworld.embedded_statistics --games DIR`` prints the table of ``docs/embedded_games.md``:
the 10, 50 and 90 % quantiles of several measures of size.
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from threespo.envs.alfworld.compile import compile_game
from threespo.envs.alfworld.embedded import generate_games
from threespo.envs.alfworld.embedded_tables import DIFFICULTIES
from threespo.envs.alfworld.engine import Alfworld
from threespo.envs.alfworld.game import GameRecord
from threespo.envs.alfworld.settings import BASE_SPLITS
from threespo.envs.alfworld.sources import find_splits, load_games
from threespo.errors import InputError

# For each measure, what is counted in the initial state of the PDDL problem.
_COUNTED_FACTS = {
    "receptacles": "(receptacleType ",
    "receptacles with a door": "(openable ",
    "objects": "(objectType ",
    "movable objects": "(pickupable ",
}
WALKTHROUGH = "commands of the walkthrough"
ADMISSIBLE = "admissible actions along it"
MEASURES = (*_COUNTED_FACTS, WALKTHROUGH, ADMISSIBLE)


def measure_games(records: Iterable[GameRecord]) -> dict[str, list[int]]:
    """Return the values of every measure.

    There is one value per game; of admissible actions, one per state in which the walkthrough acts.
    """
    values: dict[str, list[int]] = {measure: [] for measure in MEASURES}
    for record in records:
        initial = record.problem.partition("(:goal")[0]
        for measure, fact in _COUNTED_FACTS.items():
            values[measure].append(initial.count(fact))
        values[WALKTHROUGH].append(len(record.walkthrough))
        values[ADMISSIBLE] += count_admissible(record)
    return values


def count_admissible(record: GameRecord) -> list[int]:
    """Return the number of admissible actions in each state in which the walkthrough acts."""
    engine = Alfworld()
    state = engine.initial(compile_game(record))
    counts = []
    for command in record.walkthrough:
        counts.append(len(engine.admissible(state)))
        state = engine.step(state, command).state
    return counts


def compute_quantiles(values: Sequence[int]) -> tuple[int, int, int]:
    """Return the 10, 50 and 90 % quantiles: the value at rank floor(share * count), counted from zero."""
    ordered = sorted(values)
    low, middle, high = (ordered[int(share * len(ordered))] for share in (0.1, 0.5, 0.9))
    return low, middle, high


def format_table(columns: dict[str, dict[str, list[int]]]) -> str:
    """Return a Markdown table with a row per measure and a column per set of games."""
    lines = ["| 10 / 50 / 90 % | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for measure in MEASURES:
        cells = [measure]
        for column in columns.values():
            cells.append(" / ".join(str(value) for value in compute_quantiles(column[measure])))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="embedded_statistics", description="Embedded games beside official ones."
    )
    parser.add_argument(
        "--games", type=Path, help="folder of official games; without it, the embedded ones only"
    )
    parser.add_argument(
        "--count", type=int, default=500, help="embedded games per split and difficulty (default: 500)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the embedded games (default: 0)")
    options = parser.parse_args(arguments)

    columns: dict[str, dict[str, list[int]]] = {}
    try:
        if options.games is not None:
            official: list[GameRecord] = []
            for split in find_splits(options.games):
                official += load_games(options.games, split)
            if not official:
                raise InputError(f"{options.games}: no games found; give a folder of official games.")
            columns[f"official ({len(official)} games)"] = measure_games(official)
        for name in reversed(DIFFICULTIES):
            embedded: list[GameRecord] = []
            for split in BASE_SPLITS:
                embedded += generate_games(split, options.count, options.seed, name)
            columns[f"{name} ({len(embedded)} games)"] = measure_games(embedded)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    print(format_table(columns))
    return 0


if __name__ == "__main__":
    sys.exit(main())
