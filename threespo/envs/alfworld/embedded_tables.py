"""The facts about the embedded household (``data/household.toml``) and the difficulty presets, as typed values."""

import functools
import tomllib
from dataclasses import dataclass
from importlib import resources
from typing import Any

from threespo.envs.alfworld.settings import SPLITS as SPLITS
from threespo.envs.optional_splits import OPTIONAL_SPLITS
from threespo.errors import InputError

# Smallest, most frequent and largest value of a whole number that is drawn from a triangular distribution.
ValueRange = tuple[int, int, int]

# Splits whose layouts no other split has; all others share theirs.
OWN_LAYOUTS = ("valid_unseen", *OPTIONAL_SPLITS)
ROOM_KINDS = ("kitchen", "livingroom", "bedroom", "bathroom")


@dataclass(frozen=True)
class RoomRanges:
    """A range for each room kind."""

    kitchen: ValueRange
    livingroom: ValueRange
    bedroom: ValueRange
    bathroom: ValueRange

    def get(self, kind: str) -> ValueRange:
        values: ValueRange = getattr(self, kind)
        return values


@dataclass(frozen=True)
class Difficulty:
    """Sizes and probabilities of the generator.

    Layouts depend on ``receptacles``, ``closed``, ``doorless``, ``shared_locations`` and ``usual``.
    """

    name: str  # Part of what games depend on: a ``Difficulty`` of your own needs a name of its own.
    receptacles: RoomRanges  # Number of receptacles in a room.
    # Number of movable objects in a room: the goal's objects, its distractors and all others, without the lamp.
    objects: RoomRanges
    # Probability that a receptacle beyond the room's core is of a type that opens and closes (all start closed).
    closed: float
    # Share of cabinets and drawers that have no door, so that their content is always in sight.
    doorless: float
    copies: int  # Maximum number of objects of one type (the goal's type follows ``distractors``).
    distractors: int  # Maximum number of objects of the goal's type beyond those that the task needs.
    # Share of the room's list of immovable things (chairs, windows, ...) that are present.
    fixtures: float
    # Probability that a receptacle has the location of the one before it, if that is of the same type.
    shared_locations: float
    # Maximum commands of a walkthrough; a game that needs more is drawn again, with the same task type.
    longest: int
    # Whether every layout holds the room's usual furniture, as real floors do, or its core only.
    usual: bool
    train_layouts: int = 24  # Layouts per room kind in train, calibration and valid_seen.
    # Layouts per room kind in valid_unseen; none has the receptacles of a train layout.
    unseen_layouts: int = 6
    development_layouts: int = 6  # The same in development, and none is one of those above.
    # The same in confirmation. More, since a conclusion has to generalize over rooms, not over games.
    confirmation_layouts: int = 12


def _same_in_all_rooms(low: int, mode: int, high: int) -> RoomRanges:
    return RoomRanges(*[(low, mode, high)] * len(ROOM_KINDS))


DIFFICULTIES = {
    "small": Difficulty(
        name="small",
        receptacles=RoomRanges((5, 6, 8), (4, 5, 8), (4, 5, 8), (4, 5, 8)),
        objects=_same_in_all_rooms(5, 7, 10),
        closed=0.25,
        doorless=0.0,
        copies=2,
        distractors=1,
        fixtures=0.0,
        shared_locations=0.0,
        longest=8,
        usual=False,
    ),
    "medium": Difficulty(
        name="medium",
        receptacles=_same_in_all_rooms(8, 10, 14),
        objects=_same_in_all_rooms(10, 14, 20),
        closed=0.35,
        doorless=0.1,
        copies=3,
        distractors=1,
        fixtures=0.25,
        shared_locations=0.05,
        longest=10,
        usual=False,
    ),
    "full": Difficulty(
        name="full",
        receptacles=RoomRanges((21, 27, 45), (7, 9, 30), (8, 13, 24), (10, 13, 19)),
        objects=RoomRanges((34, 45, 57), (13, 20, 32), (19, 24, 31), (14, 18, 23)),
        closed=0.62,
        doorless=0.18,
        copies=3,
        distractors=2,
        fixtures=0.8,
        shared_locations=0.12,
        longest=12,
        usual=True,
    ),
}


@dataclass(frozen=True)
class Room:
    """The content of a room kind: receptacle types, movable object types and immovable things."""

    kind: str
    floors: tuple[int, int]
    core: tuple[str, ...]
    usual: tuple[str, ...]
    # Type, relative weight of a further instance, maximum number of instances.
    extra: tuple[tuple[str, float, int], ...]
    common: tuple[str, ...]
    rare: tuple[str, ...]
    fixtures: tuple[str, ...]


@dataclass(frozen=True)
class TaskType:
    """One of the six task types."""

    name: str
    share: int
    rooms: tuple[tuple[str, int], ...]  # Room kind and relative weight.
    sentences: tuple[str, ...]
    verb: str | None
    affordance: str | None
    state: str | None
    tool: str | None


@dataclass(frozen=True)
class Household:
    """All facts about the household. Type names are ALFWorld's (``CounterTop``, ``Apple``)."""

    # For each affordance (PDDL predicate), the object types that have it.
    affordances: dict[str, tuple[str, ...]]
    contains: dict[str, tuple[str, ...]]  # For each receptacle type, the object types that it may hold.
    openable: tuple[str, ...]
    attraction: dict[str, float]
    rooms: dict[str, Room]
    tasks: tuple[TaskType, ...]


def _parse_room(kind: str, section: dict[str, Any]) -> Room:
    fields = ("core", "usual", "common", "rare", "fixtures")
    lists = {field: tuple(section[field].split()) for field in fields}
    extra = tuple(
        (name, float(weight), int(count)) for name, (weight, count) in section["extra"].items()
    )
    first_floor, last_floor = section["floors"]
    return Room(kind=kind, floors=(first_floor, last_floor), extra=extra, **lists)


def _parse_task(name: str, section: dict[str, Any]) -> TaskType:
    optional = {field: section.get(field) for field in ("verb", "affordance", "state", "tool")}
    rooms = tuple(section["rooms"].items())
    return TaskType(name, section["share"], rooms, tuple(section["sentences"]), **optional)


def read_data_text(name: str) -> str:
    """Return the text of a file in this package's ``data`` folder."""
    return (resources.files("threespo.envs.alfworld") / "data" / name).read_text(encoding="utf-8")


@functools.cache
def load_household() -> Household:
    """Return the facts, read once."""
    raw = tomllib.loads(read_data_text("household.toml"))
    return Household(
        affordances={name: tuple(types.split()) for name, types in raw["affordances"].items()},
        contains={name: tuple(types.split()) for name, types in raw["contains"].items()},
        openable=tuple(raw["receptacles"]["openable"].split()),
        attraction={name: float(weight) for name, weight in raw["receptacles"]["attraction"].items()},
        rooms={kind: _parse_room(kind, raw["rooms"][kind]) for kind in ROOM_KINDS},
        tasks=tuple(_parse_task(name, fields) for name, fields in raw["tasks"].items()),
    )


def get_difficulty(name: str) -> Difficulty:
    """Return the preset.

    Raises:
        InputError: for an unknown name.
    """
    if name not in DIFFICULTIES:
        raise InputError(
            f"difficulty: found {name!r}, expected one of {', '.join(DIFFICULTIES)}; correct the setting."
        )
    return DIFFICULTIES[name]


def check_split(split: str) -> None:
    """Raise InputError unless ``split`` is one of SPLITS."""
    if split not in SPLITS:
        raise InputError(
            f"split: found {split!r}, expected one of {', '.join(SPLITS)}; correct the setting."
        )
