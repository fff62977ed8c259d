"""The code of a job: everything of this package that it may run, each part with a digest of what it means.

A job begins with one function. What that refers to by name, what this refers to in turn, and whatever runs when the modules
of all these are imported, is the job's code. No module is left out by its name: what a job runs is in its key because the
job can reach it. Methods and environments are looked up by names that stand in a job's settings; their modules are given
beside the function. Data files count by content: those in the folder of a module that the code comes from, and those in
folders below it that the module names.

Names of local variables are no part of a digest (``threespo.provenance.syntax``). The name of a parameter is one where
something in the same code may call its function by that name.
"""

import ast
import contextlib
import functools
import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from threespo.errors import InputError
from threespo.files import write_text
from threespo.provenance import scopes, syntax, units
from threespo.provenance.digests import file_digest
from threespo.provenance.scopes import PACKAGE
from threespo.provenance.syntax import AT_IMPORT, Module
from threespo.provenance.units import ANY_NAME, Unit

ROOT = Path(__file__).resolve().parents[1]

NON_DATA_SUFFIXES = (".py", ".pyc", ".md", ".orig", ".rej", ".bak", ".swp")
"""Endings of files that are code, documentation, or what editors and patches leave behind."""


def function_reference(function: Callable[..., Any]) -> str:
    """Return ``module:name`` of a function at the top of a module."""
    return f"{function.__module__}:{function.__qualname__}"


@functools.cache
def code_of(start: str, extra_modules: tuple[str, ...] = ()) -> dict[str, str]:
    """Return the digests of the code that a function may run, by ``module:name``, and of data files by path.

    Args:
        start: ``module:name`` of the function. Of its own module only what the function refers to counts, and the
            statements that run at import.
        extra_modules: what it finds by other names than those in its code: modules, which count whole, or ``module:name``.

    Raises:
        InputError: if one of them does not exist, or a module does not parse.
    """
    reached = _Reached()
    module, _, name = start.partition(":")
    reached.add_unit(module, name)
    if AT_IMPORT in _module(module).units:
        reached.add_unit(module, AT_IMPORT)
    for wanted in extra_modules:
        module, _, name = wanted.partition(":")
        if _source(module) is None:
            raise InputError(f"module {module} does not exist, but a stage of the workflow needs it")
        reached.add_module(module)
        for one in [name] if name else list(_module(module).units):
            reached.add_unit(module, one)
    reached.follow()
    _write_cache()
    return reached.digests()


def notebook_imports(file: Path) -> list[str]:
    """Return what the cells of a notebook import of this package, as ``module:name`` or ``module``.

    Raises:
        InputError: if it is no notebook, or a cell does not parse.
    """
    try:
        cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
        source = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
        tree = ast.parse(source)
    except (OSError, ValueError, KeyError, TypeError, SyntaxError) as error:
        raise InputError(
            f"{file}: not a notebook that can be read ({error}); restore it from the repository"
        ) from error
    targets: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            targets += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            targets += [alias.name for alias in node.names]
    return [_as_reference(target) for target in targets if target.partition(".")[0] == PACKAGE]


def _as_reference(target: str) -> str:
    module, attributes = _split(target)
    return f"{module}:{attributes[0]}" if attributes else module


def clear_caches() -> None:
    """Read modules again when they are asked for next: somebody may have edited them while a workflow ran."""
    for function in (code_of, _split, _source, _module, _data_beside):
        function.cache_clear()


class _Reached:
    """What has been found of a job's code so far."""

    def __init__(self) -> None:
        self._units: dict[tuple[str, str], Unit] = {}
        self._modules: set[str] = set()
        self._waiting: list[tuple[str, str]] = []

    def follow(self) -> None:
        """Add all that is referred to by what is there, near or far."""
        while self._waiting:
            module, name = self._waiting.pop()
            unit = self._units[module, name]
            for wanted in unit.imports:
                self.add_target(wanted)
            for wanted in unit.references:
                if wanted.partition(".")[0] == PACKAGE:
                    self.add_target(wanted)
                else:
                    self.add_name(module, wanted)

    def add_module(self, name: str) -> None:
        """Add what runs when a module is imported: its packages, its own statements, and the modules that it imports."""
        if name in self._modules or _source(name) is None:
            return
        self._modules.add(name)
        package = name.rpartition(".")[0]
        if package:
            self.add_module(package)
        module = _module(name)
        for unit in module.at_import:
            self.add_unit(name, unit)
        for target in module.imports:
            # A name of a module is imported with the module; whether it is used is another matter.
            self.add_module(_split(target)[0])

    def add_unit(self, module: str, name: str) -> None:
        """Add a unit of a module."""
        unit = _module(module).units.get(name)
        if unit is None:
            raise InputError(f"{module} has no {name!r}, but a stage of the workflow needs it")
        if (module, name) not in self._units:
            self._units[module, name] = unit
            self._waiting.append((module, name))

    def add_name(self, module: str, name: str) -> None:
        """Add what a name means in a module, if it is the module's own and no built-in."""
        here = _module(module)
        if name in here.units:
            self.add_unit(module, name)
        if name in here.bindings and here.bindings[name].partition(".")[0] == PACKAGE:
            self.add_target(here.bindings[name])

    def add_target(self, target: str) -> None:
        """Add what a dotted name of this package means: a unit, or a whole module that is passed on as a value."""
        module, attributes = _split(target)
        self.add_module(module)
        if attributes:
            self.add_name(module, attributes[0])
        elif module != PACKAGE and _source(module) is not None:
            for name in _module(module).units:
                self.add_unit(module, name)

    def digests(self) -> dict[str, str]:
        """Return the digest of every unit and data file."""
        words = {word for unit in self._units.values() for word in unit.words}
        passed = {name for unit in self._units.values() for name in unit.passed}
        found: dict[str, str] = {}
        for (module, name), unit in sorted(self._units.items()):
            named = [
                f"{number}={parameter}"
                for function, parameter, number in unit.parameters
                if parameter in words or function in passed or ANY_NAME in words
            ]
            found[f"{module}:{name}"] = _short(f"{unit.digest} {named}")
        for name in sorted(self._modules):
            source = _source(name)
            assert source is not None
            found.update(_data_beside(source, frozenset(_module(name).strings)))
        return found


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@functools.cache
def _split(target: str) -> tuple[str, list[str]]:
    """Split a dotted name into the module that it begins with and the attributes that follow."""
    parts = target.split(".")
    for length in range(len(parts), 0, -1):
        name = ".".join(parts[:length])
        if _source(name) is not None:
            return name, parts[length:]
    return PACKAGE, parts[1:]


@functools.cache
def _source(name: str) -> Path | None:
    if name.partition(".")[0] != PACKAGE:
        return None
    path = ROOT.joinpath(*name.split(".")[1:])
    for candidate in (path / "__init__.py", path.with_suffix(".py")):
        if candidate.is_file():
            return candidate
    return None


@functools.cache
def _module(name: str) -> Module:
    source = _source(name)
    if source is None:
        raise InputError(f"module {name} does not exist, but a stage of the workflow needs it")
    package = name if source.name == "__init__.py" else name.rpartition(".")[0]
    content = source.read_bytes()
    key = hashlib.sha256(f"{package}\n".encode() + content).hexdigest()
    cache = _cache()
    if key not in cache:
        try:
            cache[key] = asdict(syntax.parse(content, package))
        except SyntaxError as error:
            raise InputError(f"{source}: line {error.lineno}: {error.msg}") from error
    return _from_json(cache[key])


def _from_json(values: dict[str, Any]) -> Module:
    units = {name: Unit(**unit) for name, unit in values["units"].items()}
    return Module(**{**values, "units": units})


# Every job of the workflow asks for the digests of some hundred modules, and parsing them takes seconds, longer than all
# else that a short job does. So what was parsed is kept beside the compiled modules, by the digest of its bytes: it is never
# stale. Once one of these files has changed all of it is void; that is asked when the code is loaded, since they may be
# edited later.
_READERS = (__file__, syntax.__file__, units.__file__, scopes.__file__)
_MADE_BY = _short("".join(file_digest(Path(file)) for file in _READERS))
_MOST = 1000
"""Modules, in all their versions, that are kept: some ten megabytes."""


@functools.cache
def _cache() -> dict[str, dict[str, Any]]:
    """Return what has been parsed of modules, by the digest of their bytes and package."""
    # Whatever else is found under the name is like no file at all.
    with contextlib.suppress(OSError, ValueError, TypeError, AttributeError, KeyError, RecursionError):
        kept = json.loads(_cache_file().read_text(encoding="utf-8"))
        if kept["made_by"] == _MADE_BY:
            modules: dict[str, dict[str, Any]] = kept["modules"]
            for values in modules.values():
                _from_json(values)
            _written.update(modules)
            return modules
    return {}


_written: set[str] = set()
"""Keys of what the file holds."""


def _write_cache() -> None:
    cache = _cache()
    if cache.keys() <= _written or sys.dont_write_bytecode:
        return
    _written.update(cache)
    # Dictionaries keep the order of insertion, so the oldest go.
    modules = dict([*cache.items()][-_MOST:])
    # Where nothing can be written, as in a read-only installation, nothing is kept.
    with contextlib.suppress(InputError):
        write_text(_cache_file(), json.dumps({"made_by": _MADE_BY, "modules": modules}))


def _cache_file() -> Path:
    # Syntax trees differ between versions of Python, and several may use one checkout.
    return Path(__file__).parent / "__pycache__" / f"code.{sys.implementation.cache_tag}.cache"


@functools.cache
def _data_beside(source: Path, strings: frozenset[str]) -> dict[str, str]:
    """Return the digests of the data files in a module's folder, and of those in folders below it that it names."""
    return dict(_data_files(source, strings))


def _data_files(source: Path, strings: frozenset[str]) -> Iterator[tuple[str, str]]:
    folder = source.parent
    below = [
        path
        for path in folder.iterdir()
        if path.name in strings
        and path.name != "__pycache__"
        and path.is_dir()
        and not (path / "__init__.py").exists()
    ]
    paths = [*folder.iterdir(), *(path for part in below for path in part.rglob("*"))]
    for path in paths:
        if (
            path.is_file()
            and path.suffix not in NON_DATA_SUFFIXES
            and not path.name.startswith(".")
            and path.name[-1] != "~"
        ):
            yield path.relative_to(ROOT).as_posix(), file_digest(path)
