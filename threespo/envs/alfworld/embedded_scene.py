"""What happens in one embedded game: the goal, the room, the objects and where they are."""

import functools
import hashlib
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from threespo.envs.alfworld import embedded_layouts as rooms
from threespo.envs.alfworld.embedded_layouts import Layout, Receptacle, choose, choose_weighted
from threespo.envs.alfworld.embedded_tables import Difficulty, TaskType, load_household

LAMP = "DeskLamp"
LOOK = "look_at_obj_in_light"
TWO = "pick_two_obj_and_place"

_LAMP_STANDS = ("Desk", "SideTable", "Dresser", "Shelf")
_BESIDE = 0.3
"""Share of fixtures that stand next to a receptacle, where "look" shows them."""


@dataclass(frozen=True)
class Item:
    """An object in or on a receptacle: movable, or the lamp."""

    type: str
    entity: str
    name: str
    place: Receptacle


@dataclass(frozen=True)
class Fixture:
    """A thing that cannot be moved and stands at a location, in no receptacle."""

    type: str
    entity: str
    location: int


@dataclass(frozen=True)
class Goal:
    """Objects of ``object_type`` belong in a receptacle of ``place_type`` (look_at_obj_in_light: under the lamp)."""

    task: TaskType
    object_type: str
    place_type: str
    sentence: str
    """The goal in words, with its full stop."""

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
        parts = [
            self.goal.task.name,
            self.goal.object_type,
            self.goal.place_type,
            str(self.layout.floor),
        ]
        parts += sorted(f"{item.type}@{item.place.entity}" for item in self.items)
        return int.from_bytes(
            hashlib.blake2b("|".join(parts).encode(), digest_size=8).digest(), "little"
        )


def draw_task(source: random.Random) -> TaskType:
    """Return a random task type, in the proportions of the official training games."""
    return choose_weighted(source, [(task, task.share) for task in load_household().tasks])


def draw_scene(source: random.Random, task: TaskType, split: str, difficulty: Difficulty) -> Scene:
    """Return a random scene.

    Args:
        source: where every draw comes from.
        task: type of the goal.
        split: decides the layouts.
        difficulty: sizes and probabilities.
    """
    floors = rooms.make_layouts(choose_weighted(source, task.rooms), split, difficulty)
    goals: dict[str, list[str]] = {}
    while not goals:
        layout = choose(source, floors)
        goals = _goals(task, layout)

    place_type = choose(source, sorted(goals))
    object_type = choose(source, goals[place_type])
    sentence = choose(source, task.sentences).format(
        object=object_type.lower(), receptacle=place_type.lower()
    )
    goal = Goal(task, object_type, place_type, f"{sentence}.")

    placed = _placed(source, goal, layout, difficulty)
    fixtures = _fixtures(source, layout, difficulty)

    # The agent starts where no receptacle is.
    start = max(place.location for place in layout.receptacles) + 1
    return Scene(goal, layout, _numbered(placed), fixtures, start)


@functools.lru_cache(maxsize=65536)
def _holders(layout: Layout, object_type: str, without: str | None = None) -> tuple[Receptacle, ...]:
    contains = load_household().contains
    return tuple(
        place
        for place in layout.receptacles
        if place.type != without and object_type in contains[place.type]
    )


def _goals(task: TaskType, layout: Layout) -> dict[str, list[str]]:
    """Return goal place type -> object types with which the task makes sense in this layout."""
    facts = load_household()
    room = facts.rooms[layout.kind]
    present = dict.fromkeys(place.type for place in layout.receptacles)
    if task.tool is not None and task.tool not in present:
        return {}
    movable = [*room.common, *room.rare]
    if task.affordance is not None:
        movable = [name for name in movable if name in facts.affordances[task.affordance]]

    if task.name == LOOK:
        found = [name for name in movable if _holders(layout, name)]
        return {LAMP: found} if found and any(name in present for name in _LAMP_STANDS) else {}

    goals = {}
    for place_type in present:
        # Nothing is brought to the sink, nor back to the tool that the task uses.
        if place_type in ("SinkBasin", task.tool):
            continue
        fitting = [name for name in movable if name in facts.contains[place_type]]
        fitting = [name for name in fitting if _holders(layout, name, without=place_type)]
        if fitting:
            goals[place_type] = fitting
    return goals


def _settle(source: random.Random, places: Sequence[Receptacle]) -> Receptacle:
    attraction = load_household().attraction
    return choose_weighted(source, [(place, attraction.get(place.type, 1.0)) for place in places])


def _placed(
    source: random.Random, goal: Goal, layout: Layout, difficulty: Difficulty
) -> list[tuple[str, Receptacle]]:
    """Return the objects and their places in random order. None of the goal's type starts where the goal wants it."""
    room = load_household().rooms[layout.kind]
    count = rooms.draw(source, difficulty.objects.of(layout.kind))
    same_type = goal.objects + int(source.random() * (difficulty.distractors + 1))
    homes = _holders(layout, goal.object_type, without=goal.place_type)
    placed = [(goal.object_type, _settle(source, homes)) for _ in range(same_type)]

    holders = {
        name: _holders(layout, name) for name in (*room.common, *room.rare) if name != goal.object_type
    }
    pool = [(name, 3.0 if name in room.common else 1.0) for name, places in holders.items() if places]
    made: Counter[str] = Counter()
    while len(placed) < count and pool:
        name = choose_weighted(source, pool)
        placed.append((name, _settle(source, holders[name])))
        made[name] += 1
        if made[name] == difficulty.copies:
            pool = [item for item in pool if item[0] != name]

    if goal.task.name == LOOK:
        stands = [place for place in layout.receptacles if place.type in _LAMP_STANDS]
        placed.append((LAMP, _settle(source, stands)))

    # Instances are numbered in this order: shuffled, so that a number tells nothing about the goal.
    order = sorted((source.random(), index) for index in range(len(placed)))
    return [placed[index] for _, index in order]


def _numbered(placed: list[tuple[str, Receptacle]]) -> tuple[Item, ...]:
    counts = Counter(name for name, _ in placed)
    seen: Counter[str] = Counter()
    items = []
    for name, place in placed:
        index = seen[name]
        seen[name] += 1
        items.append(
            Item(name, rooms.entity(name, index), rooms.display_name(name, index, counts[name]), place)
        )
    return tuple(items)


def _fixtures(source: random.Random, layout: Layout, difficulty: Difficulty) -> tuple[Fixture, ...]:
    present = [
        name
        for name in load_household().rooms[layout.kind].fixtures
        if source.random() < difficulty.fixtures
    ]
    seen: Counter[str] = Counter()
    fixtures = []
    # Locations beyond the receptacles': the agent's start, then one for each fixture that stands alone.
    free = max(place.location for place in layout.receptacles) + 2
    for name in present:
        if source.random() < _BESIDE:
            location = choose(source, layout.receptacles).location
        else:
            location, free = free, free + 1
        fixtures.append(Fixture(name, rooms.entity(name, seen[name]), location))
        seen[name] += 1
    return tuple(fixtures)
