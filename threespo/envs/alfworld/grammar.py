"""Reading ``twl2`` grammars: what commands look like, and what text the engine answers.

A document holds ``grammar`` blocks (JSON: symbol to production rules) and ``action`` blocks (command template,
feedback, further rules). Texts are made of literal text, ``#symbol#``, ``{expression}``, ``{expression | query}`` and
lists ``[{expression | query}]``. Rules are parsed when they are first needed: the original grammar holds some that are
never used, of which one is malformed.
"""

import ast
import json
import re
import textwrap
from dataclasses import dataclass, field

from threespo.errors import InputError


@dataclass(frozen=True)
class Literal:
    """One condition of a query: ``predicate(variable: type, …)``; "not_" in front is part of the name."""

    predicate: str
    variables: tuple[tuple[str, str], ...]
    """(name, type) pairs."""


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
    _parsed: dict[str, tuple[Rule, ...]] = field(default_factory=dict, compare=False, repr=False)

    def rules(self, symbol: str) -> tuple[Rule, ...]:
        """Return the rules of a symbol in their order.

        Raises:
            InputError: if there are none, or one is malformed.
        """
        if symbol not in self._parsed:
            if not self.productions.get(symbol):
                raise InputError(f"the grammar has no rule for the symbol #{symbol}#")
            self._parsed[symbol] = tuple(
                Rule(parse_query(rule.get("condition", "")), parse_text(rule["rhs"]))
                for rule in self.productions[symbol]
            )
        return self._parsed[symbol]


_TASK = re.compile(r'("task"\s*:\s*\[\s*\{\s*"rhs"\s*:\s*)("(?:[^"\\]|\\.)*")')
TASK_PREFIX = "Your task is to: "


def split_task_sentence(document: str) -> tuple[str, str]:
    """Return the document without its task sentence, and the sentence.

    Games differ in the sentence only, so that all of them share one parsed document.

    Raises:
        InputError: if there is not exactly one task rule.
    """
    found = list(_TASK.finditer(document))
    if len(found) != 1:
        raise InputError(f'the grammar holds {len(found)} rules "task": [{{"rhs": …}}]; expected one')
    start, end = found[0].span(2)
    return document[:start] + '""' + document[end:], str(json.loads(document[start:end]))


def replace_task_sentence(document: str, sentence: str) -> str:
    """Return the document with another task sentence.

    Raises:
        InputError: if there is not exactly one task rule.
    """
    split_task_sentence(document)
    return _TASK.sub(lambda match: match[1] + json.dumps(sentence, ensure_ascii=False), document)


def extract_goal(document: str) -> str:
    """Return what follows "Your task is to: " in the grammar.

    Raises:
        InputError: if the task sentence does not begin like that.
    """
    _, sentence = split_task_sentence(document)
    if not sentence.startswith(TASK_PREFIX):
        raise InputError(
            f"the grammar's task is {sentence!r}; expected it to begin with {TASK_PREFIX!r}"
        )
    return sentence.removeprefix(TASK_PREFIX)


_SPACE = re.compile(r"(?:\s+|#[^\n]*)*")
_BLOCK = re.compile(r'grammar\s*::\s*"""((?:.|\n)*?)"""\s*;')
_ACTION = re.compile(r"action\s+([\w/-]+)\s*\{")
_FIELD = re.compile(r'(template|feedback|pddl|grammar)\s*::\s*(?:"""((?:.|\n)*?)"""|"([^"]*)")\s*;')


def parse_grammar(document: str) -> Grammar:
    """Read a ``twl2`` document.

    Raises:
        InputError: if it is malformed or truncated.
    """
    productions: dict[str, list[dict[str, str]]] = {}
    actions: dict[str, ActionText] = {}
    position = _skip(document, 0)
    while position < len(document):
        if block := _BLOCK.match(document, position):
            productions.update(_productions(block[1]))
            position = block.end()
        elif action := _ACTION.match(document, position):
            position = _action(document, action.end(), action[1].lower(), productions, actions)
        else:
            raise InputError(
                f"the grammar is malformed or truncated at {document[position : position + 40]!r}"
            )
        position = _skip(document, position)
    return Grammar(productions, actions)


def _skip(document: str, position: int) -> int:
    match = _SPACE.match(document, position)
    return match.end() if match else position


def _action(
    document: str,
    position: int,
    name: str,
    productions: dict[str, list[dict[str, str]]],
    actions: dict[str, ActionText],
) -> int:
    """Read the body of an action block; return the position after it."""
    fields: dict[str, str] = {}
    position = _skip(document, position)
    while match := _FIELD.match(document, position):
        fields[match[1]] = match[3] if match[2] is None else match[2]
        position = _skip(document, match.end())

    if document[position : position + 1] != "}" or not {"template", "feedback"} <= fields.keys():
        raise InputError(
            f"action {name!r} of the grammar is malformed, truncated, or has no template or feedback"
        )

    lines = fields.get("grammar", "{}").split("\n")
    productions.update(
        _productions("\n".join(line for line in lines if not line.lstrip().startswith("#")))
    )
    actions[name] = ActionText(fields["template"], fields["feedback"])
    return position + 1


def _productions(block: str) -> dict[str, list[dict[str, str]]]:
    try:
        result = json.loads(textwrap.dedent(block))
        valid = all("rhs" in rule for rules in result.values() for rule in rules)
    except (json.JSONDecodeError, AttributeError, TypeError) as error:
        raise InputError(
            f"a grammar block is not JSON of the form {{symbol: [{{rhs, condition}}]}}: {error}"
        ) from error
    if not valid:
        raise InputError('a rule of the grammar has no "rhs"')
    return dict(result)


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
        match = _LITERAL.fullmatch(part)
        variables = (
            [_VARIABLE.fullmatch(item) for item in match[2].split(",")]
            if match and match[2].strip()
            else []
        )
        if match is None or not all(variables):
            raise InputError(f"the grammar's condition {text!r} is not of the form p(a: type, …) & …")
        literals.append(
            Literal(match[1], tuple((found[1], found[2] or found[1]) for found in variables if found))
        )
    return tuple(literals)


_PART = re.compile(
    r"""
    (?P<text>[^;|"<>\[\]#{}]+) | "(?P<quoted>[^;|"<>\[\]#{}]*)"
    | \#(?P<symbol>[\w()/!<>\-\s,.]+)\#
    | (?P<open>\[)? \{ (?: \#(?P<inner>[\w()/!<>\-\s,.]+)\# | (?P<value>[^|\[\]{}\n<>]+) )
      (?: \s*\|\s* (?P<query>[^;|{}\n\[\]\#]+) )? \} (?(open)\])
    """,
    re.VERBOSE,
)
_LEADING = re.compile(r"(?:\s+|//[^\n]*)*")
_TABS = re.compile(r"\t*")


def parse_text(text: str) -> tuple[Part, ...]:
    """Read a text with symbols and expressions, with the stock parser's habits.

    These are: white space at the start and tabs after a symbol are dropped; the text ends before the first character
    that cannot be read, such as ``|`` or a bracket too many.

    Raises:
        InputError: if an expression or query is not one that this engine knows.
    """
    start = _LEADING.match(text)
    position = start.end() if start else 0
    parts: list[Part] = []
    while match := _PART.match(text, position):
        parts.append(_part(match))
        tabs = _TABS.match(text, match.end())
        position = tabs.end() if tabs else match.end()
    return tuple(parts)


def _part(match: re.Match[str]) -> Part:
    if match["text"] is not None:
        return PlainText(match["text"])
    if match["quoted"] is not None:
        return PlainText(match["quoted"])
    if match["symbol"] is not None:
        return Symbol(match["symbol"])
    element = Symbol(match["inner"]) if match["inner"] is not None else _value(match["value"])
    query = parse_query((match["query"] or "").strip())
    return (
        ForEach(element, query, True)
        if match["open"]
        else ForEach(element, query, False)
        if query
        else element
    )


ATTRIBUTES = ("id", "name", "definite", "indefinite")


def _value(source: str) -> EntityExpression:
    try:
        tree = ast.parse(source.strip(), mode="eval").body
    except SyntaxError as error:
        raise InputError(
            f"the grammar's expression {{{source}}} is not one that this engine knows"
        ) from error

    for node in ast.walk(tree):
        known = (
            isinstance(node, ast.Name | ast.Load | ast.Add | ast.Or)
            or (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add))
            or (isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or))
            or (isinstance(node, ast.Constant) and isinstance(node.value, str))
            or (
                isinstance(node, ast.Attribute)
                and node.attr in ATTRIBUTES
                and isinstance(node.value, ast.Name)
            )
        )
        if not known:
            raise InputError(
                f"the grammar's expression {{{source}}} is not one that this engine knows; use engine: textworld"
            )
    return EntityExpression(tree, source.strip())
