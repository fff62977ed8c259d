"""The PDDL problem of an embedded scene, in the form of the official games, and the grammar with its task sentence."""

import functools
from collections.abc import Iterable

from threespo.envs.alfworld.embedded_layouts import Layout
from threespo.envs.alfworld.embedded_scene import LOOK, TWO, Fixture, Goal, Item, Scene
from threespo.envs.alfworld.embedded_tables import load_household, read_data_text

# Types that the domain names must exist in every problem.
_DOMAIN_RTYPES = ("FridgeType", "MicrowaveType", "SinkBasinType")
_DOMAIN_OTYPES = ("ButterKnifeType", "KnifeType")
_SENTENCE = "UNKNOWN GOAL"


@functools.cache
def domain() -> str:
    """Return the domain's text, the same for all embedded games."""
    return read_data_text("household.pddl")


@functools.cache
def _grammar_halves() -> tuple[str, str]:
    before, _, after = read_data_text("household.twl2").partition(_SENTENCE)
    return before, after


def grammar(sentence: str) -> str:
    """Return the grammar's text with the task sentence filled in."""
    before, after = _grammar_halves()
    return before + sentence + after


@functools.cache
def _predicates(object_type: str) -> tuple[str, ...]:
    """Return what can be done with objects of the type, as unary predicates."""
    facts = load_household()
    predicates = [name for name, types in facts.affordances.items() if object_type in types]
    if any(object_type in types for types in facts.contains.values()):
        predicates.append("pickupable")
    return tuple(predicates)


@functools.lru_cache(maxsize=4096)
def _layout_lines(layout: Layout) -> tuple[list[str], list[str]]:
    """Return the declarations and the facts that depend on the layout alone."""
    declared = [f"{place.entity} - receptacle" for place in layout.receptacles]
    facts = []
    for place in layout.receptacles:
        facts.append(f"(receptacleType {place.entity} {place.type}Type)")
        facts.append(f"(receptacleAtLocation {place.entity} {_location(place.location)})")
        if place.openable:
            facts.append(f"(openable {place.entity})")
    return declared, facts


def _location(number: int) -> str:
    return f"loc_bar_{number:02d}"


def problem(scene: Scene, name: str) -> str:
    """Return the PDDL problem of a scene.

    Args:
        scene: objects, places and goal.
        name: what the problem is called; nothing depends on it.
    """
    rtypes = dict.fromkeys(place.type for place in scene.layout.receptacles)
    things: list[Item | Fixture] = [*scene.items, *scene.fixtures]
    otypes = dict.fromkeys(thing.type for thing in things)
    declared, facts = _layout_lines(scene.layout)
    locations = {scene.start} | {place.location for place in scene.layout.receptacles}
    locations |= {fixture.location for fixture in scene.fixtures}

    lines = [f"(define (problem {name})", "(:domain alfred)", "(:objects", "agent1 - agent"]
    lines += [f"{other} - otype" for other in _type_names(otypes, _DOMAIN_OTYPES)]
    lines += [f"{other} - rtype" for other in _type_names(rtypes, _DOMAIN_RTYPES)]
    lines += [f"{thing.entity} - object" for thing in things]
    lines += declared
    lines += [f"{_location(number)} - location" for number in sorted(locations)]
    lines += [")", "(:init"]

    contains = load_household().contains
    lines += [
        f"(canContain {place}Type {kind}Type)"
        for place in rtypes
        for kind in contains[place]
        if kind in otypes
    ]
    lines += facts

    for thing in things:
        lines.append(f"(objectType {thing.entity} {thing.type}Type)")
        lines += [f"({predicate} {thing.entity})" for predicate in _predicates(thing.type)]
    for item in scene.items:
        lines.append(f"(inReceptacle {item.entity} {item.place.entity})")
        lines.append(f"(objectAtLocation {item.entity} {_location(item.place.location)})")

    lines += [
        f"(objectAtLocation {fixture.entity} {_location(fixture.location)})"
        for fixture in scene.fixtures
    ]
    lines += [
        f"(atLocation agent1 {_location(scene.start)})",
        ")",
        f"(:goal {_goal(scene.goal)})",
        ")",
        "",
    ]

    return "\n".join(lines)


def _type_names(kinds: Iterable[str], needed: tuple[str, ...]) -> list[str]:
    return list(dict.fromkeys([*(f"{kind}Type" for kind in kinds), *needed]))


def _goal(goal: Goal) -> str:
    kind, place = f"{goal.object_type}Type", f"{goal.place_type}Type"
    if goal.task.name == LOOK:
        lamp = f"(objectType ?ot {place}) (toggleable ?ot) (isToggled ?ot) (inReceptacle ?ot ?r)"
        lit = f"(and {lamp} (receptacleAtLocation ?r ?l) (atLocation ?a ?l))"
        lit = f"(exists (?ot - object ?r - receptacle ?a - agent ?l - location) {lit})"
        return (
            f"(and {lit} (exists (?o - object ?a - agent) (and (objectType ?o {kind}) (holds ?a ?o))))"
        )

    if goal.task.name == TWO:
        first = f"(objectType ?o1 {kind}) (receptacleType ?r {place}) (inReceptacle ?o1 ?r)"
        second = f"(not (= ?o1 ?o2)) (objectType ?o2 {kind}) (receptacleType ?r {place}) (inReceptacle ?o2 ?r)"
        both = f"(exists (?o1 - object) (and {first} (exists (?o2 - object) (and {second}))))"
        return f"(and (exists (?r - receptacle) {both}))"

    conditions = f"(objectType ?o {kind}) (receptacleType ?r {place}) (inReceptacle ?o ?r)"
    if goal.task.state is not None:
        conditions = f"({goal.task.affordance} ?o) ({goal.task.state} ?o) {conditions}"
    return f"(and (exists (?r - receptacle) (exists (?o - object) (and {conditions}))))"
