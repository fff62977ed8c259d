"""Study files: read, check, merge, write."""

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from threespo.errors import InputError
from threespo.methods.registry import full_options
from threespo.study.checks import find_problems
from threespo.study.composition import compose_study, extend_study, merge
from threespo.study.config import Study, study_class
from threespo.study.explain import explain_error, field_name
from threespo.study.reading import read_text, read_yaml


class Change(NamedTuple):
    """Fields that somebody has changed in a study."""

    origin: str
    """Where they are written, for messages."""
    values: dict[str, Any]


def parse_study(values: dict[str, Any], origin: str, changes: Sequence[Change] = ()) -> Study:
    """Check ``values`` with ``changes`` in them and return the study.

    Raises:
        InputError: naming every wrong field with what was expected, and ``origin`` or the change that it comes from.
    """
    changes = [change for change in changes if change.values]
    study = _checked(
        functools.reduce(lambda merged, change: merge(merged, change.values), changes, values)
    )
    if isinstance(study, Study):
        return study

    # Where the file is in order by itself, a fault that stands in no changed field has come of a change all the same.
    alone = _checked(values) if changes else study
    otherwise = " and ".join(change.origin for change in changes) if isinstance(alone, Study) else origin
    by_origin: dict[str, list[str]] = {}
    for fault in study:
        by_origin.setdefault(_blamed(fault, changes) or otherwise, []).append(f"  {fault}")
    what = {
        place: "not a valid study" if place == origin else f"no valid change of {origin}"
        for place in by_origin
    }
    raise InputError(
        "\n".join("\n".join((f"{place}: {what[place]}", *lines)) for place, lines in by_origin.items())
    )


def _checked(values: dict[str, Any]) -> Study | list[str]:
    """Return the study, or what is wrong with it."""
    values, faults = compose_study(values)
    if faults:
        return faults
    try:
        study = study_class().model_validate(values)
    except ValidationError as error:
        return [f"{field_name(item)}: {explain_error(item)}" for item in error.errors()]
    return find_problems(study) or study


def _blamed(fault: str, changes: Sequence[Change]) -> str | None:
    """Return the change that has the field which a fault begins with; ``None`` if none has."""
    field = fault.partition(": ")[0]
    return next(
        (change.origin for change in reversed(changes) if _has(change.values, field.split("."))), None
    )


def _has(values: Any, parts: Sequence[str]) -> bool:
    """Return whether nested fields have this one; a value in the place of a section stands for all that it would have."""
    for part in parts:
        if not isinstance(values, dict):
            return True
        if part not in values:
            return False
        values = values[part]
    return True


def load_study(path: Path, overrides: dict[str, Any] | Sequence[Change] | None = None) -> Study:
    """Read a study file (YAML or JSON) and merge ``overrides`` into it.

    Args:
        path: the file.
        overrides: fields of the study, nested; or several such mappings with where they are written, the later one wins.

    Raises:
        InputError: if the file is missing, is not UTF-8 or YAML, or a field is wrong.
    """
    changes = [Change("changed fields", overrides)] if isinstance(overrides, dict) else overrides or ()
    return parse_study(read_study(path), str(path), changes)


def read_study(path: Path) -> dict[str, Any]:
    """Return the fields of a study file, with those of the file that it extends.

    Raises:
        InputError: if a file is missing, is not UTF-8 or YAML, or no mapping.
    """
    return extend_study(_read(path), path, _read)


def _read(path: Path) -> dict[str, Any]:
    values = read_yaml(read_text(path, "Studies lie in config/studies/."), str(path))
    if not isinstance(values, dict):
        found = "nothing" if values is None else type(values).__name__
        raise InputError(
            f"{path}: expected a mapping of fields such as config/studies/ci.yaml, found {found}"
        )
    return values


def dump_study(study: Study, *, options: bool = False) -> str:
    """Return the study with every default filled in, as JSON: the form in which jobs receive it.

    Methods, policies and agents stay in the study's order, which is that of the tables.

    Args:
        study: the study.
        options: whether methods show all their options, those behind presets and defaults included, and not only those that
            the study gives.
    """
    values = study.model_dump(mode="json")
    if options:
        for section in filter(None, (values, values["laboratory"])):
            for entry in section["methods"].values():
                entry["options"] = full_options(entry["method"], entry["options"])
    return json.dumps(values, indent=2) + "\n"
