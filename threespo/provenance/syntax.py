"""A module as its units: top-level functions, classes and values, each with a digest of what it *means*.

A digest does not change with comments, docstrings, formatting, the order of functions, the names of local variables, or how
something was imported (``from a import b`` and ``import a`` with ``a.b`` are the same). Names of parameters are kept apart
from it, since they count only where a caller uses them (``threespo.provenance.code``).
"""

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from threespo.provenance.meaning import Unit, Writer
from threespo.provenance.scopes import COMPREHENSIONS, bound_names, is_ours, is_type_checking, without_docstrings

AT_IMPORT = "<import>"
"""Name of the unit of statements that run when a module is imported and define nothing by themselves."""


@dataclass(slots=True)
class Module:
    """What matters of a module's code."""

    units: dict[str, Unit] = field(default_factory=dict)
    """By the names that they define; several names may have equal units."""
    at_import: list[str] = field(default_factory=list)
    """Names of units that call something of this package when the module is imported."""
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
    statements = [statement for statement in without_docstrings(tree.body) if not is_type_checking(statement)]
    rest: list[ast.stmt] = []
    for statement in statements:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            for name, target in bound_names(statement, package):
                module.bindings[name] = target
                module.imports += [target] if is_ours(target) else []
        elif not _defined(statement):
            rest.append(statement)

    defined = {name for statement in statements for name in _defined(statement)}
    for statement in statements:
        if names := _defined(statement):
            unit = Writer(module.bindings, package).unit([statement])
            module.units.update(dict.fromkeys(names, unit))
            calls_ours = _calls_at_import(statement, lambda name: name in defined or is_ours(module.bindings.get(name, "")))
            module.at_import += names if calls_ours else []
    if rest:
        module.units[AT_IMPORT] = Writer(module.bindings, package).unit(rest)
        module.at_import.append(AT_IMPORT)
        # What such a statement imports (``try: import a``) is as good as imported at the top.
        module.imports += module.units[AT_IMPORT].imports
        for inner in (node for statement in rest for node in ast.walk(statement)):
            if isinstance(inner, ast.Import | ast.ImportFrom):
                module.bindings.update(bound_names(inner, package))
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
        return [statement.target.id] if isinstance(statement.target, ast.Name) and statement.value is not None else []
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


def _calls_at_import(statement: ast.stmt, is_ours: Callable[[str], bool]) -> bool:
    """Return whether a definition runs code of this package when it is made: a decorator, a value's calls or loops."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        decorators = (node.func if isinstance(node, ast.Call) else node for node in statement.decorator_list)
        if any(is_ours(_root(node)) for node in decorators):
            return True
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    waiting = list(ast.iter_child_nodes(statement))
    while waiting:
        node = waiting.pop()
        if isinstance(node, COMPREHENSIONS) or (isinstance(node, ast.Call) and is_ours(_root(node.func))):
            return True
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)
    return False


def _root(node: ast.AST) -> str:
    """Return the first name of ``a.b.c``; "" for anything else."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
