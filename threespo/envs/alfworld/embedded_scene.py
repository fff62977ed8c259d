"""The content of one embedded game: the goal, the room, the objects and their places."""

import functools
import hashlib
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from threespo.envs.alfworld.embedded_layouts import (
    Layout,
    Receptacle,
    choose,
    choose_weighted,
    draw_number,
    make_display_name,
    make_entity_id,
    make_layouts,
)
from threespo.envs.alfworld.embedded_tables import Difficulty, TaskType, load_household

LAMP = "DeskLamp"
LOOK = "look_at_obj_in_light"
TWO = "pick_two_obj_and_place"

_LAMP_RECEPTACLES = ("Desk", "SideTable", "Dresser", "Shelf")
# Share of fixtures at the location of a receptacle, where "look" shows them.
_SHARE_AT_RECEPTACLES = 0.3
# Relative weight of a room's common objects; a rare one has 1.
_COMMON_WEIGHT = 3.0


@dataclass(frozen=True)
class Item:
    """An object in or on a receptacle: movable, or the lamp."""

    type: str
    entity: str
    name: str
    receptacle: Receptacle


@dataclass(frozen=True)
class Fixture:
    """A thing that cannot be moved; it is at a location, in no receptacle."""

    type: str
    entity: str
    location: int


@dataclass(frozen=True)
class Goal:
    """Bring objects of ``object_type`` to a receptacle of ``place_type`` (look_at_obj_in_light: under the lamp)."""

    task: TaskType
    object_type: str
    place_type: str
    sentence: str  # The goal in words, with its full stop.

    @property
    def objects(self) -> int:
        """How many objects the goal needs."""
        return 2 if self.task.name == TWO else 1


@dataclass(frozen=True)
class Scene:
    """A room with its content and a goal. ``start`` is the agent's location; no receptacle is there."""

    goal: Goal
    layout: Layout
    items: tuple[Item, ...]
    fixtures: tuple[Fixture, ...]
    start: int

    def fingerprint(self) -> int:
        """Return a 64-bit number of the game up to wording, numbering of objects and fixtures."""
        goal = self.goal
        parts = [goal.task.name, goal.object_type, goal.place_type, str(self.layout.floor)]
        parts += sorted(f"{item.type}@{item.receptacle.entity}" for item in self.items)
        digest = hashlib.blake2b("|".join(parts).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little")


def draw_task(generator: random.Random) -> TaskType:
    """Return a random task type, in the proportions of the official training games."""
    return choose_weighted(generator, [(task, task.share) for task in load_household().tasks])


def draw_scene(generator: random.Random, task: TaskType, split: str, difficulty: Difficulty) -> Scene:
    """Return a random scene for a type of task; the split decides the layouts.

    The order of the draws is part of what a game is: changing it changes all games of all studies.
    """
    floors = make_layouts(choose_weighted(generator, task.rooms), split, difficulty)
    goals: dict[str, list[str]] = {}
    # Not every floor of the room kind has the receptacles for the task.
    while not goals:
        layout = choose(generator, floors)
        goals = _possible_goals(task, layout)

    place_type = choose(generator, sorted(goals))
    object_type = choose(generator, goals[place_type])
    template = choose(generator, task.sentences)
    sentence = template.format(object=object_type.lower(), receptacle=place_type.lower())
    goal = Goal(task, object_type, place_type, f"{sentence}.")

    placements = _draw_placements(generator, goal, layout, difficulty)
    fixtures = _draw_fixtures(generator, layout, difficulty)
    # The agent starts where no receptacle is.
    start = _last_location(layout) + 1
    return Scene(goal, layout, _number_items(placements), fixtures, start)


def _last_location(layout: Layout) -> int:
    return max(receptacle.location for receptacle in layout.receptacles)


# Asked for each object type of a room, in each game.
@functools.lru_cache(maxsize=65536)
def _find_holders(
    layout: Layout, object_type: str, excluded_type: str | None = None
) -> tuple[Receptacle, ...]:
    """Return the receptacles that may hold an object, but those of one type."""
    contains = load_household().contains
    return tuple(
        receptacle
        for receptacle in layout.receptacles
        if receptacle.type != excluded_type and object_type in contains[receptacle.type]
    )


def _possible_goals(task: TaskType, layout: Layout) -> dict[str, list[str]]:
    """Return, for each type of goal receptacle, the object types with which the task makes sense in this layout."""
    household = load_household()
    room = household.rooms[layout.kind]
    present = dict.fromkeys(receptacle.type for receptacle in layout.receptacles)
    if task.tool is not None and task.tool not in present:
        return {}
    movable = [*room.common, *room.rare]
    if task.affordance is not None:
        allowed = household.affordances[task.affordance]
        movable = [object_type for object_type in movable if object_type in allowed]

    if task.name == LOOK:
        found = [object_type for object_type in movable if _find_holders(layout, object_type)]
        has_lamp_receptacle = any(place_type in present for place_type in _LAMP_RECEPTACLES)
        return {LAMP: found} if found and has_lamp_receptacle else {}

    goals = {}
    for place_type in present:
        # Nothing is brought to the sink, nor back to the tool that the task uses.
        if place_type in ("SinkBasin", task.tool):
            continue
        accepted = household.contains[place_type]
        fitting = [object_type for object_type in movable if object_type in accepted]
        # The object must be able to start elsewhere.
        fitting = [name for name in fitting if _find_holders(layout, name, place_type)]
        if fitting:
            goals[place_type] = fitting
    return goals


def _draw_place(generator: random.Random, receptacles: Sequence[Receptacle]) -> Receptacle:
    attraction = load_household().attraction
    weights = [attraction.get(receptacle.type, 1.0) for receptacle in receptacles]
    return choose_weighted(generator, list(zip(receptacles, weights, strict=True)))


def _draw_placements(
    generator: random.Random, goal: Goal, layout: Layout, difficulty: Difficulty
) -> list[tuple[str, Receptacle]]:
    """Return the objects and their receptacles in random order. None of the goal's type starts where the goal wants it."""
    room = load_household().rooms[layout.kind]
    count = draw_number(generator, difficulty.objects.get(layout.kind))
    same_type_count = goal.objects + int(generator.random() * (difficulty.distractors + 1))
    # Distractors, too, start away from the goal: no game begins partly solved.
    homes = _find_holders(layout, goal.object_type, goal.place_type)
    placements = [(goal.object_type, _draw_place(generator, homes)) for _ in range(same_type_count)]

    others = [name for name in (*room.common, *room.rare) if name != goal.object_type]
    holders = {object_type: _find_holders(layout, object_type) for object_type in others}
    # Instances of the goal's type are limited apart, so the rest of the room has other types.
    pool = [
        (object_type, _COMMON_WEIGHT if object_type in room.common else 1.0)
        for object_type, receptacles in holders.items()
        if receptacles
    ]
    copies: Counter[str] = Counter()
    while len(placements) < count and pool:
        object_type = choose_weighted(generator, pool)
        placements.append((object_type, _draw_place(generator, holders[object_type])))
        copies[object_type] += 1
        if copies[object_type] == difficulty.copies:
            pool = [item for item in pool if item[0] != object_type]

    if goal.task.name == LOOK:
        stands = [place for place in layout.receptacles if place.type in _LAMP_RECEPTACLES]
        placements.append((LAMP, _draw_place(generator, stands)))

    # Instances are numbered in this order: shuffled, so that a number says nothing about the goal.
    order = sorted((generator.random(), index) for index in range(len(placements)))
    return [placements[index] for _, index in order]


def _number_items(placements: list[tuple[str, Receptacle]]) -> tuple[Item, ...]:
    counts = Counter(object_type for object_type, _ in placements)
    next_index: Counter[str] = Counter()
    items = []
    for object_type, receptacle in placements:
        index = next_index[object_type]
        next_index[object_type] += 1
        name = make_display_name(object_type, index, counts[object_type])
        items.append(Item(object_type, make_entity_id(object_type, index), name, receptacle))
    return tuple(items)


def _draw_fixtures(
    generator: random.Random, layout: Layout, difficulty: Difficulty
) -> tuple[Fixture, ...]:
    candidates = load_household().rooms[layout.kind].fixtures
    present = [object_type for object_type in candidates if generator.random() < difficulty.fixtures]
    next_index: Counter[str] = Counter()
    fixtures = []
    # After the receptacles' locations come the agent's start, then one for each fixture that is at no receptacle.
    free_location = _last_location(layout) + 2
    for object_type in present:
        if generator.random() < _SHARE_AT_RECEPTACLES:
            location = choose(generator, layout.receptacles).location
        else:
            location = free_location
            free_location += 1
        entity = make_entity_id(object_type, next_index[object_type])
        fixtures.append(Fixture(object_type, entity, location))
        next_index[object_type] += 1
    return tuple(fixtures)
