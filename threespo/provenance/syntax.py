"""A module as its units: top-level functions, classes and values, each with a digest of what it *means*.

A digest does not change with comments, docstrings, formatting, the order of functions, the names of local variables, or how
something was imported (``from a import b`` and ``import a`` with ``a.b`` are the same). Names of parameters are kept apart
from it, since they count only where a caller uses them (``threespo.provenance.code``).
"""

import ast
from collections.abc import Collection, Iterable, Iterator, Sequence
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


def parse_module(source: bytes | str, package: str) -> Module:
    """Return a module's units.

    Args:
        source: its text.
        package: dotted name of the package that relative imports start from.

    Raises:
        SyntaxError: if it does not parse.
    """
    tree = ast.parse(source)
    statements = executed_statements(without_docstrings(tree.body))
    module = Module(strings=sorted(set(_find_file_names(tree))))
    _note_imports(module, statements, package)

    defined_names = {name for statement in statements for name in _defined_names(statement)}
    # Such as an ``if``, a loop, or a call: they have effects, and may define names inside.
    effects = [
        statement
        for statement in statements
        if not _defined_names(statement) and not isinstance(statement, ast.Import | ast.ImportFrom)
    ]
    own_names = defined_names | _names_defined_inside(effects)
    own_names |= {name for name, dotted_name in module.bindings.items() if is_in_package(dotted_name)}

    # Names that one statement defines together, as in ``a, b = f()``, share their unit.
    units: dict[tuple[int, ...], Unit] = {}
    for name in defined_names:
        # All that gives a name its value, in order: one that is defined again may keep what it was.
        definitions = [
            statement
            for statement in statements
            if name in _defined_names(statement) or name in _imported_names(statement, package)
        ]
        key = tuple(map(id, definitions))
        if key not in units:
            units[key] = UnitWriter(module.bindings, package).write_unit(definitions)
        module.units[name] = units[key]
        if any(_runs_at_import(definition, own_names) for definition in definitions):
            module.at_import.append(name)

    if effects:
        module.units[AT_IMPORT] = UnitWriter(module.bindings, package).write_unit(effects)
        module.at_import.append(AT_IMPORT)
    module.at_import.sort()
    return module


def _note_imports(module: Module, statements: Sequence[ast.stmt], package: str) -> None:
    """Note what a module imports when it is imported, and under which names."""
    imported_modules: list[str] = []
    for statement in statements:
        for node in _imports_at_top(statement):
            for bound in imported_names(node, package):
                module.bindings[bound.name] = bound.stands_for
                if is_in_package(bound.imported):
                    imported_modules.append(bound.imported)
    module.imports = list(dict.fromkeys(imported_modules))


def _find_file_names(tree: ast.Module) -> Iterator[str]:
    """Yield a module's texts that could name a file or folder; docstrings do not count."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or id(node) in docstrings:
            continue
        text = node.value
        if isinstance(text, str) and 0 < len(text) < 256 and "/" not in text and "\n" not in text:
            yield text


def _names_defined_inside(statements: Iterable[ast.stmt]) -> set[str]:
    """Return the names that statements define at any depth, as ``if`` and ``try`` may."""
    nodes = [node for statement in statements for node in ast.walk(statement)]
    return {name for node in nodes if isinstance(node, ast.stmt) for name in _defined_names(node)}


def _defined_names(statement: ast.stmt) -> list[str]:
    """Return the names that a statement defines, if it is a definition and has no other effect."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [statement.name]
    if isinstance(statement, ast.AnnAssign):
        # Without a value it is for type checkers alone.
        if isinstance(statement.target, ast.Name) and statement.value is not None:
            return [statement.target.id]
        return []
    if isinstance(statement, ast.Assign):
        targets = [part for target in statement.targets for part in _unpack_target(target)]
        names = [target.id for target in targets if isinstance(target, ast.Name)]
        # An assignment to an attribute or item changes another value, so it is an effect.
        return names if len(names) == len(targets) else []
    return []


def _unpack_target(target: ast.expr) -> Iterator[ast.expr]:
    """Yield what a target of an assignment consists of: ``a``, ``b`` and ``c`` of ``(a, (b, c))``."""
    if isinstance(target, ast.Tuple | ast.List):
        for inner in target.elts:
            yield from _unpack_target(inner)
    else:
        yield target


# What a definition may call without an effect on anything but its own value.
_TYPES = ("bool", "bytes", "dict", "float", "frozenset", "int", "list", "set", "str", "tuple", "TypeVar")
_FUNCTIONS = ("len", "max", "min", "range", "sorted", "sum", "get_args", "timedelta", "Path")
_MODULES = ("abc", "contextlib", "functools", "logging", "re", "struct", "threading", "typing")
_DECORATORS = ("classmethod", "final", "override", "property", "runtime_checkable", "staticmethod")
_DATACLASSES = ("dataclass", "dataclasses", "field")
_PYDANTIC_FIELDS = ("AfterValidator", "BeforeValidator", "ConfigDict", "Field")
_PYDANTIC_DECORATORS = ("field_serializer", "field_validator", "model_validator")
_OF_PYTHON = _TYPES + _FUNCTIONS + _MODULES + _DECORATORS + _DATACLASSES
_NAMES_WITHOUT_EFFECTS = frozenset(_OF_PYTHON + _PYDANTIC_FIELDS + _PYDANTIC_DECORATORS)


def _runs_at_import(statement: ast.stmt, own_names: Collection[str]) -> bool:
    """Return whether a definition does more than give a name its value: it may run code of this package, or of others.

    Decorators, defaults, values and the bodies of classes run when the module is imported, bodies of functions do not.
    """
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            waiting += node.args.defaults
            waiting += [default for default in node.args.kw_defaults if default is not None]
            waiting += getattr(node, "decorator_list", [])
            continue
        # What a comprehension's iterator does cannot be seen.
        if isinstance(node, COMPREHENSIONS):
            return True
        if isinstance(node, ast.Call) and not _has_no_effect(node.func, own_names):
            return True
        waiting += ast.iter_child_nodes(node)

    # A decorator without parentheses is called, too.
    decorators = getattr(statement, "decorator_list", [])
    plain = [decorator for decorator in decorators if not isinstance(decorator, ast.Call)]
    return not all(_has_no_effect(decorator, own_names) for decorator in plain)


def _has_no_effect(function: ast.AST, own_names: Collection[str]) -> bool:
    """Return whether a call of the function has no effect besides its value; ``own_names`` may hide a library's."""
    first = _first_name(function)
    if first:
        return first in _NAMES_WITHOUT_EFFECTS and first not in own_names
    # A method of a text, or of what a call has returned, which is looked at by itself.
    return isinstance(function, ast.Attribute)


def _imports_at_top(statement: ast.stmt) -> list[ast.Import | ast.ImportFrom]:
    """Return the imports that run with a statement: it is one, or has some inside (``try``, ``if``)."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return []
    return [node for node in ast.walk(statement) if isinstance(node, ast.Import | ast.ImportFrom)]


def _imported_names(statement: ast.stmt, package: str) -> list[str]:
    if not isinstance(statement, ast.Import | ast.ImportFrom):
        return []
    return [bound.name for bound in imported_names(statement, package)]


def _first_name(node: ast.AST) -> str:
    """Return the first name of ``a.b.c``; "" for anything else."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
