"""Replay reference traces of the stock engine: our engine must give the same texts and values at every step."""

from pathlib import Path
from typing import Any

from threespo.envs.alfworld import Alfworld, Game, compile_game
from threespo.envs.alfworld.sources import load_games
from threespo.errors import InputError
from threespo.verify import Report, read_cases, timed_report


def verify(
    file: Path, games: Path | None = None, catalogue: Path | None = None, only: str | None = None
) -> Report:
    """Compare observation, admissible commands, won and score at every step of every trace; a trace is a case.

    Args:
        file: traces, one a line: ``game_id``, ``split`` and ``steps``. Values that are null are not compared.
        games: folder with the games that the traces were played on, as :func:`load` reads it.

    Raises:
        InputError: if a file is broken, ``games`` is not given, or a game of the traces is not there.
    """
    if games is None:
        raise InputError(
            "the reference traces need the games that they were played on: give their folder with --games DIR"
        )

    # All cases first: only games that are named in them are compiled.
    cases = list(read_cases(file, ("game_id", "split", "steps")))
    with timed_report("alfworld") as report:
        known: dict[tuple[str, str], Game] = {}
        for split in sorted({str(case["split"]) for case in cases}):
            wanted = {case["game_id"] for case in cases if case["split"] == split}
            known.update(
                ((split, record.game_id), compile_game(record))
                for record in load_games(games, split)
                if record.game_id in wanted
            )

        for case in cases:
            game = known.get((case["split"], case["game_id"]))
            if game is None:
                raise InputError(
                    f"{games}: no game {case['split']}/{case['game_id']}, which {file} refers to"
                )
            report.add_case(_same(game, case["steps"], file))
    return report


def _same(game: Game, steps: list[dict[str, Any]], file: Path) -> bool:
    """Return whether our engine gives the values of a game's trace, whose first step has no command."""
    required = {"command", "observation", "admissible_commands", "won"}
    env = Alfworld()
    state = env.initial(game)
    for index, step in enumerate(steps):
        missing = required - (step.keys() if isinstance(step, dict) else set())
        if missing or (step["command"] is None) != (index == 0):
            raise InputError(
                f"{file}: step {index} of {game.task_id} is malformed (expected command, observation, …)"
            )

        if index:
            state = env.step(state, step["command"]).state
        # ALFWorld ends an episode by winning only (the step limit is the caller's), so ``won`` is also ``done``.
        won = env.won(state)
        found = (state.observation, list(env.admissible(state)), won, env.score(state), won)
        expected = (
            step["observation"],
            step["admissible_commands"],
            step["won"],
            step.get("score"),
            step.get("done"),
        )
        # Traces of some versions of the stock engine lack values: these are null and not compared.
        for expected_value, found_value in zip(expected, found, strict=True):
            if expected_value is not None and expected_value != found_value:
                return False
    return True
