"""From a PDDL goal to a function on world states.

Quantifiers are expanded over the game's entities once, and static conditions are evaluated at that time. What remains is a
small tree of tests on bit masks.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from threespo.envs.alfworld.model import WorldState
from threespo.envs.alfworld.pddl import Expression, parse_typed_list
from threespo.envs.alfworld.schemas import DYNAMIC_PREDICATES, Domain
from threespo.errors import InputError

GoalTest = Callable[[WorldState], bool]
# A constant, where the condition is static, or a test.
CompiledCondition = bool | GoalTest


@dataclass(frozen=True)
class ProblemIndex:
    """The names of a PDDL problem, and where the engine stores what they stand for."""

    domain: Domain
    types: Mapping[str, str]  # Type of each entity, for all of the problem's objects.
    facts: Mapping[str, set[tuple[str, ...]]]  # For each predicate, the rows that hold at the start.
    objects: Mapping[str, int]  # Entity to index; likewise below.
    receptacles: Mapping[str, int]
    locations: Mapping[str, int]
    properties: Mapping[str, int]  # Predicate to index in ``WorldState.properties``.


def find_goal_predicates(goal: Expression) -> frozenset[str]:
    """Return the predicates that occur in a goal.

    Raises:
        InputError: if the goal is malformed.
    """
    if not isinstance(goal, list) or not goal or not isinstance(goal[0], str):
        raise InputError(f"the goal holds {goal!r}, which is not a condition")
    if goal[0] in ("and", "or", "not"):
        return frozenset[str]().union(*map(find_goal_predicates, goal[1:]))
    if goal[0] in ("exists", "forall"):
        if len(goal) != 3 or not isinstance(goal[1], list):
            raise InputError(f"the goal holds a malformed {goal[0]!r}")
        return find_goal_predicates(goal[2])
    return frozenset([goal[0]])


def compile_goal(goal: Expression, problem: ProblemIndex) -> GoalTest:
    """Return the function that says whether a parsed PDDL goal holds.

    Raises:
        InputError: if the goal is malformed or depends on something that the engine does not track.
    """
    untracked = find_goal_predicates(goal) & problem.domain.bookkeeping
    if untracked:
        raise InputError(
            f"the goal asks for {sorted(untracked)[0]!r}, which this engine does not follow; use engine: textworld"
        )
    compiled = _compile_condition(goal, {}, problem)
    if isinstance(compiled, bool):
        return lambda world, value=compiled: value  # type: ignore[misc]
    return compiled


def _compile_condition(
    condition: Expression, bindings: dict[str, str], problem: ProblemIndex
) -> CompiledCondition:
    head = condition[0]
    # Static operands become constants, which ``_combine`` folds.
    if head in ("and", "or"):
        operands = [_compile_condition(operand, bindings, problem) for operand in condition[1:]]
        return _combine(head == "and", operands)
    if head == "not":
        inner = _compile_condition(condition[1], bindings, problem)
        if isinstance(inner, bool):
            return not inner
        return lambda world: not inner(world)
    if head in ("exists", "forall"):
        variables = list(parse_typed_list(condition[1]).items())
        return _compile_quantifier(head == "forall", variables, condition[2], bindings, problem)

    arguments = tuple(bindings.get(name, name) for name in condition[1:])
    for argument in arguments:
        if argument not in problem.types:
            raise InputError(f"the goal names {argument!r} in {head!r}, which is not among the objects")
    return _compile_literal(str(head), arguments, problem)


def _compile_quantifier(
    is_forall: bool,
    variables: list[tuple[str, str]],
    body: Expression,
    bindings: dict[str, str],
    problem: ProblemIndex,
) -> CompiledCondition:
    if not variables:
        return _compile_condition(body, bindings, problem)
    (variable, type_name), *others = variables
    if is_forall:
        candidates = _entities_of_type(type_name, problem)
    else:
        candidates = _existence_candidates(variable, type_name, body, bindings, problem)
    operands = [
        _compile_quantifier(is_forall, others, body, {**bindings, variable: entity}, problem)
        for entity in candidates
    ]
    return _combine(is_forall, operands)


def _entities_of_type(type_name: str, problem: ProblemIndex) -> list[str]:
    # A type that the domain does not declare has no entities, as in the stock planner.
    if type_name not in problem.domain.types:
        return []
    return [
        entity
        for entity, its_type in problem.types.items()
        if problem.domain.is_subtype(its_type, type_name)
    ]


def _existence_candidates(
    variable: str, type_name: str, body: Expression, bindings: dict[str, str], problem: ProblemIndex
) -> list[str]:
    """Return the entities that a variable of "exists" ranges over: those that the body's static conjuncts admit.

    Nested quantifiers over all entities would expand to a test for each tuple; goals variable types, which leaves few.
    """
    if type_name not in problem.domain.types:
        return []
    # ``None`` as long as no conjunct restricts the variable.
    admitted: set[str] | None = None
    for literal in _necessary_literals(body, variable):
        predicate = literal[0]
        arguments = [bindings.get(part, part) for part in literal[1:]]
        if variable not in arguments or predicate == "=" or _is_dynamic(predicate, problem):
            continue
        # Another variable that is not bound yet could be any entity.
        if all(part == variable or part in problem.types for part in arguments):
            position = arguments.index(variable)
            matching = {
                row[position]
                for row in problem.facts.get(predicate, ())
                if _matches_pattern(row, arguments, variable)
            }
            admitted = matching if admitted is None else admitted & matching

    if admitted is None:
        return _entities_of_type(type_name, problem)
    return sorted(
        entity for entity in admitted if problem.domain.is_subtype(problem.types[entity], type_name)
    )


def _matches_pattern(row: tuple[str, ...], arguments: list[str], variable: str) -> bool:
    return all(argument in (entity, variable) for entity, argument in zip(row, arguments, strict=True))


def _necessary_literals(body: Expression, variable: str) -> Iterator[list[str]]:
    """Yield literals that must hold for ``body`` to hold, with ``variable`` meaning the same in them."""
    if body[0] == "and":
        for part in body[1:]:
            yield from _necessary_literals(part, variable)
    elif body[0] == "exists":
        # An inner variable of the same name hides the outer one.
        if variable not in parse_typed_list(body[1]):
            yield from _necessary_literals(body[2], variable)
    elif body[0] not in ("or", "not", "forall"):
        yield body


def _is_dynamic(predicate: str, problem: ProblemIndex) -> bool:
    return predicate in problem.properties or predicate in DYNAMIC_PREDICATES


def _combine(is_conjunction: bool, parts: list[CompiledCondition]) -> CompiledCondition:
    """Return the conjunction or disjunction of conditions; constants are folded."""
    tests: list[GoalTest] = []
    for part in parts:
        if isinstance(part, bool):
            # False decides a conjunction, True a disjunction; the other constant changes nothing.
            if part is not is_conjunction:
                return part
        else:
            tests.append(part)
    if not tests:
        return is_conjunction
    if len(tests) == 1:
        return tests[0]
    operands = tuple(tests)

    # A loop is faster than ``all`` or ``any`` with a generator, and the goal is tested after most steps.
    def combination(world: WorldState) -> bool:
        for test in operands:
            if test(world) is not is_conjunction:
                return not is_conjunction
        return is_conjunction

    return combination


def _compile_literal(name: str, arguments: tuple[str, ...], problem: ProblemIndex) -> CompiledCondition:
    """Return the test of one literal whose arguments are entities."""
    if name == "=":
        return arguments[0] == arguments[1]
    if not _is_dynamic(name, problem):
        return arguments in problem.facts.get(name, ())

    try:
        if name in problem.properties:
            property_index = problem.properties[name]
            object_index = problem.objects[arguments[0]]
            return lambda world: bool(world.properties[property_index] >> object_index & 1)
        if name == "opened":
            receptacle = problem.receptacles[arguments[0]]
            return lambda world: bool(world.opened >> receptacle & 1)
        if name == "inreceptacle":
            object_index = problem.objects[arguments[0]]
            receptacle = problem.receptacles[arguments[1]]
            return lambda world: bool(world.contents[receptacle] >> object_index & 1)
        if name == "objectatlocation":
            object_index = problem.objects[arguments[0]]
            location = problem.locations[arguments[1]]
            return lambda world: bool(world.objects_at[location] >> object_index & 1)
        return _compile_agent_literal(name, arguments, problem)
    except (KeyError, IndexError):
        # An entity of the wrong type, or one that is in no fact: the literal can never hold.
        return False


def _compile_agent_literal(
    name: str, arguments: tuple[str, ...], problem: ProblemIndex
) -> CompiledCondition:
    if problem.types[arguments[0]] != "agent":
        return False
    if name == "holdsany":
        return lambda world: world.held_object >= 0
    if name == "holds":
        object_index = problem.objects[arguments[1]]
        return lambda world: world.held_object == object_index
    location = problem.locations[arguments[1]]
    return lambda world: world.agent_location == location
