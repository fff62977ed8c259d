"""The files of figures and texts: equal data give equal bytes."""

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from threespo.files import replace_file, write_text
from threespo.results.paper.csv_files import csv_text
from threespo.results.paper.layout import WIDTHS, page_boxes

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

DOTS_PER_INCH = 300
"""Resolution of PNG files, and of letters when a figure is laid out."""

_NO_TREES = (
    "No search tree of this study was recorded. To record those of four tasks: "
    "snakemake --config study=NAME 'set={training: {recorded_tasks: 4}}'"
)
WITHOUT_ROWS = {
    "case_study": _NO_TREES,
    "scores_by_type": _NO_TREES,
    "claims": "No two rows of this study are compared by a claim on success or score. `smoke` and `mini` have such rows.",
}
"""What replaces a figure for which a study has no rows; of others one sentence for all."""


def save_figure(figure: "Figure", folder: str | Path, name: str, data: "pd.DataFrame") -> None:
    """Write ``NAME.svg``, ``NAME.pdf``, ``NAME.png`` and ``NAME.csv`` into ``folder``, at the width that the figure has.

    A figure that is taller than a page has several in its PDF file, and views ``#page-1`` and so on in its SVG file.
    Without data a sentence replaces it (``WITHOUT_ROWS``): an empty frame would look like a result.

    Args:
        figure: what is drawn, as ``layout.create_panels`` returns it.
        folder: the study's folder of figures.
        name: of the figure, as ``threespo.study.catalogue`` lists it.
        data: the numbers that are drawn, for the CSV file.

    Raises:
        ValueError: if the figure has none of the widths in ``layout.WIDTHS``.
    """
    from matplotlib.backends.backend_pdf import PdfPages

    # A figure of another width would be scaled in a paper, and its letters with it.
    width = float(figure.get_size_inches()[0])
    if width not in WIDTHS.values():
        raise ValueError(
            f"figure {name!r} is {width:g} inches wide; expected one of {list(WIDTHS.values())}"
        )
    if data.empty:
        figure = _draw_sentence(WITHOUT_ROWS.get(name, "This study has no rows for this figure."), width)

    # The layout is computed once for all files, since it takes longer than writing them. It has to be computed at the
    # resolution of the files: at a lower one letters are narrower, and long labels would be cut at the edge.
    figure.set_dpi(DOTS_PER_INCH)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")

    # Dates and version numbers would make equal figures differ.
    metadata = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}
    pages = page_boxes(figure)
    for kind, fields in metadata.items():
        with replace_file(Path(folder) / f"{name}.{kind}") as path:
            figure.savefig(path, format=kind, dpi=DOTS_PER_INCH, metadata=fields)
            # Browsers can print one view on each page, which a report needs for figures that are taller than a page.
            if kind == "svg" and len(pages) > 1:
                drawn = path.read_text(encoding="utf-8")
                with_views = drawn.replace("</svg>", f"{_svg_views(figure, pages)}</svg>")
                path.write_text(with_views, encoding="utf-8")

    undated = dict.fromkeys(("CreationDate", "Creator", "Producer"))
    with replace_file(Path(folder) / f"{name}.pdf") as path, PdfPages(path, metadata=undated) as file:
        for page in pages:
            file.savefig(figure, bbox_inches=page)

    _write_data(data, folder, name)


def save_text(shown: Mapping[str, str], folder: str | Path, name: str, data: "pd.DataFrame") -> None:
    """Write an item that is text: ``NAME.html``, a part of a page, ``NAME.md``, ``NAME.tex``, and ``NAME.csv``.

    ``shown`` has the text of each kind of file, with everything that is data escaped; ``data`` is for the CSV file.
    """
    for kind, text in shown.items():
        write_text(Path(folder) / f"{name}.{kind}", text)
    _write_data(data, folder, name)


def _draw_sentence(text: str, width: float) -> "Figure":
    """Return a figure that is a sentence, in lines that fit its width in inches."""
    from matplotlib.figure import Figure

    # About 13 letters fit an inch at this size.
    lines = textwrap.wrap(text, int(13 * width), break_on_hyphens=False)
    figure = Figure(figsize=(width, 0.2 + 0.16 * len(lines)))
    figure.text(0.5, 0.5, "\n".join(lines), ha="center", va="center", fontsize=7.5, parse_math=False)
    return figure


def _svg_views(figure: "Figure", pages: "Sequence[Bbox]") -> str:
    """Return an SVG view for each page of a figure, in points from the top."""
    height = float(figure.get_size_inches()[1])
    views = []
    for number, page in enumerate(pages, start=1):
        inches = (page.x0, height - page.y1, page.width, page.height)
        box = " ".join(f"{72 * length:.2f}" for length in inches)
        # ``none``: a view fills what it is shown in.
        views.append(f'<view id="page-{number}" viewBox="{box}" preserveAspectRatio="none"/>\n')
    return "".join(views)


def _write_data(data: "pd.DataFrame", folder: str | Path, name: str) -> None:
    write_text(Path(folder) / f"{name}.csv", csv_text(data))
