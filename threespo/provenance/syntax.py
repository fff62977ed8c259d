"""A module as its units: top-level functions, classes and values, each with a digest of what it *means*.

A digest does not change with comments, docstrings, formatting, the order of functions, the names of local variables, or how
something was imported (``from a import b`` and ``import a`` with ``a.b`` are the same). Names of parameters are kept apart
from it, since they count only where a caller uses them (``threespo.provenance.code``).
"""

import ast
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from threespo.provenance.scopes import (
    COMPREHENSIONS,
    executed_statements,
    imported_names,
    is_in_package,
    without_docstrings,
)
from threespo.provenance.units import Unit, UnitWriter

AT_IMPORT = "<import>"
"""Name of the unit of statements that run when a module is imported and define nothing by themselves."""


@dataclass(slots=True)
class Module:
    """What matters of a module's code."""

    units: dict[str, Unit] = field(default_factory=dict)
    """By the names that they define; several names may have equal units."""
    at_import: list[str] = field(default_factory=list)
    """Names of units that do more than define when the module is imported (``_runs_at_import``)."""
    imports: list[str] = field(default_factory=list)
    """What it imports of this package when it is imported."""
    bindings: dict[str, str] = field(default_factory=dict)
    """Dotted names of what it imports, by the names that it has for them."""
    strings: list[str] = field(default_factory=list)
    """Its texts that could name a file or folder."""


def parse(source: bytes | str, package: str) -> Module:
    """Return a module's units.

    Args:
        source: its text.
        package: dotted name of the package that relative imports start from.

    Raises:
        SyntaxError: if it does not parse.
    """
    tree = ast.parse(source)
    module = Module()
    statements = executed_statements(without_docstrings(tree.body))
    imports = [node for statement in statements for node in _imports_at_top(statement)]
    for bound in (bound for node in imports for bound in imported_names(node, package)):
        module.bindings[bound.name] = bound.stands_for
        module.imports += [bound.imported] if is_in_package(bound.imported) else []

    defined = {name for statement in statements for name in _defined(statement)}
    rest = [
        one
        for one in statements
        if not _defined(one) and not isinstance(one, ast.Import | ast.ImportFrom)
    ]
    in_rest = {
        name
        for one in rest
        for node in ast.walk(one)
        if isinstance(node, ast.stmt)
        for name in _defined(node)
    }
    ours = (
        defined | in_rest | {name for name, target in module.bindings.items() if is_in_package(target)}
    )
    made: dict[tuple[int, ...], Unit] = {}
    for name in defined:
        # All that gives a name its value, in order: one that is defined again may keep what it was.
        found = [one for one in statements if name in _defined(one) or name in _imported(one, package)]
        place = tuple(map(id, found))
        if place not in made:
            made[place] = UnitWriter(module.bindings, package).unit(found)
        module.units[name] = made[place]
        if any(_runs_at_import(one, ours) for one in found):
            module.at_import.append(name)
    if rest:
        module.units[AT_IMPORT] = UnitWriter(module.bindings, package).unit(rest)
        module.at_import.append(AT_IMPORT)
    module.at_import.sort()
    module.imports = list(dict.fromkeys(module.imports))
    module.strings = sorted(set(_file_names(tree)))
    return module


def _file_names(tree: ast.Module) -> Iterator[str]:
    """Yield a module's texts that could name a file or folder; docstrings do not count."""
    documents = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) and id(node) not in documents else None
        if isinstance(text, str) and 0 < len(text) < 256 and "/" not in text and "\n" not in text:
            yield text


def _defined(statement: ast.stmt) -> list[str]:
    """Return the names that a top-level statement defines, if it is a definition."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [statement.name]
    if isinstance(statement, ast.AnnAssign):
        return (
            [statement.target.id]
            if isinstance(statement.target, ast.Name) and statement.value is not None
            else []
        )
    if isinstance(statement, ast.Assign):
        targets = [node for target in statement.targets for node in _parts(target)]
        return [node.id for node in targets if isinstance(node, ast.Name)] if _all_names(targets) else []
    return []


def _parts(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, ast.Tuple | ast.List):
        for inner in target.elts:
            yield from _parts(inner)
    else:
        yield target


def _all_names(targets: Iterable[ast.expr]) -> bool:
    return all(isinstance(target, ast.Name) for target in targets)


_HARMLESS = {
    *(
        "Field",
        "field",
        "dataclass",
        "dataclasses",
        "AfterValidator",
        "BeforeValidator",
        "ConfigDict",
        "model_validator",
    ),
    *(
        "field_validator",
        "field_serializer",
        "re",
        "Path",
        "TypeVar",
        "logging",
        "timedelta",
        "struct",
        "threading",
    ),
    "typing",
    *(
        "get_args",
        "functools",
        "contextlib",
        "abc",
        "property",
        "staticmethod",
        "classmethod",
        "runtime_checkable",
        "final",
    ),
    *(
        "override",
        "frozenset",
        "dict",
        "set",
        "list",
        "tuple",
        "sorted",
        "range",
        "max",
        "min",
        "sum",
        "len",
        "str",
        "int",
    ),
    *("float", "bytes", "bool"),
}
"""Of Python and of libraries: what a definition may call without an effect on anything but its own value."""


def _runs_at_import(statement: ast.stmt, ours: Collection[str]) -> bool:
    """Return whether a definition does more than give a name its value: it may run code of this package, or of others.

    Decorators, defaults, values and the bodies of classes run when the module is imported, bodies of functions do not.
    """
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            defaults = [*node.args.defaults, *filter(None, node.args.kw_defaults)]
            waiting += [*defaults, *getattr(node, "decorator_list", [])]
            continue
        if isinstance(node, COMPREHENSIONS) or (
            isinstance(node, ast.Call) and not _is_harmless(node.func, ours)
        ):
            return True
        waiting += ast.iter_child_nodes(node)
    decorators = getattr(statement, "decorator_list", [])
    return not all(_is_harmless(node, ours) for node in decorators if not isinstance(node, ast.Call))


def _is_harmless(function: ast.AST, ours: Collection[str]) -> bool:
    root = _root(function)
    if root:
        return root in _HARMLESS and root not in ours
    # A method of a text, or of what a call has returned, which is looked at by itself.
    return isinstance(function, ast.Attribute)


def _imports_at_top(statement: ast.stmt) -> list[ast.Import | ast.ImportFrom]:
    """Return the imports that run with a statement: it is one, or has some inside (``try``, ``if``)."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return []
    return [node for node in ast.walk(statement) if isinstance(node, ast.Import | ast.ImportFrom)]


def _imported(statement: ast.stmt, package: str) -> list[str]:
    if not isinstance(statement, ast.Import | ast.ImportFrom):
        return []
    return [bound.name for bound in imported_names(statement, package)]


def _root(node: ast.AST) -> str:
    """Return the first name of ``a.b.c``; "" for anything else."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
