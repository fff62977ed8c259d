"""Layouts of the embedded rooms: which receptacles a floor has, which of them have doors, which share a location.

A layout depends on its room kind, floor number and difficulty, not on a seed: every study has the same floors.
"""

import functools
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import TypeVar

from threespo import rng
from threespo.envs.alfworld.embedded_tables import (
    OWN_LAYOUTS,
    Difficulty,
    Room,
    ValueRange,
    load_household,
)
from threespo.errors import InputError

ItemT = TypeVar("ItemT")

# As in the official games, some instances of these types have no door.
_MAY_LACK_DOOR = ("Cabinet", "Drawer")
_MAX_ATTEMPTS = 1000


@dataclass(frozen=True)
class Receptacle:
    """One receptacle of a layout."""

    type: str
    entity: str  # Its identifier in the PDDL problem.
    name: str  # Its name in commands and observations, e.g. ``cabinet 2``.
    openable: bool
    location: int


@dataclass(frozen=True, eq=False)
class Layout:
    """A floor: the receptacles of one room. Compared by identity, which makes it a cheap key of caches."""

    kind: str
    floor: int
    receptacles: tuple[Receptacle, ...]

    @property
    def types(self) -> tuple[str, ...]:
        """The receptacle types with repetition, sorted; layouts differ in these."""
        return tuple(sorted(receptacle.type for receptacle in self.receptacles))


# Each of the following takes a fixed number of draws, so that a change of one value does not shift the draws after it.


def choose(generator: random.Random, items: Sequence[ItemT]) -> ItemT:
    """Return one item, all equally likely, from a single draw."""
    return items[int(generator.random() * len(items))]


def choose_weighted(generator: random.Random, items: Sequence[tuple[ItemT, float]]) -> ItemT:
    """Return one item of (item, weight) pairs with probability proportional to its weight, from a single draw."""
    point = generator.random() * sum(weight for _, weight in items)
    for item, weight in items:
        point -= weight
        if point < 0:
            return item
    # Rounding can leave the point at the very end.
    return items[-1][0]


def draw_number(generator: random.Random, values: ValueRange) -> int:
    """Return a whole number from a triangular distribution, from a single draw."""
    low, mode, high = values
    # Rounding down maps [n, n + 1) to n, so the mode of the continuous distribution is put into the middle of that interval.
    return min(high, int(generator.triangular(low, high + 1, mode + 0.5)))


def make_entity_id(type_name: str, index: int) -> str:
    """Return the PDDL identifier of one instance of a type; ALFWorld derives names from this form."""
    if type_name.endswith("Basin"):
        return f"{type_name.removesuffix('Basin')}_bar_{index:02d}_bar_{type_name}"
    return f"{type_name}_bar_{index:02d}"


def make_display_name(type_name: str, index: int, count: int) -> str:
    """Return the name that ALFWorld gives one of ``count`` instances: it numbers sorted identifiers downwards."""
    return f"{type_name.lower()} {count - index}"


def make_layouts(room_kind: str, split: str, difficulty: Difficulty) -> tuple[Layout, ...]:
    """Return the layouts of a room room_kind in a split; no two layouts have the same receptacles.

    All splits but those in ``OWN_LAYOUTS`` share their layouts.

    Raises:
        InputError: if there are not as many different layouts as the difficulty asks for.
    """
    if split not in OWN_LAYOUTS:
        return _draw_floors(room_kind, difficulty, difficulty.train_layouts)
    # In this order, so that a further panel does not change the layouts of those before it.
    counts = (difficulty.unseen_layouts, difficulty.development_layouts, difficulty.confirmation_layouts)
    position = OWN_LAYOUTS.index(split)
    start = difficulty.train_layouts + sum(counts[:position])
    return _draw_floors(room_kind, difficulty, start + counts[position])[start:]


@functools.lru_cache(maxsize=64)
def _draw_floors(room_kind: str, difficulty: Difficulty, count: int) -> tuple[Layout, ...]:
    """Return the first layouts of a room room_kind: a longer list begins with the shorter one's."""
    room = load_household().rooms[room_kind]
    # The generator's key holds what layouts depend on and nothing else of the difficulty: changing another field keeps them.
    sizes = repr((astuple(difficulty.receptacles), difficulty.closed, difficulty.doorless))
    key = f"{sizes} {difficulty.shared_locations} {difficulty.usual}"

    layouts: list[Layout] = []
    taken: set[tuple[str, ...]] = set()
    for number in range(count):
        for attempt in range(_MAX_ATTEMPTS):
            generator = rng.generator("embedded layout", room_kind, number, key, attempt)
            layout = _draw_layout(generator, room, room.floors[0] + number, difficulty)
            if layout.types not in taken:
                break
        else:
            raise InputError(
                f"difficulty {difficulty.name!r}: found no {number + 1} different layouts of a {room_kind} within its number"
                " of receptacles; widen `receptacles` or ask for fewer layouts."
            )
        taken.add(layout.types)
        layouts.append(layout)
    return tuple(layouts)


def _draw_layout(generator: random.Random, room: Room, floor: int, difficulty: Difficulty) -> Layout:
    openable_types = load_household().openable
    receptacle_types = _draw_receptacle_types(generator, room, difficulty)
    counts = Counter(receptacle_types)
    next_index: Counter[str] = Counter()
    receptacles: list[Receptacle] = []
    location = 0
    for receptacle_type in receptacle_types:
        index = next_index[receptacle_type]
        next_index[receptacle_type] += 1
        if index == 0 or generator.random() >= difficulty.shared_locations:
            location += 1

        lacks_door = receptacle_type in _MAY_LACK_DOOR and generator.random() < difficulty.doorless
        receptacles.append(
            Receptacle(
                type=receptacle_type,
                entity=make_entity_id(receptacle_type, index),
                name=make_display_name(receptacle_type, index, counts[receptacle_type]),
                openable=receptacle_type in openable_types and not lacks_door,
                location=location,
            )
        )
    return Layout(room.kind, floor, tuple(receptacles))


def _draw_receptacle_types(generator: random.Random, room: Room, difficulty: Difficulty) -> list[str]:
    receptacle_types = [*room.core, *(room.usual if difficulty.usual else ())]
    target = max(draw_number(generator, difficulty.receptacles.get(room.kind)), len(receptacle_types))
    openable_types = load_household().openable
    while len(receptacle_types) < target:
        possible = [
            (receptacle_type, weight)
            for receptacle_type, weight, max_count in room.extra
            if receptacle_types.count(receptacle_type) < max_count
        ]
        want_closed = generator.random() < difficulty.closed
        preferred = [item for item in possible if (item[0] in openable_types) == want_closed]
        receptacle_types.append(choose_weighted(generator, preferred or possible))
    return sorted(receptacle_types)
