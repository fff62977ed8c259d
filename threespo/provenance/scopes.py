"""Names in code: which are a function's own, and what imported ones stand for."""

import ast
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeGuard

PACKAGE = "threespo"

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class Scope:
    """The names of one function, lambda or comprehension, or of a class body inside one."""

    def __init__(self, outer: "Scope | None", names: Iterable[str], *, is_class: bool = False) -> None:
        self.outer = outer
        self.names = set(names)
        """Those that it binds: variables, parameters, definitions, but not imports."""
        self.is_class = is_class
        self.global_names: set[str] = set()
        """Names that ``global`` says are the module's."""
        self.imported: dict[str, str] = {}
        """Dotted names of what it imports, by the names that it has for them."""
        self.numbers: dict[str, int] = {}
        """Numbers of its variables (``UnitWriter``)."""


def local_names(node: ast.AST) -> set[str]:
    """Return the names that are local to a function, lambda or comprehension."""
    if isinstance(node, COMPREHENSIONS):
        targets = [generator.target for generator in node.generators]
        parts = [part for target in targets for part in ast.walk(target)]
        return {part.id for part in parts if isinstance(part, ast.Name)}
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    arguments = [inner.arg for inner in ast.walk(node.args) if isinstance(inner, ast.arg)]
    body = node.body if isinstance(node.body, list) else [node.body]
    return assigned_names(body) | set(arguments)


def assigned_names(body: Iterable[ast.AST]) -> set[str]:
    """Return the names that statements bind in their own scope, not in functions, classes and comprehensions inside it."""
    found: set[str] = set()
    of_other_scopes: set[str] = set()
    waiting: list[ast.AST] = list(body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
            continue
        if isinstance(node, ast.Global | ast.Nonlocal):
            of_other_scopes.update(node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            found.add(node.id)
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            found.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            found.add(node.rest)

        if isinstance(node, COMPREHENSIONS):
            # Of a comprehension only ``:=`` binds a name here.
            walruses = [inner for inner in ast.walk(node) if isinstance(inner, ast.NamedExpr)]
            found |= {walrus.target.id for walrus in walruses}
        elif not isinstance(node, ast.Lambda):
            waiting += ast.iter_child_nodes(node)
    return found - of_other_scopes


def is_in_package(target: str) -> bool:
    """Return whether a dotted name begins in this package."""
    return target.partition(".")[0] == PACKAGE


def without_docstrings(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return statements without texts that stand alone: they document a module, class, function or field, and do nothing."""
    return [statement for statement in body if not _is_docstring(statement)]


def _is_docstring(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Constant):
        return False
    return isinstance(statement.value.value, str)


def executed_statements(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return statements without what is for type checkers alone: of ``if TYPE_CHECKING`` the ``else`` runs."""
    found: list[ast.stmt] = []
    for statement in body:
        if _is_type_checking(statement):
            found += executed_statements(statement.orelse)
        else:
            found.append(statement)
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
        found = []
        for alias in node.names:
            # ``import a.b`` imports a.b and binds ``a``; ``import a.b as c`` binds the module a.b.
            bound = alias.name if alias.asname else alias.name.partition(".")[0]
            found.append(ImportedName(alias.asname or bound, bound, alias.name))
        return found

    # The first dot of a relative import means the package itself, each further one a level up.
    parent = package.rsplit(".", node.level - 1)[0] if node.level else ""
    base = ".".join(part for part in (parent, node.module) if part)
    if is_in_package(base) and any(alias.name == "*" for alias in node.names):
        raise SyntaxError(f"from {base} import *: name what is imported", ("", node.lineno, 0, ""))
    found = []
    for alias in node.names:
        dotted_name = f"{base}.{alias.name}"
        found.append(ImportedName(alias.asname or alias.name, dotted_name, dotted_name))
    return found
