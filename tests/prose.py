"""Numbers in prose and where they come from: ``docs/numbers/PAGE.yaml`` says it of each number of a page.

A page's file has lists of entries. ``says`` is a piece of the page as it stands; its numbers, in their order, are compared
with what the entry names, to the digits that are printed:

- ``results``: a CSV file beside the page under one of these names, with ``where`` for its rows:
  ``cells`` (``columns`` of one row, ``-low`` for the negative); of a ``column`` (``success_percent``) ``mean``, ``std``,
  ``least``, ``greatest``, ``least and greatest`` or ``each``, times ``scale``; ``student`` (the mean over seeds with its
  interval; ``columns`` of these); ``welch`` (``first`` minus ``second``, which may be of the file ``against``; with
  a ``family`` of ``families`` also Holm's ``p_holm``); ``ranks``
  (p of Mann and Whitney's test);
- ``settings``: ``study`` and ``fields`` of its file;
- ``tables``: a table of success, from where it ``begins`` to what it ``ends`` before, with its ``columns`` and ``rows``;
  without these it is one that ``test_published.py`` compares;
- ``not_results``: pieces whose numbers are none (dates, seeds, machines), and ``not_traced``: results that no published file
  has, or that take more than the above, with the reason.

Every numeral of a page must be in such a piece. Code, links, commits and dates are none; neither are numbers in words.
"""

import dataclasses
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from scipy import stats

from threespo.results.analysis.holm import adjust_by_holm
from threespo.results.analysis.statistics import difference_interval, mean_interval

ROOT = Path(__file__).resolve().parents[1]
NUMBERS = ROOT / "docs" / "numbers"

# Minus is U+2212 in documents, a range has an en dash. 3SPO, 1.5B and commits are names.
_NUMERAL = re.compile(
    r"(?<![\w.])[+−]?(?:\d{1,3}(?:,\d{3})++|\d++)(?:\.\d++)?+(?:e[-−]?\d++)?+(?![\w])", re.ASCII
)
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_IGNORED = re.compile(
    r"`[^`]*`|\]\([^)]*\)|<!--.*?-->|\b20\d\d-\d\d-\d\d\b|\b(?=[0-9a-f]*[a-f])(?=[0-9a-f]*\d)[0-9a-f]{7}\b"
    r"|95 %(?= interval)|Welch's 95 %|eq\. \d|T = 0\.4|Qwen2\.5-1\.5B or 7B|SHA-256|https?://\S+"
)
_FIELDS = {
    "results": {
        "cells",
        "mean",
        "least",
        "greatest",
        "least and greatest",
        "each",
        "std",
        "student",
        "welch",
        "ranks",
    },
    "settings": {"study"},
}


def plain(text: str) -> str:
    """Return a page, or a piece of one, in one line, without fenced blocks and emphasis."""
    return " ".join(_FENCE.sub("", text).replace("*", "").split())


def numerals(text: str) -> Iterator[re.Match[str]]:
    """Yield the numerals of a plain text that are neither code, nor links, nor names."""
    ignored = [match.span() for match in _IGNORED.finditer(text)]
    for match in _NUMERAL.finditer(text):
        if not any(start <= match.start() < stop for start, stop in ignored):
            yield match


def is_rounded(numeral: str, value: float) -> bool:
    """Return whether a numeral is a value, rounded to the digits that the numeral has."""
    digits = numeral.replace(",", "").replace("−", "-")
    mantissa, _, exponent = digits.partition("e")
    decimals = len(mantissa.partition(".")[2])
    unit = 10.0 ** (int(exponent or 0) - decimals)
    # A tie may be rounded either way, and files have six digits.
    return abs(float(digits) - value) <= unit / 2 + 1e-5 * abs(value) + 1e-12


@dataclass(frozen=True)
class Page:
    """A page with the entries of its file."""

    name: str
    file: Path
    text: str
    entries: dict[str, list[Any]]

    def wrong(self) -> list[str]:
        """Return what is wrong: pieces that are not on the page, and numbers that their source does not have."""
        found = []
        for kind in ("results", "settings"):
            for entry in self.entries.get(kind, []):
                piece = plain(entry["says"])
                if piece not in self.text:
                    found.append(f"{self.name}: not on the page: {piece!r}")
                    continue
                said = [match.group() for match in numerals(piece)]
                values = list(self._values(kind, entry))
                if len(said) != len(values):
                    found.append(
                        f"{self.name}: {piece!r} has {len(said)} numbers, its source {len(values)}"
                    )
                for numeral, value in zip(said, values, strict=False):
                    if not is_rounded(numeral, value):
                        found.append(f"{self.name}: {piece!r} has {numeral}, its source {value:.6g}")
        for table in self.entries.get("tables", []):
            found += self._wrong_cells(table) if "rows" in table else []
        for piece in self._other_pieces():
            if plain(piece) not in self.text:
                found.append(f"{self.name}: not on the page: {plain(piece)!r}")
        return found

    def untraced(self) -> list[str]:
        """Return every numeral of the page that no entry names, with what stands around it."""
        pieces = [entry["says"] for kind in _FIELDS for entry in self.entries.get(kind, [])]
        spans = [
            span for piece in (*pieces, *self._other_pieces()) for span in self._places(plain(piece))
        ]
        for table in self.entries.get("tables", []):
            spans.append(self._place_of_table(table))
        return [
            f"{self.name}: {match.group()} in “{self.text[max(0, match.start() - 60) : match.end() + 40]}”"
            for match in numerals(self.text)
            if not any(start <= match.start() and match.end() <= stop for start, stop in spans)
        ]

    def _other_pieces(self) -> list[str]:
        return [
            *self.entries.get("not_results", []),
            *(one["says"] for one in self.entries.get("not_traced", [])),
        ]

    def _places(self, piece: str) -> Iterator[tuple[int, int]]:
        for match in re.finditer(re.escape(piece), self.text):
            yield match.span()

    def _values(self, kind: str, entry: dict[str, Any]) -> Iterator[float]:
        (source,) = _FIELDS[kind] & set(entry)
        if source == "study":
            study = yaml.safe_load(
                (ROOT / "config" / "studies" / f"{entry['study']}.yaml").read_text("utf-8")
            )
            for field in entry["fields"]:
                value: Any = study
                for part in field.split("."):
                    value = value[int(part) if isinstance(value, list) else part]
                yield float(value)
            return

        scale = entry.get("scale", 1.0)
        column = entry.get("column", "success_percent")
        table = self._table(entry[source])
        if source in ("welch", "ranks"):
            other = self._table(entry.get("against", entry[source]))
            first = select(table, entry["first"])[column].to_list()
            second = select(other, entry["second"])[column].to_list()
            if source == "ranks":
                yield float(stats.mannwhitneyu(first, second).pvalue)
            else:
                gap = dataclasses.asdict(difference_interval(first, second))
                if "family" in entry:
                    gap["p_holm"] = self._holm_p(entry)
                yield from signed(gap, entry["columns"])
            return
        rows = select(table, entry.get("where", {}))
        if source == "cells":
            assert len(rows) == 1, (self.name, entry, len(rows))
            yield from (scale * value for value in signed(rows.iloc[0].to_dict(), entry["columns"]))
        elif source == "student":
            yield from signed(
                dataclasses.asdict(mean_interval(rows[column].to_list())), entry["columns"]
            )
        elif source in ("mean", "std"):
            yield scale * float(rows[column].agg(source))
        elif source == "each":
            yield from (scale * value for value in rows[column])
        if "least" in source:
            yield scale * float(rows[column].min())
        if "greatest" in source:
            yield scale * float(rows[column].max())

    def _holm_p(self, entry: dict[str, Any]) -> float:
        """Return Holm's p of a difference within its family: ``first`` and ``second`` of each in the page's ``families``."""
        table = self._table(entry["welch"])
        column = entry.get("column", "success_percent")
        pairs = self.entries["families"][entry["family"]]
        p_values = [
            difference_interval(
                *(select(table, pair[side])[column].to_list() for side in ("first", "second"))
            ).p
            for pair in pairs
        ]
        index = pairs.index({"first": entry["first"], "second": entry["second"]})
        return adjust_by_holm(p_values)[index]

    def _table(self, name: str) -> pd.DataFrame:
        return _read_table(self.file.parent / name)

    def _place_of_table(self, table: dict[str, Any]) -> tuple[int, int]:
        start = self.text.index(plain(table["begins"]))
        return start, self.text.index(plain(table["ends"]), start)

    def _wrong_cells(self, table: dict[str, Any]) -> list[str]:
        """Return the cells of a table of success that are not the mean, and the difference, of the published files."""
        found = []
        lines = self.file.read_text(encoding="utf-8").splitlines()
        first = next(i for i, line in enumerate(lines) if plain(line).startswith(plain(table["begins"])))
        body = {}
        for line in lines[first + 2 :]:
            if not line.startswith("|"):
                break
            label, *cells = [cell.strip() for cell in line.split("|")[1:-1]]
            body[label] = cells
        for label, methods in table["rows"].items():
            methods = [methods] * len(table["columns"]) if isinstance(methods, str) else methods
            for cell, method, column in zip(body.pop(label), methods, table["columns"], strict=True):
                if not cell and method not in self._methods(column):
                    continue
                said = [match.group() for match in numerals(plain(cell))]
                values, side = self._success(column, method)
                is_right = len(said) == len(values) and all(map(is_rounded, said, values))
                if not is_right or (f"**{side}**" in cell) != (side in ("above", "below")):
                    found.append(
                        f"{self.name}: {label}, {column}: {cell!r}, and its files {values}, {side}"
                    )
        return found + [f"{self.name}: a row without a source: {label}" for label in body]

    def _methods(self, column: dict[str, str]) -> set[str]:
        return set(select(self._table(f"{column['folder']}/runs.csv"), column)["method"])

    def _success(self, column: dict[str, str], method: str) -> tuple[list[float], str]:
        runs = select(self._table(f"{column['folder']}/runs.csv"), {**column, "method": method})
        gaps = self._table(f"{column['folder']}/differences.csv")
        mean = float(runs["success_percent"].mean())
        rows = select(gaps, {**column, "first": method, "second": "grpo"})
        if rows.empty:
            return [mean], ""
        (row,) = rows.to_dict("records")
        return [mean, row["points"], row["low"], row["high"]], str(row.get("side", row.get("verdict")))


# A page names the same files again and again; nobody changes what is read.
@functools.cache
def _read_table(file: Path) -> pd.DataFrame:
    return pd.read_csv(file)


def signed(row: dict[Any, Any], columns: list[str]) -> Iterator[float]:
    """Yield cells of a row; the negative of those whose column has a minus before it."""
    for column in columns:
        value = float(row[column.removeprefix("-")])
        yield -value if column.startswith("-") else value


def select(table: pd.DataFrame, where: dict[str, Any]) -> pd.DataFrame:
    """Return the rows with these values; columns that an older table lacks pick nothing."""
    for column, value in where.items():
        if column == "folder" or (column in ("env", "policy", "split") and column not in table):
            continue
        table = table[table[column].isin(value if isinstance(value, list) else [value])]
    return table


def page(name: str, text: str | None = None) -> Page:
    """Return a page with its entries; ``text`` in the place of what it says."""
    entries = yaml.safe_load((NUMBERS / f"{name}.yaml").read_text(encoding="utf-8"))
    file = ROOT / entries.pop("page")
    said = file.read_text(encoding="utf-8") if text is None else text
    return Page(name, file, plain(said), entries)
