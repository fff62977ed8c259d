"""The semantic fingerprint of a stage: what its code *means*, not how it is written down.

It is a digest of the syntax trees, without comments and docstrings, of all ``threespo`` modules that the stage imports,
directly or through others, at the top of a file or inside a function. Data files count by content: those in a module's
folder, and those in folders below it that the module names.
Handed to the workflow as a parameter, it reruns a stage when, and only when, its code changed.

Left out: the method registry (else every method would depend on every other), the description of studies, whose values
reach the stage as parameters of their own, and of a stage for one environment what belongs to the others alone.
"""

import ast
import copy
import functools
import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from threespo.errors import InputError
from threespo.study.contents import file_digest

PACKAGE = "threespo"
ROOT = Path(__file__).resolve().parents[1]

LEFT_OUT = ("threespo.methods.registry", "threespo.study", "threespo.cli")
"""Modules (with all that lies in them) that decide what runs, but nothing of what a run computes."""

OF_ENVIRONMENT = {
    "alfworld": ("threespo.envs.alfworld", "threespo.policy.alfworld_lesson", "threespo.policy.explorer"),
    "webshop": ("threespo.envs.webshop", "threespo.policy.webshop_lesson", "threespo.policy.shopper"),
}
"""Modules (with all that lies in them) that a stage for another environment does not run."""

NOT_DATA = (".py", ".pyc", ".md")

STAGES = {
    "data": ("threespo.runs.data",),
    "policy": ("threespo.policy.tiny",),
    "train": ("threespo.runs.train",),
    "evaluate": ("threespo.runs.evaluate",),
    "probe": ("threespo.runs.probe",),
    "laboratory": ("threespo.runs.laboratory",),
    "choose": ("threespo.runs.choose",),
    "tables": ("threespo.results.tables",),
    "figures": ("threespo.results.figures",),
    "report": ("threespo.results.report",),
}
"""The modules that each stage's command calls."""


def stage_fingerprint(stage: str, method: str | None = None, env: str | None = None) -> str:
    """Return the fingerprint of a stage; for ``train`` with the module of the run's method."""
    return fingerprint(stage_modules(stage, method), env)


def stage_modules(stage: str, method: str | None = None) -> tuple[str, ...]:
    """Return the modules that a stage's command calls."""
    return STAGES[stage] + ((f"{PACKAGE}.methods.{method}",) if method else ())


@functools.cache
def fingerprint(modules: tuple[str, ...], env: str | None = None) -> str:
    """Return 16 hexadecimal digits for the meaning of ``modules`` and of all that they import from this package."""
    digest = hashlib.sha256()
    for name, value in sorted(describe(modules, env).items()):
        digest.update(f"{name} {value}\n".encode())
    return digest.hexdigest()[:16]


def describe(modules: Iterable[str], env: str | None = None) -> dict[str, str]:
    """Return the digest of every module and data file that ``modules`` depend on in environment ``env``, by name.

    Raises:
        InputError: if one of ``modules`` does not exist or does not parse.
    """
    found: dict[str, str] = {}
    others = [name for other, names in OF_ENVIRONMENT.items() if env not in (None, other) for name in names]
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        source = _source(name)
        if source is None:
            raise InputError(f"module {name} does not exist, but a stage of the workflow needs it")
        found[name] = _digest_of_code(source)
        beside = _data_beside(source).items()
        found.update({file: value for file, value in beside if not _of_other(file, env)})
        waiting += [other for other in _imports(source, name) if not _lies_in(other, (*LEFT_OUT, *others))]
    return found


def _lies_in(name: str, modules: Iterable[str]) -> bool:
    return any(name == module or name.startswith(module + ".") for module in modules)


def _of_other(file: str, env: str | None) -> bool:
    """Whether a data file is a shipped policy of another environment."""
    return env is not None and any(f"shipped/{other}-" in file for other in OF_ENVIRONMENT if other != env)


def _source(name: str) -> Path | None:
    path = ROOT.joinpath(*name.split(".")[1:])
    for candidate in (path / "__init__.py", path.with_suffix(".py")):
        if candidate.is_file():
            return candidate
    return None


@functools.cache
def _tree(source: Path) -> ast.Module:
    try:
        return ast.parse(source.read_text(encoding="utf-8"))
    except SyntaxError as error:
        raise InputError(f"{source}: line {error.lineno}: {error.msg}") from error


@functools.cache
def _digest_of_code(source: Path) -> str:
    dumped = ast.dump(_without_docstrings(source), include_attributes=False)
    return hashlib.sha256(dumped.encode()).hexdigest()


def _without_docstrings(source: Path) -> ast.Module:
    tree = copy.deepcopy(_tree(source))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            # Strings that stand alone document a module, class, function or field; they do nothing.
            node.body = [part for part in node.body if not _is_text(part)] or [ast.Pass()]
    return tree


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _imports(source: Path, name: str) -> Iterator[str]:
    """Yield the modules of this package that a file imports, and the packages that contain them."""
    package = name if source.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(_tree(source)):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parent = package.rsplit(".", node.level - 1)[0] if node.level else ""
            base = ".".join(part for part in (parent, node.module) if part)
            targets = [base, *(f"{base}.{alias.name}" for alias in node.names)]
        else:
            continue
        for target in targets:
            if target.split(".")[0] == PACKAGE:
                yield from _existing(target)


def _existing(target: str) -> Iterator[str]:
    parts = target.split(".")
    for length in range(1, len(parts) + 1):
        name = ".".join(parts[:length])
        if _source(name) is not None:
            yield name


@functools.cache
def _data_beside(source: Path) -> dict[str, str]:
    """Return the digests of the data files in a module's folder, and of those in folders below it that it names."""
    folder = source.parent
    named = {
        node.value for node in ast.walk(_tree(source)) if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    below = [
        path
        for path in folder.iterdir()
        if path.is_dir() and path.name in named and not (path / "__init__.py").exists()
    ]
    paths = [*folder.iterdir(), *(path for part in below for path in part.rglob("*"))]
    data = [path for path in paths if path.is_file() and path.suffix not in NOT_DATA and not path.name.startswith(".")]
    return {path.relative_to(ROOT).as_posix(): file_digest(path) for path in data}
