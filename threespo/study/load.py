"""Study files: read, check, merge, write."""

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
    merged = values
    for change in changes:
        merged = merge(merged, change.values)
    study = _check_values(merged)
    if isinstance(study, Study):
        return study
    faults = study

    # Where the file is valid by itself, a fault in a field that no change has comes from the changes all the same.
    default_origin = origin
    if changes and isinstance(_check_values(values), Study):
        default_origin = " and ".join(change.origin for change in changes)
    faults_by_origin: dict[str, list[str]] = {}
    for fault in faults:
        fault_origin = _find_origin(fault, changes) or default_origin
        faults_by_origin.setdefault(fault_origin, []).append(f"  {fault}")

    lines: list[str] = []
    for fault_origin, its_faults in faults_by_origin.items():
        is_file = fault_origin == origin
        what = "not a valid study" if is_file else f"no valid change of {origin}"
        lines += [f"{fault_origin}: {what}", *its_faults]
    raise InputError("\n".join(lines))


def _check_values(values: dict[str, Any]) -> Study | list[str]:
    """Return the study, or what is wrong with it."""
    values, faults = compose_study(values)
    if faults:
        return faults
    try:
        study = study_class().model_validate(values)
    except ValidationError as error:
        return [f"{field_name(item)}: {explain_error(item)}" for item in error.errors()]
    return find_problems(study) or study


def _find_origin(fault: str, changes: Sequence[Change]) -> str | None:
    """Return the origin of the last change that has the field which a fault begins with; ``None`` if none has."""
    parts = fault.partition(": ")[0].split(".")
    origins = [change.origin for change in changes if _has_field(change.values, parts)]
    return origins[-1] if origins else None


def _has_field(values: Any, parts: Sequence[str]) -> bool:
    """Return whether nested fields have this one; a value in the place of a section counts as all of its fields."""
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
    if isinstance(overrides, dict):
        overrides = [Change("changed fields", overrides)]
    return parse_study(read_study(path), str(path), overrides or ())


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
        sections = [values]
        if values["laboratory"]:
            sections.append(values["laboratory"])
        for section in sections:
            for entry in section["methods"].values():
                entry["options"] = full_options(entry["method"], entry["options"])
    return json.dumps(values, indent=2) + "\n"
