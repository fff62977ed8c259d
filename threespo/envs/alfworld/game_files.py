"""Reading the files of a game, field by field: each broken field is one error that names the file and the remedy.

A game has texts (``game.tw-pddl``, or a row of the compact form) and a description: its task type, the targets of the task,
and human annotations (``traj_data.json``, or fields of the row).
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from threespo.envs.alfworld.game import GameRecord, TaskTargets, parse_targets
from threespo.envs.alfworld.grammar import extract_goal
from threespo.errors import InputError

TASK_TYPES = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
)
REMEDY = "Fetch or copy the games again, or give another folder."
ANNOTATIONS_FILE = "traj_data.json"


class Description(NamedTuple):
    """What is known of a game apart from its texts."""

    task_type: str
    stated_targets: TaskTargets | None  # As in ``GameRecord``.
    annotations: tuple[str, ...]  # As in ``GameRecord``.


def read_description(game_file: Path) -> Description:
    """Return the description in the folder of a game file; without one, what the name of the TASK folder says.

    Raises:
        InputError: if it is broken, or the task type unknown; names the file.
    """
    # The innermost folders are TASK/TRIAL.
    task, trial = game_file.absolute().parts[-3:-1]
    file = game_file.with_name(ANNOTATIONS_FILE)
    if not file.exists():
        named_type = task.split("-", 1)[0]
        return Description(_read_task_type({"task_type": named_type}, str(game_file)), None, ())

    row = read_json(file)
    task_type = _read_task_type(row, str(file))
    targets = _read_targets(row.get("pddl_params"), str(file))
    # Targets that the id names as well are not stored, so that both forms of a game give equal records.
    if targets == parse_targets(f"{task}/{trial}", task_type):
        targets = None

    # Annotations are optional, and some releases have an empty value.
    turk = row.get("turk_annotations") or {}
    annotations = (turk.get("anns") or ()) if isinstance(turk, dict) else None
    if not isinstance(annotations, list | tuple) or not _all_are(dict, annotations):
        raise InputError(
            f"{file}: 'turk_annotations' is not an object with a list 'anns' of objects. {REMEDY}"
        )
    sentences = [annotation["task_desc"] for annotation in annotations if "task_desc" in annotation]
    context = f"{file}: 'task_desc' of 'turk_annotations'"
    return Description(task_type, targets, _read_texts(sentences, context))


def parse_description(row: Mapping[str, Any], context: str) -> Description:
    """Return the description in a row of the compact form.

    Raises:
        InputError: if a field is broken; ``context`` names the row.
    """
    targets = _read_targets(row.get("targets"), context)
    task_type = _read_task_type(row, context)
    annotations = _read_texts(row.get("annotations") or (), f"{context}: 'annotations'")
    return Description(task_type, targets, annotations)


def format_description(record: GameRecord) -> dict[str, Any]:
    """Return a game's description as fields of the compact form, without those that say nothing."""
    row: dict[str, Any] = {"task_type": record.task_type}
    if record.stated_targets is not None:
        row["targets"] = record.stated_targets._asdict()
    if record.annotations:
        row["annotations"] = list(record.annotations)
    return row


def read_json(file: Path) -> Any:
    """Return the content of a JSON file.

    Raises:
        InputError: if it is missing or broken.
    """
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{file}: broken or truncated ({error}). {REMEDY}") from error


def read_shared_text(file: Path) -> str:
    """Return a text that all games of a compact form share."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{file}: not readable ({error}); the compact form needs it beside its games. {REMEDY}"
        ) from error


def read_goal(grammar: str, file: Path) -> str:
    """Return the goal in the grammar of a file."""
    try:
        return extract_goal(grammar)
    except InputError as error:
        raise InputError(f"{file}: {error}. {REMEDY}") from error


def read_solvable(game: Mapping[str, Any], context: str) -> bool | None:
    """Return a game's field ``solvable``; ``None`` if it has none.

    Raises:
        InputError: if it is neither true nor false.
    """
    solvable = game.get("solvable")
    if solvable not in (None, True, False):
        raise InputError(
            f"{context}: field 'solvable' is {solvable!r}, expected true or false. {REMEDY}"
        )
    return None if solvable is None else bool(solvable)


def read_walkthrough(game: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the commands that win, empty if unknown."""
    return tuple(game.get("walkthrough") or ())


def check_fields(row: Any, fields: tuple[str, ...], context: str) -> None:
    """Check that a game is an object with some text fields, and that its walkthrough is a list of commands.

    Raises:
        InputError: if it is not.
    """
    _check_object(row, context)
    walkthrough = row.get("walkthrough") or ()
    if not isinstance(walkthrough, list | tuple) or not _all_are(str, walkthrough):
        raise InputError(f"{context}: 'walkthrough' is not a list of commands. {REMEDY}")
    _check_texts(row, fields, context)


def _check_object(row: Any, context: str) -> None:
    if not isinstance(row, dict):
        raise InputError(f"{context}: a {type(row).__name__}, where a game is a JSON object. {REMEDY}")


def _check_texts(row: Mapping[str, Any], fields: tuple[str, ...], context: str) -> None:
    missing = [name for name in fields if not isinstance(row.get(name), str)]
    if missing:
        raise InputError(f"{context}: no text field {missing[0]!r} as a game has it. {REMEDY}")


def _read_task_type(row: Any, context: str) -> str:
    _check_object(row, context)
    _check_texts(row, ("task_type",), context)
    task_type: str = row["task_type"]
    if task_type not in TASK_TYPES:
        raise InputError(
            f"{context}: unknown task type {task_type!r}; expected one of {', '.join(TASK_TYPES)}"
        )
    return task_type


def _read_targets(value: Any, context: str) -> TaskTargets | None:
    if value is None:
        return None
    names = TaskTargets._fields
    if not isinstance(value, dict) or not _all_are(str, [value.get(name, "") for name in names]):
        raise InputError(
            f"{context}: the task's targets are not an object with texts {', '.join(names)}. {REMEDY}"
        )
    return TaskTargets(*(value.get(name, "") for name in names))


def _read_texts(value: Any, context: str) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not _all_are(str, value):
        raise InputError(f"{context}: not a list of texts. {REMEDY}")
    return tuple(value)


def _all_are(kind: type, values: Any) -> bool:
    return all(isinstance(value, kind) for value in values)
