"""Reading ``twl2`` grammars, which word the commands and the engine's answers.

A document holds ``grammar`` blocks (JSON: symbol to production rules) and ``action`` blocks (command template,
feedback, further rules). Texts are made of literal text, ``#symbol#``, ``{expression}``, ``{expression | query}`` and
lists ``[{expression | query}]``. Rules are parsed when they are first needed: the original grammar has some that are
never used, and one of these is malformed.
"""

import ast
import json
import re
import textwrap
from dataclasses import dataclass, field

from threespo.errors import InputError


@dataclass(frozen=True)
class Literal:
    """One condition of a query: ``predicate(variable: type, …)``; a "not_" in front is part of the name."""

    predicate: str
    variables: tuple[tuple[str, str], ...]  # (name, type) pairs.


Query = tuple[Literal, ...]


@dataclass(frozen=True)
class PlainText:
    """Literal text."""

    text: str


@dataclass(frozen=True)
class Symbol:
    """A symbol to be replaced by the first of its rules that applies."""

    name: str


@dataclass(frozen=True)
class EntityExpression:
    """An expression over entities: ``o.indefinite + ' ' + o.name``."""

    tree: ast.expr = field(compare=False)
    source: str


@dataclass(frozen=True)
class ForEach:
    """``element`` for every answer to ``query`` (once if there is none to ask), as an enumeration if ``listed``."""

    element: Symbol | EntityExpression
    query: Query
    listed: bool


Part = PlainText | Symbol | EntityExpression | ForEach


@dataclass(frozen=True)
class Rule:
    """A production rule."""

    condition: Query
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class ActionText:
    """How an action is worded; both are texts to be parsed by :func:`parse_text`."""

    template: str
    feedback: str


@dataclass(frozen=True)
class Grammar:
    """A parsed document; its rules are still text, see :meth:`rules`."""

    productions: dict[str, list[dict[str, str]]]
    actions: dict[str, ActionText]
    # Rules by symbol, as they are parsed.
    _parsed: dict[str, tuple[Rule, ...]] = field(default_factory=dict, compare=False, repr=False)

    def rules(self, symbol: str) -> tuple[Rule, ...]:
        """Return the rules of a symbol in their order.

        Raises:
            InputError: if there are none, or one is malformed.
        """
        if symbol not in self._parsed:
            if not self.productions.get(symbol):
                raise InputError(f"the grammar has no rule for the symbol #{symbol}#")
            rules = []
            for production in self.productions[symbol]:
                condition = parse_query(production.get("condition", ""))
                rules.append(Rule(condition, parse_text(production["rhs"])))
            self._parsed[symbol] = tuple(rules)
        return self._parsed[symbol]


# Found by its form, since parsing thousands of grammars as a whole takes long.
_TASK_RULE = re.compile(r'("task"\s*:\s*\[\s*\{\s*"rhs"\s*:\s*)("(?:[^"\\]|\\.)*")')
TASK_PREFIX = "Your task is to: "


def split_task_sentence(document: str) -> tuple[str, str]:
    """Return the document without its task sentence, and the sentence.

    Games differ in the sentence only, so that all of them share one parsed document.

    Raises:
        InputError: if there is not exactly one task rule.
    """
    matches = list(_TASK_RULE.finditer(document))
    if len(matches) != 1:
        raise InputError(f'the grammar holds {len(matches)} rules "task": [{{"rhs": …}}]; expected one')
    start, end = matches[0].span(2)
    return document[:start] + '""' + document[end:], str(json.loads(document[start:end]))


def replace_task_sentence(document: str, sentence: str) -> str:
    """Return the document with another task sentence.

    Raises:
        InputError: if there is not exactly one task rule.
    """
    split_task_sentence(document)
    quoted = json.dumps(sentence, ensure_ascii=False)
    return _TASK_RULE.sub(lambda match: match[1] + quoted, document)


def extract_goal(document: str) -> str:
    """Return the text after "Your task is to: " in the grammar.

    Raises:
        InputError: if the task sentence does not begin like that.
    """
    _, sentence = split_task_sentence(document)
    if not sentence.startswith(TASK_PREFIX):
        raise InputError(
            f"the grammar's task is {sentence!r}; expected it to begin with {TASK_PREFIX!r}"
        )
    return sentence.removeprefix(TASK_PREFIX)


_SPACE_OR_COMMENT = re.compile(r"(?:\s+|#[^\n]*)*")
_GRAMMAR_BLOCK = re.compile(r'grammar\s*::\s*"""((?:.|\n)*?)"""\s*;')
_ACTION_START = re.compile(r"action\s+([\w/-]+)\s*\{")
_ACTION_FIELD = re.compile(
    r'(template|feedback|pddl|grammar)\s*::\s*(?:"""((?:.|\n)*?)"""|"([^"]*)")\s*;'
)


def parse_grammar(document: str) -> Grammar:
    """Read a ``twl2`` document.

    Raises:
        InputError: if it is malformed or truncated.
    """
    productions: dict[str, list[dict[str, str]]] = {}
    actions: dict[str, ActionText] = {}
    position = _skip_space(document, 0)
    while position < len(document):
        block = _GRAMMAR_BLOCK.match(document, position)
        action = _ACTION_START.match(document, position)
        if block:
            productions.update(_parse_productions(block[1]))
            position = block.end()
        elif action:
            name = action[1].lower()
            position = _parse_action(document, action.end(), name, productions, actions)
        else:
            raise InputError(
                f"the grammar is malformed or truncated at {document[position : position + 40]!r}"
            )
        position = _skip_space(document, position)
    return Grammar(productions, actions)


def _skip_space(document: str, position: int) -> int:
    match = _SPACE_OR_COMMENT.match(document, position)
    return match.end() if match else position


def _parse_action(
    document: str,
    position: int,
    action: str,
    productions: dict[str, list[dict[str, str]]],
    actions: dict[str, ActionText],
) -> int:
    """Read the body of an action block into the last two arguments; return the position after it."""
    fields: dict[str, str] = {}
    position = _skip_space(document, position)
    while match := _ACTION_FIELD.match(document, position):
        key, long_text, short_text = match.groups()
        fields[key] = short_text if long_text is None else long_text
        position = _skip_space(document, match.end())

    if document[position : position + 1] != "}" or not {"template", "feedback"} <= fields.keys():
        raise InputError(
            f"action {action!r} of the grammar is malformed, truncated, or has no template or feedback"
        )

    # JSON has no comments, and blocks inside actions have some.
    lines = fields.get("grammar", "{}").split("\n")
    block = "\n".join(line for line in lines if not line.lstrip().startswith("#"))
    productions.update(_parse_productions(block))
    actions[action] = ActionText(fields["template"], fields["feedback"])
    return position + 1


def _parse_productions(block: str) -> dict[str, list[dict[str, str]]]:
    try:
        productions = json.loads(textwrap.dedent(block))
        is_valid = all("rhs" in rule for rules in productions.values() for rule in rules)
    except (json.JSONDecodeError, AttributeError, TypeError) as error:
        raise InputError(
            f"a grammar block is not JSON of the form {{symbol: [{{rhs, condition}}]}}: {error}"
        ) from error
    if not is_valid:
        raise InputError('a rule of the grammar has no "rhs"')
    return dict(productions)


_LITERAL = re.compile(r"\s*(\w+)\(([^()]*)\)\s*")
_VARIABLE = re.compile(r"\s*(\w+)\s*(?::\s*(\w+))?\s*")


def parse_query(text: str) -> Query:
    """Read ``p(a: t, b: u) & q(a: t)``; a variable without a type is of the type of its own name.

    Raises:
        InputError: if it is malformed.
    """
    if not text:
        return ()
    literals = []
    for part in text.split("&"):
        literal = _LITERAL.fullmatch(part)
        if literal is None:
            raise _malformed_query(text)
        variables = []
        for item in literal[2].split(",") if literal[2].strip() else []:
            variable = _VARIABLE.fullmatch(item)
            if variable is None:
                raise _malformed_query(text)
            variables.append((variable[1], variable[2] or variable[1]))
        literals.append(Literal(literal[1], tuple(variables)))
    return tuple(literals)


def _malformed_query(text: str) -> InputError:
    return InputError(f"the grammar's condition {text!r} is not of the form p(a: type, …) & …")


# The signs that end a text are those of the stock parser.
_PART = re.compile(
    r"""
    (?P<text>[^;|"<>\[\]#{}]+) | "(?P<quoted>[^;|"<>\[\]#{}]*)"
    | \#(?P<symbol>[\w()/!<>\-\s,.]+)\#
    | (?P<open>\[)? \{ (?: \#(?P<inner>[\w()/!<>\-\s,.]+)\# | (?P<value>[^|\[\]{}\n<>]+) )
      (?: \s*\|\s* (?P<query>[^;|{}\n\[\]\#]+) )? \} (?(open)\])
    """,
    re.VERBOSE,
)
_LEADING_SPACE = re.compile(r"(?:\s+|//[^\n]*)*")
_TABS = re.compile(r"\t*")


def parse_text(text: str) -> tuple[Part, ...]:
    """Read a text with symbols and expressions, with the stock parser's habits.

    These are: white space at the start and tabs after a symbol are dropped; the text ends before the first character
    that cannot be read, such as ``|`` or a bracket too many.

    Raises:
        InputError: if an expression or query is not one that this engine knows.
    """
    start = _LEADING_SPACE.match(text)
    position = start.end() if start else 0
    parts: list[Part] = []
    while match := _PART.match(text, position):
        parts.append(_make_part(match))
        tabs = _TABS.match(text, match.end())
        position = tabs.end() if tabs else match.end()
    return tuple(parts)


def _make_part(match: re.Match[str]) -> Part:
    if match["text"] is not None:
        return PlainText(match["text"])
    if match["quoted"] is not None:
        return PlainText(match["quoted"])
    if match["symbol"] is not None:
        return Symbol(match["symbol"])

    symbol = match["inner"]
    element = _parse_expression(match["value"]) if symbol is None else Symbol(symbol)
    query = parse_query((match["query"] or "").strip())
    is_listed = bool(match["open"])
    return ForEach(element, query, is_listed) if is_listed or query else element


_ENTITY_ATTRIBUTES = ("id", "name", "definite", "indefinite")


def _parse_expression(source: str) -> EntityExpression:
    try:
        tree = ast.parse(source.strip(), mode="eval").body
    except SyntaxError as error:
        raise InputError(
            f"the grammar's expression {{{source}}} is not one that this engine knows"
        ) from error
    if not all(map(_is_supported, ast.walk(tree))):
        raise InputError(
            f"the grammar's expression {{{source}}} is not one that this engine knows; use engine: textworld"
        )
    return EntityExpression(tree, source.strip())


def _is_supported(node: ast.AST) -> bool:
    """Return whether an expression may hold this: names, their attributes, texts, ``+`` and ``or``; no calls."""
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.Add)
    if isinstance(node, ast.BoolOp):
        return isinstance(node.op, ast.Or)
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str)
    if isinstance(node, ast.Attribute):
        return node.attr in _ENTITY_ATTRIBUTES and isinstance(node.value, ast.Name)
    return isinstance(node, ast.Name | ast.Load | ast.Add | ast.Or)
