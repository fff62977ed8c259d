"""The messages that the package ends with, read from its source: what is constant in each, ``…`` for what is not."""

import ast
import functools
import itertools
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tests.documents import ROOT

PACKAGES = ("threespo", "threespo_verifiers", "workflow")
OPEN = "…"
"""Stands in a message for a name, a number or words of others."""
_ERRORS = {"InputError", "StoppedError"}
_MARK = "threespo: "
"""Begins what is printed to a person; the command line puts it before every refusal."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Message(NamedTuple):
    """What a person may read, in one of its forms."""

    file: str
    line: int
    text: str

    @property
    def has_words(self) -> bool:
        return re.search(r"\w\w", self.text) is not None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}"


@functools.cache
def messages() -> list[Message]:
    """Return all messages of what a person runs."""
    files = sorted(itertools.chain.from_iterable((ROOT / name).rglob("*.py") for name in PACKAGES))
    trees = {str(file.relative_to(ROOT)): ast.parse(file.read_text(encoding="utf-8")) for file in files}
    errors = _errors(trees.values())
    return [message for name, tree in trees.items() for message in read_module(tree, name, errors)]


def read_module(tree: ast.Module, file: str, errors: set[str] = _ERRORS) -> list[Message]:
    """Return the messages of a module, each once for every way in which its text may come about."""
    texts = _Texts(tree)
    found = set()
    for function, call in _calls(tree, None):
        if _name(call) in errors and call.args:
            written: list[ast.expr] = [call.args[0]]
        elif _name(call) == "print" and any(_is_stderr(one) for one in call.keywords):
            written = [
                one
                for one in call.args
                if any(text.startswith(_MARK) for text in texts.of(one, function))
            ]
        elif file == "threespo/cli.py" and _name(call) == "_report_error":
            written = [call.args[0]]
        else:
            continue
        for text in (text for one in written for text in texts.of(one, function, whole=True)):
            shown = " ".join(text.removeprefix(_MARK).split())
            found.add(Message(file, call.lineno, re.sub(f"{OPEN}+", OPEN, shown)))
    return sorted(found, key=lambda message: (message.line, message.text))


def _errors(trees: Iterable[ast.Module]) -> set[str]:
    """Return the names of the exceptions, those that are derived from them included."""
    found = set(_ERRORS)
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and found & {ast.unparse(base) for base in node.bases}:
                found.add(node.name)
    return found


def _calls(node: ast.AST, function: Function | None) -> Iterator[tuple[Function | None, ast.Call]]:
    """Yield every call with the function that it stands in."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call):
            yield function, child
        yield from _calls(child, child if isinstance(child, Function) else function)


def _name(call: ast.Call) -> str:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _is_stderr(keyword: ast.keyword) -> bool:
    return keyword.arg == "file" and ast.unparse(keyword.value) == "sys.stderr"


class _Texts:
    """Which texts the expressions of a module may have."""

    def __init__(self, tree: ast.Module) -> None:
        self._tree = tree
        self._functions = {node.name: node for node in ast.walk(tree) if isinstance(node, Function)}

    def of(self, node: ast.expr, function: Function | None, *, whole: bool = False) -> list[str]:
        """Return the texts of an expression.

        Args:
            node: the expression.
            function: where it stands.
            whole: follow its names where it has no words without them.
        """
        texts = self._texts(node, function, 0)
        if whole and any(re.search(r"\w\w", text) is None for text in texts):
            texts = self._texts(node, function, 2)
        return texts

    def _texts(self, node: ast.expr, function: Function | None, depth: int) -> list[str]:
        match node:
            case ast.Constant(value=str(text)):
                return [text]
            case ast.JoinedStr(values=values):
                parts = [self._texts(value, function, depth) for value in values]
                return ["".join(chosen) for chosen in itertools.product(*parts)]
            case ast.FormattedValue(value=ast.Name(id=name)) if constants := self._constants(
                name, function
            ):
                return constants
            case ast.FormattedValue(value=value) if constants := _written(value):
                return constants
            case ast.FormattedValue(value=value) if depth:
                return self._texts(value, function, depth)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                parts = [self._texts(left, function, depth), self._texts(right, function, depth)]
                return ["".join(chosen) for chosen in itertools.product(*parts)]
            case ast.IfExp(body=body, orelse=orelse):
                return [*self._texts(body, function, depth), *self._texts(orelse, function, depth)]
            case ast.Call(func=ast.Attribute(value=value, attr="replace" | "strip")):
                return self._texts(value, function, depth)
            case ast.Call(func=ast.Name(id="escape_controls"), args=[shown]):
                return self._texts(shown, function, depth)
            case ast.Call(func=ast.Attribute(attr="join"), args=[ast.Tuple(elts=lines)]):
                return self._texts(lines[0], function, depth)
            case ast.Call() if depth and _name(node) in self._functions:
                called = self._functions[_name(node)]
                returned = [
                    one.value for one in ast.walk(called) if isinstance(one, ast.Return) and one.value
                ]
                return [text for value in returned for text in self._texts(value, called, depth - 1)]
            case ast.Name(id=name) if depth:
                values = [*self._values(name, function)]
                return [
                    text for value in values for text in self._texts(value, function, depth - 1)
                ] or [OPEN]
        return [OPEN]

    def _constants(self, name: str, function: Function | None) -> list[str]:
        """Return the texts that a name may stand for, if all are written out where it is defined."""
        values = list(self._values(name, function)) or list(self._values(name, None))
        texts = [_written(value) for value in values]
        return [text for one in texts for text in one] if all(texts) else []

    def _values(self, name: str, function: Function | None) -> Iterator[ast.expr]:
        """Yield what a name of a function, or of the module, stands for."""
        for node in ast.walk(function or self._tree):
            match node:
                case (
                    ast.Assign(value=ast.Constant(value=None))
                    | ast.AnnAssign(value=ast.Constant(value=None))
                ):
                    # It gets its words below.
                    continue
                case ast.Assign(targets=targets, value=value) if name in map(ast.unparse, targets):
                    yield value
                case ast.AnnAssign(target=ast.Name(id=target), value=ast.expr() as value) if (
                    target == name
                ):
                    yield value
                case ast.For(
                    target=ast.Tuple(elts=[_, ast.Name(id=target)]),
                    iter=ast.Call(func=ast.Attribute(value=ast.Name(id=table), attr="items")),
                ) if target == name:
                    tables = [
                        value for value in self._values(table, None) if isinstance(value, ast.Dict)
                    ]
                    yield from itertools.chain.from_iterable(value.values for value in tables)


def _written(node: ast.expr) -> list[str]:
    """Return the texts of a literal, or of a choice between literals; none of anything else."""
    match node:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.IfExp(body=body, orelse=orelse):
            texts = [_written(body), _written(orelse)]
            return [*texts[0], *texts[1]] if all(texts) else []
    return []
