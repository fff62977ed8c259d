"""The modules of this package, as files: where one lies, what it defines (``syntax``), which data files belong to it.

Every job of the workflow asks for some hundred modules, and parsing them takes seconds, longer than all else that a short
job does. So what was parsed is kept in a file beside the compiled modules, by the digest of a module's bytes: it is never
stale.
"""

import contextlib
import functools
import hashlib
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from threespo.errors import InputError
from threespo.files import write_text
from threespo.provenance import scopes, syntax, units
from threespo.provenance.digests import file_digest
from threespo.provenance.scopes import PACKAGE, is_in_package
from threespo.provenance.syntax import Module
from threespo.provenance.units import Parameter, Unit

ROOT = Path(__file__).resolve().parents[1]

NON_DATA_SUFFIXES = (".py", ".pyc", ".md", ".orig", ".rej", ".bak", ".swp")
"""Endings of files that are code, documentation, or what editors and patches leave behind."""

MAX_CACHED_MODULES = 1000
"""Modules, in all their versions, that are kept parsed: some ten megabytes."""

DIGEST_LENGTH = 16
"""Hexadecimal digits of a unit's digest."""


class Target(NamedTuple):
    """What a dotted name of this package stands for."""

    module: str
    name: str
    """What of the module; "" if it is the module itself."""


def short_digest(text: str) -> str:
    """Return the first digits of a text's SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_LENGTH]


@functools.cache
def find_source(module: str) -> Path | None:
    """Return the file of a module or package; ``None`` if this package has none of that name."""
    if not is_in_package(module):
        return None
    path = ROOT.joinpath(*module.split(".")[1:])
    for candidate in (path / "__init__.py", path.with_suffix(".py")):
        if candidate.is_file():
            return candidate
    return None


@functools.cache
def resolve_target(dotted_name: str) -> Target:
    """Split a dotted name into the longest module that it begins with and the name that follows."""
    parts = dotted_name.split(".")
    for length in range(len(parts), 0, -1):
        module = ".".join(parts[:length])
        if find_source(module) is not None:
            return Target(module, "".join(parts[length : length + 1]))
    return Target(PACKAGE, "".join(parts[1:2]))


@functools.cache
def read_module(name: str) -> Module:
    """Return what a module defines and imports.

    Raises:
        InputError: if it does not exist or does not parse.
    """
    source = find_source(name)
    if source is None:
        raise InputError(f"module {name} does not exist, but a stage of the workflow needs it")
    package = name if source.name == "__init__.py" else name.rpartition(".")[0]
    content = source.read_bytes()
    # With the package, from which relative imports start.
    key = hashlib.sha256(f"{package}\n".encode() + content).hexdigest()
    cache = _read_cache()
    if key not in cache:
        try:
            cache[key] = asdict(syntax.parse_module(content, package))
        except SyntaxError as error:
            raise InputError(f"{source}: line {error.lineno}: {error.msg}") from error
    return _module_from_json(cache[key])


def _module_from_json(values: dict[str, Any]) -> Module:
    module = Module(**values)
    module.units = {name: _unit_from_json(unit) for name, unit in values["units"].items()}
    return module


def _unit_from_json(values: dict[str, Any]) -> Unit:
    unit = Unit(**values)
    unit.parameters = [Parameter(*parameter) for parameter in values["parameters"]]
    return unit


_PARSER_FILES = (__file__, syntax.__file__, units.__file__, scopes.__file__)
# Computed when this module is loaded: the files may be edited later, and what is kept comes from the loaded code.
_PARSER_DIGEST = short_digest("".join(file_digest(Path(file)) for file in _PARSER_FILES))
"""Says which parser has made a cache: all of it is void once one of these files has changed."""

_written_keys: set[str] = set()
"""Keys of what the cache's file holds."""


@functools.cache
def _read_cache() -> dict[str, dict[str, Any]]:
    """Return what has been parsed of modules, by the digest of their bytes and package."""
    # Whatever else is found under the name is like no file at all.
    with contextlib.suppress(OSError, ValueError, TypeError, AttributeError, KeyError, RecursionError):
        kept = json.loads(_cache_file().read_text(encoding="utf-8"))
        if kept["made_by"] == _PARSER_DIGEST:
            modules: dict[str, dict[str, Any]] = kept["modules"]
            # Damage must show here, not where a module is asked for.
            for values in modules.values():
                _module_from_json(values)
            _written_keys.update(modules)
            return modules
    return {}


def write_cache() -> None:
    """Keep what has been parsed for later processes, where Python may keep compiled modules, too."""
    cache = _read_cache()
    if cache.keys() <= _written_keys or sys.dont_write_bytecode:
        return
    _written_keys.update(cache)
    # Dictionaries keep the order of insertion, so the oldest go.
    newest = dict([*cache.items()][-MAX_CACHED_MODULES:])
    text = json.dumps({"made_by": _PARSER_DIGEST, "modules": newest})
    # Where nothing can be written, as in a read-only installation, nothing is kept.
    with contextlib.suppress(InputError):
        write_text(_cache_file(), text)


def _cache_file() -> Path:
    # Syntax trees differ between versions of Python, and several may use one checkout.
    return Path(__file__).parent / "__pycache__" / f"code.{sys.implementation.cache_tag}.cache"


def digest_data_files(module: str) -> dict[str, str]:
    """Return the digests of a module's data files, by path: those in its folder, and in folders there that it names."""
    source = find_source(module)
    assert source is not None, "only modules that were found are asked for"
    return _digest_files_beside(source, frozenset(read_module(module).strings))


@functools.cache
def _digest_files_beside(source: Path, strings: frozenset[str]) -> dict[str, str]:
    files = _list_files_beside(source, strings)
    return {
        path.relative_to(ROOT).as_posix(): file_digest(path) for path in files if _is_data_file(path)
    }


def _list_files_beside(source: Path, strings: frozenset[str]) -> Iterator[Path]:
    """Yield what lies in the folder of ``source``, and at any depth in its folders that ``strings`` name."""
    for path in source.parent.iterdir():
        yield path
        is_package = (path / "__init__.py").exists()
        if path.name in strings and path.name != "__pycache__" and path.is_dir() and not is_package:
            yield from path.rglob("*")


def _is_data_file(path: Path) -> bool:
    is_hidden = path.name.startswith(".")
    is_backup = path.name.endswith("~")
    return path.is_file() and path.suffix not in NON_DATA_SUFFIXES and not is_hidden and not is_backup


def clear_caches() -> None:
    """Read modules again when they are asked for next: somebody may have edited them while a workflow ran."""
    for function in (find_source, resolve_target, read_module, _digest_files_beside):
        function.cache_clear()
