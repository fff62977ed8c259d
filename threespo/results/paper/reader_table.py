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
"""Width of a column of long text in LaTeX, as a share of the line, at most."""

ALL_TEXT_WIDTH = 0.84
"""Share of the line that all columns of long text have together, less the space between them."""

MAX_WIDE_COLUMNS = 8
"""Columns of a table that HTML shows in its usual size; a table of more is set smaller."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column; neighbours of one ``group`` share a heading."""

    name: str
    group: str = ""
    fields: tuple[str, ...] = ()
    """Its columns in the CSV file, as many as each of its cells has ``values``; none: one of its name."""
    source: Literal["", "paper", "ours"] = ""
    """Whose numbers it has."""
    kind: Literal["text", "long", "number"] = "text"
    """``long``: text that wraps."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell: the text that readers see, and the values that it is made from."""

    text: str
    values: tuple[object, ...]
    """For the CSV file; NaN or an empty text where there is nothing."""
    link: str = ""
    """The place in the report that the cell comes from."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table."""

    cells: tuple[Cell, ...]
    section: str = ""
    """The heading that the row shares with its neighbours, for example the base model."""
    in_study: bool = True
    """Whether the study has it; other rows are in the CSV file only, with the paper's numbers."""


@dataclass(frozen=True, slots=True)
class PaperTable:
    """A table in the paper's layout."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    """Lines below it; all that is shown where the study has none of its rows."""
    section_column: str = "setting"
    """The CSV file's column of the sections."""
    may_break: bool = False
    """Whether LaTeX may break it over pages, for tables of text."""

    def sections(self) -> list[tuple[str, list[Row]]]:
        """Return the rows that the study has, by section."""
        rows = [row for row in self.rows if row.in_study]
        sections = groupby(rows, key=lambda row: row.section)
        return [(section, list(section_rows)) for section, section_rows in sections]

    def to_frame(self) -> pd.DataFrame:
        """Return all rows, also those that the study lacks, with a column for each value."""
        # A cell such as "72.8 ± 3.6" has several values, so its column has several fields.
        fields = [field for column in self.columns for field in column.fields or (column.name,)]
        records = []
        for row in self.rows:
            records.append([value for cell in row.cells for value in cell.values])
        frame = pd.DataFrame(records, columns=fields)

        sections = [row.section for row in self.rows]
        if any(sections):
            frame.insert(0, self.section_column, sections)
        return frame

    def to_csv(self) -> str:
        """Return the table as CSV, numbers to six digits."""
        return csv_text(self.to_frame())

    def to_markdown(self) -> str:
        """Return the table as Markdown: one table for each section, below its name."""
        # Markdown has no cells that span columns: a group is part of each heading.
        headings = [f"{column.group} {column.name}".strip() for column in self.columns]
        alignment = ["---:" if column.kind == "number" else "---" for column in self.columns]

        parts = []
        for section, rows in self.sections():
            if section:
                parts.append(f"**{_escape_markdown(section)}**\n")
            lines = [headings, alignment]
            lines += [[cell.text or " " for cell in row.cells] for row in rows]
            parts.append("".join(_markdown_line(line) for line in lines))
        parts += [f"{_escape_markdown(note)}\n" for note in self.notes]
        return "\n".join(parts)

    def to_html(self, links: bool = True) -> str:
        """Return the table as HTML: one table for each section, below its name, so that rows can be sorted.

        Args:
            links: whether cells lead to the places of the report that they come from.
        """
        # A class of the report's style sheet, as are those of cells.
        size = " dense" if len(self.columns) > MAX_WIDE_COLUMNS else ""
        head = _html_head(self.columns)
        parts = []
        for section, rows in self.sections():
            if section:
                parts.append(f"<h4>{html.escape(section)}</h4>\n")
            body = "\n".join(_html_row(self.columns, row, links) for row in rows)
            table = f"<table>\n<thead>{head}</thead>\n<tbody>\n{body}\n</tbody></table>"
            parts.append(f'<div class="scroll{size}">{table}</div>\n')
        parts += [f'<p class="note">{html.escape(note)}</p>\n' for note in self.notes]
        return "".join(parts)

    def __html__(self) -> str:
        """Return the table for a template that escapes: its cells have been."""
        return self.to_html()

    def _repr_html_(self) -> str:
        """Return the table for a notebook, where there is no report to link to."""
        return self.to_html(links=False)

    def to_latex(self) -> str:
        """Return a table for a document that loads ``booktabs``, with its notes; a ``longtable`` where it may break."""
        notes = [escape_latex(note) for note in self.notes]
        if not self.sections():
            return "".join(f"{note}\n" for note in notes)

        # A longtable breaks between rows only, so a section's title has to wrap.
        environment = "longtable" if self.may_break else "tabular"
        title_kind = "p{\\linewidth}" if self.may_break else "l"
        widths = "".join(_latex_widths(self.columns))
        # ``@{}``: booktabs tables have no space outside their first and last column.
        lines = [f"\\begin{{{environment}}}{{@{{}}{widths}@{{}}}}", "\\toprule"]
        lines += _latex_head(self.columns)
        for section, rows in self.sections():
            lines.append("\\midrule")
            if section:
                title = f"\\emph{{{escape_latex(section)}}}"
                span = len(self.columns)
                lines.append(f"\\multicolumn{{{span}}}{{@{{}}{title_kind}}}{{{title}}} \\\\")
            for row in rows:
                texts = [escape_latex(cell.text) for cell in row.cells]
                lines.append(_latex_line(texts))
        lines += ["\\bottomrule", f"\\end{{{environment}}}"]

        if notes:
            lines += ["\\par\\smallskip", "\\begin{minipage}{\\linewidth}\\footnotesize"]
            lines += ["\n\n".join(notes), "\\end{minipage}"]
        return "\n".join([*lines, ""])


def save_table(table: PaperTable, folder: str | Path, name: str) -> None:
    """Write ``NAME.csv``, ``NAME.md`` and ``NAME.tex`` into ``folder``.

    Args:
        table: the table.
        folder: the study's folder of tables.
        name: of the table, as the catalogue of items has it.
    """
    written = {"csv": table.to_csv(), "md": table.to_markdown(), "tex": table.to_latex()}
    for kind, content in written.items():
        write_text(Path(folder) / f"{name}.{kind}", content)


def text_cell(value: str, shown: str | None = None, link: str = "") -> Cell:
    """Return a cell with words; readers see ``shown`` in the place of the value, if it is given."""
    return Cell(value if shown is None else shown, (value,), link)


def table_of_texts(
    frame: pd.DataFrame, headings: Mapping[str, str], sections: Sequence[str] | None = None
) -> PaperTable:
    """Return a table of text, which LaTeX may break over pages.

    Args:
        frame: a row for each row.
        headings: the columns that are shown -> their headings. Columns of numbers are as narrow as these.
        sections: the section of each row, if there are sections.
    """
    numbers = frame.select_dtypes("number").columns
    columns = []
    for name, heading in headings.items():
        columns.append(Column(heading, kind="text" if name in numbers else "long"))

    # Numbers too: nothing is computed from a table of text.
    texts = frame[list(headings)].astype(str).itertuples(index=False)
    if sections is None:
        sections = [""] * len(frame)
    rows = []
    for values, section in zip(texts, sections, strict=True):
        cells = tuple(text_cell(value) for value in values)
        rows.append(Row(cells, section))
    return PaperTable(tuple(columns), tuple(rows), may_break=True)


def _markdown_line(texts: Sequence[str]) -> str:
    return f"| {' | '.join(_escape_markdown(text) for text in texts)} |\n"


def _escape_markdown(text: str) -> str:
    # Bars end a cell, asterisks and underscores change the type, angle brackets begin a tag.
    return re.sub(r"([|*_<\\])", r"\\\1", text).replace("\n", " ")


def _begins_group(columns: Sequence[Column], index: int) -> bool:
    """Return whether a group of columns begins at ``index``; a rule is drawn to its left."""
    group = columns[index].group
    if not group:
        return False
    return index == 0 or columns[index - 1].group != group


def _html_row(columns: Sequence[Column], row: Row, links: bool) -> str:
    # The classes are those of the report's style sheet.
    cells = []
    for index, (column, cell) in enumerate(zip(columns, row.cells, strict=True)):
        classes = []
        if _begins_group(columns, index):
            classes.append("first")
        if column.source:
            classes.append(column.source)
        if column.kind != "number":
            classes.append("words")

        content = html.escape(cell.text)
        if links and cell.link:
            content = f'<a href="#{html.escape(cell.link)}">{content}</a>'
        cells.append(_html_cell("td", content, " ".join(classes)))
    return f"<tr>{''.join(cells)}</tr>"


def _html_cell(tag: str, content: str, classes: str = "", span: str = "") -> str:
    attributes = f' class="{classes}"' if classes else ""
    return f"<{tag}{span}{attributes}>{content}</{tag}>"


def _html_head(columns: Sequence[Column]) -> str:
    """Return the heading: one row, or two where columns have groups, whose other cells are two rows high."""
    grouped = any(column.group for column in columns)
    upper = []
    lower = []
    for index, column in enumerate(columns):
        name = html.escape(column.name)
        if not column.group:
            classes = "" if column.kind == "number" else "words"
            upper.append(_html_cell("th", name, classes, ' rowspan="2"' if grouped else ""))
            continue

        begins = _begins_group(columns, index)
        if begins:
            width = _group_width(columns, index)
            group = html.escape(column.group)
            upper.append(f'<th class="group" colspan="{width}">{group}</th>')
        lower.append(_html_cell("th", name, "first" if begins else ""))
    if not grouped:
        return f"<tr>{''.join(upper)}</tr>"
    return f"<tr>{''.join(upper)}</tr>\n<tr>{''.join(lower)}</tr>"


def _group_width(columns: Sequence[Column], start: int) -> int:
    """Return how many columns from ``start`` on have the group of the first."""
    width = 0
    for column in columns[start:]:
        if column.group != columns[start].group:
            break
        width += 1
    return width


def _latex_widths(columns: Sequence[Column]) -> list[str]:
    # Columns of long text share what the others leave of the line.
    long_columns = sum(column.kind == "long" for column in columns)
    width = min(MAX_TEXT_WIDTH, ALL_TEXT_WIDTH / max(1, long_columns))
    kinds = {"text": "l", "long": f"p{{{width:g}\\linewidth}}", "number": "r"}
    return [kinds[column.kind] for column in columns]


def _latex_line(texts: Sequence[str]) -> str:
    return f"{' & '.join(texts)} \\\\"


def _latex_head(columns: Sequence[Column]) -> list[str]:
    """Return the lines of the heading; above names, groups with a rule below each."""
    names = _latex_line([escape_latex(column.name) for column in columns])
    if not any(column.group for column in columns):
        return [names]

    groups = []
    rules = []
    for index, column in enumerate(columns):
        if not column.group:
            groups.append("")
        elif _begins_group(columns, index):
            width = _group_width(columns, index)
            groups.append(f"\\multicolumn{{{width}}}{{c}}{{{escape_latex(column.group)}}}")
            # LaTeX counts columns from 1.
            rules.append(f"\\cmidrule(lr){{{index + 1}-{index + width}}}")
    return [_latex_line(groups), " ".join(rules), names]
