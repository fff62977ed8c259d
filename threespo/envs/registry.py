"""The environments by name. Adding one is a folder and a line here (CONTRIBUTING.md).

Entries are loaded when they are asked for: whoever plays in one environment does not pay for the others.
"""

import functools
import importlib
from pathlib import Path
from typing import Any

from threespo.envs.spec import EnvironmentSpec, Presentation
from threespo.errors import InputError

ENVIRONMENTS: dict[str, str] = {
    "alfworld": "threespo.envs.alfworld.spec",
    "webshop": "threespo.envs.webshop.spec",
}
"""Name -> module with the environment's ``SPEC``; in the order of the paper's columns."""


@functools.cache
def environment(name: str) -> EnvironmentSpec:
    """Return an environment's spec.

    Raises:
        InputError: if there is no such environment, or its module has no fitting ``SPEC``.
    """
    if name not in ENVIRONMENTS:
        raise InputError(f"no environment {name!r}; there are: {', '.join(ENVIRONMENTS)}")
    module = importlib.import_module(ENVIRONMENTS[name])
    spec: EnvironmentSpec | None = getattr(module, "SPEC", None)
    if spec is None or spec.name != name or not {"train", "calibration"} <= set(spec.splits):
        raise InputError(
            f"{module.__file__}: expected SPEC, an EnvironmentSpec with the name {name!r} and the splits train and "
            f"calibration, found {spec and (spec.name, spec.splits)}"
        )
    return spec


def presentation(name: str) -> Presentation:
    """Return how results in an environment are named and explained."""
    found: Presentation = load(environment(name).presentation)
    return found


def recognised(path: Path) -> EnvironmentSpec:
    """Return the environment whose task, file or data folder ``path`` is.

    Raises:
        InputError: if it is none's.
    """
    specs = [environment(name) for name in ENVIRONMENTS]
    for spec in specs:
        if spec.recognises(path):
            return spec
    raise InputError(f"{path}: nothing to play there; expected " + ", or ".join(spec.playable for spec in specs))


def load(reference: str) -> Any:
    """Return what ``module:attribute`` names."""
    module, _, attribute = reference.partition(":")
    return getattr(importlib.import_module(module), attribute)
