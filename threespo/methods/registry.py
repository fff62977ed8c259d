"""The methods by name. Adding one is a file, an options class, and a line here."""

from typing import Any

from pydantic import ValidationError

from threespo.methods import gigpo, grpo, hgpo, reinforce_pp, rloo
from threespo.methods.base import CommonSettings, Method, MethodOptions
from threespo.methods.dapo import Dapo, DapoOptions
from threespo.methods.ppo import Ppo, PpoOptions
from threespo.methods.threespo import Threespo, ThreespoOptions
from threespo.methods.tree_grpo import TreeGrpo, TreeGrpoOptions
from threespo.methods.vine import Vine, VineOptions

_METHODS: dict[str, tuple[Any, type[MethodOptions]]] = {
    "ppo": (Ppo, PpoOptions),
    "grpo": (grpo.make, grpo.GrpoOptions),
    "rloo": (rloo.make, rloo.RlooOptions),
    "gigpo": (gigpo.make, gigpo.GigpoOptions),
    "hgpo": (hgpo.make, hgpo.HgpoOptions),
    "dapo": (Dapo, DapoOptions),
    "reinforce_pp": (reinforce_pp.make, reinforce_pp.ReinforcePpOptions),
    "tree_grpo": (TreeGrpo, TreeGrpoOptions),
    "vine": (Vine, VineOptions),
    "threespo": (Threespo, ThreespoOptions),
}

METHODS = tuple(_METHODS)
"""The names that a study can use."""


def check_options(method: str, options: dict[str, Any]) -> MethodOptions:
    """Return the typed options of a method.

    Raises:
        ValueError: naming the unknown method or the wrong field.
    """
    if method not in _METHODS:
        raise ValueError(f"no method {method!r}; there are: {', '.join(_METHODS)}")
    try:
        return _METHODS[method][1].model_validate(options)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "options"
        raise ValueError(f"options.{field}: {first['msg']}") from error


def make_method(method: str, options: dict[str, Any], common: CommonSettings) -> Method:
    """Return a fresh method of a run."""
    made: Method = _METHODS[method][0](check_options(method, options), common)
    return made
