"""Layouts of the embedded rooms: which receptacles stand on a floor, which have doors, which stand side by side.

A layout depends on its room kind, floor number and difficulty, not on a seed: every study knows the same floors.
"""

import functools
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import TypeVar

from threespo import rng
from threespo.envs.alfworld.embedded_tables import OWN_LAYOUTS, Difficulty, Room, Spread, load_household
from threespo.errors import InputError

ItemT = TypeVar("ItemT")

_DOORLESS = ("Cabinet", "Drawer")
_ATTEMPTS = 1000


@dataclass(frozen=True)
class Receptacle:
    """One receptacle of a layout."""

    type: str
    entity: str
    """Its identifier in the PDDL problem."""
    name: str
    """Its name in commands and observations, e.g. ``cabinet 2``."""
    openable: bool
    location: int


@dataclass(frozen=True, eq=False)
class Layout:
    """A floor: the receptacles of one room. Compared by identity, so that what follows from it is cached cheaply."""

    kind: str
    floor: int
    receptacles: tuple[Receptacle, ...]

    @property
    def types(self) -> tuple[str, ...]:
        """The receptacle types with repetition, sorted: what tells layouts apart."""
        return tuple(sorted(receptacle.type for receptacle in self.receptacles))


def choose(source: random.Random, items: Sequence[ItemT]) -> ItemT:
    """Return one item, all equally likely, from a single draw of ``source``."""
    return items[int(source.random() * len(items))]


def choose_weighted(source: random.Random, items: Sequence[tuple[ItemT, float]]) -> ItemT:
    """Return one item with probability proportional to its weight, from a single draw of a generator.

    Args:
        source: the generator.
        items: (item, weight) pairs; weights need not sum to 1.
    """
    point = source.random() * sum(weight for _, weight in items)
    for item, weight in items:
        point -= weight
        if point < 0:
            return item
    return items[-1][0]


def draw(source: random.Random, spread: Spread) -> int:
    """Return a whole number from a triangular distribution.

    Args:
        source: where the draw comes from.
        spread: smallest, most frequent and largest value.
    """
    low, mode, high = spread
    # Rounding down maps [n, n + 1) to n, so the mode of the continuous distribution is put into the middle of that interval.
    return min(high, int(source.triangular(low, high + 1, mode + 0.5)))


def entity(kind: str, index: int) -> str:
    """Return the PDDL identifier of one instance, in the form from which ALFWorld derives names.

    Args:
        kind: type of the receptacle or object, e.g. ``CounterTop``.
        index: number of the instance among those of its type, from 0.
    """
    if kind.endswith("Basin"):
        return f"{kind.removesuffix('Basin')}_bar_{index:02d}_bar_{kind}"
    return f"{kind}_bar_{index:02d}"


def display_name(kind: str, index: int, count: int) -> str:
    """Return the name that ALFWorld gives one instance: it numbers sorted identifiers downwards.

    Args:
        kind: type of the receptacle or object.
        index: number of the instance among those of its type, from 0.
        count: instances of the type.
    """
    return f"{kind.lower()} {count - index}"


def _types(source: random.Random, room: Room, difficulty: Difficulty) -> list[str]:
    types = [*room.core, *(room.usual if difficulty.usual else ())]
    target = max(draw(source, difficulty.receptacles.of(room.kind)), len(types))
    openable = load_household().openable
    while len(types) < target:
        possible = [(name, weight) for name, weight, most in room.extra if types.count(name) < most]
        want_closed = source.random() < difficulty.closed
        preferred = [item for item in possible if (item[0] in openable) == want_closed]
        types.append(choose_weighted(source, preferred or possible))
    return sorted(types)


def _layout(source: random.Random, room: Room, floor: int, difficulty: Difficulty) -> Layout:
    types = _types(source, room, difficulty)
    counts = Counter(types)
    seen: Counter[str] = Counter()
    receptacles: list[Receptacle] = []
    location = 0
    for name in types:
        index = seen[name]
        seen[name] += 1
        if index == 0 or source.random() >= difficulty.shared_locations:
            location += 1

        doorless = name in _DOORLESS and source.random() < difficulty.doorless
        receptacles.append(
            Receptacle(
                type=name,
                entity=entity(name, index),
                name=display_name(name, index, counts[name]),
                openable=name in load_household().openable and not doorless,
                location=location,
            )
        )
    return Layout(room.kind, floor, tuple(receptacles))


@functools.lru_cache(maxsize=64)
def _floors(kind: str, difficulty: Difficulty, count: int) -> tuple[Layout, ...]:
    """Return the first layouts of a room kind: a longer list begins with the shorter one's."""
    room = load_household().rooms[kind]
    # What layouts depend on, and nothing else of the difficulty: changing another field keeps them.
    fixed = repr((astuple(difficulty.receptacles), difficulty.closed, difficulty.doorless))
    knobs = f"{fixed} {difficulty.shared_locations} {difficulty.usual}"

    layouts: list[Layout] = []
    taken: set[tuple[str, ...]] = set()
    for number in range(count):
        for attempt in range(_ATTEMPTS):
            source = rng.generator("embedded layout", kind, number, knobs, attempt)
            layout = _layout(source, room, room.floors[0] + number, difficulty)
            if layout.types not in taken:
                break
        else:
            raise InputError(
                f"difficulty {difficulty.name!r}: found no {number + 1} different layouts of a {kind} within its number"
                " of receptacles; widen `receptacles` or ask for fewer layouts."
            )

        taken.add(layout.types)
        layouts.append(layout)
    return tuple(layouts)


def make_layouts(kind: str, split: str, difficulty: Difficulty) -> tuple[Layout, ...]:
    """Return the layouts of a room kind in a split; no two layouts have the same receptacles.

    Args:
        kind: one of ``ROOM_KINDS``.
        split: one of ``SPLITS``; all but those in ``OWN_LAYOUTS`` share their layouts.
        difficulty: sizes and probabilities.

    Raises:
        InputError: if there are not as many different layouts as the difficulty asks for.
    """
    start, count = 0, difficulty.train_layouts
    if split in OWN_LAYOUTS:
        # In this order, so that a further panel does not change the layouts of those before it.
        counts = (
            difficulty.unseen_layouts,
            difficulty.development_layouts,
            difficulty.confirmation_layouts,
        )
        place = OWN_LAYOUTS.index(split)
        start, count = start + count + sum(counts[:place]), counts[place]
    return _floors(kind, difficulty, start + count)[start:]
