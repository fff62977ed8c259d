"""What CONTRIBUTING says of the text of the package, as far as a program can see it."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

MAX_FUNCTION_LINES = 80
MAX_WALRUSES = 40
"""In the whole package, for loops and matches that need one."""

MAX_TUPLE_ASSIGNMENTS = 100
"""In the whole package, for swaps and for values that belong together."""


@pytest.fixture(scope="module")
def modules() -> dict[str, ast.Module]:
    files = sorted((ROOT / "threespo").rglob("*.py"))
    return {str(file.relative_to(ROOT)): ast.parse(file.read_text(encoding="utf-8")) for file in files}


def nodes(modules: dict[str, ast.Module]) -> Iterator[tuple[str, ast.AST]]:
    for name, module in modules.items():
        for node in ast.walk(module):
            yield f"{name}:{getattr(node, 'lineno', 0)}", node


def test_no_conditional_expression_is_in_another(modules):
    chained = [
        place
        for place, node in nodes(modules)
        if isinstance(node, ast.IfExp)
        and (isinstance(node.body, ast.IfExp) or isinstance(node.orelse, ast.IfExp))
    ]
    assert chained == []


def test_functions_fit_on_a_screen(modules):
    long = [
        place
        for place, node in nodes(modules)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno >= MAX_FUNCTION_LINES
    ]
    assert long == []


def test_a_line_has_one_idea(modules):
    walruses = [place for place, node in nodes(modules) if isinstance(node, ast.NamedExpr)]
    tuples = [
        place
        for place, node in nodes(modules)
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Tuple)
        and isinstance(node.value, ast.Tuple)
    ]
    assert len(walruses) <= MAX_WALRUSES, walruses
    assert len(tuples) <= MAX_TUPLE_ASSIGNMENTS, tuples


def test_the_glossary_has_each_term_once_and_at_most_sixty():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.partition("## Glossary")[2].partition("\n## ")[0]
    terms = [line.split("|")[1].strip() for line in section.splitlines() if line.startswith("| ")][1:]
    assert 0 < len(terms) <= 60
    assert len(set(terms)) == len(terms)
