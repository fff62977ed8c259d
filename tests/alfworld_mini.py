"""A small game written by hand, with what is odd in the original games, and variants of it."""

from collections.abc import Sequence
from importlib import resources

from threespo.envs.alfworld import GameRecord

DOMAIN = (
    resources.files("threespo.envs.alfworld").joinpath("data/household.pddl").read_text(encoding="utf-8")
)
_GRAMMAR = (
    resources.files("threespo.envs.alfworld").joinpath("data/household.twl2").read_text(encoding="utf-8")
)
TASK = "Your task is to: put a mug on a shelf."
# Two shelves share a location. The mug is in both of them at once. The lamp's recorded location is not its shelf's.
PROBLEM = """
(define (problem mini)
  (:domain alfred)
  (:objects
    agent1 - agent
    loc_bar_1 loc_bar_2 loc_bar_3 loc_bar_9 - location
    ShelfType DrawerType SinkBasinType - rtype
    MugType KnifeType AppleType DeskLampType - otype
    Shelf_bar_1 Shelf_bar_2 Drawer_bar_1 Sink_bar_1_bar_SinkBasin - receptacle
    Mug_bar_1 Mug_bar_2 Knife_bar_1 Apple_bar_1 DeskLamp_bar_1 Unused_bar_1 - object)
  (:init
    (atLocation agent1 loc_bar_9) ; the middle of the room
    (receptacleAtLocation Shelf_bar_1 loc_bar_1) (receptacleAtLocation Shelf_bar_2 loc_bar_1)
    (receptacleAtLocation Drawer_bar_1 loc_bar_2) (receptacleAtLocation Sink_bar_1_bar_SinkBasin loc_bar_3)
    (receptacleType Shelf_bar_1 ShelfType) (receptacleType Shelf_bar_2 ShelfType)
    (receptacleType Drawer_bar_1 DrawerType)
    (receptacleType Sink_bar_1_bar_SinkBasin SinkBasinType) (openable Drawer_bar_1)
    (objectType Mug_bar_1 MugType) (objectType Mug_bar_2 MugType) (objectType Knife_bar_1 KnifeType)
    (objectType Apple_bar_1 AppleType) (objectType DeskLamp_bar_1 DeskLampType)
    (canContain ShelfType MugType) (canContain ShelfType MugType) (canContain ShelfType KnifeType)
    (canContain DrawerType MugType) (canContain SinkBasinType AppleType)
    (inReceptacle Mug_bar_1 Shelf_bar_1) (inReceptacle Mug_bar_1 Shelf_bar_2) (objectAtLocation Mug_bar_1 loc_bar_1)
    (inReceptacle Mug_bar_2 Drawer_bar_1) (objectAtLocation Mug_bar_2 loc_bar_2)
    (inReceptacle Knife_bar_1 Shelf_bar_2) (objectAtLocation Knife_bar_1 loc_bar_1)
    (inReceptacle Apple_bar_1 Sink_bar_1_bar_SinkBasin) (objectAtLocation Apple_bar_1 loc_bar_3)
    (inReceptacle DeskLamp_bar_1 Shelf_bar_1) (objectAtLocation DeskLamp_bar_1 loc_bar_2)
    (pickupable Mug_bar_1) (pickupable Mug_bar_2) (pickupable Knife_bar_1) (pickupable Apple_bar_1)
    (cleanable Mug_bar_1) (cleanable Mug_bar_2) (sliceable Apple_bar_1) (toggleable DeskLamp_bar_1))
  (:goal GOAL))
"""
TWO_MUGS = """(and (exists (?r - receptacle) (exists (?o1 - object) (and (objectType ?o1 MugType)
    (receptacleType ?r ShelfType) (inReceptacle ?o1 ?r) (exists (?o2 - object) (and (not (= ?o1 ?o2))
    (objectType ?o2 MugType) (inReceptacle ?o2 ?r)))))))"""


def replaced(text: str, *pairs: tuple[str, str]) -> str:
    """Return ``text`` with replacements, each of which must apply."""
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new)
    return text


GRAMMAR = replaced(_GRAMMAR, ("Your task is to: UNKNOWN GOAL", TASK))
OLD_GRAMMAR = replaced(
    GRAMMAR,
    ("move {o} to {r}", "put {o} in/on {r}"),
    ("You move the {o.name} to the {r.name}.", "You put the {o.name} in/on the {r.name}."),
    ("You arrive at {r.name}.", "You arrive at {lend.name}."),
)
"""Wording of the 2.1.1 games."""
_SEEN = """(or (exists (?l - location COMMA?r - receptacle) (and (atLocation ?a ?l) (receptacleAtLocation ?r ?l)
    (inReceptacle ?o ?r) (or (not (openable ?r)) (opened ?r)))) (holds ?a ?o))"""
_HELD = ":parameters (?a - agent ?o - object)\n    :precondition (and (holds ?a ?o))"
SEEN_DOMAIN = replaced(DOMAIN, (_HELD, _HELD.replace("(and (holds ?a ?o))", _SEEN.replace("COMMA", ""))))
"""What can be seen can be examined."""
OLD_DOMAIN = replaced(
    DOMAIN,
    (
        "(cleanable ?o) (receptacleType ?r SinkBasinType)",
        "(or (receptacleType ?r SinkType) (receptacleType ?r SinkBasinType) (receptacleType ?r ShelfType))",
    ),
    (_HELD, _HELD.replace("(and (holds ?a ?o))", _SEEN.replace(" COMMA", ", "))),
)
"""Another sink rule, no condition on what can be cleaned, and a comma that takes the effect of seeing away."""


def mini(
    goal: str = TWO_MUGS, domain: str = DOMAIN, grammar: str = GRAMMAR, walkthrough: Sequence[str] = ()
) -> GameRecord:
    """Return the game with another goal, domain or grammar."""
    sentence = TASK.removeprefix("Your task is to: ")
    problem = PROBLEM.replace("GOAL", goal)
    name = "pick_two_obj_and_place-Mug-None-Shelf-1/trial_1"
    return GameRecord(
        name, "train", "pick_two_obj_and_place", sentence, domain, grammar, problem, tuple(walkthrough)
    )
