"""The values of an ALFWorld game: entities, the facts that change, actions, and the compiled game itself."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from threespo.envs.alfworld.game import GameRecord
from threespo.envs.alfworld.schemas import Schema


class Entity:
    """Something in a scene: a receptacle, an object, a location, the agent, or a type of these."""

    __slots__ = ("id", "index", "kind", "name")

    definite = "the"
    indefinite = "a"

    def __init__(self, id: str, kind: str, name: str, index: int) -> None:
        self.id, self.kind, self.name, self.index = id, kind, name, index

    def __str__(self) -> str:
        return self.name


class WorldState(NamedTuple):
    """What can change. Sets of objects are bit masks over the game's objects, which are sorted by their id."""

    place: int
    """Index of the agent's location."""
    held: int
    """Index of the object in the agent's hand, or -1."""
    opened: int
    """Mask of receptacles."""
    contents: tuple[int, ...]
    """For each receptacle, the objects in it. An object can be in several."""
    gone: tuple[int, ...]
    """For each receptacle, the objects that were taken from it and not put back: ``look`` can show them."""
    lying: tuple[int, ...]
    """For each location, the objects there. Stale entries are kept, as in the stock engine."""
    marks: tuple[int, ...]
    """For each of the domain's marks (is clean, is hot, …), the objects that bear it."""


Environment = dict[str, Entity]
"""Variables of a text, bound to entities."""

Writer = Callable[["Game", WorldState, Environment], str]
"""Writes a text of a game, given its changing facts and the text's variables."""


class Texts(Protocol):
    """What a compiled game needs of its wording (``threespo.envs.alfworld.wording``)."""

    intro: Writer

    def template(self, action: str) -> Writer: ...

    def feedback(self, action: str) -> Writer: ...


Action = tuple[int, int, int, int, int]
"""Number of the rule, then indices of object, receptacle, location and tool, -1 for none.

A plain tuple of numbers: games keep many thousands, and the garbage collector does not look into such ones.
"""


class ActionRule:
    """An action schema within one game."""

    __slots__ = (
        "decides",
        "feedback",
        "kind",
        "marks",
        "objects",
        "order",
        "receptacles",
        "schema",
        "start_variable",
        "template",
        "tools",
    )

    def __init__(self, order: int, schema: Schema, wording: Texts) -> None:
        self.order = order
        self.schema = schema
        self.kind = schema.kind
        self.template = wording.template(schema.name)
        self.feedback = wording.feedback(schema.name)
        self.objects = self.receptacles = self.tools = -1
        """Masks of what the schema's filters admit."""
        self.marks: tuple[tuple[int, str], ...] = ()
        """(index of the mark, "set" | "clear" | "flip"); marks that nothing reads are left out."""
        self.decides = True
        """Whether the action can change whether the goal holds."""
        self.start_variable = next((name for name, _, role in schema.parameters if role == "?from"), "")


@dataclass(frozen=True, eq=False)
class Game:
    """A compiled game. Equal if the texts are; caches inside fill up lazily and are never seen from outside."""

    record: GameRecord
    objects_: tuple[Entity, ...]
    receptacles_: tuple[Entity, ...]
    locations_: tuple[Entity, ...]
    agent: Entity
    entities: tuple[tuple[Entity, ...], ...]
    """What the numbers of an :data:`Action` are indices of; the first, for any rule, is the agent."""
    place_of: tuple[int, ...]
    """For each receptacle, the index of its location, or -1."""
    receptacles_at: tuple[tuple[int, ...], ...]
    """For each location, its receptacles."""
    masks_at: tuple[int, ...]
    """The same as masks."""
    openable: int
    accepts: tuple[int, ...]
    """For each receptacle, the objects that may be put there."""
    static: dict[str, list[tuple[Entity, ...]]]
    """Facts that never change and that texts refer to, sorted."""
    mark_index: dict[str, int]
    task: str
    """The task sentence, as the reset text shows it."""
    texts: Texts
    rules: tuple[ActionRule, ...]
    """By number."""
    rules_of: dict[str, tuple[ActionRule, ...]]
    """By kind."""
    start: WorldState
    is_won: Callable[[WorldState], bool]
    goal_reads: frozenset[str]
    cache: dict[Any, Any]

    @property
    def task_id(self) -> str:
        """``TASK/TRIAL``."""
        return self.record.game_id

    @property
    def task_type(self) -> str:
        """One of ALFWorld's six task types."""
        return self.record.task_type

    @property
    def goal(self) -> str:
        """The goal's sentence."""
        return self.record.goal

    @property
    def content(self) -> str:
        """What the game is about (``GameRecord.content``)."""
        return self.record.content

    @property
    def split(self) -> str:
        """The split that the game was read from."""
        return self.record.split

    @property
    def walkthrough(self) -> tuple[str, ...]:
        """Commands that win."""
        return self.record.walkthrough

    @property
    def wording(self) -> str:
        """``put`` (put X in/on Y), ``move`` (move X to Y), or ``other``."""
        return self.record.wording

    @property
    def receptacles(self) -> tuple[str, ...]:
        """Names of the receptacles that can be gone to."""
        return tuple(entity.name for entity in self.receptacles_ if self.place_of[entity.index] >= 0)

    @property
    def objects(self) -> tuple[str, ...]:
        """Names of the objects."""
        return tuple(entity.name for entity in self.objects_)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Game) and self.record == other.record)

    def __hash__(self) -> int:
        return hash((self.record.game_id, self.record.split))
