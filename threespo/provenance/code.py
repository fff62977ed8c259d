"""The code of a job: everything of this package that it may run, with a digest of what each part means.

An edit makes a job run again if, and only if, it changes one of these digests. They are found in three steps:

1. Each module is split into *units*, its top-level functions, classes and values. A unit has a digest and the names that it
   refers to (``syntax``, ``units``).
2. The search begins with one function (a stage's ``run``) and the modules that settings name, such as the file of a method.
   It follows every name to its unit, through all modules. Whatever runs when these modules are imported is added.
3. To the digests of these units come those of data files: files beside the modules, and in folders that modules name.

No module is left out by its name. Comments, docstrings, layout and names of local variables are in no digest. The name of a
parameter is in one only where something in the same code may call the function by it (``_CodeSearch.digests``).
"""

import ast
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from threespo.errors import InputError
from threespo.provenance import modules
from threespo.provenance.modules import (
    digest_data_files,
    find_source,
    read_module,
    resolve_target,
    short_digest,
)
from threespo.provenance.scopes import PACKAGE, is_in_package
from threespo.provenance.syntax import AT_IMPORT
from threespo.provenance.units import ANY_NAME, Parameter, Unit


def function_reference(function: Callable[..., Any]) -> str:
    """Return ``module:name`` of a function at the top of a module."""
    return f"{function.__module__}:{function.__qualname__}"


@functools.cache
def digest_reachable_code(start: str, extra_modules: tuple[str, ...] = ()) -> dict[str, str]:
    """Return the digests of the code that a function may run, by ``module:name``, and of data files by path.

    Args:
        start: ``module:name`` of the function. Of its own module only what the function refers to counts, and the
            statements that run at import.
        extra_modules: what it finds by other names than those in its code: modules, which count whole, or ``module:name``.

    Raises:
        InputError: if one of them does not exist, or a module does not parse.
    """
    search = _CodeSearch()
    start_module, _, function = start.partition(":")
    search.add_unit(start_module, function)
    if AT_IMPORT in read_module(start_module).units:
        search.add_unit(start_module, AT_IMPORT)

    for reference in extra_modules:
        module, _, name = reference.partition(":")
        units = read_module(module).units
        search.add_module(module)
        for unit_name in [name] if name else units:
            search.add_unit(module, unit_name)

    search.follow_references()
    modules.write_cache()
    return search.digests()


def notebook_imports(file: Path) -> list[str]:
    """Return what the cells of a notebook import of this package, as ``module:name`` or ``module``.

    Raises:
        InputError: if it is no notebook, or a cell does not parse.
    """
    try:
        cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
        code_cells = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        tree = ast.parse("\n".join(code_cells))
    except (OSError, ValueError, KeyError, TypeError, SyntaxError) as error:
        raise InputError(
            f"{file}: not a notebook that can be read ({error}); restore it from the repository"
        ) from error

    dotted_names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            dotted_names += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            dotted_names += [alias.name for alias in node.names]

    targets = [resolve_target(dotted_name) for dotted_name in dotted_names if is_in_package(dotted_name)]
    return [f"{target.module}:{target.name}" if target.name else target.module for target in targets]


def clear_caches() -> None:
    """Read modules again when they are asked for next: somebody may have edited them while a workflow ran."""
    digest_reachable_code.cache_clear()
    modules.clear_caches()


class _CodeSearch:
    """The units and modules that a job may reach, as far as they have been found."""

    def __init__(self) -> None:
        self._units: dict[tuple[str, str], Unit] = {}
        """By module and name."""
        self._modules: set[str] = set()
        self._to_follow: list[tuple[str, str]] = []
        """Units whose references have not been followed yet."""

    def follow_references(self) -> None:
        """Add all that the units refer to, at any distance."""
        while self._to_follow:
            module, name = self._to_follow.pop()
            unit = self._units[module, name]
            for dotted_name in unit.imports:
                self._add_target(dotted_name)
            for reference in unit.references:
                if is_in_package(reference):
                    self._add_target(reference)
                else:
                    self._add_name(module, reference)

    def add_module(self, name: str) -> None:
        """Add what runs when a module is imported: its packages, its own statements, and the modules that it imports."""
        if name in self._modules or find_source(name) is None:
            return
        self._modules.add(name)
        package = name.rpartition(".")[0]
        if package:
            self.add_module(package)

        module = read_module(name)
        for unit_name in module.at_import:
            self.add_unit(name, unit_name)
        for dotted_name in module.imports:
            # A name of a module is imported with the module; whether it is used is another matter.
            self.add_module(resolve_target(dotted_name).module)

    def add_unit(self, module: str, name: str) -> None:
        """Add a unit of a module."""
        unit = read_module(module).units.get(name)
        if unit is None:
            raise InputError(f"{module} has no {name!r}, but a stage of the workflow needs it")
        if (module, name) not in self._units:
            self._units[module, name] = unit
            self._to_follow.append((module, name))

    def _add_name(self, module_name: str, name: str) -> None:
        """Add what a name means in a module: its own unit, or what it has imported; a built-in is neither."""
        module = read_module(module_name)
        if name in module.units:
            self.add_unit(module_name, name)
        imported = module.bindings.get(name)
        if imported is not None and is_in_package(imported):
            self._add_target(imported)

    def _add_target(self, dotted_name: str) -> None:
        """Add what a dotted name of this package means: a unit, or a module that is used as a value."""
        target = resolve_target(dotted_name)
        self.add_module(target.module)
        if target.name:
            self._add_name(target.module, target.name)
        elif target.module != PACKAGE:
            # Which of its functions are called cannot be seen, so all count.
            for unit_name in read_module(target.module).units:
                self.add_unit(target.module, unit_name)

    def digests(self) -> dict[str, str]:
        """Return the digest of every unit and data file."""
        all_units = self._units.values()
        keywords = {keyword for unit in all_units for keyword in unit.keywords}
        used_as_values = {name for unit in all_units for name in unit.used_as_values}

        def may_be_named(parameter: Parameter) -> bool:
            """Return whether a call in this code may name the parameter, so that its name counts."""
            return (
                parameter.name in keywords
                or parameter.function in used_as_values
                or ANY_NAME in keywords
            )

        found: dict[str, str] = {}
        for (module, name), unit in sorted(self._units.items()):
            named = [
                f"{parameter.number}={parameter.name}"
                for parameter in unit.parameters
                if may_be_named(parameter)
            ]
            found[f"{module}:{name}"] = short_digest(f"{unit.digest} {named}")
        for module in sorted(self._modules):
            found.update(digest_data_files(module))
        return found
