"""The environments by name. Adding one is a folder and its name here (CONTRIBUTING.md).

What an environment offers to others lies in modules of its folder whose names are fixed: ``spec`` (``SPEC``), ``prepare``
(``prepare``, and ``contents`` where there is a panel), ``presentation`` (``PRESENTATION``). Each is imported when it is
asked for: playing in one environment does not load the others, and the code that a job depends on is that of its own
environment alone.
"""

import functools
import importlib
import importlib.util
from pathlib import Path
from typing import Any

from threespo.envs.spec import Contents, EnvironmentSpec, Prepare, Presentation
from threespo.errors import InputError

ENVIRONMENTS = ("alfworld", "webshop")
"""In the order of the paper's columns; each is the name of a folder next to this file."""


def environment_module(name: str, part: str) -> str:
    """Return the module of an environment that has ``part``: ``spec``, ``prepare`` or ``presentation``."""
    return f"threespo.envs.{name}.{part}"


@functools.cache
def environment(name: str) -> EnvironmentSpec:
    """Return an environment's spec.

    Raises:
        InputError: if there is no such environment, or its module has no fitting ``SPEC``.
    """
    module = _module(name, "spec")
    spec: EnvironmentSpec | None = getattr(module, "SPEC", None)
    if spec is None or spec.name != name or not {"train", "calibration"} <= set(spec.splits):
        raise InputError(
            f"{module.__file__}: expected SPEC, an EnvironmentSpec with the name {name!r} and the splits train and "
            f"calibration, found {spec and (spec.name, spec.splits)}"
        )
    return spec


def presentation(name: str) -> Presentation:
    """Return how results in an environment are named and explained."""
    found: Presentation = _module(name, "presentation").PRESENTATION
    return found


def prepare(name: str) -> Prepare:
    """Return what prepares the tasks of an environment."""
    function: Prepare = _module(name, "prepare").prepare
    return function


def contents(name: str) -> Contents | None:
    """Return what reads the contents of prepared tasks; ``None``: there is no canonical panel (``threespo.panels``)."""
    found: Contents | None = getattr(_module(name, "prepare"), "contents", None)
    return found


def _module(name: str, part: str) -> Any:
    module = environment_module(name, part)
    # A name comes from a study or a command line, so it is checked before it becomes part of an import.
    if not name.isidentifier() or importlib.util.find_spec(f"threespo.envs.{name}") is None:
        raise InputError(f"no environment {name!r}: no folder of that name in threespo/envs")
    return importlib.import_module(module)


def environment_for_path(path: Path) -> EnvironmentSpec:
    """Return the environment whose task, file or data folder ``path`` is.

    Raises:
        InputError: if it is none's.
    """
    specs = [environment(name) for name in ENVIRONMENTS]
    for spec in specs:
        if spec.recognises(path):
            return spec
    raise InputError(
        f"{path}: nothing to play there; expected " + ", or ".join(spec.playable for spec in specs)
    )
