"""A table for readers: one value, written as HTML, Markdown and LaTeX (booktabs), and as CSV with its numbers unrounded."""

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Literal

import pandas as pd

from threespo.files import write_text
from threespo.results.paper.csv_files import csv_text
from threespo.results.paper.latex import escape_latex

MISSING = "–"

MAX_TEXT_WIDTH = 0.24
"""Width of a column of text in LaTeX, as a share of the line, at most."""

ALL_TEXT_WIDTH = 0.84
"""What columns of text may take of a line together, less the space between them."""

_FIRST = ' class="first"'

MAX_WIDE_COLUMNS = 8
"""Columns of a table that HTML shows in its usual size."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column; those of one ``group`` that stand side by side share a heading."""

    name: str
    group: str = ""
    fields: tuple[str, ...] = ()
    """Its columns in the CSV file, as many as each of its cells has ``values``; none: one of its name."""
    source: Literal["", "paper", "ours"] = ""
    """Whose numbers it has."""
    kind: Literal["text", "long", "number"] = "text"
    """``long``: text of several lines."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell: what is read, and what it stands for."""

    text_cell: str
    values: tuple[object, ...]
    """For the CSV file; NaN or an empty text where there is nothing."""
    link: str = ""
    """The place in the report that the cell comes from."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table."""

    cells: tuple[Cell, ...]
    section: str = ""
    """What the rows below one heading share, for example the base model."""
    in_study: bool = True
    """Whether the study has it; others are in the CSV file only, with the paper's numbers."""


@dataclass(frozen=True, slots=True)
class PaperTable:
    """A table in the paper's layout."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    """Lines below it; all that is shown where the study has none of its rows."""
    section_column: str = "setting"
    """What the sections are."""
    may_break: bool = False
    """Whether LaTeX may break it over pages, for tables of text."""

    def sections(self) -> list[tuple[str, list[Row]]]:
        """Return the rows that the study has, by section."""
        shown = [row for row in self.rows if row.in_study]
        return [(section, list(rows)) for section, rows in groupby(shown, key=lambda row: row.section)]

    def to_frame(self) -> pd.DataFrame:
        """Return all rows, also those that the study lacks, with a column for each value."""
        fields = [name for column in self.columns for name in (column.fields or (column.name,))]
        sections = (
            {self.section_column: [row.section for row in self.rows]}
            if any(row.section for row in self.rows)
            else {}
        )
        values = [[value for cell in row.cells for value in cell.values] for row in self.rows]
        return pd.concat([pd.DataFrame(sections), pd.DataFrame(values, columns=fields)], axis=1)

    def to_csv(self) -> str:
        """Return the table as CSV, numbers to six digits."""
        return csv_text(self.to_frame())

    def to_markdown(self) -> str:
        """Return the table as Markdown: one for each section, below its name."""
        heads = [" ".join(filter(None, (column.group, column.name))) for column in self.columns]
        aligned = ["---:" if column.kind == "number" else "---" for column in self.columns]
        parts = []
        for section, rows in self.sections():
            lines = [heads, aligned, *([cell.text or " " for cell in row.cells] for row in rows)]
            parts += [f"**{_in_markdown(section)}**\n"] if section else []
            parts.append("".join(f"| {' | '.join(map(_in_markdown, line))} |\n" for line in lines))
        return "\n".join([*parts, *(f"{_in_markdown(note)}\n" for note in self.notes)])

    def to_html(self, links: bool = True) -> str:
        """Return the table as HTML: one for each section, below its name, so that rows can be sorted.

        Args:
            links: whether cells lead to the places of the report that they come from.
        """
        places, dense = _with_first(self.columns), " dense" * (len(self.columns) > MAX_WIDE_COLUMNS)
        parts = []
        for section, rows in self.sections():
            lines = [
                "".join(_html_cell(*pair, links) for pair in zip(row.cells, places, strict=True))
                for row in rows
            ]
            body = "\n".join(f"<tr>{line}</tr>" for line in lines)
            table = (
                f"<table>\n<thead>{_html_head(self.columns)}</thead>\n<tbody>\n{body}\n</tbody></table>"
            )
            parts += [f"<h4>{html.escape(section)}</h4>\n"] if section else []
            parts.append(f'<div class="scroll{dense}">{table}</div>\n')
        return "".join([*parts, *(f'<p class="note">{html.escape(note)}</p>\n' for note in self.notes)])

    def __html__(self) -> str:
        """Return the table for a template that escapes: its cells have been."""
        return self.to_html()

    def _repr_html_(self) -> str:
        return self.to_html(links=False)

    def to_latex(self) -> str:
        """Return a table for a document that loads ``booktabs``, with its notes; a ``longtable`` where it may break."""
        if not self.sections():
            return "".join(f"{escape_latex(note)}\n" for note in self.notes)

        width = min(
            MAX_TEXT_WIDTH,
            ALL_TEXT_WIDTH / max(1, sum(column.kind == "long" for column in self.columns)),
        )
        widths = "".join(_latex_column(column, width) for column in self.columns)
        kind, heading = ("longtable", "p{\\linewidth}") if self.may_break else ("tabular", "l")
        lines = [f"\\begin{{{kind}}}{{@{{}}{widths}@{{}}}}", "\\toprule"]
        lines += _latex_head(self.columns)
        for section, rows in self.sections():
            lines.append("\\midrule")
            if section:
                lines.append(
                    f"\\multicolumn{{{len(self.columns)}}}{{@{{}}{heading}}}{{\\emph{{{escape_latex(section)}}}}} \\\\"
                )
            lines += [
                f"{' & '.join(escape_latex(cell.text) for cell in row.cells)} \\\\" for row in rows
            ]
        lines += ["\\bottomrule", f"\\end{{{kind}}}"]
        below = "\n\n".join(map(escape_latex, self.notes))
        notes = [
            "\\par\\smallskip",
            "\\begin{minipage}{\\linewidth}\\footnotesize",
            below,
            "\\end{minipage}",
        ]
        return "\n".join([*lines, *(notes if below else []), ""])


def save_table(table: PaperTable, folder: str | Path, name: str) -> None:
    """Write ``NAME.csv``, ``NAME.md`` and ``NAME.tex`` into ``folder``.

    Args:
        table: the table.
        folder: the study's folder of tables.
        name: of the table, as the catalogue of items has it.
    """
    for kind, text in {
        "csv": table.to_csv(),
        "md": table.to_markdown(),
        "tex": table.to_latex(),
    }.items():
        write_text(Path(folder) / f"{name}.{kind}", text)


def text_cell(value: str, shown: str | None = None, link: str = "") -> Cell:
    """Return a cell with words."""
    return Cell(value if shown is None else shown, (value,), link)


def table_of_texts(
    frame: pd.DataFrame, names: Mapping[str, str], sections: Sequence[str] | None = None
) -> PaperTable:
    """Return a table of text, which LaTeX may break over pages.

    Args:
        frame: a row for each row.
        names: its columns that are shown -> their headings. Columns of numbers are as narrow as these.
        sections: what each row stands below, if anything.
    """
    numbers = frame.select_dtypes("number").columns
    columns = tuple(
        Column(head, kind="text" if name in numbers else "long") for name, head in names.items()
    )
    above = sections if sections is not None else [""] * len(frame)
    rows = zip(frame[list(names)].astype(str).itertuples(index=False), above, strict=True)
    return PaperTable(
        columns, tuple(Row(tuple(map(text_cell, row)), section) for row, section in rows), may_break=True
    )


def _in_markdown(shown: str) -> str:
    # Bars end a cell, asterisks and underscores change the type, angle brackets begin a tag.
    return re.sub(r"([|*_<\\])", r"\\\1", shown).replace("\n", " ")


def _with_first(columns: Sequence[Column]) -> list[tuple[Column, bool]]:
    """Return each column, and whether a group begins with it."""
    before = ["", *(column.group for column in columns[:-1])]
    return [
        (column, bool(column.group) and column.group != last)
        for column, last in zip(columns, before, strict=True)
    ]


def _html_cell(cell: Cell, place: tuple[Column, bool], links: bool) -> str:
    column, first = place
    classes = " ".join(
        filter(None, ("first" * first, column.source, "words" * (column.kind != "number")))
    )
    shown = html.escape(cell.text)
    linked = f'<a href="#{html.escape(cell.link)}">{shown}</a>' if links and cell.link else shown
    return f'<td class="{classes}">{linked}</td>' if classes else f"<td>{linked}</td>"


def _html_head(columns: Sequence[Column]) -> str:
    if not any(column.group for column in columns):
        return f"<tr>{''.join(f'<th{_words(column)}>{html.escape(column.name)}</th>' for column in columns)}</tr>"
    upper, lower = "", ""
    for group, members in groupby(_with_first(columns), key=lambda pair: pair[0].group):
        inner = list(members)
        if group:
            upper += f'<th class="group" colspan="{len(inner)}">{html.escape(group)}</th>'
            lower += "".join(
                f"<th{_FIRST * first}>{html.escape(column.name)}</th>" for column, first in inner
            )
        else:
            upper += "".join(
                f'<th rowspan="2"{_words(column)}>{html.escape(column.name)}</th>' for column, _ in inner
            )
    return f"<tr>{upper}</tr>\n<tr>{lower}</tr>"


def _words(column: Column) -> str:
    return "" if column.kind == "number" else ' class="words"'


def _latex_column(column: Column, width: float) -> str:
    return {"text": "l", "long": f"p{{{width:g}\\linewidth}}", "number": "r"}[column.kind]


def _latex_head(columns: Sequence[Column]) -> list[str]:
    names = f"{' & '.join(escape_latex(column.name) for column in columns)} \\\\"
    if not any(column.group for column in columns):
        return [names]
    groups, rules, place = [], [], 1
    for group, members in groupby(columns, key=lambda column: column.group):
        width = len(list(members))
        groups += [f"\\multicolumn{{{width}}}{{c}}{{{escape_latex(group)}}}"] if group else [""] * width
        rules += [f"\\cmidrule(lr){{{place}-{place + width - 1}}}"] if group else []
        place += width
    return [f"{' & '.join(groups)} \\\\", " ".join(rules), names]
