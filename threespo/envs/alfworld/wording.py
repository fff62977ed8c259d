"""From a grammar to functions that write an engine's texts."""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, reduce

from threespo.envs.alfworld.expressions import Read, Types, plain, value
from threespo.envs.alfworld.grammar import (
    EntityExpression,
    ForEach,
    Grammar,
    Part,
    PlainText,
    Query,
    Rule,
    Symbol,
    parse_grammar,
    parse_text,
)
from threespo.envs.alfworld.model import Environment, Game, WorldState, Writer
from threespo.envs.alfworld.pddl import ANY_TYPE
from threespo.envs.alfworld.relations import Relation, Row, StaticRelation, Test, relation
from threespo.envs.alfworld.schemas import DYNAMIC, Domain, parse_domain
from threespo.errors import InputError

Driver = Callable[[Game, WorldState, Environment], list[Environment]]
Items = Callable[[Game, WorldState, Environment], list[str]]

TASK = "task"
"""The symbol for the task sentence, the one thing in a grammar that differs between games."""


@lru_cache(maxsize=16)
def wording(domain_text: str, grammar_text: str) -> "Wording":
    """Return the wording of a domain and a grammar, which all their games share.

    Args:
        domain_text: PDDL domain.
        grammar_text: the ``twl2`` document without its task sentence.

    Raises:
        InputError: if one is broken, or uses something that this engine does not know.
    """
    return Wording(parse_domain(domain_text), parse_grammar(grammar_text))


class Wording:
    """The texts of all games that share a domain and a grammar.

    Everything that play can reach is checked when this is built, so that an unknown construct is refused before a game
    begins.
    """

    def __init__(self, domain: Domain, grammar: Grammar) -> None:
        """Compile the texts.

        Args:
            domain: the actions, and which predicates change.
            grammar: the parsed document without its task sentence.

        Raises:
            InputError: if a text uses something that this engine does not know, or a command depends on what changes.
        """
        self.domain = domain
        self.grammar = grammar
        self.reads: set[str] = set()
        """Predicates that the texts depend on."""
        self._writers: dict[tuple[str, frozenset[tuple[str, str]]], Writer | None] = {}
        self._actions: dict[str, tuple[Writer, Writer]] = {}
        self.intro = self._writer(parse_text("#intro#"), {})

        for schema in domain.schemas:
            text = grammar.actions.get(schema.name)
            if text is None:
                raise InputError(f"the grammar does not word the action {schema.name!r} of the domain")
            types = {name: kind for name, kind, role in schema.parameters if role not in ("?ot", "?rt")}
            fixed = {
                name: kind for name, kind, role in schema.parameters if name in types and role != "?from"
            }

            earlier, self.reads = self.reads, set()
            parts = parse_text(text.template)
            template = self._writer(parts, fixed)

            # A game keeps its commands once worded, so they must not depend on what changes.
            symbols = any(
                isinstance(part, Symbol) or isinstance(getattr(part, "element", None), Symbol)
                for part in parts
            )
            if symbols or any(name in DYNAMIC or name in domain.marks for name in self.reads):
                raise InputError(
                    f"the command {text.template!r} depends on what changes in play; use engine: textworld"
                )
            self.reads |= earlier
            self._actions[schema.name] = (template, self._writer(parse_text(text.feedback), types))

    def template(self, action: str) -> Writer:
        """Return the writer of an action's command."""
        return self._actions[action][0]

    def feedback(self, action: str) -> Writer:
        """Return the writer of what is said after an action; it is given the facts after the action."""
        return self._actions[action][1]

    def _writer(self, parts: Iterable[Part], types: Types) -> Writer:
        """Return the writer of a text; ``types`` are the variables that will be bound."""
        parts, simple = tuple(parts), plain(parts, types)
        if simple is not None:
            form, reads = simple
            return lambda game, facts, bound: form % tuple([read(bound[name]) for name, read in reads])
        if len(parts) == 1:
            return self._part(parts[0], types)
        writers = [self._writer([part], types) for part in parts]
        return lambda game, facts, bound: "".join([write(game, facts, bound) for write in writers])

    def _part(self, part: Part, types: Types) -> Writer:
        assert not isinstance(part, PlainText), "a constant is plain"
        if isinstance(part, EntityExpression):
            evaluate = value(part.tree, types, part.source)
            return lambda game, facts, bound: evaluate(bound)
        if isinstance(part, Symbol):
            return self._symbol(part.name, types)
        return self._each(part, types)

    def _symbol(self, name: str, types: Types) -> Writer:
        if name == TASK:
            return lambda game, facts, bound: game.task
        key = (name, frozenset(types.items()))
        if key not in self._writers:
            # Marks what is under construction: a symbol that meets itself there refers to itself.
            self._writers[key] = None
            self._writers[key] = self._choice(name, types)
        writer = self._writers[key]
        if writer is None:
            raise InputError(f"the grammar's symbol #{name}# refers to itself")
        return writer

    def _choice(self, name: str, types: Types) -> Writer:
        """Return the writer of the first of a symbol's rules that applies."""
        choices = [self._rule(rule, types) for rule in self.grammar.rules(name)]
        if len(choices) == 1 and choices[0][0] is None:
            return choices[0][1]

        def write(game: Game, facts: WorldState, bound: Environment) -> str:
            for condition, writer in choices:
                if condition is None or condition(game, facts, bound):
                    return writer(game, facts, bound)
            raise InputError(f"no rule of the grammar's symbol #{name}# applies")

        return write

    def _rule(self, rule: Rule, types: Types) -> tuple[Test | None, Writer]:
        condition = self._condition(rule.condition, types) if rule.condition else None
        return condition, self._writer(rule.parts, types)

    def _condition(self, query: Query, types: Types) -> Test:
        """Return the test of whether ``query`` has an answer."""
        if any(name not in types for literal in query for name, _ in literal.variables):
            answers = self._query(query, types)
            return lambda game, facts, bound: bool(answers(game, facts, bound))
        return reduce(_both, [table.test(names) for table, names, _, _ in self._tables(query, types)])

    def _each(self, part: ForEach, types: Types) -> Writer:
        items = self._items(part, types)
        if not part.listed:
            return lambda game, facts, bound: "".join(items(game, facts, bound))

        empty, between, last = (
            self._symbol(f"list_{name}", types) for name in ("empty", "separator", "last_separator")
        )

        def enumerate_all(game: Game, facts: WorldState, bound: Environment) -> str:
            found = items(game, facts, bound)
            if len(found) < 2:
                return found[0] if found else empty(game, facts, bound)
            head = between(game, facts, bound).join(found[:-1])
            return head + last(game, facts, bound) + found[-1]

        return enumerate_all

    def _items(self, part: ForEach, types: Types) -> Items:
        """Return the function that writes ``part``'s element for each answer to its query."""
        inner = {**types, **{name: kind for literal in part.query for name, kind in literal.variables}}
        element, tables = self._writer([part.element], inner), self._tables(part.query, types)

        # What most lists are, and most of an observation: one thing said of each object that is somewhere.
        simple = plain([part.element], inner)
        if simple is not None and len(tables) == 1:
            (form, reads), (table, names, _, _) = simple, tables[0]
            position = _free(*tables[0])
            if position is not None and {name for name, _ in reads} == {names[position]}:
                return _listing(form, [read for _, read in reads], table, names, position)

        answers = self._query(part.query, types)
        return lambda game, facts, bound: [
            element(game, facts, answer) for answer in answers(game, facts, bound)
        ]

    def _query(self, query: Query, types: Types) -> Driver:
        """Return a function from bindings to all of their extensions that satisfy ``query``."""
        steps = [_search(*step) for step in self._tables(query, types)]
        if len(steps) == 1:
            return steps[0]

        def answers(game: Game, facts: WorldState, bound: Environment) -> list[Environment]:
            found = [bound]
            for step in steps:
                found = [extended for answer in found for extended in step(game, facts, answer)]
            return found

        return answers

    def _tables(
        self, query: Query, types: Types
    ) -> list[tuple[Relation, tuple[str, ...], tuple[str, ...], Types]]:
        """Return for each literal its table, its variables and their types, and the types of all that is bound before."""
        known = dict(types)
        tables = []
        for literal in query:
            names = tuple(name for name, _ in literal.variables)
            kinds = tuple(kind for _, kind in literal.variables)
            earlier = dict(known)
            for name, kind in literal.variables:
                if known.setdefault(name, kind) != kind:
                    raise InputError(
                        f"the grammar uses the variable {name!r} as {kind!r} and as {known[name]!r}"
                    )
            self.reads.add(literal.predicate)
            tables.append((relation(literal.predicate, kinds, self.domain), names, kinds, earlier))
        return tables


def _search(table: Relation, names: tuple[str, ...], kinds: tuple[str, ...], types: Types) -> Driver:
    """Return the function that extends bindings of ``types`` by one literal.

    Different variables stand for different entities, as in the stock engine.
    """
    if all(name in types for name in names):
        holds = table.test(names)
        return lambda game, facts, bound: [bound] if holds(game, facts, bound) else []
    position = _free(table, names, kinds, types)
    if position is not None:
        only = names[position]

        def extended(game: Game, facts: WorldState, bound: Environment) -> list[Environment]:
            rows = table.rows(game, facts, [bound.get(name) for name in names])
            return [{**bound, only: row[position]} for row in rows]

        return extended

    def unified(game: Game, facts: WorldState, bound: Environment) -> list[Environment]:
        rows = table.rows(game, facts, [bound.get(name) for name in names])
        return [new for row in rows if (new := _extend(bound, names, row)) is not None]

    return unified


def _free(table: Relation, names: tuple[str, ...], kinds: tuple[str, ...], types: Types) -> int | None:
    """Return the position of a literal's one unbound variable, if no other variable can stand for the same entity."""
    free = [position for position, name in enumerate(names) if name not in types]
    if len(free) != 1:
        return None
    position = free[0]
    rivals = {*types.values(), *kinds[:position], *kinds[position + 1 :]} & {kinds[position], ANY_TYPE}
    # Such a table has rows of several types, so here, too, an entity may come up twice.
    loose = isinstance(table, StaticRelation) and ANY_TYPE in kinds
    return None if rivals or loose else position


def _listing(
    form: str, reads: Sequence[Read], table: Relation, names: Sequence[str], position: int
) -> Items:
    """Return the function that writes ``form`` for each entity that a literal's one unbound variable can stand for."""

    def items(game: Game, facts: WorldState, bound: Environment) -> list[str]:
        rows = table.rows(game, facts, [bound.get(name) for name in names])
        return [form % tuple([read(row[position]) for read in reads]) for row in rows]

    return items


def _both(first: Test, second: Test) -> Test:
    return lambda game, facts, bound: first(game, facts, bound) and second(game, facts, bound)


def _extend(bound: Environment, names: tuple[str, ...], row: Row) -> Environment | None:
    """Bind ``names`` to ``row``, or return None if two variables would stand for one entity."""
    result = dict(bound)
    for name, entity in zip(names, row, strict=True):
        if result.get(name) is not entity:
            if name in result or entity in result.values():
                return None
            result[name] = entity
    return result
