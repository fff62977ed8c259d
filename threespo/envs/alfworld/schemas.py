"""The action schemas of an ALFWorld domain, recognised by their preconditions and effects.

The engine implements a few kinds of action. Each is given below as PDDL; an action of the domain belongs to a kind if its
precondition and effect are the kind's up to names of parameters, order and nesting, apart from *filters* (static
conditions on a single object or receptacle, such as ``(cleanable ?o)`` or ``(receptacleType ?r SinkBasinType)``) and
*property changes* (effects on unary predicates of an object, such as ``(isClean ?o)``), which are read out of the domain.
An action that belongs to no kind is refused: the engine would otherwise play another game than the one on disk.
"""

import functools
import itertools
from collections.abc import Set
from dataclasses import dataclass
from typing import Any

from threespo.envs.alfworld.pddl import (
    ANY_TYPE,
    Expression,
    parse_expression,
    parse_sections,
    parse_typed_list,
)
from threespo.errors import InputError

# An expression in which ``and`` and ``or`` are flat and unordered, so that equal meaning in that sense is equality.
Canonical = Any

# Names are lower case here, as the parser makes them.
_ACCESSIBLE = "(or (not (openable ?r)) (opened ?r))"
_AT_RECEPTACLE = "(atlocation ?a ?l) (receptacleatlocation ?r ?l)"
_PATTERNS = {
    # Kind of action -> parameters, precondition, effect.
    "idle": ("?a - agent", "", ""),
    "look": ("?a - agent ?l - location", "(atlocation ?a ?l)", ""),
    "examine receptacle": (
        "?a - agent ?r - receptacle",
        "(exists (?l - location) (and (atlocation ?a ?l) (receptacleatlocation ?r ?l)))",
        "",
    ),
    "examine object": (
        "?a - agent ?o - object",
        "(or (holds ?a ?o) (exists (?l - location ?r - receptacle) "
        f"(and {_AT_RECEPTACLE} (inreceptacle ?o ?r) {_ACCESSIBLE})))",
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
        f"(openable ?r) (not (opened ?r)) {_AT_RECEPTACLE}",
        "(opened ?r)",
    ),
    "close": (
        "?a - agent ?l - location ?r - receptacle",
        f"(openable ?r) (opened ?r) {_AT_RECEPTACLE}",
        "(not (opened ?r))",
    ),
    "take": (
        "?a - agent ?l - location ?o - object ?r - receptacle",
        f"{_AT_RECEPTACLE} (inreceptacle ?o ?r) (not (holdsany ?a)) {_ACCESSIBLE}",
        "(not (inreceptacle ?o ?r)) (holds ?a ?o) (holdsany ?a) (not (objectatlocation ?o ?l))",
    ),
    "put": (
        "?a - agent ?l - location ?o - object ?r - receptacle ?ot - otype ?rt - rtype",
        f"(holds ?a ?o) {_AT_RECEPTACLE} {_ACCESSIBLE} (objecttype ?o ?ot) (receptacletype ?r ?rt) (cancontain ?rt ?ot)",
        "(inreceptacle ?o ?r) (objectatlocation ?o ?l) (not (holds ?a ?o)) (not (holdsany ?a))",
    ),
    "treat": (
        "?a - agent ?l - location ?r - receptacle ?o - object",
        f"{_AT_RECEPTACLE} (holds ?a ?o)",
        "",
    ),
    "toggle": (
        "?a - agent ?l - location ?o - object ?r - receptacle",
        f"{_AT_RECEPTACLE} (inreceptacle ?o ?r)",
        "",
    ),
    "slice": (
        "?a - agent ?l - location ?o - object ?tool - object",
        "(atlocation ?a ?l) (objectatlocation ?o ?l) (holds ?a ?tool)",
        "",
    ),
}
# The parameters of each kind that may have filters.
_FILTERED_ROLES = {
    "open": "?r",
    "close": "?r",
    "take": "?o ?r",
    "put": "?o ?r",
    "treat": "?o ?r",
    "toggle": "?o ?r",
    "slice": "?o ?tool",
}
_KINDS_WITH_PROPERTY_CHANGES = frozenset(
    {"take", "put", "treat", "toggle", "slice", "examine object", "examine held object"}
)

# Predicates that the kinds themselves change; all else that changes is an object property, or bookkeeping.
DYNAMIC_PREDICATES = frozenset(
    {"atlocation", "opened", "inreceptacle", "objectatlocation", "holds", "holdsany"}
)
# Where an ``Action`` has the entity for a role.
_ACTION_POSITIONS = {"?a": 0, "?o": 1, "?r": 2, "?l": 3, "?to": 3, "?tool": 4}
_FALSE: Canonical = ("or", frozenset())
_TRUE: Canonical = ("and", frozenset())


@dataclass(frozen=True)
class Filter:
    """A static condition on one parameter: one of the literals ``(predicate constants…)`` holds for it."""

    role: str  # ``?o``, ``?r`` or ``?tool``.
    # Each is a predicate and the constants that follow the parameter.
    alternatives: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class ActionSchema:
    """One action of the domain."""

    name: str
    kind: str
    # (name without "?", type, role in the kind's pattern) of each parameter, in the domain's order.
    parameters: tuple[tuple[str, str, str], ...]
    filters: tuple[Filter, ...]
    # (predicate, "set" | "clear" | "flip") of each effect on the object ``?o``.
    property_changes: tuple[tuple[str, str], ...]

    @functools.cached_property
    def variables(self) -> tuple[tuple[str, int], ...]:
        """(parameter, position in an ``Action``) of each parameter that an action fixes; 0 is the agent."""
        return tuple(
            (name, _ACTION_POSITIONS[role])
            for name, _, role in self.parameters
            if role in _ACTION_POSITIONS
        )


@dataclass(frozen=True)
class Domain:
    """The actions of a PDDL domain."""

    types: frozenset[str]
    schemas: tuple[ActionSchema, ...]
    properties: tuple[str, ...]  # Unary predicates of objects that some action changes, sorted.
    cleared: frozenset[str]  # Those of them that some action can make false.
    # Predicates that are changed in ways that the engine does not track; nothing may read them.
    bookkeeping: frozenset[str]

    def is_subtype(self, kind: str, ancestor: str) -> bool:
        """Return whether a type is another one or below it; the only hierarchy is that all are below the root."""
        return ancestor in (kind, ANY_TYPE)


def canonicalize(
    expression: Expression, names: dict[str, str], declared_types: dict[str, str]
) -> Canonical:
    """Return the canonical form of a condition or effect.

    A quantifier over a type that the domain does not declare ranges over nothing, as in the stock planner; the original
    domain relies on it (a stray comma in ``examineObject``, because of which only a held object can be examined).
    Parameters and variables in ``names`` are renamed; ``declared_types`` are those that the domain declares.
    """
    if not expression:
        return _TRUE
    head, *operands = expression
    if head in ("and", "or"):
        parts: set[Canonical] = set()
        for operand in operands:
            part = canonicalize(operand, names, declared_types)
            parts |= part[1] if part[0] == head else {part}
        return next(iter(parts)) if len(parts) == 1 else (head, frozenset(parts))

    if head == "not":
        return ("not", canonicalize(operands[0], names, declared_types))

    if head in ("exists", "forall"):
        variables = parse_typed_list(operands[0])
        if any(kind not in declared_types for kind in variables.values()):
            return _FALSE if head == "exists" else _TRUE
        # Variables are named by type and position, so that their own names make no difference.
        renamed = {name: f"?:{kind}{index}" for index, (name, kind) in enumerate(variables.items())}
        declared = frozenset((renamed[name], kind) for name, kind in variables.items())
        return (head, declared, canonicalize(operands[1], {**names, **renamed}, declared_types))

    if head == "when":
        condition = canonicalize(operands[0], names, declared_types)
        return ("when", condition, canonicalize(operands[1], names, declared_types))
    return tuple(
        names.get(symbol, symbol) if isinstance(symbol, str) else str(symbol) for symbol in expression
    )


def _conjuncts(form: Canonical) -> frozenset[Canonical]:
    return form[1] if form[0] == "and" else frozenset([form])


def parse_domain(text: str) -> Domain:
    """Read a PDDL domain.

    Raises:
        InputError: if it is broken, or has an action of no known kind.
    """
    types: dict[str, str] = {}
    actions: list[dict[str, Expression]] = []
    for section, body in parse_sections(text, "domain"):
        if section == ":types":
            types.update(parse_typed_list(body))
        elif section == ":action":
            actions.append(_parse_action(body))
        elif section in (":constants", ":derived"):
            raise InputError(
                f"the domain has a section {section}, which this engine does not know; use engine: textworld"
            )

    types.setdefault(ANY_TYPE, ANY_TYPE)
    if any(parent != ANY_TYPE for parent in types.values()):
        raise InputError(
            "the domain has a hierarchy of types, which this engine does not know; use engine: textworld"
        )

    recognized = [_recognize_action(action, types) for action in actions]
    schemas = tuple(schema for schema, _ in recognized)
    changes = {change for schema in schemas for change in schema.property_changes}
    properties = {predicate for predicate, _ in changes}
    _check_filters(schemas, properties | DYNAMIC_PREDICATES)

    bookkeeping: frozenset[str] = frozenset().union(*(names for _, names in recognized))
    cleared = frozenset(name for name, change in changes if change != "set")
    return Domain(
        types=frozenset(types),
        schemas=schemas,
        properties=tuple(sorted(properties - bookkeeping)),
        cleared=cleared,
        bookkeeping=bookkeeping,
    )


def _parse_action(body: list[Expression]) -> dict[str, Expression]:
    """Return the parts of an action by their names, such as ``:effect``."""
    if not body or not all(isinstance(part, str) for part in (body[0], *body[1::2])):
        raise InputError(
            f"an action of the domain is not a name with named parts: {str(body)[:80]}; is it damaged?"
        )
    return {":name": body[0], **dict(zip(body[1::2], body[2::2], strict=False))}


def _check_filters(schemas: tuple[ActionSchema, ...], changing: Set[str]) -> None:
    """Raise ``InputError`` if a filter is not static: filters are evaluated once, when a game is compiled."""
    for schema in schemas:
        predicates = [literal[0] for item in schema.filters for literal in item.alternatives]
        for predicate in predicates:
            if predicate in changing:
                raise InputError(
                    f"action {schema.name!r} depends on {predicate!r}, which changes in play, in a way that this "
                    "engine does not know; use engine: textworld"
                )


def _recognize_action(
    action: dict[str, Expression], types: dict[str, str]
) -> tuple[ActionSchema, frozenset[str]]:
    """Return the schema of an action, and the predicates that it changes as mere bookkeeping."""
    name = str(action[":name"])
    parameters = parse_typed_list(action.get(":parameters", []))
    # Costs matter to a planner only.
    effect = [part for part in action.get(":effect", []) if part[:1] != ["increase"]]

    for kind, (roles_text, pattern_condition, pattern_effect) in _PATTERNS.items():
        roles = parse_typed_list(parse_expression(f"({roles_text})"))
        if sorted(roles.values()) != sorted(parameters.values()):
            continue
        required = _pattern_conjuncts(pattern_condition, types)
        changed = _pattern_conjuncts(pattern_effect, types)

        # Parameters of one type may come in any order: one of the assignments to the pattern's roles must fit.
        for order in itertools.permutations(roles):
            if [roles[role] for role in order] != list(parameters.values()):
                continue
            names = dict(zip(parameters, order, strict=True))
            conditions = _conjuncts(canonicalize(action.get(":precondition", []), names, types))
            effects = _conjuncts(canonicalize(effect, names, types))
            if not (required <= conditions and changed <= effects):
                continue
            filters = _as_filters(conditions - required, _FILTERED_ROLES.get(kind, "").split())
            outcome = _classify_effects(effects - changed, kind in _KINDS_WITH_PROPERTY_CHANGES)
            if filters is not None and outcome is not None and effects:
                changes, bookkeeping = outcome
                listed = tuple((old.lstrip("?"), parameters[old], names[old]) for old in parameters)
                return ActionSchema(name, kind, listed, filters, changes), bookkeeping

    raise InputError(
        f"action {name!r} of the domain is of no kind that this engine knows (its precondition or effect differs from "
        "ALFWorld's). Use engine: textworld, which plays any domain, slowly"
    )


def _pattern_conjuncts(text: str, types: dict[str, str]) -> frozenset[Canonical]:
    return _conjuncts(canonicalize(parse_expression(f"(and {text})"), {}, types))


def _as_filters(conditions: frozenset[Canonical], roles: list[str]) -> tuple[Filter, ...] | None:
    """Return the conditions as filters, or ``None`` if one is not a static condition on one of ``roles``."""
    filters = []
    for condition in conditions:
        literals = sorted(condition[1], key=repr) if condition[0] == "or" else [condition]
        filter_ = _as_filter(literals)
        if filter_ is None or filter_.role not in roles:
            return None
        filters.append(filter_)
    # Conditions are a set, whose order differs between processes.
    return tuple(sorted(filters, key=lambda item: (item.role, item.alternatives)))


def _as_filter(literals: list[Canonical]) -> Filter | None:
    """Return the disjunction of literals as a filter, or ``None`` unless all are about one parameter and constants."""
    subjects = set()
    for literal in literals:
        if not all(isinstance(part, str) for part in literal):
            return None
        if len(literal) > 1 and literal[0] not in ("not", "and", "or"):
            subjects.add(literal[1])
        if any(part[0] == "?" for part in literal[2:]):
            return None
    if len(subjects) != 1:
        return None
    return Filter(subjects.pop(), tuple((literal[0], *literal[2:]) for literal in literals))


def _classify_effects(
    effects: frozenset[Canonical], may_change_properties: bool
) -> tuple[tuple[tuple[str, str], ...], frozenset[str]] | None:
    """Return the property changes and the bookkeeping predicates, or ``None`` if an effect is neither."""
    changes: set[tuple[str, str]] = set()
    bookkeeping: set[str] = set()
    for effect in effects:
        is_negated = effect[0] == "not"
        literal = effect[1] if is_negated else effect
        if effect[0] == "when":
            flipped = _find_flipped(effect, effects)
            if flipped is None or not may_change_properties:
                return None
            changes.add((flipped, "flip"))
        elif not all(isinstance(part, str) for part in literal) or literal[0] in DYNAMIC_PREDICATES:
            return None
        elif len(literal) == 2 and literal[1] == "?o" and may_change_properties:
            changes.add((literal[0], "clear" if is_negated else "set"))
        else:
            bookkeeping.add(literal[0])
    return tuple(sorted(changes)), frozenset(bookkeeping)


def _find_flipped(effect: Canonical, effects: frozenset[Canonical]) -> str | None:
    """Return P if ``effect`` is half of (when (P ?o) (not (P ?o))), (when (not (P ?o)) (P ?o)) and both are there."""
    _, condition, result = effect
    if condition[0] == "not":
        literal = condition[1]
        opposite = literal
    else:
        literal = condition
        opposite = ("not", literal)
    if result != opposite or literal[1:] != ("?o",) or ("when", opposite, condition) not in effects:
        return None
    return str(literal[0])
