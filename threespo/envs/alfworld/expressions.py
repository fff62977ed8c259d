"""From a grammar's expressions, such as ``{o.indefinite + ' ' + o.name}``, to functions that evaluate them."""

import ast
from collections.abc import Callable, Iterable
from operator import attrgetter

from threespo.envs.alfworld.grammar import EntityExpression, Part, PlainText
from threespo.envs.alfworld.model import Entity, Environment
from threespo.errors import InputError

Types = dict[str, str]
"""Type of each variable that is bound."""
Read = Callable[[Entity], str]
Reads = list[tuple[str, Read]]
"""Variables, and what is read of each."""


def value(tree: ast.expr, types: Types, source: str) -> Callable[[Environment], str]:
    """Return the function that evaluates an expression, of the kinds that ``grammar`` admits.

    Args:
        tree: the expression.
        types: of all variables that will be bound.
        source: the expression as it is written, for errors.

    Raises:
        InputError: if it names a variable that is not bound.
    """
    if isinstance(tree, ast.Constant):
        constant = str(tree.value)
        return lambda bound: constant

    if isinstance(tree, ast.BinOp):
        left, right = value(tree.left, types, source), value(tree.right, types, source)
        return lambda bound: left(bound) + right(bound)
    if isinstance(tree, ast.BoolOp):
        choices = [value(choice, types, source) for choice in tree.values]
        return lambda bound: (
            next((text for choice in choices[:-1] if (text := choice(bound))), "") or choices[-1](bound)
        )

    name, attribute = _attribute(tree)
    if name not in types:
        raise InputError(
            f"the grammar's expression {{{source}}} names {name!r}, which is not bound there"
        )
    return lambda bound: str(getattr(bound[name], attribute))


def plain(parts: Iterable[Part], types: Types) -> tuple[str, Reads] | None:
    """Return a text as a format and what fills it, in order; ``None`` if it holds more than constants and attributes.

    Most commands and sentences are of that kind, and one format is far quicker than a function for each part. ``None`` also
    for a variable that is not bound, of which :func:`value` says what is wrong.

    Args:
        parts: of the text.
        types: of all variables that will be bound.
    """
    form, reads = "", Reads()
    waiting: list[Part | ast.expr] = [*reversed(list(parts))]
    while waiting:
        part = waiting.pop()
        if isinstance(part, EntityExpression):
            waiting.append(part.tree)
        elif isinstance(part, ast.BinOp):
            waiting += [part.right, part.left]
        elif isinstance(part, PlainText | ast.Constant):
            form += (part.text if isinstance(part, PlainText) else str(part.value)).replace("%", "%%")
        elif isinstance(part, ast.Name | ast.Attribute):
            name, attribute = _attribute(part)
            if name not in types:
                return None
            form += "%s"
            reads.append((name, attrgetter(attribute)))
        else:
            return None
    return form, reads


def _attribute(tree: ast.expr) -> tuple[str, str]:
    """Return variable and attribute; a variable alone means its name."""
    node = tree.value if isinstance(tree, ast.Attribute) else tree
    name = node.id if isinstance(node, ast.Name) else ""
    return name, tree.attr if isinstance(tree, ast.Attribute) else "name"
