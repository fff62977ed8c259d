"""The semantic fingerprint of a stage: what its code *means*, not how it is written down.

It is a digest of the syntax trees, without comments and docstrings, of all ``threespo`` modules that the stage imports,
directly or through others, at the top of a file or inside a function. Data files count by content: those in a module's
folder, and those in folders below it that the module names.
In a job's record it reruns the job when, and only when, its code changed.

Left out: the registries of methods and environments (else every run would depend on every method), and the description of
studies, whose values reach a stage as its settings. What a job takes from a registry is named with its stage
(``threespo.study.stages``).
"""

import ast
import contextlib
import functools
import hashlib
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeGuard

from threespo.errors import InputError
from threespo.files import atomic_text
from threespo.study.digests import file_digest

PACKAGE = "threespo"
ROOT = Path(__file__).resolve().parents[1]

LEFT_OUT = ("threespo.methods.registry", "threespo.envs.registry", "threespo.study", "threespo.cli")
"""Modules (with all that lies in them) that decide what runs, but nothing of what a run computes."""

NOT_DATA = (".py", ".pyc", ".md")
"""Endings of files that are code or documentation."""

_Parsed = tuple[str, list[str], list[str]]
"""What :func:`_parse` returns, also as JSON keeps it."""


@functools.cache
def fingerprint(modules: tuple[str, ...]) -> str:
    """Return 16 hexadecimal digits for the meaning of ``modules`` and of all that they import from this package."""
    digest = hashlib.sha256()
    for name, value in sorted(describe(modules).items()):
        digest.update(f"{name} {value}\n".encode())
    return digest.hexdigest()[:16]


def describe(modules: Iterable[str]) -> dict[str, str]:
    """Return the digest of every module and data file that ``modules`` depend on, by name.

    Raises:
        InputError: if one of ``modules`` does not exist or does not parse.
    """
    found: dict[str, str] = {}
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue

        source = _source(name)
        if source is None:
            raise InputError(f"module {name} does not exist, but a stage of the workflow needs it")
        module = _module(source, name)
        found[name] = module.digest
        found.update(_data_beside(source, module.strings))
        waiting += module.imports
    _write_cache()
    return found


def forget() -> None:
    """Read modules again when they are asked for next: somebody may have edited them while a workflow ran."""
    for function in (fingerprint, _source, _module, _data_beside):
        function.cache_clear()


def _lies_in(name: str, modules: Iterable[str]) -> bool:
    return any(name == module or name.startswith(module + ".") for module in modules)


@functools.cache
def _source(name: str) -> Path | None:
    path = ROOT.joinpath(*name.split(".")[1:])
    for candidate in (path / "__init__.py", path.with_suffix(".py")):
        if candidate.is_file():
            return candidate
    return None


class _Module(NamedTuple):
    """What matters of a module's code."""

    digest: str
    imports: tuple[str, ...]
    """Modules of this package that it imports, and the packages that contain them; without those that are left out."""
    strings: frozenset[str]
    """Its strings that a file or folder could be named by; docstrings do not count."""


@functools.cache
def _module(source: Path, name: str) -> _Module:
    package, content = name if source.name == "__init__.py" else name.rpartition(".")[0], source.read_bytes()
    cache, key = _cache(), hashlib.sha256(f"{package}\n".encode() + content).hexdigest()
    if key not in cache:
        try:
            cache[key] = _parse(content, package)
        except SyntaxError as error:
            raise InputError(f"{source}: line {error.lineno}: {error.msg}") from error
    digest, targets, strings = cache[key]
    imports = (module for target in targets for module in _existing(target))
    counted = (other for other in dict.fromkeys(imports) if not _lies_in(other, LEFT_OUT))
    return _Module(digest, tuple(counted), frozenset(strings))


def _parse(content: bytes, package: str) -> _Parsed:
    """Return a module's digest, what it imports of this package, as far as its text says, and its strings."""
    tree = ast.parse(content)

    # One walk, and no copy of the tree: it takes long enough.
    imports: list[str] = []
    strings: set[str] = set()
    texts: set[int] = set()
    for node in ast.walk(tree):
        # ``walk`` has queued a node's children before it yields the node: removed docstrings still come, known by ``texts``.
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            # Strings that stand alone document a module, class, function or field; they do nothing.
            texts |= {id(part.value) for part in node.body if _is_text(part)}
            node.body = [part for part in node.body if not _is_text(part)] or [ast.Pass()]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in texts:
            strings.add(node.value)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            imports += _imports(node, package)

    dumped = ast.dump(tree, include_attributes=False)
    names = sorted(string for string in strings if "/" not in string and 0 < len(string) < 256)
    return hashlib.sha256(dumped.encode()).hexdigest(), list(dict.fromkeys(imports)), names


# Every job of the workflow asks for the digests of some hundred modules, and parsing them takes longer than all else that a
# short job does. So what was parsed is kept beside the compiled modules, by the digest of its bytes: it is never stale. Once
# this file has changed all of it is void; that is asked when the code is loaded, since the file may be edited later.
_MADE_BY = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
_MOST = 2000
"""Modules, in all their versions, that are kept: two megabytes."""


@functools.cache
def _cache() -> dict[str, _Parsed]:
    """Return what has been parsed of modules, by the digest of their bytes and package."""
    # Whatever else is found under the name is like no file at all.
    with contextlib.suppress(OSError, ValueError, TypeError, AttributeError, KeyError, RecursionError):
        kept = json.loads(_cache_file().read_text(encoding="utf-8"))
        if kept["made_by"] == _MADE_BY:
            parsed = {key: (digest, imports, strings) for key, (digest, imports, strings) in kept["modules"].items()}
            _written.update(parsed)
            return parsed
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
        atomic_text(_cache_file(), json.dumps({"made_by": _MADE_BY, "modules": modules}))


def _cache_file() -> Path:
    # Syntax trees differ between versions of Python, and several may use one checkout.
    return Path(__file__).parent / "__pycache__" / f"fingerprints.{sys.implementation.cache_tag}.cache"


def _is_text(node: ast.stmt) -> TypeGuard[ast.Expr]:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _imports(node: ast.Import | ast.ImportFrom, package: str) -> Iterator[str]:
    """Yield what a statement in ``package`` imports of this package: modules, and names in modules."""
    if isinstance(node, ast.Import):
        targets = [alias.name for alias in node.names]
    else:
        # The first dot of a relative import means the package itself, each further one a level up.
        parent = package.rsplit(".", node.level - 1)[0] if node.level else ""
        base = ".".join(part for part in (parent, node.module) if part)

        # ``from a import b`` imports the module a.b if there is one; otherwise b is a name in a.
        targets = [base, *(f"{base}.{alias.name}" for alias in node.names)]

    for target in targets:
        if target.split(".")[0] == PACKAGE:
            yield target


def _existing(target: str) -> Iterator[str]:
    """Yield ``target`` and the packages around it, as far as they are modules."""
    # Importing a.b.c also runs a and a.b.
    parts = target.split(".")
    for length in range(1, len(parts) + 1):
        name = ".".join(parts[:length])
        if _source(name) is not None:
            yield name


@functools.cache
def _data_beside(source: Path, strings: frozenset[str]) -> dict[str, str]:
    """Return the digests of the data files in a module's folder, and of those in folders below it that it names."""
    folder = source.parent
    below = [
        path
        for path in folder.iterdir()
        if path.name in strings and path.name != "__pycache__" and path.is_dir() and not (path / "__init__.py").exists()
    ]
    paths = [*folder.iterdir(), *(path for part in below for path in part.rglob("*"))]
    data = [path for path in paths if path.is_file() and path.suffix not in NOT_DATA and not path.name.startswith(".")]
    return {path.relative_to(ROOT).as_posix(): file_digest(path) for path in data}
