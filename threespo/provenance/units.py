"""What code means, as text: without comments, docstrings, layout, and the names of local variables and parameters."""

import ast
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from threespo.provenance.scopes import (
    Scope,
    assigned_names,
    executed_statements,
    imported_names,
    is_in_package,
    last_name,
    local_names,
    without_docstrings,
)

ANY_NAME = "**"
"""Among the words of a unit: it calls what cannot be told with names that cannot be told."""

_KNOWN_DECORATORS = {
    "property",
    "staticmethod",
    "classmethod",
    "cached_property",
    "cache",
    "contextmanager",
    "override",
}

_CALLED_BY_OTHERS = {"__call__", "__new__", "forward"}

_UNSAFE = frozenset({"locals", "vars", "eval", "exec"})
"""Functions that can see the names of local variables: where one is used, the names count."""


@dataclass(slots=True)
class Unit:
    """One unit of a module; lists are without repetitions and in order, so that equal code gives equal values."""

    digest: str = ""
    parameters: list[tuple[str, str, int]] = field(default_factory=list)
    """(function, parameter, number) of parameters whose names the digest leaves out; the function of a lambda is ""."""
    references: list[str] = field(default_factory=list)
    """Names that are not local: of this module, or dotted ones of this package."""
    imports: list[str] = field(default_factory=list)
    """What it imports of this package when it runs."""
    words: list[str] = field(default_factory=list)
    """Names by which its calls, texts and fields may name a parameter."""
    passed: list[str] = field(default_factory=list)
    """Names that it uses otherwise than to call them: who calls those, and with which names, cannot be seen."""


def _is_known_decorator(node: ast.expr) -> bool:
    """Return whether a decorator hands on what the function is called with, as it is."""
    return last_name(node) in _KNOWN_DECORATORS


def _is_local(name: str, scope: Scope | None) -> bool:
    while scope is not None:
        if name in scope.names:
            return True
        scope = scope.outer
    return False


class UnitWriter:
    """Writes the meaning of statements as text, and notes what they refer to."""

    def __init__(self, bindings: dict[str, str], package: str) -> None:
        self._bindings = bindings
        self._package = package
        self._text: list[str] = []
        self._unit = Unit()
        self._locals = 0
        self._keeps_names = False
        self._class = ""

    def unit(self, statements: Sequence[ast.stmt]) -> Unit:
        """Return the unit that these statements are."""
        names = {
            node.id
            for statement in statements
            for node in ast.walk(statement)
            if isinstance(node, ast.Name)
        }
        self._keeps_names = bool(names & _UNSAFE)
        for statement in statements:
            self._write(statement, None)
        unit = self._unit
        # A text in the code may contain a lone surrogate, which plain UTF-8 refuses.
        meaning = "\x1f".join(self._text).encode("utf-8", "surrogatepass")
        unit.digest = hashlib.sha256(meaning).hexdigest()[:16]
        for name in ("references", "imports", "words", "passed"):
            setattr(unit, name, sorted(set(getattr(unit, name))))
        return unit

    def _write(self, node: object, scope: Scope | None) -> None:
        """Write a node, or a list of nodes, or a value."""
        if isinstance(node, list):
            self._text.append("[")
            for inner in executed_statements(node):
                self._write(inner, scope)
            self._text.append("]")
        elif isinstance(node, ast.AST):
            special = getattr(self, f"_write_{type(node).__name__}", None)
            if special is not None:
                special(node, scope)
            else:
                self._write_fields(node, scope)
        else:
            self._text.append(repr(node))

    def _write_fields(self, node: ast.AST, scope: Scope | None, without: Sequence[str] = ()) -> None:
        self._text.append(type(node).__name__)
        for name, value in ast.iter_fields(node):
            # What is empty is left out: later versions of Python have more fields.
            if (
                value is None
                or value == []
                or name in ("ctx", "type_comment", "kind")
                or name in without
            ):
                continue
            self._text.append(f"{name}=")
            self._write(value, scope)

    # Names

    def _write_Name(self, node: ast.Name, scope: Scope | None) -> None:
        if isinstance(node.ctx, ast.Load):
            self._unit.passed.append(node.id)
        self._name(node.id, scope)

    def _name(self, name: str, scope: Scope | None) -> None:
        self._text.append(f"name:{self._resolved(name, scope)}")

    def _resolved(self, name: str, scope: Scope | None) -> str:
        """Return what a name stands for: a local variable's number, the dotted name of an import, or the name itself."""
        inner = scope
        at = scope
        while at is not None and name not in at.of_module:
            # The body of a class is seen from the body alone, not from its methods.
            if not at.is_class or at is inner:
                if name in at.imported:
                    return self._referred(at.imported[name])
                if name in at.names and at.is_class:
                    # It may be read before the class has it: then it is the module's.
                    self._refer_to_module(name)
                    return name
                if name in at.names:
                    return name if self._keeps_names else f"local {self._number(name, at)}"
            at = at.outer
        self._refer_to_module(name)
        return f"@{self._bindings[name]}" if name in self._bindings else name

    def _refer_to_module(self, name: str) -> None:
        """Note a name of the module: what it defines under it, and what it imports under it."""
        self._unit.references.append(name)
        if name in self._bindings:
            self._referred(self._bindings[name])

    def _referred(self, dotted: str) -> str:
        if is_in_package(dotted):
            self._unit.references.append(dotted)
        return f"@{dotted}"

    def _number(self, name: str, scope: Scope) -> int:
        if name not in scope.numbers:
            scope.numbers[name] = self._locals
            self._locals += 1
        return scope.numbers[name]

    def _write_Attribute(
        self, node: ast.Attribute, scope: Scope | None, *, called: bool = False
    ) -> None:
        if not called:
            self._unit.passed.append(node.attr)
        dotted = self._dotted(node, scope)
        if dotted is not None:
            self._text.append(f"name:{self._referred(dotted)}")
            return
        self._text.append("Attribute")
        self._write(node.value, scope)
        self._text.append(node.attr)

    def _dotted(self, node: ast.expr, scope: Scope | None) -> str | None:
        """Return the full name of ``a.b`` where ``a`` is imported; ``None`` for anything else."""
        if isinstance(node, ast.Attribute):
            before = self._dotted(node.value, scope)
            return None if before is None else f"{before}.{node.attr}"
        if not isinstance(node, ast.Name):
            return None
        at = scope
        while at is not None:
            if node.id in at.imported:
                return at.imported[node.id]
            if node.id in at.names:
                return None
            at = at.outer
        return self._bindings.get(node.id)

    def _write_Global(self, node: ast.Global | ast.Nonlocal, scope: Scope | None) -> None:
        self._text.append(type(node).__name__)
        for name in node.names:
            if isinstance(node, ast.Global) and scope is not None:
                scope.of_module.add(name)
            self._name(name, scope.outer if isinstance(node, ast.Nonlocal) and scope else scope)

    _write_Nonlocal = _write_Global

    def _write_Constant(self, node: ast.Constant, _: Scope | None) -> None:
        self._text.append(f"{type(node.value).__name__} {node.value!r}")
        if isinstance(node.value, str) and node.value.isidentifier():
            # It may name a parameter (``**{"name": …}``), or something of the module.
            self._unit.words.append(node.value)
            self._unit.references.append(node.value)

    # Calls

    def _write_Call(self, node: ast.Call, scope: Scope | None) -> None:
        self._text.append("Call")
        # With ``**`` the names of what is passed cannot be seen, and by a local name not even what is called.
        plain = all(keyword.arg is not None for keyword in node.keywords)
        told = isinstance(node.func, ast.Attribute)
        if isinstance(node.func, ast.Name):
            told = not _is_local(node.func.id, scope)
        self._unit.words += [] if plain or told else [ANY_NAME]
        if plain and isinstance(node.func, ast.Name):
            self._name(node.func.id, scope)
        elif plain and isinstance(node.func, ast.Attribute):
            self._write_Attribute(node.func, scope, called=True)
        else:
            self._write(node.func, scope)
        self._write(node.args, scope)
        self._write(node.keywords, scope)

    def _write_keyword(self, node: ast.keyword, scope: Scope | None) -> None:
        self._text.append(f"keyword {node.arg}")
        self._unit.words += [node.arg] if node.arg else []
        self._write(node.value, scope)

    # Imports

    def _write_Import(self, node: ast.Import | ast.ImportFrom, scope: Scope | None) -> None:
        for name, stands_for, imported in imported_names(node, self._package):
            self._text.append(f"import {imported}")
            self._unit.imports += [imported] if is_in_package(imported) else []
            if scope is not None:
                scope.imported[name] = stands_for

    _write_ImportFrom = _write_Import

    # Scopes

    def _write_FunctionDef(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope | None
    ) -> None:
        self._text.append(type(node).__name__)
        self._name_of_definition(node.name, scope)
        self._write(node.decorator_list, scope)
        self._write(getattr(node, "type_params", []), scope)
        inner = Scope(scope, local_names(node))
        # A decorator may call the function as it likes, and so do those who call an object, or a module of PyTorch.
        keeps = node.name in _CALLED_BY_OTHERS or not all(map(_is_known_decorator, node.decorator_list))
        self._write_arguments(node.args, scope, inner, node.name, keeps=keeps)
        if node.returns is not None:
            self._write(node.returns, scope)
        self._write(without_docstrings(node.body), inner)

    _write_AsyncFunctionDef = _write_FunctionDef

    def _write_Lambda(self, node: ast.Lambda, scope: Scope | None) -> None:
        self._text.append("Lambda")
        inner = Scope(scope, local_names(node))
        self._write_arguments(node.args, scope, inner, "", keeps=False)
        self._write(node.body, inner)

    def _write_arguments(
        self, node: ast.arguments, scope: Scope | None, inner: Scope, function: str, *, keeps: bool
    ) -> None:
        # Defaults and annotations are computed outside of the function.
        self._write([*node.defaults, *node.kw_defaults], scope)
        if isinstance(scope, Scope) and scope.is_class and function == "__init__":
            function = self._class
        for kind in ("posonlyargs", "args", "vararg", "kwonlyargs", "kwarg"):
            # ``vararg`` and ``kwarg`` are one argument or ``None``; the other kinds are lists.
            arguments = getattr(node, kind) or []
            if isinstance(arguments, ast.arg):
                arguments = [arguments]
            self._text.append(kind)
            for argument in arguments:
                number = self._number(argument.arg, inner)
                if keeps or self._keeps_names:
                    self._text.append(f"parameter {argument.arg}")
                else:
                    self._text.append(f"parameter {number}")
                    if kind not in ("vararg", "kwarg"):
                        self._unit.parameters.append((function, argument.arg, number))
                if argument.annotation is not None:
                    self._write(argument.annotation, scope)

    def _write_ClassDef(self, node: ast.ClassDef, scope: Scope | None) -> None:
        self._text.append("ClassDef")
        self._name_of_definition(node.name, scope)
        self._write([*node.decorator_list, *node.bases, *node.keywords], scope)
        self._write(getattr(node, "type_params", []), scope)
        inner = Scope(scope, assigned_names(node.body), is_class=True)
        # A nested class must not hide the outer one from the methods that follow it.
        outer_class = self._class
        self._class = node.name
        for statement in without_docstrings(node.body):
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                # A field: whoever passes a dumped model or named tuple on as ``**`` uses its name.
                self._unit.words.append(statement.target.id)
            self._write(statement, inner)
        self._class = outer_class

    def _name_of_definition(self, name: str, scope: Scope | None) -> None:
        """Write the name of a definition: a local variable's, or one that others use."""
        if scope is None or scope.is_class:
            self._text.append(name)
        else:
            self._name(name, scope)

    def _write_comprehension_scope(self, node: ast.expr, scope: Scope | None) -> None:
        inner = Scope(scope, local_names(node))
        self._text.append(type(node).__name__)
        for number, generator in enumerate(getattr(node, "generators", [])):
            # The first iterable is computed outside.
            self._write(generator.iter, inner if number else scope)
            self._write(generator.target, inner)
            self._write(generator.ifs, inner)
            self._text.append(str(generator.is_async))
        for part in ("elt", "key", "value"):
            # A list or set has ``elt``, a dictionary ``key`` and ``value``.
            expression = getattr(node, part, None)
            if expression is not None:
                self._write(expression, inner)

    _write_ListComp = _write_SetComp = _write_DictComp = _write_GeneratorExp = _write_comprehension_scope

    def _write_ExceptHandler(self, node: ast.ExceptHandler, scope: Scope | None) -> None:
        self._text.append("ExceptHandler")
        self._write(node.type, scope)
        if node.name:
            self._name(node.name, scope)
        self._write(node.body, scope)

    def _write_pattern(self, node: ast.MatchAs | ast.MatchStar, scope: Scope | None) -> None:
        self._write_fields(node, scope, without=("name",))
        if node.name:
            self._name(node.name, scope)

    _write_MatchAs = _write_MatchStar = _write_pattern

    def _write_MatchMapping(self, node: ast.MatchMapping, scope: Scope | None) -> None:
        self._write_fields(node, scope, without=("rest",))
        if node.rest:
            self._name(node.rest, scope)
