"""What pydantic finds wrong with a study, in the words of a study file."""

import typing
from typing import Any

from pydantic import BaseModel

from threespo.envs.registry import ENVIRONMENTS
from threespo.errors import format_names
from threespo.study.config import study_class
from threespo.study.old_names import explain_old_field

_LONGEST = 80
"""Characters of what was found: a longer input, such as a whole section, would hide the message."""

_IN_WORDS = {
    "tuple_type": "expected a list such as [0, 1]",
    "dict_type": "expected a mapping such as {name: ...}",
    "model_type": "expected a mapping of fields such as {field: value}",
    "missing": "this field is required",
    "finite_number": "expected a finite number",
    "path_type": "expected the path of a folder",
}
"""Kinds of errors that pydantic names in Python's words, or in too many."""


def field_name(item: Any) -> str:
    """Return the full name of the field that an element of ``ValidationError.errors()`` is about."""
    return ".".join(str(part) for part in item["loc"] if part != "[key]") or "study"


def explain_error(item: Any, root: type[BaseModel] | None = None) -> str:
    """Return an element of pydantic's ``ValidationError.errors()`` as a sentence.

    Args:
        item: the element.
        root: the settings that were checked; by default a whole study.
    """
    kind = item["type"]
    location = item["loc"]
    if kind == "extra_forbidden":
        gone = None if root else explain_old_field(location)
        if gone:
            return gone
        fields = _fields(root or study_class(), location[:-1])
        # At the top level an unknown field may be a misspelt environment.
        top = root is None and len(location) == 1
        known = f", nor an environment (there are {', '.join(ENVIRONMENTS)})" if top else ""
        where = "" if root else " (threespo/study/config.py explains them)"
        return f"no such field{known}; there are {format_names(fields)}{where}"
    message = _IN_WORDS.get(kind) or str(item["msg"]).removeprefix("Value error, ")
    if kind == "string_pattern_mismatch" and "a-z0-9_-" in message:
        message = "expected a lower-case name of letters, digits, '-' and '_'"
    found = repr(item.get("input"))
    # The value of ``key_env`` may be the secret itself, written where the name of its variable belongs.
    is_secret = location[-1:] == ("key_env",)
    if kind == "missing" or is_secret or len(found) > _LONGEST:
        return message
    return f"{message} (found {found})"


def _fields(model: type[BaseModel], loc: tuple[Any, ...]) -> list[str]:
    """Return the fields of the settings class that stands at a place within another one."""
    for part in loc:
        # Any other part is the name of an entry, whose class has been found with the mapping.
        if part in model.model_fields:
            model = _class_in(model.model_fields[part].annotation) or model
    return list(model.model_fields)


def _class_in(annotation: Any) -> Any:
    """Return the settings class in an annotation such as ``X | None`` or ``dict[Name, X]``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    inner = (_class_in(part) for part in typing.get_args(annotation))
    return next((one for one in inner if one is not None), None)
