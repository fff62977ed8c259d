"""Every number in the prose of the results is one of its sources: ``docs/numbers`` says which."""

import math

import numpy as np
import pytest
from scipy import stats

from tests import prose
from tests.prose import NUMBERS, ROOT, is_rounded, numerals, page, plain

TRACED = sorted(file.stem for file in NUMBERS.glob("*.yaml"))


def test_every_page_of_results_is_traced():
    """Each page of ``docs/results``, README.md, and ``docs/findings.md`` where it is."""
    pages = {str(file.relative_to(ROOT)) for file in (ROOT / "docs" / "results").rglob("README.md")}
    pages.add("README.md")
    if (ROOT / "docs" / "findings.md").exists():
        pages.add("docs/findings.md")
    assert {str(page(name).file.relative_to(ROOT)) for name in TRACED} == pages


@pytest.mark.parametrize("name", TRACED)
def test_the_numbers_of_a_page_are_those_of_its_sources(name):
    assert page(name).wrong() == []


@pytest.mark.parametrize("name", TRACED)
def test_no_number_of_a_page_is_without_a_source(name):
    assert page(name).untraced() == []


@pytest.mark.parametrize("name", TRACED)
def test_a_wrong_number_in_any_result_is_found(name):
    """The first number of each piece gets another last digit, on the page and in the entry: its source has another one."""
    whole = page(name)
    for kind in ("results", "settings"):
        for entry in whole.entries.get(kind, []):
            piece = plain(entry["says"])
            last = next(numerals(piece)).end() - 1
            other = f"{piece[:last]}{(int(piece[last]) + 3) % 10}{piece[last + 1 :]}"
            entries = {kind: [{**entry, "says": other}], "families": whole.entries.get("families", {})}
            changed = prose.Page(name, whole.file, whole.text.replace(piece, other), entries)
            assert changed.wrong(), (name, piece)


def test_a_number_that_nobody_names_is_found():
    said = (
        page("README").file.read_text(encoding="utf-8")
        + "\n\nIt gains 12.3 points in `3` rooms at b5528fa.\n"
    )
    (found,) = page("README", said).untraced()
    assert "12.3 in “" in found


def test_a_cell_of_a_table_that_is_not_its_files_is_found():
    whole = page("README")
    (table,) = whole.entries["tables"]
    rows = {**table["rows"], "GiGPO": "hgpo"}
    wrong = prose.Page("README", whole.file, whole.text, {"tables": [{**table, "rows": rows}]}).wrong()
    # GiGPO was run in two of the six columns that HGPO was run in, and a row without its cells is no row of HGPO.
    assert len(wrong) == 6
    rows = {label: method for label, method in table["rows"].items() if label != "GRPO"}
    wrong = prose.Page("README", whole.file, whole.text, {"tables": [{**table, "rows": rows}]}).wrong()
    assert wrong == ["README: a row without a source: GRPO"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("+11.7 (0.8 to 22.7), p 0.038", ["+11.7", "0.8", "22.7", "0.038"]),
        ("−32 (−33 to −30)", ["−32", "−33", "−30"]),
        ("seeds 400–404, 20,000 of 3e-5", ["400", "404", "20,000", "3e-5"]),
        ("63.5, 65.5, 9, 10", ["63.5", "65.5", "9", "10"]),
        ("3SPO of Qwen2.5-1.5B at 96b7268 on 2026-11-25, `0.5` in [7](a/8.md)", ["7"]),
        ("a 95 % interval of 95 %", ["95"]),
    ],
)
def test_numerals_are_numbers_and_not_names(text, found):
    assert [match.group() for match in numerals(plain(text))] == found


@pytest.mark.parametrize(
    ("numeral", "value", "right"),
    [
        ("0.8", 0.7517, True), ("0.7", 0.7517, False), ("0.038", 0.0383676, True), ("0.039", 0.0383676, False),
        ("−32", -31.692, True), ("32", -31.692, False), ("20,000", 20_000, True), ("3e-5", 3e-5, True),
        ("3e-5", 1e-5, False), ("12.5", 12.45, True), ("12.5", 12.44, False),
    ],
)  # fmt: skip
def test_a_numeral_is_its_value_to_the_digits_that_it_has(numeral, value, right):
    assert is_rounded(numeral, value) is right


def test_a_difference_is_welchs(tmp_path):
    """Against scipy's, on whole numbers of degrees of freedom: equal spreads of two arms of three."""
    lines = ["method,success_percent", "a,10", "a,12", "a,14", "b,1", "b,3", "b,5"]
    (tmp_path / "runs.csv").write_text("\n".join(lines))
    entry = {
        "welch": "runs.csv",
        "first": {"method": "a"},
        "second": {"method": "b"},
        "columns": ["estimate", "low", "high", "p"],
    }
    there = prose.Page("x", tmp_path / "x.md", "", {})
    test = stats.ttest_ind([10, 12, 14], [1, 3, 5], equal_var=False)
    ends = test.confidence_interval(0.95)
    assert list(there._values("results", entry)) == pytest.approx([9, ends.low, ends.high, test.pvalue])
    # Two tests of one family: the smaller p counts twice.
    pairs = [
        {"first": entry["first"], "second": entry["second"]},
        {"first": {"method": "a"}, "second": {"method": "a"}},
    ]
    family = prose.Page("x", tmp_path / "x.md", "", {"families": {"f": pairs}})
    corrected = {**entry, "family": "f", "columns": ["p_holm"]}
    assert list(family._values("results", corrected)) == pytest.approx([2 * test.pvalue])
    ranks = {**entry, "ranks": entry["welch"]}
    del ranks["welch"]
    # Of 20 orders of six values two are as extreme.
    assert list(there._values("results", ranks)) == pytest.approx([0.1])
    means = {"mean": "runs.csv", "where": {"method": "a"}, "column": "success_percent"}
    assert list(there._values("results", means)) == [np.mean([10, 12, 14])]
    assert math.isclose(next(there._values("results", {**means, "scale": 0.01})), 0.12)
