"""Names in code: which are a function's own, and what imported ones stand for."""

import ast
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeGuard

PACKAGE = "threespo"

SCOPES = (
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.Lambda,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
)

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class Scope:
    """The names of one function, lambda or comprehension, or of a class body inside one."""

    def __init__(self, outer: "Scope | None", names: Iterable[str], *, is_class: bool = False) -> None:
        self.outer = outer
        self.names = set(names)
        self.is_class = is_class
        self.of_module: set[str] = set()
        """Names that ``global`` says are the module's."""
        self.imported: dict[str, str] = {}
        self.numbers: dict[str, int] = {}


def local_names(node: ast.AST) -> set[str]:
    """Return the names that are local to a function, lambda or comprehension."""
    if isinstance(node, COMPREHENSIONS):
        return {
            inner.id
            for generator in node.generators
            for inner in ast.walk(generator.target)
            if isinstance(inner, ast.Name)
        }
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    arguments = [inner.arg for inner in ast.walk(node.args) if isinstance(inner, ast.arg)]
    body = node.body if isinstance(node.body, list) else [node.body]
    return assigned_names(body) | set(arguments)


def assigned_names(body: Iterable[ast.AST]) -> set[str]:
    """Return the names that statements bind in their own scope, not in functions, classes and comprehensions inside it."""
    found: set[str] = set()
    elsewhere: set[str] = set()
    waiting: list[ast.AST] = list(body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
            continue
        if isinstance(node, ast.Global | ast.Nonlocal):
            elsewhere.update(node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            found.add(node.id)
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            found.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            found.add(node.rest)
        if isinstance(node, SCOPES):
            # Of a comprehension only ``:=`` reaches this scope, and of a lambda nothing.
            walruses = (inner for inner in ast.walk(node) if isinstance(inner, ast.NamedExpr))
            found |= {inner.target.id for inner in walruses if not isinstance(node, ast.Lambda)}
            continue
        waiting += ast.iter_child_nodes(node)
    return found - elsewhere


def is_in_package(target: str) -> bool:
    """Return whether a dotted name begins in this package."""
    return target.partition(".")[0] == PACKAGE


def without_docstrings(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return statements without texts that stand alone: they document a module, class, function or field, and do nothing."""
    return [
        statement
        for statement in body
        if not (
            isinstance(statement, ast.Expr)
            and isinstance(statement.value, ast.Constant)
            and isinstance(statement.value.value, str)
        )
    ]


def executed_statements(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return statements without what is for type checkers alone: of ``if TYPE_CHECKING`` the ``else`` runs."""
    found: list[ast.stmt] = []
    for statement in body:
        found += executed_statements(statement.orelse) if _is_type_checking(statement) else [statement]
    return found


def _is_type_checking(statement: ast.stmt) -> TypeGuard[ast.If]:
    if not isinstance(statement, ast.If):
        return False
    return last_name(statement.test) == "TYPE_CHECKING"


def last_name(node: ast.expr) -> str:
    """Return the last part of a plain or dotted name; empty for any other expression."""
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Name):
        return node.id
    return ""


class ImportedName(NamedTuple):
    """One name of an import statement."""

    name: str
    stands_for: str
    """Dotted name of what it stands for."""
    imported: str
    """Dotted name of what is imported."""


def imported_names(node: ast.Import | ast.ImportFrom, package: str) -> list[ImportedName]:
    """Return the names of an import.

    Raises:
        SyntaxError: if it imports all names of a module of this package, which cannot be followed.
    """
    if isinstance(node, ast.Import):
        # ``import a.b`` imports a.b and binds ``a``; ``import a.b as c`` binds the module a.b.
        firsts = [alias.name.partition(".")[0] for alias in node.names]
        return [
            ImportedName(alias.asname or first, alias.name if alias.asname else first, alias.name)
            for alias, first in zip(node.names, firsts, strict=True)
        ]
    # The first dot of a relative import means the package itself, each further one a level up.
    parent = package.rsplit(".", node.level - 1)[0] if node.level else ""
    base = ".".join(part for part in (parent, node.module) if part)
    if is_in_package(base) and any(alias.name == "*" for alias in node.names):
        raise SyntaxError(f"from {base} import *: name what is imported", ("", node.lineno, 0, ""))
    return [
        ImportedName(alias.asname or alias.name, *[f"{base}.{alias.name}"] * 2) for alias in node.names
    ]
