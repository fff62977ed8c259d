"""Reading PDDL: symbolic expressions, typed lists, problems. Names are lower case, as the stock planner makes them."""

import re
from dataclasses import dataclass
from typing import Any

from threespo.errors import InputError

Expression = Any
"""A symbol (str) or a list of expressions."""

_COMMENT = re.compile(r";[^\n]*")

ANY_TYPE = "object"
"""The type that every other one is a subtype of."""


@dataclass(frozen=True)
class Problem:
    """A PDDL problem, names not yet resolved."""

    types: dict[str, str]
    """Entity to type."""
    facts: dict[str, list[tuple[str, ...]]]
    """Predicate to the tuples of entities that it holds for at the start; duplicates kept."""
    goal: Expression


def parse_expression(text: str) -> Expression:
    """Return the one expression that ``text`` holds.

    Raises:
        InputError: if the parentheses do not match or there is more than one expression.
    """
    if ";" in text:
        text = _COMMENT.sub("", text)
    top: list[Expression] = []
    current, outer = top, []
    for token in text.lower().replace("(", " ( ").replace(")", " ) ").split():
        if token == "(":
            outer.append(current)
            inner: list[Expression] = []
            current.append(inner)
            current = inner
        elif token == ")":
            if not outer:
                raise InputError("a closing parenthesis too many in the PDDL text")
            current = outer.pop()
        else:
            current.append(token)

    if outer:
        raise InputError(f"the PDDL text ends within {len(outer)} open parentheses; is it truncated?")
    if len(top) != 1 or not isinstance(top[0], list):
        raise InputError("the PDDL text is not one expression in parentheses")
    return top[0]


def typed_list(items: list[Expression]) -> dict[str, str]:
    """Return name to type of ``a b - t c``; names without a type are of type ``object``. Order is kept.

    Raises:
        InputError: if a type is missing, or an item is no symbol.
    """
    result: dict[str, str] = {}
    waiting: list[str] = []
    tokens = iter(items)
    for token in tokens:
        if token == "-":
            kind = next(tokens, None)
            if not isinstance(kind, str):
                raise InputError(
                    f"a typed list has no plain type after {' '.join(waiting) or 'its start'}"
                )
            result.update(dict.fromkeys(waiting, kind))
            waiting.clear()
        elif isinstance(token, str):
            waiting.append(token)
        else:
            raise InputError("a typed list holds a nested expression")

    result.update(dict.fromkeys(waiting, ANY_TYPE))
    return result


def sections(text: str, kind: str) -> list[tuple[str, list[Expression]]]:
    """Return the sections ``(:name …)`` of ``(define (kind …) …)`` in their order.

    Args:
        text: the definition.
        kind: ``domain`` or ``problem``.

    Raises:
        InputError: if ``text`` is not such a definition.
    """
    expression = parse_expression(text)
    if (
        len(expression) < 2
        or expression[0] != "define"
        or not isinstance(expression[1], list)
        or expression[1][:1] != [kind]
    ):
        raise InputError(f"the PDDL {kind} does not begin with (define ({kind} …) …)")

    result = []
    for section in expression[2:]:
        if not isinstance(section, list) or not section or not isinstance(section[0], str):
            raise InputError(f"the PDDL {kind} holds something that is not a section (:name …)")
        result.append((section[0], section[1:]))
    return result


def parse_problem(text: str) -> Problem:
    """Read a PDDL problem.

    Raises:
        InputError: if it is broken or lacks a section.
    """
    found = dict(sections(text, "problem"))
    for name in (":objects", ":init", ":goal"):
        if name not in found:
            raise InputError(f"the PDDL problem has no section {name}")
    if len(found[":goal"]) != 1:
        raise InputError("the PDDL problem's goal is not one expression")
    types = typed_list(found[":objects"])
    return Problem(types, _facts(found[":init"], types), found[":goal"][0])


def _facts(init: list[Expression], types: dict[str, str]) -> dict[str, list[tuple[str, ...]]]:
    facts: dict[str, list[tuple[str, ...]]] = {}
    for fact in init:
        if not isinstance(fact, list) or not fact:
            raise InputError(f"the initial state holds {fact!r}, which is not a fact")
        # Costs and distances matter to a planner only; what is said not to hold is not held anyway.
        if fact[0] in ("=", "not"):
            continue
        arguments = tuple(fact[1:])
        for argument in arguments:
            if not isinstance(argument, str) or argument not in types:
                raise InputError(
                    f"the initial state names {argument!r} in {fact[0]!r}, which is not among the objects"
                )
        facts.setdefault(fact[0], []).append(arguments)
    return facts
