"""From a grammar to functions that write an engine's texts.

A grammar's text is a list of parts: constants, expressions such as ``{o.name}``, symbols that stand for other texts, and
loops over the answers to a query ("every object in this receptacle"). Each part is compiled once, into a ``TextWriter``: a
function of the game, the state of its world, and the bindings of variables to entities, which returns the text. All that
does not depend on these three is decided when the writer is made, since writing texts takes most of the time of a step.
"""

import ast
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, reduce
from operator import attrgetter
from typing import NamedTuple

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
from threespo.envs.alfworld.model import Bindings, Entity, Game, TextWriter, WorldState
from threespo.envs.alfworld.pddl import ANY_TYPE
from threespo.envs.alfworld.relations import Condition, Relation, Row, StaticRelation, make_relation
from threespo.envs.alfworld.schemas import DYNAMIC_PREDICATES, Domain, parse_domain
from threespo.errors import InputError

# Type of each bound variable.
VariableTypes = dict[str, str]
AttributeReader = Callable[[Entity], str]
# Returns all extensions of bindings that satisfy a query.
QueryFunction = Callable[[Game, WorldState, Bindings], list[Bindings]]
# Returns a text for each answer to a query.
ListWriter = Callable[[Game, WorldState, Bindings], list[str]]

# The symbol for the task sentence, the one thing in a grammar that differs between games.
TASK = "task"


class TextFormat(NamedTuple):
    """A text of constants and attributes as a ``%`` format: far faster than one function for each part."""

    form: str
    # What fills the format, in order: a variable, and the function that reads its attribute.
    readers: list[tuple[str, AttributeReader]]


class TypedLiteral(NamedTuple):
    """One literal of a query."""

    relation: Relation
    variables: tuple[str, ...]
    kinds: tuple[str, ...]  # Their types, as the grammar declares them.
    bound: VariableTypes  # All variables that are bound before this literal.


@lru_cache(maxsize=16)
def compile_texts(domain_text: str, grammar_text: str) -> "CompiledTexts":
    """Return the texts of a domain and a grammar, which all their games share.

    The grammar comes without its task sentence: with it, each game would be compiled anew.

    Raises:
        InputError: if one is broken, or uses something that this engine does not know.
    """
    return CompiledTexts(parse_domain(domain_text), parse_grammar(grammar_text))


class CompiledTexts:
    """The texts of all games that share a domain and a grammar.

    Everything that play can reach is checked when this is built, so that an unknown construct is refused before a game
    begins.
    """

    def __init__(self, domain: Domain, grammar: Grammar) -> None:
        self.domain = domain
        self.grammar = grammar
        self.predicates: set[str] = set()  # Predicates that the texts depend on.
        self._symbol_writers: dict[tuple[str, frozenset[tuple[str, str]]], TextWriter | None] = {}
        self._command_writers: dict[str, TextWriter] = {}
        self._feedback_writers: dict[str, TextWriter] = {}
        self.intro = self._compile_text(parse_text("#intro#"), {})

        for schema in domain.schemas:
            text = grammar.actions.get(schema.name)
            if text is None:
                raise InputError(f"the grammar does not word the action {schema.name!r} of the domain")
            # The types of object and receptacle are no part of an action, and a command does not say where a trip starts.
            variable_types: VariableTypes = {}
            command_types: VariableTypes = {}
            for name, variable_type, role in schema.parameters:
                if role in ("?ot", "?rt"):
                    continue
                variable_types[name] = variable_type
                if role != "?from":
                    command_types[name] = variable_type
            self._command_writers[schema.name] = self._compile_command(text.template, command_types)
            self._feedback_writers[schema.name] = self._compile_text(
                parse_text(text.feedback), variable_types
            )

    def command_writer(self, action: str) -> TextWriter:
        return self._command_writers[action]

    def feedback_writer(self, action: str) -> TextWriter:
        # Given the world after the action.
        return self._feedback_writers[action]

    def _compile_command(self, template: str, variable_types: VariableTypes) -> TextWriter:
        """Return the writer of a command, which must depend on static facts only: a game caches its commands."""
        # Emptied for a while, to see which predicates this command alone depends on.
        other_predicates = self.predicates
        self.predicates = set()
        parts = parse_text(template)
        writer = self._compile_text(parts, variable_types)

        # The rule of a symbol is chosen by the state of the world.
        elements = [getattr(part, "element", None) for part in parts]
        has_symbols = any(isinstance(part, Symbol) for part in [*parts, *elements])
        changing = {*DYNAMIC_PREDICATES, *self.domain.properties}
        if has_symbols or not changing.isdisjoint(self.predicates):
            raise InputError(
                f"the command {template!r} depends on what changes in play; use engine: textworld"
            )
        self.predicates |= other_predicates
        return writer

    def _compile_text(self, text_parts: Iterable[Part], variable_types: VariableTypes) -> TextWriter:
        """Return the writer of a text; ``variable_types`` has all variables that will be bound."""
        text_parts = tuple(text_parts)
        text_format = compile_format(text_parts, variable_types)
        if text_format is not None:
            form, readers = text_format
            return lambda game, world, bindings: (
                form % tuple([read(bindings[variable]) for variable, read in readers])
            )
        if len(text_parts) == 1:
            return self._compile_part(text_parts[0], variable_types)
        writers = [self._compile_text([part], variable_types) for part in text_parts]
        return lambda game, world, bindings: "".join([write(game, world, bindings) for write in writers])

    def _compile_part(self, part: Part, variable_types: VariableTypes) -> TextWriter:
        assert not isinstance(part, PlainText), "a constant is a format"
        if isinstance(part, EntityExpression):
            evaluate = compile_expression(part.tree, variable_types, part.source)
            return lambda game, world, bindings: evaluate(bindings)
        if isinstance(part, Symbol):
            return self._compile_symbol(part.name, variable_types)
        return self._compile_for_each(part, variable_types)

    def _compile_symbol(self, symbol: str, variable_types: VariableTypes) -> TextWriter:
        if symbol == TASK:
            return lambda game, world, bindings: game.task
        key = (symbol, frozenset(variable_types.items()))
        if key not in self._symbol_writers:
            # ``None`` while it is compiled: a symbol that is met again in this state refers to itself.
            self._symbol_writers[key] = None
            self._symbol_writers[key] = self._compile_first_rule(symbol, variable_types)
        writer = self._symbol_writers[key]
        if writer is None:
            raise InputError(f"the grammar's symbol #{symbol}# refers to itself")
        return writer

    def _compile_first_rule(self, symbol: str, variable_types: VariableTypes) -> TextWriter:
        """Return the writer of the first of a symbol's rules that applies."""
        choices = [self._compile_rule(rule, variable_types) for rule in self.grammar.rules(symbol)]
        if len(choices) == 1 and choices[0][0] is None:
            return choices[0][1]

        def write(game: Game, world: WorldState, bindings: Bindings) -> str:
            for condition, writer in choices:
                if condition is None or condition(game, world, bindings):
                    return writer(game, world, bindings)
            raise InputError(f"no rule of the grammar's symbol #{symbol}# applies")

        return write

    def _compile_rule(
        self, rule: Rule, variable_types: VariableTypes
    ) -> tuple[Condition | None, TextWriter]:
        condition = self._compile_condition(rule.condition, variable_types) if rule.condition else None
        return condition, self._compile_text(rule.parts, variable_types)

    def _compile_condition(self, query: Query, variable_types: VariableTypes) -> Condition:
        """Return the test of whether ``query`` has an answer."""
        variables = {variable for literal in query for variable, _ in literal.variables}
        if not variables <= variable_types.keys():
            find_answers = self._compile_query(query, variable_types)
            return lambda game, world, bindings: bool(find_answers(game, world, bindings))
        # Where all variables are bound, each literal is a test and no rows are needed.
        literals = self._resolve_literals(query, variable_types)
        return reduce(_both, [literal.relation.compile_test(literal.variables) for literal in literals])

    def _compile_for_each(self, part: ForEach, variable_types: VariableTypes) -> TextWriter:
        write_items = self._compile_items(part, variable_types)
        if not part.listed:
            return lambda game, world, bindings: "".join(write_items(game, world, bindings))

        empty = self._compile_symbol("list_empty", variable_types)
        separator = self._compile_symbol("list_separator", variable_types)
        last_separator = self._compile_symbol("list_last_separator", variable_types)

        def enumerate_all(game: Game, world: WorldState, bindings: Bindings) -> str:
            items = write_items(game, world, bindings)
            if not items:
                return empty(game, world, bindings)
            if len(items) == 1:
                return items[0]
            head = separator(game, world, bindings).join(items[:-1])
            return head + last_separator(game, world, bindings) + items[-1]

        return enumerate_all

    def _compile_items(self, part: ForEach, variable_types: VariableTypes) -> ListWriter:
        """Return the function that writes ``part``'s element for each answer to its query."""
        inner_types = dict(variable_types)
        for literal in part.query:
            inner_types.update(literal.variables)
        write_element = self._compile_text([part.element], inner_types)
        literals = self._resolve_literals(part.query, variable_types)

        # The usual list, which makes up most of an observation, has a fast path: one text for each object of a place.
        text_format = compile_format([part.element], inner_types)
        if text_format is not None and len(literals) == 1:
            position = _only_free_position(literals[0])
            if position is not None:
                free_variable = literals[0].variables[position]
                read_variables = {variable for variable, _ in text_format.readers}
                if read_variables == {free_variable}:
                    return _compile_listing(text_format, literals[0], position)

        find_answers = self._compile_query(part.query, variable_types)
        return lambda game, world, bindings: [
            write_element(game, world, answer) for answer in find_answers(game, world, bindings)
        ]

    def _compile_query(self, query: Query, variable_types: VariableTypes) -> QueryFunction:
        """Return a function from bindings to all of their extensions that satisfy ``query``."""
        literals = self._resolve_literals(query, variable_types)
        searches = [_compile_search(literal) for literal in literals]
        if len(searches) == 1:
            return searches[0]

        def find_answers(game: Game, world: WorldState, bindings: Bindings) -> list[Bindings]:
            answers = [bindings]
            for extend in searches:
                answers = [longer for answer in answers for longer in extend(game, world, answer)]
            return answers

        return find_answers

    def _resolve_literals(self, query: Query, variable_types: VariableTypes) -> list[TypedLiteral]:
        """Return the query's literals with their tables, and note which predicates the texts depend on."""
        bound = dict(variable_types)
        literals = []
        for literal in query:
            variables = tuple(variable for variable, _ in literal.variables)
            kinds = tuple(variable_type for _, variable_type in literal.variables)
            # A copy: ``bound`` gets this literal's variables next.
            bound_before = dict(bound)
            for variable, variable_type in literal.variables:
                if bound.setdefault(variable, variable_type) != variable_type:
                    raise InputError(
                        f"the grammar uses the variable {variable!r} as {variable_type!r} and as {bound[variable]!r}"
                    )
            self.predicates.add(literal.predicate)
            relation = make_relation(literal.predicate, kinds, self.domain)
            literals.append(TypedLiteral(relation, variables, kinds, bound_before))
        return literals


def _compile_search(literal: TypedLiteral) -> QueryFunction:
    """Return the function that extends bindings by one literal.

    Different variables stand for different entities, as in the stock engine.
    """
    relation, variables, _, bound = literal
    if all(variable in bound for variable in variables):
        holds = relation.compile_test(variables)
        return lambda game, world, bindings: [bindings] if holds(game, world, bindings) else []

    position = _only_free_position(literal)
    if position is not None:
        free_variable = variables[position]

        def bind_one(game: Game, world: WorldState, bindings: Bindings) -> list[Bindings]:
            rows = relation.find_rows(game, world, [bindings.get(variable) for variable in variables])
            return [{**bindings, free_variable: row[position]} for row in rows]

        return bind_one

    def bind_all(game: Game, world: WorldState, bindings: Bindings) -> list[Bindings]:
        rows = relation.find_rows(game, world, [bindings.get(variable) for variable in variables])
        extensions = [_extend_bindings(bindings, variables, row) for row in rows]
        return [extension for extension in extensions if extension is not None]

    return bind_all


def _only_free_position(literal: TypedLiteral) -> int | None:
    """Return the position of the one unbound variable, if no other variable can stand for the same entity."""
    relation, variables, kinds, bound = literal
    free = [position for position, variable in enumerate(variables) if variable not in bound]
    if len(free) != 1:
        return None
    position = free[0]
    # Different variables stand for different entities; where no other variable has the type, that needs no test.
    other_kinds = {*bound.values(), *kinds[:position], *kinds[position + 1 :]}
    may_coincide = not other_kinds.isdisjoint({kinds[position], ANY_TYPE})
    # A static table of any type has rows of several types, so here, too, an entity may come up twice.
    has_mixed_types = isinstance(relation, StaticRelation) and ANY_TYPE in kinds
    return None if may_coincide or has_mixed_types else position


def _compile_listing(text: TextFormat, literal: TypedLiteral, position: int) -> ListWriter:
    """Return the function that writes a text for each entity that a literal's one unbound variable can stand for."""
    relation, variables, _, _ = literal
    form = text.form
    readers = [read for _, read in text.readers]

    def write_items(game: Game, world: WorldState, bindings: Bindings) -> list[str]:
        rows = relation.find_rows(game, world, [bindings.get(variable) for variable in variables])
        return [form % tuple([read(row[position]) for read in readers]) for row in rows]

    return write_items


def _both(first: Condition, second: Condition) -> Condition:
    return lambda game, world, bindings: first(game, world, bindings) and second(game, world, bindings)


def _extend_bindings(bindings: Bindings, variables: Sequence[str], row: Row) -> Bindings | None:
    """Bind variables to a row; ``None`` if two variables would stand for one entity."""
    extended = dict(bindings)
    for variable, entity in zip(variables, row, strict=True):
        if extended.get(variable) is entity:
            continue
        is_bound_otherwise = variable in extended
        has_other_variable = entity in extended.values()
        if is_bound_otherwise or has_other_variable:
            return None
        extended[variable] = entity
    return extended


def compile_expression(
    tree: ast.expr, variable_types: VariableTypes, source: str
) -> Callable[[Bindings], str]:
    """Return the function that evaluates an expression, of the kinds that ``grammar`` admits.

    Raises:
        InputError: if it names a variable that will not be bound; quotes ``source``, the expression as it is written.
    """
    if isinstance(tree, ast.Constant):
        constant = str(tree.value)
        return lambda bindings: constant
    if isinstance(tree, ast.BinOp):
        left = compile_expression(tree.left, variable_types, source)
        right = compile_expression(tree.right, variable_types, source)
        return lambda bindings: left(bindings) + right(bindings)
    if isinstance(tree, ast.BoolOp):
        choices = [compile_expression(choice, variable_types, source) for choice in tree.values]
        return lambda bindings: _first_text(choices, bindings)

    variable, attribute = _split_attribute(tree)
    if variable not in variable_types:
        raise InputError(
            f"the grammar's expression {{{source}}} names {variable!r}, which is not bound there"
        )
    return lambda bindings: str(getattr(bindings[variable], attribute))


def _first_text(choices: Sequence[Callable[[Bindings], str]], bindings: Bindings) -> str:
    """Return the first text that is not empty, as Python's ``or``."""
    text = ""
    for choice in choices:
        text = choice(bindings)
        if text:
            break
    return text


def compile_format(parts: Iterable[Part], variable_types: VariableTypes) -> TextFormat | None:
    """Return a text as a format; ``None`` if it holds more than constants and attributes.

    ``None`` also if a variable is not bound, which :func:`compile_expression` reports.
    """
    form = ""
    readers: list[tuple[str, AttributeReader]] = []
    # A stack in reverse, so that parts come from its end in their order.
    waiting: list[Part | ast.expr] = [*reversed(list(parts))]
    while waiting:
        part = waiting.pop()
        if isinstance(part, EntityExpression):
            waiting.append(part.tree)
        elif isinstance(part, ast.BinOp):
            waiting += [part.right, part.left]
        elif isinstance(part, PlainText | ast.Constant):
            text = part.text if isinstance(part, PlainText) else str(part.value)
            form += text.replace("%", "%%")
        elif isinstance(part, ast.Name | ast.Attribute):
            variable, attribute = _split_attribute(part)
            if variable not in variable_types:
                return None
            form += "%s"
            readers.append((variable, attrgetter(attribute)))
        else:
            return None
    return TextFormat(form, readers)


def _split_attribute(tree: ast.expr) -> tuple[str, str]:
    """Return variable and attribute; a variable alone means its name."""
    if isinstance(tree, ast.Attribute):
        variable = tree.value
        attribute = tree.attr
    else:
        variable = tree
        attribute = "name"
    return (variable.id if isinstance(variable, ast.Name) else ""), attribute
