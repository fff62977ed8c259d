"""Fields of a game's file, checked: each that is not as a game has it is one error that names the file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from threespo.envs.alfworld.description import REMEDY
from threespo.envs.alfworld.grammar import extract_goal
from threespo.errors import InputError


def marked_solvable(game: Mapping[str, Any], where: str) -> bool | None:
    """Return what a game says of itself in ``solvable``; ``None`` if it does not say.

    Raises:
        InputError: if it says neither true nor false.
    """
    marked = game.get("solvable")
    if marked not in (None, True, False):
        raise InputError(f"{where}: field 'solvable' is {marked!r}, expected true or false. {REMEDY}")
    return None if marked is None else bool(marked)


def walkthrough_of(game: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the commands that win, empty if unknown."""
    return tuple(game.get("walkthrough") or ())


def check_fields(row: Any, fields: tuple[str, ...], where: str) -> None:
    """Check that a game is an object with some text fields, and that its walkthrough is a list of commands.

    Raises:
        InputError: if it is not.
    """
    if not isinstance(row, dict):
        raise InputError(f"{where}: a {type(row).__name__}, where a game is a JSON object. {REMEDY}")
    walkthrough = row.get("walkthrough") or ()
    if not isinstance(walkthrough, list | tuple) or not all(
        isinstance(action, str) for action in walkthrough
    ):
        raise InputError(f"{where}: 'walkthrough' is not a list of commands. {REMEDY}")
    missing = [name for name in fields if not isinstance(row.get(name), str)]
    if missing:
        raise InputError(f"{where}: no text field {missing[0]!r} as a game has it. {REMEDY}")


def goal_in(grammar: str, file: Path) -> str:
    """Return the task sentence of the grammar in ``file``."""
    try:
        return extract_goal(grammar)
    except InputError as error:
        raise InputError(f"{file}: {error}. {REMEDY}") from error


def read_text(file: Path) -> str:
    """Return a text that all games of a compact form share."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{file}: not readable ({error}); the compact form needs it beside its games. {REMEDY}"
        ) from error
