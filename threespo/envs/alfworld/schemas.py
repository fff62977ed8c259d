"""What the actions of an ALFWorld domain mean, recognised by their preconditions and effects.

The engine knows a few kinds of action. Each is given below as PDDL; an action of the domain belongs to a kind if its
precondition and effect are the kind's up to names of parameters, order and nesting, apart from *filters* (static
conditions on a single object or receptacle, such as ``(cleanable ?o)`` or ``(receptacleType ?r SinkBasinType)``) and
*marks* (effects on unary predicates of an object, such as ``(isClean ?o)``), which are read out of the domain. An
action that belongs to no kind is refused: the engine would otherwise play another game than the one on disk.
"""

import functools
import itertools
from dataclasses import dataclass
from typing import Any

from threespo.envs.alfworld.pddl import ANY_TYPE, Expression, parse_expression, sections, typed_list
from threespo.errors import InputError

Canonical = Any
"""An expression in which ``and`` and ``or`` are flat and unordered, so that equal meaning in that sense is equality."""

_ACCESSIBLE = "(or (not (openable ?r)) (opened ?r))"
_HERE = "(atlocation ?a ?l) (receptacleatlocation ?r ?l)"
_PATTERNS = {
    # kind: parameters, precondition, effect.
    "idle": ("?a - agent", "", ""),
    "look": ("?a - agent ?l - location", "(atlocation ?a ?l)", ""),
    "examine receptacle": (
        "?a - agent ?r - receptacle",
        "(exists (?l - location) (and (atlocation ?a ?l) (receptacleatlocation ?r ?l)))",
        "",
    ),
    "examine object": (
        "?a - agent ?o - object",
        f"(or (holds ?a ?o) (exists (?l - location ?r - receptacle) (and {_HERE} (inreceptacle ?o ?r) {_ACCESSIBLE})))",
        "",
    ),
    "examine held object": ("?a - agent ?o - object", "(holds ?a ?o)", ""),
    "goto": (
        "?a - agent ?from - location ?to - location ?r - receptacle",
        "(atlocation ?a ?from) (receptacleatlocation ?r ?to)",
        "(not (atlocation ?a ?from)) (atlocation ?a ?to)",
    ),
    "open": (
        "?a - agent ?l - location ?r - receptacle",
        f"(openable ?r) (not (opened ?r)) {_HERE}",
        "(opened ?r)",
    ),
    "close": (
        "?a - agent ?l - location ?r - receptacle",
        f"(openable ?r) (opened ?r) {_HERE}",
        "(not (opened ?r))",
    ),
    "take": (
        "?a - agent ?l - location ?o - object ?r - receptacle",
        f"{_HERE} (inreceptacle ?o ?r) (not (holdsany ?a)) {_ACCESSIBLE}",
        "(not (inreceptacle ?o ?r)) (holds ?a ?o) (holdsany ?a) (not (objectatlocation ?o ?l))",
    ),
    "put": (
        "?a - agent ?l - location ?o - object ?r - receptacle ?ot - otype ?rt - rtype",
        f"(holds ?a ?o) {_HERE} {_ACCESSIBLE} (objecttype ?o ?ot) (receptacletype ?r ?rt) (cancontain ?rt ?ot)",
        "(inreceptacle ?o ?r) (objectatlocation ?o ?l) (not (holds ?a ?o)) (not (holdsany ?a))",
    ),
    "treat": ("?a - agent ?l - location ?r - receptacle ?o - object", f"{_HERE} (holds ?a ?o)", ""),
    "toggle": (
        "?a - agent ?l - location ?o - object ?r - receptacle",
        f"{_HERE} (inreceptacle ?o ?r)",
        "",
    ),
    "slice": (
        "?a - agent ?l - location ?o - object ?tool - object",
        "(atlocation ?a ?l) (objectatlocation ?o ?l) (holds ?a ?tool)",
        "",
    ),
}
_FILTERED = {
    "open": "?r",
    "close": "?r",
    "take": "?o ?r",
    "put": "?o ?r",
    "treat": "?o ?r",
    "toggle": "?o ?r",
    "slice": "?o ?tool",
}
_MARKED = {"take", "put", "treat", "toggle", "slice", "examine object", "examine held object"}

DYNAMIC = frozenset({"atlocation", "opened", "inreceptacle", "objectatlocation", "holds", "holdsany"})
"""Predicates that the kinds themselves change; what else changes are marks, or bookkeeping that nothing reads."""
_POSITIONS = {"?a": 0, "?o": 1, "?r": 2, "?l": 3, "?to": 3, "?tool": 4}
FALSE: Canonical = ("or", frozenset())
TRUE: Canonical = ("and", frozenset())


@dataclass(frozen=True)
class Filter:
    """A static condition on one parameter: one of the literals ``(predicate constants…)`` holds of it."""

    role: str
    """``?o``, ``?r`` or ``?tool``."""
    alternatives: tuple[tuple[str, ...], ...]
    """Each is a predicate and the constants that follow the parameter."""


@dataclass(frozen=True)
class Schema:
    """One action of the domain."""

    name: str
    kind: str
    parameters: tuple[tuple[str, str, str], ...]
    """(name without "?", type, role in the kind's pattern) of each parameter, in the domain's order."""
    filters: tuple[Filter, ...]
    marks: tuple[tuple[str, str], ...]
    """(predicate, "set" | "clear" | "flip") of each effect on the object ``?o``."""

    @functools.cached_property
    def variables(self) -> tuple[tuple[str, int], ...]:
        """(parameter, position in an ``Action``) of each parameter that an action fixes; 0 stands for the agent."""
        return tuple((name, _POSITIONS[role]) for name, _, role in self.parameters if role in _POSITIONS)


@dataclass(frozen=True)
class Domain:
    """The actions of a PDDL domain."""

    types: frozenset[str]
    schemas: tuple[Schema, ...]
    marks: tuple[str, ...]
    """Unary predicates of objects that some action changes, sorted."""
    cleared: frozenset[str]
    """Those of them that some action can make false."""
    bookkeeping: frozenset[str]
    """Predicates that are changed in ways that the engine does not follow; nothing may read them."""

    def is_a(self, kind: str, ancestor: str) -> bool:
        """Return whether type ``kind`` is ``ancestor`` or below it; types have no hierarchy but for the root."""
        return ancestor in (kind, ANY_TYPE)


def canonical(expression: Expression, names: dict[str, str], types: dict[str, str]) -> Canonical:
    """Return the canonical form of a condition or effect.

    A quantifier over a type that the domain does not declare ranges over nothing, as in the stock planner; the original
    domain relies on it (a stray comma in ``examineObject``, whereby objects that lie about cannot be examined).

    Args:
        expression: as it was parsed.
        names: new names of parameters and variables; other symbols stay.
        types: the types that the domain declares.
    """
    if not expression:
        return TRUE
    head, rest = expression[0], expression[1:]
    if head in ("and", "or"):
        parts: set[Canonical] = set()
        for part in (canonical(item, names, types) for item in rest):
            parts |= part[1] if part[0] == head else {part}
        return next(iter(parts)) if len(parts) == 1 else (head, frozenset(parts))

    if head == "not":
        return ("not", canonical(rest[0], names, types))

    if head in ("exists", "forall"):
        variables = typed_list(rest[0])
        if any(kind not in types for kind in variables.values()):
            return FALSE if head == "exists" else TRUE
        inner = {
            **names,
            **{name: f"?:{kind}{index}" for index, (name, kind) in enumerate(variables.items())},
        }
        return (
            head,
            frozenset((inner[name], kind) for name, kind in variables.items()),
            canonical(rest[1], inner, types),
        )

    if head == "when":
        return ("when", canonical(rest[0], names, types), canonical(rest[1], names, types))
    return tuple(
        names.get(symbol, symbol) if isinstance(symbol, str) else str(symbol) for symbol in expression
    )


def _conjuncts(form: Canonical) -> frozenset[Canonical]:
    return form[1] if form[0] == "and" else frozenset([form])


def _list(text: str) -> Expression:
    return parse_expression(f"({text})")


def parse_domain(text: str) -> Domain:
    """Read a PDDL domain.

    Raises:
        InputError: if it is broken, or has an action of no known kind.
    """
    types: dict[str, str] = {}
    actions: list[dict[str, Expression]] = []
    for name, body in sections(text, "domain"):
        if name == ":types":
            types.update(typed_list(body))
        elif name == ":action":
            if not body or not all(isinstance(part, str) for part in (body[0], *body[1::2])):
                raise InputError(
                    f"an action of the domain is not a name with named parts: {str(body)[:80]}; is it damaged?"
                )
            actions.append({":name": body[0], **dict(zip(body[1::2], body[2::2], strict=False))})
        elif name in (":constants", ":derived"):
            raise InputError(
                f"the domain has a section {name}, which this engine does not know; use engine: textworld"
            )

    types.setdefault(ANY_TYPE, ANY_TYPE)
    if any(parent != ANY_TYPE for parent in types.values()):
        raise InputError(
            "the domain has a hierarchy of types, which this engine does not know; use engine: textworld"
        )

    recognised = [_recognise(action, types) for action in actions]
    schemas = tuple(schema for schema, _ in recognised)
    changes = {change for schema in schemas for change in schema.marks}
    marks = {mark for mark, _ in changes}

    for schema in schemas:
        for literal in (literal for item in schema.filters for literal in item.alternatives):
            if literal[0] in marks or literal[0] in DYNAMIC:
                raise InputError(
                    f"action {schema.name!r} depends on {literal[0]!r}, which changes in play, in a way that this "
                    "engine does not know; use engine: textworld"
                )

    bookkeeping = frozenset().union(*(names for _, names in recognised)) if recognised else frozenset()
    cleared = frozenset(mark for mark, change in changes if change != "set")
    return Domain(frozenset(types), schemas, tuple(sorted(marks - bookkeeping)), cleared, bookkeeping)


def _recognise(action: dict[str, Expression], types: dict[str, str]) -> tuple[Schema, frozenset[str]]:
    """Return the schema of an action, and the predicates that it changes as mere bookkeeping."""
    name = str(action[":name"])
    parameters = typed_list(action.get(":parameters", []))
    for kind, (roles_text, condition, effect) in _PATTERNS.items():
        roles = typed_list(_list(roles_text))
        if sorted(roles.values()) != sorted(parameters.values()):
            continue

        required = _conjuncts(canonical(_list("and " + condition), {}, types))
        changed = _conjuncts(canonical(_list("and " + effect), {}, types))

        # Parameters of one type may come in any order: one of the assignments to the pattern's roles must fit.
        for order in itertools.permutations(roles):
            if [roles[role] for role in order] != list(parameters.values()):
                continue
            names = dict(zip(parameters, order, strict=True))
            rest = _conjuncts(canonical(action.get(":precondition", []), names, types))
            effects = _conjuncts(canonical(_strip_costs(action.get(":effect", [])), names, types))
            if not (required <= rest and changed <= effects):
                continue
            filters = _filters(rest - required, _FILTERED.get(kind, "").split())
            outcome = _marks(effects - changed, kind in _MARKED)
            if filters is not None and outcome is not None and effects:
                listed = tuple((old.lstrip("?"), parameters[old], names[old]) for old in parameters)
                return Schema(name, kind, listed, filters, outcome[0]), outcome[1]
    raise InputError(
        f"action {name!r} of the domain is of no kind that this engine knows (its precondition or effect differs from "
        "ALFWorld's). Use engine: textworld, which plays any domain, slowly"
    )


def _strip_costs(effect: Expression) -> Expression:
    return [item for item in effect if not (isinstance(item, list) and item[:1] == ["increase"])]


def _filters(conditions: frozenset[Canonical], roles: list[str]) -> tuple[Filter, ...] | None:
    """Return the conditions as filters, or None if one is not a static condition on one of ``roles``."""
    filters = []
    for condition in conditions:
        literals = sorted(condition[1], key=repr) if condition[0] == "or" else [condition]
        simple = all(isinstance(part, str) for literal in literals for part in literal)
        subjects = {
            literal[1]
            for literal in literals
            if simple and len(literal) > 1 and literal[0] not in ("not", "and", "or")
        }
        if (
            len(subjects) != 1
            or not subjects <= set(roles)
            or any(part[0] == "?" for x in literals for part in x[2:])
        ):
            return None
        filters.append(Filter(subjects.pop(), tuple((literal[0], *literal[2:]) for literal in literals)))
    return tuple(sorted(filters, key=lambda item: (item.role, item.alternatives)))


def _marks(
    effects: frozenset[Canonical], marked: bool
) -> tuple[tuple[tuple[str, str], ...], frozenset[str]] | None:
    """Return the marks and the bookkeeping predicates among ``effects``, or None if an effect is neither."""
    marks: set[tuple[str, str]] = set()
    bookkeeping: set[str] = set()
    for effect in effects:
        literal = effect[1] if effect[0] == "not" else effect
        if effect[0] == "when":
            flipped = _flipped(effect, effects)
            if flipped is None or not marked:
                return None
            marks.add((flipped, "flip"))
        elif not all(isinstance(part, str) for part in literal) or literal[0] in DYNAMIC:
            return None
        elif len(literal) == 2 and literal[1] == "?o" and marked:
            marks.add((literal[0], "clear" if effect[0] == "not" else "set"))
        else:
            bookkeeping.add(literal[0])
    return tuple(sorted(marks)), frozenset(bookkeeping)


def _flipped(effect: Canonical, effects: frozenset[Canonical]) -> str | None:
    """Return P if ``effect`` is half of (when (P ?o) (not (P ?o))), (when (not (P ?o)) (P ?o)) and both are there."""
    _, condition, result = effect
    literal = condition[1] if condition[0] == "not" else condition
    opposite = literal if condition[0] == "not" else ("not", literal)
    if result != opposite or literal[1:] != ("?o",) or ("when", opposite, condition) not in effects:
        return None
    return str(literal[0])
