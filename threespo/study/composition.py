"""What a study file need not repeat: a study that extends another file, entries like others, and a choice of what to keep.

All three are resolved while a study is read, before it is checked, so a study itself has none of these fields:

- ``extends: NAME`` (first level): all fields of ``NAME.yaml`` beside the file, with the file's own fields in them.
- ``like: NAME`` (an entry of ``methods``): all that the entry ``NAME`` has, in every environment, with its own fields in
  it; but not its ``paper_row`` and ``parts``, which say what the entry ``NAME`` itself is.
- ``keep: {policies: [...], methods: [...], agents: [...]}`` (first level): only these entries, in the study's order.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from threespo.envs.registry import ENVIRONMENTS
from threespo.errors import InputError, format_names

EXTENDS, LIKE, KEEP = "extends", "like", "keep"

NOT_INHERITED = ("paper_row", "parts", "label", "colour")
"""Fields that an entry does not take from the one that it is like."""

KEEP_SECTIONS = ("policies", "methods", "agents")
"""Sections of a study that ``keep`` chooses from."""

MAX_FILES = 8
"""That extend each other; more is a ring."""


def extend_study(
    values: dict[str, Any], path: Path, read: Callable[[Path], dict[str, Any]], depth: int = 1
) -> dict[str, Any]:
    """Return a file's fields on top of those of the file that it extends, if it does.

    Args:
        values: the fields as they stand in the file.
        path: the file.
        read: returns the fields of a file.
        depth: files read until now.

    Raises:
        InputError: if there is no such file, or files extend each other in a ring.
    """
    own = dict(values)
    name = own.pop(EXTENDS, None)
    if name is None:
        return own
    known = sorted(file.stem for file in path.parent.glob("*.yaml") if file != path)
    if name not in known:
        raise InputError(
            f"{path}: extends: no study {str(name)[:80]!r} beside it; there are {format_names(known)}"
        )
    if "name" not in own:
        raise InputError(
            f"{path}: name: this field is required in a study that extends another, for its results"
        )
    if depth == MAX_FILES:
        raise InputError(
            f"{path}: extends: {MAX_FILES} files extend each other; is it a ring? Let one of them extend none"
        )
    base = path.with_name(f"{name}.yaml")
    fields = extend_study(read(base), base, read, depth + 1)
    # The mark says that one study was frozen, and not those that extend it.
    fields.pop("confirmatory", None)
    return merge(fields, own)


def compose_study(values: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return a study's fields without ``like`` and ``keep``, and what is wrong with these, as ``FIELD: WHAT``."""
    values, faults = _with_likes(values)
    if faults:
        return values, faults
    if KEEP not in values:
        return values, []
    keep = values[KEEP]
    faults = list(_faults_of(keep, values))
    return (values, faults) if faults else (_kept(values, keep), [])


def merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Return ``base`` with the values of ``over`` in it, field by field; lists and scalars are replaced whole."""
    merged = dict(base)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = merge(merged[key], value) if both else value
    return merged


def _with_likes(values: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    entries = _mapping(values.get("methods"))
    models = {
        name: entry[LIKE] for name, entry in entries.items() if isinstance(entry, dict) and LIKE in entry
    }
    faults = [
        f"methods.{name}.{LIKE}: expected an entry of 'methods' that is like no other, found {str(model)[:80]!r}"
        for name, model in models.items()
        if not isinstance(entries.get(str(model)), dict) or str(model) in models
    ]
    if faults or not models:
        return values, faults

    methods = {name: _like(entries, name, models.get(name)) for name, entry in entries.items()}
    changed = {**values, "methods": methods}
    for env in ENVIRONMENTS:
        own = _mapping(_mapping(values.get(env)).get("methods"))
        taken = {name: _like(own, name, model) for name, model in models.items() if model in own}
        if taken:
            changed[env] = {**changed[env], "methods": {**own, **taken}}
    return changed, []


def _like(entries: Mapping[str, Any], name: str, model: str | None) -> Any:
    """Return an entry with what it takes from its model."""
    entry = entries.get(name, {})
    if model is None or not isinstance(entry, dict):
        return entry
    taken = {field: value for field, value in entries[model].items() if field not in NOT_INHERITED}
    return merge(taken, {field: value for field, value in entry.items() if field != LIKE})


def _faults_of(keep: Any, values: dict[str, Any]) -> Iterator[str]:
    if not isinstance(keep, dict) or not keep.keys() <= set(KEEP_SECTIONS):
        yield f"{KEEP}: expected lists of names by {', '.join(KEEP_SECTIONS)}, found {str(keep)[:80]!r}"
        return
    for section, names in keep.items():
        there = _mapping(values.get(section))
        if not isinstance(names, list) or any(name not in there for name in names):
            yield f"{KEEP}.{section}: expected names of this section ({format_names(there)}), found {str(names)[:80]}"


def _kept(values: dict[str, Any], keep: dict[str, list[str]]) -> dict[str, Any]:
    kept = {key: value for key, value in values.items() if key != KEEP}
    for section, names in keep.items():
        kept[section] = {name: entry for name, entry in values[section].items() if name in names}
    if "methods" in keep:
        for env in ENVIRONMENTS:
            # An environment's own options of a dropped method would refer to no method.
            own_methods = _mapping(_mapping(kept.get(env)).get("methods"))
            if own_methods:
                methods = {name: own_methods[name] for name in own_methods if name in keep["methods"]}
                kept[env] = {**kept[env], "methods": methods}
    return kept


def _mapping(value: Any) -> dict[str, Any]:
    """Return a mapping as it is, and an empty one for anything else: what is no mapping is told later, with its field."""
    return value if isinstance(value, dict) else {}
