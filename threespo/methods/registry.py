"""The methods by name. Adding one is a file with an options class, and a line here (CONTRIBUTING.md)."""

from typing import Any, NamedTuple

from pydantic import ValidationError

from threespo.methods import gigpo, graphgpo, grpo, hgpo, reinforce_pp, rloo
from threespo.methods.base import CommonSettings, Method, MethodOptions
from threespo.methods.dapo import Dapo, DapoOptions
from threespo.methods.ppo import Ppo, PpoOptions
from threespo.methods.threespo import Threespo, ThreespoOptions
from threespo.methods.tree_grpo import TreeGrpo, TreeGrpoOptions
from threespo.methods.vine import Vine, VineOptions


class _Entry(NamedTuple):
    make: Any
    options: type[MethodOptions]
    searches: bool = False
    """It searches trees of states, and so leaves trees, state scores and probes: it is a ``SearchMethod``, and its options
    are 3SPO's, a subclass's, or have the same fields."""


_METHODS = {
    "ppo": _Entry(Ppo, PpoOptions),
    "grpo": _Entry(grpo.make, grpo.GrpoOptions),
    "rloo": _Entry(rloo.make, rloo.RlooOptions),
    "gigpo": _Entry(gigpo.make, gigpo.GigpoOptions),
    "hgpo": _Entry(hgpo.make, hgpo.HgpoOptions),
    "dapo": _Entry(Dapo, DapoOptions),
    "reinforce_pp": _Entry(reinforce_pp.make, reinforce_pp.ReinforcePpOptions),
    "tree_grpo": _Entry(TreeGrpo, TreeGrpoOptions),
    "vine": _Entry(Vine, VineOptions),
    "graphgpo": _Entry(graphgpo.make, graphgpo.GraphgpoOptions),
    "threespo": _Entry(Threespo, ThreespoOptions, searches=True),
}

METHODS = tuple(_METHODS)
"""The names that a study can use."""


def check_options(method: str, options: dict[str, Any]) -> MethodOptions:
    """Return the typed options of a method.

    Args:
        method: one of ``METHODS``.
        options: fields of its options as the study file has them; defaults fill in the rest.

    Raises:
        ValueError: naming the unknown method or the wrong field.
    """
    if method not in _METHODS:
        raise ValueError(f"no method {method!r}; there are: {', '.join(_METHODS)}")
    try:
        return _METHODS[method].options.model_validate(options)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "options"
        if first["type"] == "extra_forbidden":
            known = ", ".join(sorted(_METHODS[method].options.model_fields)) or "none"
            raise ValueError(f"options.{field}: {method} has no such option; there are: {known}") from error
        found = repr(first["input"])
        raise ValueError(f"options.{field}: {first['msg']}" + (f" (found {found})" if len(found) <= 80 else "")) from error


def full_options(method: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return all options of a method as JSON values, with those that presets and defaults fill in.

    Raises:
        ValueError: as ``check_options`` does.
    """
    return check_options(method, options).model_dump(mode="json")


def make_method(method: str, options: dict[str, Any], common: CommonSettings) -> Method:
    """Return a fresh method for a run, which remembers nothing yet.

    Raises:
        ValueError: as ``check_options`` does.
    """
    made: Method = _METHODS[method].make(check_options(method, options), common)
    return made


def searches(method: str) -> bool:
    """Return whether a method searches trees of states."""
    return _METHODS[method].searches
