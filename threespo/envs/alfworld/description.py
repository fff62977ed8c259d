"""What lies beside a game: its task type, what its task is about, and how people put it (``traj_data.json``)."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from threespo.envs.alfworld.game import GameRecord, TaskTargets, parse_targets
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
    """What is known of a game besides its texts."""

    task_type: str
    stated: TaskTargets | None
    """As in ``GameRecord``."""
    annotations: tuple[str, ...]
    """As in ``GameRecord``."""


def beside(game_file: Path) -> Description:
    """Return the description beside a game file; without one, what the name of the TASK folder says.

    Raises:
        InputError: if it is broken, or the task type unknown; names the file.
    """
    task, trial = game_file.absolute().parts[-3:-1]
    file = game_file.with_name(ANNOTATIONS_FILE)
    if not file.exists():
        return Description(_task_type({"task_type": task.split("-", 1)[0]}, str(game_file)), None, ())
    row = read_json(file)
    kind = _task_type(row, str(file))
    stated = _targets(row.get("pddl_params"), str(file))
    turk = row.get("turk_annotations") or {}
    given = (turk.get("anns") or ()) if isinstance(turk, dict) else None
    if not isinstance(given, list | tuple) or not all(isinstance(one, dict) for one in given):
        raise InputError(
            f"{file}: 'turk_annotations' is not an object with a list 'anns' of objects. {REMEDY}"
        )
    texts = _texts(
        [one["task_desc"] for one in given if "task_desc" in one],
        f"{file}: 'task_desc' of 'turk_annotations'",
    )
    return Description(kind, None if stated == parse_targets(f"{task}/{trial}", kind) else stated, texts)


def in_row(row: Mapping[str, Any], where: str) -> Description:
    """Return the description in a row of the compact form.

    Args:
        row: what :func:`as_row` gives, among other fields.
        where: names it in messages.

    Raises:
        InputError: if a field is broken.
    """
    stated = _targets(row.get("targets"), where)
    return Description(
        _task_type(row, where), stated, _texts(row.get("annotations") or (), f"{where}: 'annotations'")
    )


def as_row(record: GameRecord) -> dict[str, Any]:
    """Return the fields of the compact form that hold a game's description; those that say nothing are left out."""
    row: dict[str, Any] = {"task_type": record.task_type}
    if record.stated is not None:
        row["targets"] = record.stated._asdict()
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


def _task_type(row: Any, where: str) -> str:
    if not isinstance(row, dict):
        raise InputError(f"{where}: a {type(row).__name__}, where a game is a JSON object. {REMEDY}")
    kind = row.get("task_type")
    if not isinstance(kind, str):
        raise InputError(f"{where}: no text field 'task_type' as a game has it. {REMEDY}")
    if kind not in TASK_TYPES:
        raise InputError(f"{where}: unknown task type {kind!r}; expected one of {', '.join(TASK_TYPES)}")
    return kind


def _targets(found: Any, where: str) -> TaskTargets | None:
    if found is None:
        return None
    if not isinstance(found, dict) or not all(
        isinstance(found.get(name, ""), str) for name in TaskTargets._fields
    ):
        raise InputError(
            f"{where}: the task's targets are not an object with texts {', '.join(TaskTargets._fields)}. {REMEDY}"
        )
    return TaskTargets(*(found.get(name, "") for name in TaskTargets._fields))


def _texts(found: Any, where: str) -> tuple[str, ...]:
    if not isinstance(found, list | tuple) or not all(isinstance(text, str) for text in found):
        raise InputError(f"{where}: not a list of texts. {REMEDY}")
    return tuple(found)
