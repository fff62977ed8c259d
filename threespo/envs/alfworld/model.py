"""The values of an ALFWorld game: entities, the state of its world, actions, and the compiled game itself."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from threespo.envs.alfworld.game import GameRecord
from threespo.envs.alfworld.schemas import ActionSchema


class Entity:
    """Something in a scene: a receptacle, an object, a location, the agent, or a type of these."""

    __slots__ = ("id", "index", "kind", "name")

    definite = "the"
    indefinite = "a"

    def __init__(self, id: str, kind: str, name: str, index: int) -> None:
        self.id = id
        self.kind = kind
        self.name = name
        self.index = index

    def __str__(self) -> str:
        return self.name


class WorldState(NamedTuple):
    """All facts that actions change. Sets of objects are bit masks over the game's objects, sorted by their id.

    Each test of an action's precondition is then one integer operation, and a state is small, immutable and hashable.
    """

    agent_location: int  # Index of the agent's location.
    held_object: int  # Index of the object in the agent's hand, or -1.
    opened: int  # Mask of receptacles.
    contents: tuple[int, ...]  # For each receptacle, the objects in it. An object can be in several.
    # For each receptacle, the objects that were taken from it and not put back: ``look`` can show them.
    removed: tuple[int, ...]
    # For each location, the objects there. Stale entries are kept, as in the stock engine.
    objects_at: tuple[int, ...]
    # For each of the domain's object properties (is clean, is hot, …), the objects that have it.
    properties: tuple[int, ...]


# The entity that each variable of a text stands for.
Bindings = dict[str, Entity]

# Writes a text of a game, given the state of its world and the text's variables.
TextWriter = Callable[["Game", WorldState, Bindings], str]


class GameTexts(Protocol):
    """The texts that a compiled game needs (``threespo.envs.alfworld.wording``)."""

    intro: TextWriter

    def command_writer(self, action: str) -> TextWriter: ...

    def feedback_writer(self, action: str) -> TextWriter: ...


# A plain tuple of numbers: games keep many thousands, and the garbage collector does not look into such tuples.
# Number of the rule, then indices of object, receptacle, location and tool, -1 for none.
Action = tuple[int, int, int, int, int]


class ActionRule:
    """An action schema within one game."""

    __slots__ = (
        "affects_goal",
        "command_writer",
        "feedback_writer",
        "kind",
        "number",
        "objects",
        "origin_variable",
        "property_changes",
        "receptacles",
        "schema",
        "tools",
    )

    def __init__(self, number: int, schema: ActionSchema, texts: GameTexts) -> None:
        self.number = number
        self.schema = schema
        self.kind = schema.kind
        self.command_writer = texts.command_writer(schema.name)
        self.feedback_writer = texts.feedback_writer(schema.name)
        # Masks of what the schema's filters admit; -1 has all bits set.
        self.objects = -1
        self.receptacles = -1
        self.tools = -1
        # (index of the property, "set" | "clear" | "flip"); properties that nothing reads are left out.
        self.property_changes: tuple[tuple[int, str], ...] = ()
        self.affects_goal = True  # Whether the action can change whether the goal holds.
        # The variable of the location where a trip starts, empty for other kinds.
        self.origin_variable = next((name for name, _, role in schema.parameters if role == "?from"), "")


@dataclass(frozen=True, eq=False)
class Game:
    """A compiled game. Equal if the records are; the cache fills lazily and changes nothing that can be observed."""

    record: GameRecord
    object_entities: tuple[Entity, ...]
    receptacle_entities: tuple[Entity, ...]
    location_entities: tuple[Entity, ...]
    agent: Entity
    # The entities that the numbers of an :data:`Action` are indices of; the first, for any rule, is the agent.
    action_entities: tuple[tuple[Entity, ...], ...]
    receptacle_locations: tuple[int, ...]  # For each receptacle, the index of its location, or -1.
    receptacles_at: tuple[tuple[int, ...], ...]  # For each location, its receptacles.
    receptacle_masks_at: tuple[int, ...]  # The same as masks.
    openable: int  # Mask of receptacles.
    accepted_objects: tuple[int, ...]  # For each receptacle, the objects that may be put there.
    # Facts that never change and that texts refer to, by predicate, sorted.
    static_facts: dict[str, list[tuple[Entity, ...]]]
    property_index: dict[str, int]
    task: str  # The task sentence, as the reset text shows it.
    texts: GameTexts
    rules: tuple[ActionRule, ...]  # By number.
    rules_by_kind: dict[str, tuple[ActionRule, ...]]
    initial_world: WorldState
    is_won: Callable[[WorldState], bool]
    goal_predicates: frozenset[str]
    cache: dict[Any, Any]

    # What they mean: see ``GameRecord``.

    @property
    def task_id(self) -> str:
        return self.record.game_id

    @property
    def task_type(self) -> str:
        return self.record.task_type

    @property
    def goal(self) -> str:
        return self.record.goal

    @property
    def content(self) -> str:
        return self.record.content

    @property
    def split(self) -> str:
        return self.record.split

    @property
    def walkthrough(self) -> tuple[str, ...]:
        return self.record.walkthrough

    @property
    def wording(self) -> str:
        return self.record.wording

    @property
    def receptacles(self) -> tuple[str, ...]:
        """Names of the receptacles that the agent can go to."""
        return tuple(
            entity.name
            for entity in self.receptacle_entities
            if self.receptacle_locations[entity.index] >= 0
        )

    @property
    def objects(self) -> tuple[str, ...]:
        return tuple(entity.name for entity in self.object_entities)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Game) and self.record == other.record)

    def __hash__(self) -> int:
        return hash((self.record.game_id, self.record.split))
