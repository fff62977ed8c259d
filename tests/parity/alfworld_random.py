"""Random play on both ALFWorld engines side by side.

    python -m tests.parity.alfworld_random --games DIR --count 300 --steps 40 [--seed 0] [--embedded N] [--log FILE]

Exit code 1 if observation, admissible commands, won or score ever differ. With ``--log`` each game is a line of FILE once
it has been played, and a later call with the same numbers goes on where this one ended, with the engine as it is then.
"""

import argparse
import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scipy.stats import beta

from threespo import rng
from threespo.envs.alfworld import Alfworld, Game, compile_game
from threespo.envs.alfworld.embedded import generate_games
from threespo.envs.alfworld.sources import find_splits, load_games
from threespo.envs.alfworld.textworld import TextWorldAlfworld

_ROW = {"game", "steps", "seed", "difference"}
_SPACES = (" ", "  ", "\t", "\n", "\u00a0", " \r\n")


def odd_command(source: random.Random, admissible: Sequence[str], seen: Sequence[str]) -> str:
    """Return a command that is usually not admissible: mis-cased, padded, stale, cut, reworded, or none at all."""
    command = source.choice(admissible)
    words = command.split(" ")
    return source.choice(
        (
            command.upper(),
            command.title(),
            source.choice(_SPACES) + command + source.choice(_SPACES),
            command.replace(" ", "  ", 1),
            command.replace(" ", "\u00a0"),
            command + ".",
            command[:-1],
            "please " + command,
            source.choice(seen),
            " ".join(reversed(words)),
            " ".join([*words[:-1], str(source.randint(0, 30))]),
            command.replace("take", "pick up").replace("move", "put").replace(" to ", " in/on "),
            "allez à la cuisine",
            "",
        )
    )


def next_command(source: random.Random, admissible: Sequence[str], seen: list[str]) -> str:
    """Return an odd command (one in five), or an admissible one: an interaction, if possible, as often as a trip."""
    seen.extend(admissible)
    if source.random() < 0.2:
        return odd_command(source, admissible, seen)
    interactions = [
        one
        for one in admissible
        if one.split(" ", 1)[0] in ("take", "move", "put", "open", "close", "use")
    ]
    rare = [one for one in admissible if one.split(" ", 1)[0] in ("clean", "heat", "cool", "slice")]
    pools = [pool for pool in (interactions, rare, admissible) if pool]
    return source.choice(source.choice(pools))


def first_difference(game: Game, steps: int, seed: int, stock: TextWorldAlfworld) -> str | None:
    """Play ``game`` on both engines; return what differs first, or None. Half of the games follow the walkthrough."""
    source, ours, seen = rng.generator(seed, "parity", game.task_id), Alfworld(), [""]
    plan = list(game.walkthrough) if source.random() < 0.5 else []
    state, there = ours.initial(game), stock.initial(game)
    command = "(reset)"
    for index in range(steps + 1):
        pairs = {
            "observation": (state.observation, there.observation),
            "admissible": (ours.admissible(state), stock.admissible(there)),
            "won": (ours.won(state), stock.won(there)),
            "score": (ours.score(state), stock.score(there)),
        }
        for name, (found, expected) in pairs.items():
            if found != expected:
                return f"{game.task_id}, step {index}, after {command!r}: {name} is {found!r}, should be {expected!r}"
        follow = plan and source.random() < 0.7
        command = plan.pop(0) if follow else next_command(source, ours.admissible(state), seen)
        state, there = ours.step(state, command).state, stock.step(there, command).state
    return None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--games", type=Path, help="folder of real games")
    parser.add_argument("--count", type=int, default=300, help="real games, drawn from all splits")
    parser.add_argument(
        "--embedded", type=int, default=0, help="embedded games, of every difficulty in turn"
    )
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--log", type=Path, help="jsonl file to keep what was played in, and to go on from"
    )
    options = parser.parse_args()
    records = []
    if options.games:
        everything = [
            record for split in find_splits(options.games) for record in load_games(options.games, split)
        ]
        everything.sort(key=lambda record: rng.derive(options.seed, "draw", record.game_id))
        records += everything[: options.count]
    for index, difficulty in enumerate(("small", "medium", "full")):
        records += generate_games(
            "valid_unseen", len(range(index, options.embedded, 3)), options.seed, difficulty
        )
    if not records:
        parser.error("nothing to play: give --games with --count of 1 or more, or --embedded")
    played = read_log(options.log, options.steps, options.seed) if options.log else {}
    stock, rows = TextWorldAlfworld(), []
    for number, record in enumerate(records, start=1):
        row = played.get(record.game_id)
        if row is None:
            difference = first_difference(compile_game(record), options.steps, options.seed, stock)
            row = {
                "game": record.game_id,
                "steps": options.steps,
                "seed": options.seed,
                "difference": difference,
            }
            if options.log:
                with options.log.open("a", encoding="utf-8") as log:
                    log.write(json.dumps(row) + "\n")
        rows.append(row)
        if row["difference"] is not None:
            print(row["difference"], flush=True)
        if number % 20 == 0 or number == len(records):
            print(summary(rows), file=sys.stderr, flush=True)
    sys.exit(any(row["difference"] is not None for row in rows))


def read_log(file: Path, steps: int, seed: int) -> dict[str, dict[str, Any]]:
    """Return the lines of a log that were played with these numbers, by game; a last line that was cut is played again."""
    data = file.read_bytes() if file.exists() else b""
    # A line ends with its newline, so what comes after the last one was cut. It goes once the lines before it are known to
    # be of this program: nobody else's file is changed.
    end = data.rfind(b"\n") + 1
    rows = []
    for number, line in enumerate(data[:end].splitlines(), start=1):
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict) or row.keys() != _ROW:
            sys.exit(f"{file}, line {number}: not a line of this program; name another file")
        rows.append(row)
    if data[end:]:
        if not data[end:].startswith(b'{"game"'[: len(data) - end]):
            sys.exit(
                f"{file}: what stands after its last whole line is not of this program; name another file"
            )
        file.write_bytes(data[:end])
    return {row["game"]: row for row in rows if (row["steps"], row["seed"]) == (steps, seed)}


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """Return what was compared, and what the share of games that differ can be at most.

    Games are independent draws and steps of one are not, so the bound is on games: that of Clopper and Pearson, which
    for none of n is 1 - 0.05^(1/n).
    """
    differ = sum(row["difference"] is not None for row in rows)
    bound = float(beta.ppf(0.95, differ + 1, len(rows) - differ)) if differ < len(rows) else 1.0
    steps = sum(row["steps"] for row in rows)
    return f"{len(rows)} games, {steps:,} steps; {differ} games differ, at most {bound:.2%} of all do (95 %, one-sided)"


if __name__ == "__main__":
    main()
