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

EXTENDS = "extends"
LIKE = "like"
KEEP = "keep"

NOT_INHERITED = ("paper_row", "parts", "label", "colour")
"""Fields that an entry does not take from the one that it is like."""

KEEP_SECTIONS = ("policies", "methods", "agents")
"""Sections of a study that ``keep`` chooses from."""

MAX_FILES = 8
"""Files that may extend each other; more is a ring."""

MAX_SHOWN = 80
"""Characters of a wrong value that messages show."""


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
    models = _find_models(values)
    faults = list(_find_wrong_models(values, models))
    if faults:
        return values, faults
    if models:
        values = _add_inherited_fields(values, models)

    if KEEP not in values:
        return values, []
    faults = list(_find_wrong_keep(values))
    return (values, faults) if faults else (_drop_entries(values), [])


def merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Return ``base`` with the values of ``over`` in it, field by field; lists and scalars are replaced whole."""
    merged = dict(base)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = merge(merged[key], value) if both else value
    return merged


def _find_models(values: dict[str, Any]) -> dict[str, Any]:
    """Return the methods that are ``like`` another one, each with what it names there."""
    methods = _mapping(values.get("methods"))
    return {
        name: entry[LIKE] for name, entry in methods.items() if isinstance(entry, dict) and LIKE in entry
    }


def _find_wrong_models(values: dict[str, Any], models: Mapping[str, Any]) -> Iterator[str]:
    methods = _mapping(values.get("methods"))
    for name, model in models.items():
        is_entry = isinstance(methods.get(str(model)), dict)
        if not is_entry or str(model) in models:
            found = str(model)[:MAX_SHOWN]
            yield f"methods.{name}.{LIKE}: expected an entry of 'methods' that is like no other, found {found!r}"


def _add_inherited_fields(values: dict[str, Any], models: Mapping[str, Any]) -> dict[str, Any]:
    """Return a study's fields where each method has what it takes from its model, in every environment."""
    methods = dict(values["methods"])
    for name, model in models.items():
        methods[name] = _inherit(methods[name], values["methods"][model])
    changed = {**values, "methods": methods}

    for env in ENVIRONMENTS:
        own_methods = _own_methods(values, env)
        inherited = {
            name: _inherit(own_methods.get(name, {}), own_methods[model])
            for name, model in models.items()
            if model in own_methods
        }
        if inherited:
            changed[env] = {**changed[env], "methods": {**own_methods, **inherited}}
    return changed


def _inherit(entry: Any, model: dict[str, Any]) -> Any:
    """Return an entry with what it takes from its model; no mapping is returned as it is, and refused later."""
    if not isinstance(entry, dict):
        return entry
    inherited = {field: value for field, value in model.items() if field not in NOT_INHERITED}
    own = {field: value for field, value in entry.items() if field != LIKE}
    return merge(inherited, own)


def _find_wrong_keep(values: dict[str, Any]) -> Iterator[str]:
    keep = values[KEEP]
    if not isinstance(keep, dict) or not keep.keys() <= set(KEEP_SECTIONS):
        found = str(keep)[:MAX_SHOWN]
        yield f"{KEEP}: expected lists of names by {', '.join(KEEP_SECTIONS)}, found {found!r}"
        return
    for section, names in keep.items():
        known = _mapping(values.get(section))
        if not isinstance(names, list) or any(name not in known for name in names):
            found = str(names)[:MAX_SHOWN]
            yield f"{KEEP}.{section}: expected names of this section ({format_names(known)}), found {found}"


def _drop_entries(values: dict[str, Any]) -> dict[str, Any]:
    """Return a study's fields without the entries that ``keep`` leaves out."""
    keep: dict[str, list[str]] = values[KEEP]
    kept = {field: value for field, value in values.items() if field != KEEP}
    for section, names in keep.items():
        kept[section] = _select_entries(values[section], names)
    if "methods" not in keep:
        return kept

    # An environment's own options of a dropped method would refer to no method.
    for env in ENVIRONMENTS:
        own_methods = _own_methods(kept, env)
        if own_methods:
            methods = _select_entries(own_methods, keep["methods"])
            kept[env] = {**kept[env], "methods": methods}
    return kept


def _select_entries(entries: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """Return the entries with these names, in the study's order."""
    return {name: entry for name, entry in entries.items() if name in names}


def _own_methods(values: dict[str, Any], env: str) -> dict[str, Any]:
    """Return what a study changes of its methods in one environment."""
    return _mapping(_mapping(values.get(env)).get("methods"))


def _mapping(value: Any) -> dict[str, Any]:
    """Return a mapping as it is, and an empty one for anything else, which is refused later, with its field's name."""
    return value if isinstance(value, dict) else {}
