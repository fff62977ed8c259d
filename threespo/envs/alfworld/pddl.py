"""Reading PDDL: symbolic expressions, typed lists, problems. Names are lower case, as the stock planner makes them."""

import re
from dataclasses import dataclass
from typing import Any

from threespo.errors import InputError

# A symbol (str) or a list of expressions.
Expression = Any

_COMMENT = re.compile(r";[^\n]*")

# All other types are subtypes of this one.
ANY_TYPE = "object"


@dataclass(frozen=True)
class Problem:
    """A PDDL problem, names not yet resolved."""

    types: dict[str, str]  # Type of each entity.
    # For each predicate, the tuples of entities for which it holds at the start; duplicates kept.
    facts: dict[str, list[tuple[str, ...]]]
    goal: Expression


def parse_expression(text: str) -> Expression:
    """Return the one expression that a text consists of.

    Raises:
        InputError: if the parentheses do not match or there is more than one expression.
    """
    if ";" in text:
        text = _COMMENT.sub("", text)
    top: list[Expression] = []
    current = top
    # A stack instead of recursion: a damaged file may nest deeper than Python's limit.
    outer: list[list[Expression]] = []
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


def parse_typed_list(items: list[Expression]) -> dict[str, str]:
    """Return name to type of ``a b - t c``; names without a type are of type ``object``. Order is kept.

    Raises:
        InputError: if a type is missing, or an item is no symbol.
    """
    types: dict[str, str] = {}
    untyped: list[str] = []
    tokens = iter(items)
    for token in tokens:
        if token == "-":
            kind = next(tokens, None)
            if not isinstance(kind, str):
                raise InputError(
                    f"a typed list has no plain type after {' '.join(untyped) or 'its start'}"
                )
            types.update(dict.fromkeys(untyped, kind))
            untyped.clear()
        elif isinstance(token, str):
            untyped.append(token)
        else:
            raise InputError("a typed list holds a nested expression")

    types.update(dict.fromkeys(untyped, ANY_TYPE))
    return types


def parse_sections(text: str, kind: str) -> list[tuple[str, list[Expression]]]:
    """Return the sections ``(:name …)`` of ``(define (kind …) …)`` in their order; the kind is ``domain`` or ``problem``.

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

    sections = []
    for section in expression[2:]:
        if not isinstance(section, list) or not section or not isinstance(section[0], str):
            raise InputError(f"the PDDL {kind} holds something that is not a section (:name …)")
        sections.append((section[0], section[1:]))
    return sections


def parse_problem(text: str) -> Problem:
    """Read a PDDL problem.

    Raises:
        InputError: if it is broken or lacks a section.
    """
    sections = dict(parse_sections(text, "problem"))
    for section in (":objects", ":init", ":goal"):
        if section not in sections:
            raise InputError(f"the PDDL problem has no section {section}")
    if len(sections[":goal"]) != 1:
        raise InputError("the PDDL problem's goal is not one expression")
    types = parse_typed_list(sections[":objects"])
    return Problem(types, _parse_facts(sections[":init"], types), sections[":goal"][0])


def _parse_facts(init: list[Expression], types: dict[str, str]) -> dict[str, list[tuple[str, ...]]]:
    facts: dict[str, list[tuple[str, ...]]] = {}
    for fact in init:
        if not isinstance(fact, list) or not fact:
            raise InputError(f"the initial state holds {fact!r}, which is not a fact")
        # Costs and distances matter to a planner only, and a fact that is not listed is false without being negated.
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
