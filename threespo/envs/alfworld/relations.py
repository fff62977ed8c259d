"""The predicates that a grammar's queries can ask about, as tables: one class per way in which the engine stores them.

Rows come in the order of the stock engine: sorted by the entities' ids, which is the order of their indices.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from threespo.envs.alfworld.model import Bindings, Entity, Game, WorldState
from threespo.envs.alfworld.pddl import ANY_TYPE
from threespo.envs.alfworld.schemas import DYNAMIC_PREDICATES, Domain
from threespo.errors import InputError

Row = Sequence[Entity]
# An entity for each argument, or ``None`` for any.
RowPattern = Sequence[Entity | None]
# Returns whether something holds, given a text's variables.
Condition = Callable[[Game, WorldState, Bindings], bool]


def iterate_bits(mask: int) -> Iterator[int]:
    """Yield the positions of the ones in ``mask``, lowest first."""
    while mask:
        # In two's complement -mask keeps the lowest one and inverts all bits above, so the conjunction is that one alone.
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


class Relation(Protocol):
    """A predicate as a table."""

    def compile_test(self, variables: Sequence[str]) -> Condition:
        """Return the test of whether the entities that variables stand for are a row of the table.

        There is one for each of the predicate's arguments, and all are bound wherever the test is used.
        """
        ...

    def find_rows(self, game: Game, world: WorldState, pattern: RowPattern) -> Iterable[Row]:
        """Return the rows that match a pattern, in the order of the stock engine."""
        ...


class AgentRelation:
    """Facts about the agent: ``atlocation``, ``holds``, ``holdsany``."""

    def __init__(self, predicate: str) -> None:
        self.predicate = predicate

    def _row(self, game: Game, world: WorldState) -> Row | None:
        if self.predicate == "atlocation":
            return (game.agent, game.location_entities[world.agent_location])
        if world.held_object < 0:
            return None
        if self.predicate == "holdsany":
            return (game.agent,)
        return (game.agent, game.object_entities[world.held_object])

    def compile_test(self, variables: Sequence[str]) -> Condition:
        def holds(game: Game, world: WorldState, bindings: Bindings) -> bool:
            return tuple([bindings[variable] for variable in variables]) == self._row(game, world)

        return holds

    def find_rows(self, game: Game, world: WorldState, pattern: RowPattern) -> Iterable[Row]:
        row = self._row(game, world)
        return (row,) if row is not None and _matches(row, pattern) else ()


class MaskRelation:
    """Unary facts stored as one mask: ``opened`` (over receptacles) and object properties (over objects)."""

    def __init__(self, predicate: str) -> None:
        self.predicate = predicate

    def _mask(self, game: Game, world: WorldState) -> int:
        if self.predicate == "opened":
            return world.opened
        return world.properties[game.property_index[self.predicate]]

    def compile_test(self, variables: Sequence[str]) -> Condition:
        (variable,) = variables
        return lambda game, world, bindings: bool(
            self._mask(game, world) >> bindings[variable].index & 1
        )

    def find_rows(self, game: Game, world: WorldState, pattern: RowPattern) -> Iterable[Row]:
        # A bound variable is answered by the test, so the one variable of this query is free.
        entities = game.receptacle_entities if self.predicate == "opened" else game.object_entities
        return [(entities[index],) for index in iterate_bits(self._mask(game, world))]


class PlacementRelation:
    """Binary facts between objects and receptacles or locations, stored as one mask of objects for each of these."""

    def __init__(self, field: str) -> None:
        # Access by position is faster than by name, and observations consist of such lists.
        self._field_index = WorldState._fields.index(field)
        # Locations of objects, or contents of receptacles.
        self._at_locations = field == "objects_at"

    def compile_test(self, variables: Sequence[str]) -> Condition:
        object_variable, place_variable = variables
        return lambda game, world, bindings: bool(
            self._masks(world)[bindings[place_variable].index] >> bindings[object_variable].index & 1
        )

    def find_rows(self, game: Game, world: WorldState, pattern: RowPattern) -> Iterable[Row]:
        masks = self._masks(world)
        wanted_object, wanted_place = pattern
        if wanted_place is not None:
            mask = masks[wanted_place.index]
            if wanted_object is not None:
                return ((wanted_object, wanted_place),) if mask >> wanted_object.index & 1 else ()
            return [(game.object_entities[index], wanted_place) for index in iterate_bits(mask)]

        places = game.location_entities if self._at_locations else game.receptacle_entities
        objects = game.object_entities if wanted_object is None else (wanted_object,)
        # Sorted by object first, as in the stock engine.
        return [
            (entity, place)
            for entity in objects
            for place in places
            if masks[place.index] >> entity.index & 1
        ]

    def _masks(self, world: WorldState) -> tuple[int, ...]:
        return world[self._field_index]  # type: ignore[return-value]


class StaticRelation:
    """Facts that never change."""

    def __init__(self, predicate: str, kinds: tuple[str, ...]) -> None:
        self.predicate = predicate
        # The type that each argument of a row must have.
        self.kinds = kinds

    def compile_test(self, variables: Sequence[str]) -> Condition:
        # Sets of single entities spare a tuple for each test of a unary predicate.
        single = variables[0] if len(variables) == 1 else ""

        def holds(game: Game, world: WorldState, bindings: Bindings) -> bool:
            # Relations belong to texts that many games share; the rows belong to one game.
            matching_rows = game.cache.get(self)
            if matching_rows is None:
                rows = [row for row in game.static_facts[self.predicate] if self._has_types(row)]
                matching_rows = {row[0] for row in rows} if single else set(rows)
                game.cache[self] = matching_rows
            if single:
                return bindings[single] in matching_rows
            return tuple([bindings[variable] for variable in variables]) in matching_rows

        return holds

    def find_rows(self, game: Game, world: WorldState, pattern: RowPattern) -> Iterable[Row]:
        key = (self, *pattern)
        matching_rows: list[Row] | None = game.cache.get(key)
        if matching_rows is None:
            rows = game.static_facts[self.predicate]
            matching_rows = [row for row in rows if _matches(row, pattern) and self._has_types(row)]
            game.cache[key] = matching_rows
        return matching_rows

    def _has_types(self, row: Row) -> bool:
        return all(kind in (ANY_TYPE, entity.kind) for kind, entity in zip(self.kinds, row, strict=True))


class EmptyRelation:
    """A negated predicate that no action can make false: the stock engine never learns such a fact."""

    def compile_test(self, variables: Sequence[str]) -> Condition:
        return lambda game, world, bindings: False

    def find_rows(self, game: Game, world: WorldState, pattern: RowPattern) -> Iterable[Row]:
        return ()


def _matches(row: Row, pattern: RowPattern) -> bool:
    return all(wanted is None or wanted is entity for entity, wanted in zip(row, pattern, strict=True))


_AGENT_PREDICATES = ("atlocation", "holds", "holdsany")
_PLACEMENT_FIELDS = {
    "inreceptacle": "contents",
    "not_inreceptacle": "removed",
    "objectatlocation": "objects_at",
}
_ARGUMENT_TYPES = {
    "atlocation": ("agent", "location"),
    "holds": ("agent", "object"),
    "holdsany": ("agent",),
    "opened": ("receptacle",),
    "inreceptacle": ("object", "receptacle"),
    "not_inreceptacle": ("object", "receptacle"),
    "objectatlocation": ("object", "location"),
}


def make_relation(predicate: str, kinds: tuple[str, ...], domain: Domain) -> Relation:
    """Return the table behind a predicate of a query, with its variables' types as the grammar declares them.

    Raises:
        InputError: if it depends on something that the engine does not track.
    """
    expected = _ARGUMENT_TYPES.get(predicate)
    if expected is None:
        expected = ("object",) if predicate in domain.properties else kinds
    if kinds != expected:
        raise InputError(
            f"the grammar uses {predicate!r} with variables of types {kinds}; expected {expected}"
        )

    if predicate in _AGENT_PREDICATES:
        return AgentRelation(predicate)
    if predicate in _PLACEMENT_FIELDS:
        return PlacementRelation(_PLACEMENT_FIELDS[predicate])
    if predicate == "opened" or predicate in domain.properties:
        return MaskRelation(predicate)

    # Of the negated predicates that change, only "not_inreceptacle" is tracked.
    positive = predicate.removeprefix("not_")
    is_negated = positive != predicate
    changes = positive in DYNAMIC_PREDICATES or positive in domain.cleared
    if positive in domain.bookkeeping or (is_negated and changes):
        raise InputError(
            f"the grammar asks for {predicate!r}, which this engine does not follow; use engine: textworld"
        )
    return EmptyRelation() if is_negated else StaticRelation(predicate, kinds)
