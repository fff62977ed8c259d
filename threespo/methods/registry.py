"""The methods by name. Adding one is a file with a ``METHOD``, and its name here (CONTRIBUTING.md).

A method is imported when it is needed, by the name of its file. So the code of a run includes the method that it trains with
and no other, and a new method changes no earlier run's key.
"""

import importlib
from typing import Any

from pydantic import ValidationError

from threespo.methods.base import CommonSettings, Method, MethodEntry, MethodOptions
from threespo.settings import select_key_fields

METHODS = ("ppo", "grpo", "rloo", "gigpo", "hgpo", "dapo", "reinforce_pp",
           "tree_grpo", "vine", "graphgpo", "threespo")  # fmt: skip
"""The names that a study can use, each that of a file in this folder."""


def method_module(method: str) -> str:
    """Return the name of a method's module."""
    return f"threespo.methods.{method}"


def method_entry(method: str) -> MethodEntry:
    """Return the ``METHOD`` of a method's file; ``check_options`` has refused unknown names."""
    entry: MethodEntry = importlib.import_module(method_module(method)).METHOD
    return entry


def check_options(method: str, options: dict[str, Any]) -> MethodOptions:
    """Return the typed options of a method.

    Args:
        method: one of ``METHODS``.
        options: fields of its options as the study file has them; defaults fill in the rest.

    Raises:
        ValueError: naming the unknown method or the wrong field.
    """
    if method not in METHODS:
        raise ValueError(f"no method {method!r}; there are: {', '.join(METHODS)}")
    return parse_options(method, options)


def parse_options(method: str, options: dict[str, Any]) -> MethodOptions:
    """Return the typed options of a method that exists.

    Raises:
        ValueError: naming the wrong field.
    """
    options_class = method_entry(method).options
    try:
        return options_class.model_validate(options)
    except ValidationError as error:
        raise ValueError(_explain_wrong_option(method, options_class, error)) from error


def _explain_wrong_option(
    method: str, options_class: type[MethodOptions], error: ValidationError
) -> str:
    """Return one line about the first option that is wrong."""
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"]) or "options"
    if first["type"] == "extra_forbidden":
        known = ", ".join(sorted(options_class.model_fields)) or "none"
        return f"options.{field}: {method} has no such option; there are: {known}"

    # The input is left out where it would be longer than the message.
    found = repr(first["input"])
    suffix = f" (found {found})" if len(found) <= 80 else ""
    return f"options.{field}: {first['msg']}{suffix}"


def full_options(method: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return all options of a method as JSON values, with those that presets and defaults fill in.

    Raises:
        ValueError: as ``parse_options`` does.
    """
    return parse_options(method, options).model_dump(mode="json")


def job_options(method: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return a method's options as a job receives them: without those that were added later and have their default.

    So what they are in a job's key is what it was before these options existed (``threespo.settings.Later``).

    Raises:
        ValueError: as ``parse_options`` does.
    """
    parsed = parse_options(method, options)
    earlier = select_key_fields(parsed)
    # Not where the preset has another value than the default: reading the options again would fill that in.
    if parse_options(method, earlier) != parsed:
        return full_options(method, options)
    return dict(earlier)


def make_method(method: str, options: dict[str, Any], common: CommonSettings) -> Method:
    """Return a fresh method for a run, which remembers nothing yet.

    Raises:
        ValueError: as ``parse_options`` does.
    """
    return method_entry(method).make(parse_options(method, options), common)


def searches(method: str) -> bool:
    """Return whether a method searches trees of states."""
    return method_entry(method).searches
