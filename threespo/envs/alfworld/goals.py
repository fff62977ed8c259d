"""From a PDDL goal to a function on facts.

Quantifiers are expanded over the game's entities once; whatever is static is decided then. What remains is a small tree
of tests on bit masks.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from threespo.envs.alfworld.model import WorldState
from threespo.envs.alfworld.pddl import Expression, typed_list
from threespo.envs.alfworld.schemas import Domain
from threespo.errors import InputError

Test = Callable[[WorldState], bool]
Truth = bool | Test
"""Decided once and for all, or a test."""


@dataclass(frozen=True)
class Scene:
    """What a goal is compiled against: names of the PDDL problem and where the engine keeps them."""

    domain: Domain
    types: Mapping[str, str]
    """Entity to type, all of the problem's objects."""
    facts: Mapping[str, set[tuple[str, ...]]]
    """What holds at the start."""
    objects: Mapping[str, int]
    """Entity to index; likewise below."""
    receptacles: Mapping[str, int]
    locations: Mapping[str, int]
    mark_index: Mapping[str, int]
    """Predicate to index in ``Facts.marks``."""


def goal_reads(goal: Expression) -> frozenset[str]:
    """Return the predicates that occur in a goal.

    Raises:
        InputError: if the goal is malformed.
    """
    if not isinstance(goal, list) or not goal or not isinstance(goal[0], str):
        raise InputError(f"the goal holds {goal!r}, which is not a condition")
    if goal[0] in ("and", "or", "not"):
        return frozenset[str]().union(*map(goal_reads, goal[1:]))
    if goal[0] in ("exists", "forall"):
        if len(goal) != 3 or not isinstance(goal[1], list):
            raise InputError(f"the goal holds a malformed {goal[0]!r}")
        return goal_reads(goal[2])
    return frozenset([goal[0]])


def compile_goal(goal: Expression, scene: Scene) -> Test:
    """Return the function that says whether a goal holds.

    Args:
        goal: the parsed PDDL condition.
        scene: names and initial facts of the problem.

    Raises:
        InputError: if the goal is malformed or depends on something that the engine does not follow.
    """
    unknown = goal_reads(goal) & scene.domain.bookkeeping
    if unknown:
        raise InputError(
            f"the goal asks for {sorted(unknown)[0]!r}, which this engine does not follow; use engine: textworld"
        )
    truth = _compile(goal, {}, scene)
    if isinstance(truth, bool):
        return lambda facts, value=truth: value  # type: ignore[misc]
    return truth


def _compile(goal: Expression, bound: dict[str, str], scene: Scene) -> Truth:
    head = goal[0]
    if head in ("and", "or"):
        return _junction(head == "and", [_compile(part, bound, scene) for part in goal[1:]])
    if head == "not":
        inner = _compile(goal[1], bound, scene)
        if isinstance(inner, bool):
            return not inner
        return lambda facts: not inner(facts)
    if head in ("exists", "forall"):
        return _quantifier(head == "forall", list(typed_list(goal[1]).items()), goal[2], bound, scene)

    arguments = tuple(bound.get(name, name) for name in goal[1:])
    for argument in arguments:
        if argument not in scene.types:
            raise InputError(f"the goal names {argument!r} in {head!r}, which is not among the objects")
    return _literal(str(head), arguments, scene)


def _quantifier(
    every: bool, variables: list[tuple[str, str]], body: Expression, bound: dict[str, str], scene: Scene
) -> Truth:
    if not variables:
        return _compile(body, bound, scene)
    (name, kind), rest = variables[0], variables[1:]
    parts = []
    for entity in _candidates(name, kind, body, bound, scene, every):
        parts.append(_quantifier(every, rest, body, {**bound, name: entity}, scene))
    return _junction(every, parts)


def _candidates(
    name: str, kind: str, body: Expression, bound: dict[str, str], scene: Scene, every: bool
) -> list[str]:
    """Return the entities that ``name`` ranges over; for "exists", those that the body's static conjuncts admit."""
    if kind not in scene.domain.types:
        return []
    # Nested quantifiers over all entities would expand to a test for each tuple; goals name types, which leaves few.
    admitted: set[str] | None = None
    for literal in () if every else _necessary(body, name):
        arguments = [bound.get(part, part) for part in literal[1:]]
        if name not in arguments or _changes(literal[0], scene) or literal[0] == "=":
            continue
        if all(part == name or part in scene.types for part in arguments):
            position = arguments.index(name)
            rows = scene.facts.get(literal[0], ())
            matching = {
                row[position]
                for row in rows
                if all(b in (a, name) for a, b in zip(row, arguments, strict=True))
            }
            admitted = matching if admitted is None else admitted & matching

    if admitted is None:
        return [entity for entity, its in scene.types.items() if scene.domain.is_a(its, kind)]
    return sorted(entity for entity in admitted if scene.domain.is_a(scene.types[entity], kind))


def _necessary(body: Expression, name: str) -> Iterator[list[str]]:
    """Yield literals that must hold for ``body`` to hold, with ``name`` meaning the same in them."""
    if body[0] == "and":
        for part in body[1:]:
            yield from _necessary(part, name)
    elif body[0] == "exists":
        if name not in typed_list(body[1]):
            yield from _necessary(body[2], name)
    elif body[0] not in ("or", "not", "forall"):
        yield body


def _changes(predicate: str, scene: Scene) -> bool:
    return predicate in scene.mark_index or predicate in (
        "atlocation", "holds", "holdsany", "opened", "inreceptacle", "objectatlocation",
    )  # fmt: skip


def _junction(every: bool, parts: list[Truth]) -> Truth:
    """Return the conjunction (``every``) or disjunction of ``parts``."""
    tests: list[Test] = []
    for part in parts:
        if isinstance(part, bool):
            if part is not every:
                return part
        else:
            tests.append(part)
    if not tests:
        return every
    if len(tests) == 1:
        return tests[0]
    chosen = tuple(tests)

    def junction(facts: WorldState) -> bool:
        for test in chosen:
            if test(facts) is not every:
                return not every
        return every

    return junction


def _literal(name: str, arguments: tuple[str, ...], scene: Scene) -> Truth:
    """Return the test of one ground literal."""
    if name == "=":
        return arguments[0] == arguments[1]
    if not _changes(name, scene):
        return arguments in scene.facts.get(name, ())

    try:
        if name in scene.mark_index:
            mark, item = scene.mark_index[name], scene.objects[arguments[0]]
            return lambda facts: bool(facts.marks[mark] >> item & 1)
        if name == "opened":
            index = scene.receptacles[arguments[0]]
            return lambda facts: bool(facts.opened >> index & 1)
        if name == "inreceptacle":
            item, index = scene.objects[arguments[0]], scene.receptacles[arguments[1]]
            return lambda facts: bool(facts.contents[index] >> item & 1)
        if name == "objectatlocation":
            item, index = scene.objects[arguments[0]], scene.locations[arguments[1]]
            return lambda facts: bool(facts.lying[index] >> item & 1)
        return _of_agent(name, arguments, scene)
    except (KeyError, IndexError):
        # An entity of the wrong type, or one that is in no fact: it can never be so.
        return False


def _of_agent(name: str, arguments: tuple[str, ...], scene: Scene) -> Truth:
    if scene.types[arguments[0]] != "agent":
        return False
    if name == "holdsany":
        return lambda facts: facts.held >= 0
    if name == "holds":
        item = scene.objects[arguments[1]]
        return lambda facts: facts.held == item
    place = scene.locations[arguments[1]]
    return lambda facts: facts.place == place
