"""What a grammar's queries can ask about a state: one class per kind of predicate.

Rows come in the order of the stock engine: sorted by the entities' ids, which is the order of their indices.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from threespo.envs.alfworld.model import Entity, Environment, Game, WorldState
from threespo.envs.alfworld.pddl import ANY_TYPE
from threespo.envs.alfworld.schemas import Domain
from threespo.errors import InputError

Row = Sequence[Entity]
Known = Sequence[Entity | None]
Test = Callable[[Game, WorldState, Environment], bool]
"""Says whether something is the case, given a text's variables."""


def bits(mask: int) -> Iterator[int]:
    """Yield the positions of the ones in ``mask``, lowest first."""
    while mask:
        # In two's complement -mask keeps the lowest one and inverts what is above, so the conjunction is that one alone.
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


class Relation(Protocol):
    """A predicate as a table."""

    def test(self, names: Sequence[str]) -> Test:
        """Return the test of whether the entities that variables stand for are a row of the table.

        Args:
            names: a variable for each of the predicate's arguments, bound wherever the test is asked.
        """
        ...

    def rows(self, game: Game, facts: WorldState, known: Known) -> Iterable[Row]:
        """Return the rows that agree with what is known, in the order of the stock engine.

        Args:
            game: the game.
            facts: what is the case.
            known: for each argument its entity, or None for any.
        """
        ...


class AgentRelation:
    """Facts about the agent: ``atlocation``, ``holds``, ``holdsany``."""

    def __init__(self, name: str) -> None:
        self.name = name

    def _row(self, game: Game, facts: WorldState) -> Row | None:
        if self.name == "atlocation":
            return (game.agent, game.locations_[facts.place])
        if facts.held < 0:
            return None
        return (game.agent,) if self.name == "holdsany" else (game.agent, game.objects_[facts.held])

    def test(self, names: Sequence[str]) -> Test:
        """Return the test of a row."""
        return lambda game, facts, bound: (
            tuple([bound[name] for name in names]) == self._row(game, facts)
        )

    def rows(self, game: Game, facts: WorldState, known: Known) -> Iterable[Row]:
        """Return the row if it agrees with ``known``."""
        row = self._row(game, facts)
        return (row,) if row is not None and _agree(row, known) else ()


class MaskRelation:
    """Unary facts kept as one mask: ``opened`` (over receptacles) and the marks (over objects)."""

    def __init__(self, name: str) -> None:
        self.name = name

    def _mask(self, game: Game, facts: WorldState) -> int:
        return facts.opened if self.name == "opened" else facts.marks[game.mark_index[self.name]]

    def test(self, names: Sequence[str]) -> Test:
        """Return the test of a row."""
        (one,) = names
        return lambda game, facts, bound: bool(self._mask(game, facts) >> bound[one].index & 1)

    def rows(self, game: Game, facts: WorldState, known: Known) -> Iterable[Row]:
        """Return all rows: one variable is either known, which :meth:`test` answers, or free."""
        entities = game.receptacles_ if self.name == "opened" else game.objects_
        return [(entities[index],) for index in bits(self._mask(game, facts))]


class TableRelation:
    """Binary facts between objects and places, kept as one mask of objects for each place."""

    def __init__(self, column: str) -> None:
        self.column = WorldState._fields.index(column)
        self.at_locations = column == "lying"

    def test(self, names: Sequence[str]) -> Test:
        """Return the test of a row."""
        item, place = names
        return lambda game, facts, bound: bool(
            self._table(facts)[bound[place].index] >> bound[item].index & 1
        )

    def rows(self, game: Game, facts: WorldState, known: Known) -> Iterable[Row]:
        """Return the rows that agree with ``known``, sorted by object, then place."""
        table = self._table(facts)
        item, place = known
        if place is not None:
            if item is not None:
                return ((item, place),) if table[place.index] >> item.index & 1 else ()
            return [(game.objects_[index], place) for index in bits(table[place.index])]
        places = game.locations_ if self.at_locations else game.receptacles_
        items = game.objects_ if item is None else (item,)
        return [
            (entity, where)
            for entity in items
            for where in places
            if table[where.index] >> entity.index & 1
        ]

    def _table(self, facts: WorldState) -> tuple[int, ...]:
        return facts[self.column]  # type: ignore[return-value]


class StaticRelation:
    """Facts that never change."""

    def __init__(self, name: str, kinds: tuple[str, ...]) -> None:
        """Make the table of one predicate.

        Args:
            name: the predicate.
            kinds: type of each argument that a row must have to be in the table.
        """
        self.name, self.kinds = name, kinds

    def test(self, names: Sequence[str]) -> Test:
        """Return the test of a row."""
        alone = names[0] if len(names) == 1 else ""

        def holds(game: Game, facts: WorldState, bound: Environment) -> bool:
            found = game.cache.get(self)
            if found is None:
                rows = [row for row in game.static[self.name] if self._fits(row)]
                found = game.cache[self] = {row[0] for row in rows} if alone else set(rows)
            return (bound[alone] if alone else tuple([bound[name] for name in names])) in found

        return holds

    def rows(self, game: Game, facts: WorldState, known: Known) -> Iterable[Row]:
        """Return the rows that agree with ``known`` and the variables' types."""
        return self._matching(game, known)

    def _matching(self, game: Game, known: Known) -> list[Row]:
        key = (self, *known)
        found: list[Row] | None = game.cache.get(key)
        if found is None:
            found = game.cache[key] = [
                row for row in game.static[self.name] if _agree(row, known) and self._fits(row)
            ]
        return found

    def _fits(self, row: Row) -> bool:
        return all(kind in (ANY_TYPE, entity.kind) for kind, entity in zip(self.kinds, row, strict=True))


class NeverRelation:
    """A negated predicate that no action can make false: the stock engine never learns such a fact."""

    def test(self, names: Sequence[str]) -> Test:
        """Return the test of a row."""
        return lambda game, facts, bound: False

    def rows(self, game: Game, facts: WorldState, known: Known) -> Iterable[Row]:
        """Return nothing."""
        return ()


def _agree(row: Row, known: Known) -> bool:
    return all(value is None or value is entity for entity, value in zip(row, known, strict=True))


_TABLES = {"inreceptacle": "contents", "not_inreceptacle": "gone", "objectatlocation": "lying"}


_KINDS = {
    "atlocation": ("agent", "location"),
    "holds": ("agent", "object"),
    "holdsany": ("agent",),
    "opened": ("receptacle",),
    "inreceptacle": ("object", "receptacle"),
    "not_inreceptacle": ("object", "receptacle"),
    "objectatlocation": ("object", "location"),
}


def relation(name: str, kinds: tuple[str, ...], domain: Domain) -> Relation:
    """Return the table behind a predicate of a query.

    Args:
        name: the predicate; "not_" in front negates it.
        kinds: type of each of its variables, as the grammar declares them.
        domain: which predicates change, and how.

    Raises:
        InputError: if it depends on something that the engine does not follow.
    """
    expected = _KINDS.get(name, ("object",) if name in domain.marks else kinds)
    if kinds != expected:
        raise InputError(
            f"the grammar uses {name!r} with variables of types {kinds}; expected {expected}"
        )

    if name in ("atlocation", "holds", "holdsany"):
        return AgentRelation(name)
    if name in _TABLES:
        return TableRelation(_TABLES[name])
    if name == "opened" or name in domain.marks:
        return MaskRelation(name)

    positive = name.removeprefix("not_")
    followed = (
        positive in ("atlocation", "holds", "holdsany", "opened", "objectatlocation")
        or positive in domain.cleared
    )
    if positive in domain.bookkeeping or (positive != name and followed):
        raise InputError(
            f"the grammar asks for {name!r}, which this engine does not follow; use engine: textworld"
        )
    return StaticRelation(name, kinds) if positive == name else NeverRelation()
