"""How large embedded games are beside official ones.

``python -m threespo.envs.alfworld.embedded_statistics --games DIR`` prints the table of ``docs/embedded_games.md``:
the 10, 50 and 90 % quantiles of what makes a game large.
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

# Measure -> what is counted in the initial state of the PDDL problem.
_FACTS = {
    "receptacles": "(receptacleType ",
    "receptacles with a door": "(openable ",
    "objects": "(objectType ",
    "movable objects": "(pickupable ",
}
WALKTHROUGH = "commands of the walkthrough"
ADMISSIBLE = "admissible actions along it"
MEASURES = (*_FACTS, WALKTHROUGH, ADMISSIBLE)


def measure_games(records: Iterable[GameRecord]) -> dict[str, list[int]]:
    """Return the values of every measure.

    There is one value per game; of admissible actions, one per state in which the walkthrough acts.
    """
    values: dict[str, list[int]] = {name: [] for name in MEASURES}
    for record in records:
        initial = record.problem.partition("(:goal")[0]
        for name, fact in _FACTS.items():
            values[name].append(initial.count(fact))
        values[WALKTHROUGH].append(len(record.walkthrough))
        values[ADMISSIBLE] += admissible_counts(record)
    return values


def admissible_counts(record: GameRecord) -> list[int]:
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
    for name in MEASURES:
        cells = [
            " / ".join(str(value) for value in compute_quantiles(column[name]))
            for column in columns.values()
        ]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
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
    chosen = parser.parse_args(arguments)

    columns: dict[str, dict[str, list[int]]] = {}
    try:
        if chosen.games is not None:
            official = [
                record
                for split in find_splits(chosen.games)
                for record in load_games(chosen.games, split)
            ]
            if not official:
                raise InputError(f"{chosen.games}: no games found; give a folder of official games.")
            columns[f"official ({len(official)} games)"] = measure_games(official)
        for name in reversed(DIFFICULTIES):
            drawn = [
                record
                for split in BASE_SPLITS
                for record in generate_games(split, chosen.count, chosen.seed, name)
            ]
            columns[f"{name} ({len(drawn)} games)"] = measure_games(drawn)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    print(format_table(columns))
    return 0


if __name__ == "__main__":
    sys.exit(main())
