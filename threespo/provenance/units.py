"""What code means, as text: without comments, docstrings, layout, and the names of local variables and parameters.

The digest of a unit is that of this text. Two pieces of code have the same text if they differ in nothing but the things
above: local variables are written as numbers, in the order in which they appear, and imported names as what they stand for.
"""

import ast
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

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
"""Among the keywords of a unit: it passes ``**arguments`` to a function that is not known, so any parameter may be meant."""

# They call the function with the arguments that they are given, and name none themselves.
_TRANSPARENT_DECORATORS = {
    "property",
    "staticmethod",
    "classmethod",
    "cached_property",
    "cache",
    "contextmanager",
    "override",
}

# Methods that run where another name is called, an object or a module of PyTorch.
_CALLED_INDIRECTLY = {"__call__", "__new__", "forward"}

# They can see the names of local variables: where one is used, the names count.
_FUNCTIONS_THAT_SEE_LOCALS = frozenset({"locals", "vars", "eval", "exec"})

# Fields of syntax trees without a meaning, or with one that other fields have, too.
_IGNORED_FIELDS = ("ctx", "type_comment", "kind")


class Parameter(NamedTuple):
    """A parameter whose name is no part of its unit's digest."""

    function: str
    """By which its function is called; "" for a lambda, the class's for ``__init__``."""
    name: str
    number: int
    """What stands for it in the unit's text."""


@dataclass(slots=True)
class Unit:
    """One unit of a module; lists are without repetitions and in order, so that equal code gives equal values."""

    digest: str = ""
    parameters: list[Parameter] = field(default_factory=list)
    """Those whose names the digest leaves out."""
    references: list[str] = field(default_factory=list)
    """Names that are not local: of this module, or dotted ones of this package."""
    imports: list[str] = field(default_factory=list)
    """What it imports of this package when it runs."""
    keywords: list[str] = field(default_factory=list)
    """Names by which its calls, texts and fields may name a parameter."""
    used_as_values: list[str] = field(default_factory=list)
    """Names that it uses otherwise than to call them: who calls those, and with which keywords, cannot be seen."""


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
        self._local_count = 0
        self._keeps_names = False
        """Whether names of locals count."""
        self._class_name = ""
        """Of the class whose body is written."""

    def write_unit(self, statements: Sequence[ast.stmt]) -> Unit:
        """Return the unit that these statements are."""
        nodes = [node for statement in statements for node in ast.walk(statement)]
        names = {node.id for node in nodes if isinstance(node, ast.Name)}
        self._keeps_names = not names.isdisjoint(_FUNCTIONS_THAT_SEE_LOCALS)
        for statement in statements:
            self._write(statement, None)
        unit = self._unit
        # A text in the code may contain a lone surrogate, which plain UTF-8 refuses.
        meaning = "\x1f".join(self._text).encode("utf-8", "surrogatepass")
        unit.digest = hashlib.sha256(meaning).hexdigest()[:16]
        unit.references = sorted(set(unit.references))
        unit.imports = sorted(set(unit.imports))
        unit.keywords = sorted(set(unit.keywords))
        unit.used_as_values = sorted(set(unit.used_as_values))
        return unit

    def _write(self, node: object, scope: Scope | None) -> None:
        """Write a node, or a list of nodes, or a value."""
        if isinstance(node, list):
            self._text.append("[")
            for inner in executed_statements(node):
                self._write(inner, scope)
            self._text.append("]")
        elif isinstance(node, ast.AST):
            # As in ``ast.NodeVisitor``: a method for each type of node that needs one.
            write = getattr(self, f"_write_{type(node).__name__}", self._write_fields)
            write(node, scope)
        else:
            self._text.append(repr(node))

    def _write_fields(self, node: ast.AST, scope: Scope | None, without: Sequence[str] = ()) -> None:
        self._text.append(type(node).__name__)
        for name, value in ast.iter_fields(node):
            # What is empty is left out: later versions of Python have more fields.
            is_empty = value is None or value == []
            if not is_empty and name not in _IGNORED_FIELDS and name not in without:
                self._text.append(f"{name}=")
                self._write(value, scope)

    # Names

    def _write_Name(self, node: ast.Name, scope: Scope | None) -> None:
        if isinstance(node.ctx, ast.Load):
            self._unit.used_as_values.append(node.id)
        self._write_name(node.id, scope)

    def _write_name(self, name: str, scope: Scope | None) -> None:
        self._text.append(f"name:{self._resolve_name(name, scope)}")

    def _resolve_name(self, name: str, scope: Scope | None) -> str:
        """Return what a name stands for: a local variable's number, the dotted name of an import, or the name itself."""
        used_in = scope
        while scope is not None and name not in scope.global_names:
            # The body of a class is seen from the body alone, not from its methods.
            if not scope.is_class or scope is used_in:
                if name in scope.imported:
                    return self._note_dotted_name(scope.imported[name])
                if name in scope.names and scope.is_class:
                    # It may be read before the class has it: then it is the module's.
                    self._note_module_name(name)
                    return name
                if name in scope.names:
                    return name if self._keeps_names else f"local {self._number_local(name, scope)}"
            scope = scope.outer
        self._note_module_name(name)
        return f"@{self._bindings[name]}" if name in self._bindings else name

    def _note_module_name(self, name: str) -> None:
        """Note a name of the module: what it defines under it, and what it imports under it."""
        self._unit.references.append(name)
        if name in self._bindings:
            self._note_dotted_name(self._bindings[name])

    def _note_dotted_name(self, dotted_name: str) -> str:
        """Note a reference to what is imported, if it is of this package, and return how it is written."""
        if is_in_package(dotted_name):
            self._unit.references.append(dotted_name)
        return f"@{dotted_name}"

    def _number_local(self, name: str, scope: Scope) -> int:
        """Return a local variable's number, in the order in which they appear in the unit."""
        if name not in scope.numbers:
            scope.numbers[name] = self._local_count
            self._local_count += 1
        return scope.numbers[name]

    def _write_Attribute(
        self, node: ast.Attribute, scope: Scope | None, *, called: bool = False
    ) -> None:
        if not called:
            self._unit.used_as_values.append(node.attr)
        dotted_name = self._find_dotted_name(node, scope)
        if dotted_name is not None:
            self._text.append(f"name:{self._note_dotted_name(dotted_name)}")
            return
        self._text.append("Attribute")
        self._write(node.value, scope)
        self._text.append(node.attr)

    def _find_dotted_name(self, node: ast.expr, scope: Scope | None) -> str | None:
        """Return the full name of ``a.b`` where ``a`` is imported; ``None`` for anything else."""
        if isinstance(node, ast.Attribute):
            owner = self._find_dotted_name(node.value, scope)
            return None if owner is None else f"{owner}.{node.attr}"
        if not isinstance(node, ast.Name):
            return None
        while scope is not None:
            if node.id in scope.imported:
                return scope.imported[node.id]
            if node.id in scope.names:
                return None
            scope = scope.outer
        return self._bindings.get(node.id)

    def _write_Global(self, node: ast.Global | ast.Nonlocal, scope: Scope | None) -> None:
        self._text.append(type(node).__name__)
        for name in node.names:
            if isinstance(node, ast.Global) and scope is not None:
                scope.global_names.add(name)
            if isinstance(node, ast.Nonlocal) and scope is not None:
                self._write_name(name, scope.outer)
            else:
                self._write_name(name, scope)

    _write_Nonlocal = _write_Global

    def _write_Constant(self, node: ast.Constant, _: Scope | None) -> None:
        self._text.append(f"{type(node.value).__name__} {node.value!r}")
        if isinstance(node.value, str) and node.value.isidentifier():
            # It may name a parameter (``**{"name": …}``), or something of the module.
            self._unit.keywords.append(node.value)
            self._unit.references.append(node.value)

    # Calls

    def _write_Call(self, node: ast.Call, scope: Scope | None) -> None:
        self._text.append("Call")
        function = node.func
        has_visible_keywords = all(keyword.arg is not None for keyword in node.keywords)
        has_visible_name = isinstance(function, ast.Attribute) or (
            isinstance(function, ast.Name) and not _is_local(function.id, scope)
        )
        # ``**arguments`` hide which parameters are meant, and a local name hides even what is called.
        if not has_visible_keywords and not has_visible_name:
            self._unit.keywords.append(ANY_NAME)

        # A function that is called with ``**arguments`` counts as used otherwise, so all its parameters' names count.
        if has_visible_keywords and isinstance(function, ast.Name):
            self._write_name(function.id, scope)
        elif has_visible_keywords and isinstance(function, ast.Attribute):
            self._write_Attribute(function, scope, called=True)
        else:
            self._write(function, scope)
        self._write(node.args, scope)
        self._write(node.keywords, scope)

    def _write_keyword(self, node: ast.keyword, scope: Scope | None) -> None:
        self._text.append(f"keyword {node.arg}")
        if node.arg:
            self._unit.keywords.append(node.arg)
        self._write(node.value, scope)

    # Imports

    def _write_Import(self, node: ast.Import | ast.ImportFrom, scope: Scope | None) -> None:
        for name, stands_for, imported in imported_names(node, self._package):
            self._text.append(f"import {imported}")
            if is_in_package(imported):
                self._unit.imports.append(imported)
            if scope is not None:
                scope.imported[name] = stands_for

    _write_ImportFrom = _write_Import

    # Scopes

    def _write_FunctionDef(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope | None
    ) -> None:
        self._text.append(type(node).__name__)
        self._write_defined_name(node.name, scope)
        self._write(node.decorator_list, scope)
        self._write(getattr(node, "type_params", []), scope)
        inner = Scope(scope, local_names(node))
        # Any other decorator may call the function with keywords of its own.
        decorators = {last_name(decorator) for decorator in node.decorator_list}
        keeps_names = node.name in _CALLED_INDIRECTLY or not decorators <= _TRANSPARENT_DECORATORS
        self._write_arguments(node.args, scope, inner, node.name, keeps_names=keeps_names)
        if node.returns is not None:
            self._write(node.returns, scope)
        self._write(without_docstrings(node.body), inner)

    _write_AsyncFunctionDef = _write_FunctionDef

    def _write_Lambda(self, node: ast.Lambda, scope: Scope | None) -> None:
        self._text.append("Lambda")
        inner = Scope(scope, local_names(node))
        self._write_arguments(node.args, scope, inner, "", keeps_names=False)
        self._write(node.body, inner)

    def _write_arguments(
        self, node: ast.arguments, scope: Scope | None, inner: Scope, function: str, *, keeps_names: bool
    ) -> None:
        """Write the parameters of a function: their names if these count, else their numbers."""
        keeps_names = keeps_names or self._keeps_names
        # Defaults and annotations are computed outside of the function.
        self._write([*node.defaults, *node.kw_defaults], scope)
        if scope is not None and scope.is_class and function == "__init__":
            function = self._class_name
        for kind in ("posonlyargs", "args", "vararg", "kwonlyargs", "kwarg"):
            # ``vararg`` and ``kwarg`` are one argument or ``None``; the other kinds are lists.
            arguments = getattr(node, kind) or []
            if isinstance(arguments, ast.arg):
                arguments = [arguments]
            self._text.append(kind)
            for argument in arguments:
                number = self._number_local(argument.arg, inner)
                if keeps_names:
                    self._text.append(f"parameter {argument.arg}")
                else:
                    self._text.append(f"parameter {number}")
                    # No caller can name ``*arguments`` or ``**arguments`` themselves.
                    if kind not in ("vararg", "kwarg"):
                        self._unit.parameters.append(Parameter(function, argument.arg, number))
                if argument.annotation is not None:
                    self._write(argument.annotation, scope)

    def _write_ClassDef(self, node: ast.ClassDef, scope: Scope | None) -> None:
        self._text.append("ClassDef")
        self._write_defined_name(node.name, scope)
        self._write([*node.decorator_list, *node.bases, *node.keywords], scope)
        self._write(getattr(node, "type_params", []), scope)
        inner = Scope(scope, assigned_names(node.body), is_class=True)
        # A nested class must not hide the outer one from the methods that follow it.
        outer_class = self._class_name
        self._class_name = node.name
        for statement in without_docstrings(node.body):
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                # A field: whoever passes a dumped model or named tuple on as ``**`` uses its name.
                self._unit.keywords.append(statement.target.id)
            self._write(statement, inner)
        self._class_name = outer_class

    def _write_defined_name(self, name: str, scope: Scope | None) -> None:
        """Write the name of a definition: a local variable's, or one that others use."""
        if scope is None or scope.is_class:
            self._text.append(name)
        else:
            self._write_name(name, scope)

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
            self._write_name(node.name, scope)
        self._write(node.body, scope)

    def _write_pattern(self, node: ast.MatchAs | ast.MatchStar, scope: Scope | None) -> None:
        self._write_fields(node, scope, without=("name",))
        if node.name:
            self._write_name(node.name, scope)

    _write_MatchAs = _write_MatchStar = _write_pattern

    def _write_MatchMapping(self, node: ast.MatchMapping, scope: Scope | None) -> None:
        self._write_fields(node, scope, without=("rest",))
        if node.rest:
            self._write_name(node.rest, scope)
