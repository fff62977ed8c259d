"""Study files: read, check, merge, write."""

import json
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from threespo.errors import InputError
from threespo.methods.registry import full_options
from threespo.study.checks import explain, problems
from threespo.study.config import Study, study_class


def parse_study(values: dict[str, Any], origin: str) -> Study:
    """Check ``values`` and return the study.

    Raises:
        InputError: naming ``origin`` and every wrong field with what was expected.
    """
    try:
        study = study_class().model_validate(values)
        faults = problems(study)
    except ValidationError as error:
        faults = [f"{'.'.join(str(part) for part in item['loc']) or 'study'}: {explain(item)}" for item in error.errors()]
    if faults:
        raise InputError(f"{origin}: not a valid study\n" + "\n".join(f"  {fault}" for fault in faults))
    return study


def load_study(path: Path, overrides: dict[str, Any] | None = None) -> Study:
    """Read a study file (YAML or JSON) and merge ``overrides`` (nested mapping) into it.

    Raises:
        InputError: if the file is missing, is not YAML, or a field is wrong.
    """
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}). Studies lie in config/studies/.") from error
    except yaml.YAMLError as error:
        raise InputError(f"{path}: not valid YAML: {error}") from error
    if not isinstance(values, dict):
        raise InputError(f"{path}: expected a mapping of fields, found {type(values).__name__}")
    return parse_study(merge(values, overrides or {}), str(path))


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


def merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Return ``base`` with the values of ``over`` in it, field by field; lists and scalars are replaced whole."""
    merged = dict(base)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = merge(merged[key], value) if both else value
    return merged
