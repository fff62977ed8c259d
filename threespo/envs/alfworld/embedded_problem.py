"""The PDDL problem of an embedded scene, in the form of the official games, and the grammar with its task sentence."""

import functools
from collections.abc import Iterable

from threespo.envs.alfworld.embedded_layouts import Layout
from threespo.envs.alfworld.embedded_scene import LOOK, TWO, Fixture, Goal, Item, Scene
from threespo.envs.alfworld.embedded_tables import load_household, read_data_text

# Types that the domain names must exist in every problem.
_DOMAIN_RECEPTACLE_TYPES = ("FridgeType", "MicrowaveType", "SinkBasinType")
_DOMAIN_OBJECT_TYPES = ("ButterKnifeType", "KnifeType")
_SENTENCE_PLACEHOLDER = "UNKNOWN GOAL"


@functools.cache
def read_domain() -> str:
    """Return the domain's text, the same for all embedded games."""
    return read_data_text("household.pddl")


def fill_grammar(sentence: str) -> str:
    """Return the grammar's text with the task sentence filled in."""
    before, after = _split_grammar()
    return before + sentence + after


@functools.cache
def _split_grammar() -> tuple[str, str]:
    before, _, after = read_data_text("household.twl2").partition(_SENTENCE_PLACEHOLDER)
    return before, after


def format_problem(scene: Scene, name: str) -> str:
    """Return the PDDL problem of a scene; nothing depends on the problem's name."""
    household = load_household()
    receptacles = scene.layout.receptacles
    receptacle_types = dict.fromkeys(receptacle.type for receptacle in receptacles)
    things: list[Item | Fixture] = [*scene.items, *scene.fixtures]
    object_types = dict.fromkeys(thing.type for thing in things)
    locations = {scene.start}
    locations.update(receptacle.location for receptacle in receptacles)
    locations.update(fixture.location for fixture in scene.fixtures)

    lines = [f"(define (problem {name})", "(:domain alfred)", "(:objects", "agent1 - agent"]
    lines += [f"{type_name} - otype" for type_name in _type_names(object_types, _DOMAIN_OBJECT_TYPES)]
    lines += [
        f"{type_name} - rtype" for type_name in _type_names(receptacle_types, _DOMAIN_RECEPTACLE_TYPES)
    ]
    lines += [f"{thing.entity} - object" for thing in things]
    lines += [f"{receptacle.entity} - receptacle" for receptacle in receptacles]
    lines += [f"{_location_name(number)} - location" for number in sorted(locations)]
    lines += [")", "(:init"]

    for outer in receptacle_types:
        inner_types = [type_name for type_name in household.contains[outer] if type_name in object_types]
        lines += [f"(canContain {outer}Type {inner}Type)" for inner in inner_types]
    lines += _layout_facts(scene.layout)
    for thing in things:
        lines.append(f"(objectType {thing.entity} {thing.type}Type)")
        lines += [f"({predicate} {thing.entity})" for predicate in _predicates(thing.type)]
    for item in scene.items:
        lines.append(f"(inReceptacle {item.entity} {item.receptacle.entity})")
        lines.append(f"(objectAtLocation {item.entity} {_location_name(item.receptacle.location)})")
    for fixture in scene.fixtures:
        lines.append(f"(objectAtLocation {fixture.entity} {_location_name(fixture.location)})")
    lines.append(f"(atLocation agent1 {_location_name(scene.start)})")

    lines += [")", f"(:goal {_format_goal(scene.goal)})", ")", ""]
    return "\n".join(lines)


def _location_name(number: int) -> str:
    return f"loc_bar_{number:02d}"


def _type_names(kinds: Iterable[str], needed: tuple[str, ...]) -> list[str]:
    names = [f"{type_name}Type" for type_name in kinds]
    return list(dict.fromkeys([*names, *needed]))


# Thousands of games share a layout.
@functools.lru_cache(maxsize=4096)
def _layout_facts(layout: Layout) -> list[str]:
    facts = []
    for receptacle in layout.receptacles:
        facts.append(f"(receptacleType {receptacle.entity} {receptacle.type}Type)")
        facts.append(f"(receptacleAtLocation {receptacle.entity} {_location_name(receptacle.location)})")
        if receptacle.openable:
            facts.append(f"(openable {receptacle.entity})")
    return facts


@functools.cache
def _predicates(object_type: str) -> tuple[str, ...]:
    """Return what can be done with objects of the type, as unary predicates."""
    household = load_household()
    predicates = [name for name, types in household.affordances.items() if object_type in types]
    if any(object_type in types for types in household.contains.values()):
        predicates.append("pickupable")
    return tuple(predicates)


def _format_goal(goal: Goal) -> str:
    # The official games' own forms.
    object_type = f"{goal.object_type}Type"
    place_type = f"{goal.place_type}Type"
    if goal.task.name == LOOK:
        lamp = f"(objectType ?ot {place_type}) (toggleable ?ot) (isToggled ?ot) (inReceptacle ?ot ?r)"
        lit = f"(and {lamp} (receptacleAtLocation ?r ?l) (atLocation ?a ?l))"
        lit = f"(exists (?ot - object ?r - receptacle ?a - agent ?l - location) {lit})"
        held = f"(and (objectType ?o {object_type}) (holds ?a ?o))"
        return f"(and {lit} (exists (?o - object ?a - agent) {held}))"

    if goal.task.name == TWO:
        in_place = f"(receptacleType ?r {place_type})"
        first = f"(objectType ?o1 {object_type}) {in_place} (inReceptacle ?o1 ?r)"
        second = f"(not (= ?o1 ?o2)) (objectType ?o2 {object_type}) {in_place} (inReceptacle ?o2 ?r)"
        both = f"(exists (?o1 - object) (and {first} (exists (?o2 - object) (and {second}))))"
        return f"(and (exists (?r - receptacle) {both}))"

    conditions = f"(objectType ?o {object_type}) (receptacleType ?r {place_type}) (inReceptacle ?o ?r)"
    if goal.task.state is not None:
        conditions = f"({goal.task.affordance} ?o) ({goal.task.state} ?o) {conditions}"
    return f"(and (exists (?r - receptacle) (exists (?o - object) (and {conditions}))))"
