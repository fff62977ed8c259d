"""Figures at the widths of a paper: panels that wrap, legends below them, and where a tall figure is cut into pages."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

Width = Literal["column", "page"]

WIDTHS: dict[str, float] = {"column": 3.3, "page": 6.9}
"""Inches, as conference and journal styles have them; all files of a figure have one of these widths."""

PAGE_HEIGHT = 9.0
"""Inches that a page has for a figure. A taller one wraps onto further pages of its PDF file."""

LEGEND_ROW_HEIGHT = 0.17
"""Inches of a legend's row."""

LEGEND_LETTER_WIDTH = 0.062
"""Inches that a letter of a legend takes, about."""


def set_style() -> None:
    """Set seaborn's style at the size of print, and make files reproducible; their text can be selected and searched."""
    import matplotlib as mpl
    import seaborn as sns

    sns.set_theme(context="paper", style="whitegrid", font_scale=0.8)
    mpl.rcParams.update(
        {
            # DejaVu comes with matplotlib, so that every machine computes the same layout. A browser without it shows
            # Verdana, whose letters are as wide.
            "font.sans-serif": ["DejaVu Sans", "Verdana", "sans-serif"],
            # Ids in SVG files are random without a fixed salt.
            "svg.hashsalt": "threespo",
            "svg.fonttype": "none",
            "pdf.fonttype": 42,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.titlesize": 7.7,
            "axes.linewidth": 0.8,
            "lines.linewidth": 1.4,
            "grid.linewidth": 0.5,
            "legend.frameon": False,
            "legend.title_fontsize": 7.0,
        }
    )


def create_panels(
    width: Width | None,
    panels: int,
    height: float | Sequence[float],
    *,
    across: int,
    stack: int = 1,
    sharey: bool = True,
) -> "tuple[Figure, list[Any]]":
    """Return a figure with a number of panels, from left to right and then below.

    Args:
        width: of the whole figure (``WIDTHS``); ``None`` is a column for a single panel and a page for several.
        panels: how many; with none there is an empty one.
        height: of a panel with all its axes, in inches; of each row of panels where they differ.
        across: panels in a row, at most.
        stack: axes above each other in a panel.
        sharey: whether the panels of a row share their vertical axis.

    Returns:
        The figure, and the axes of each panel; a list of them where ``stack`` is more than 1.

    Raises:
        ValueError: if there are more or fewer heights than rows of panels.
    """
    import matplotlib.pyplot as plt

    panels = max(1, panels)
    width = width or ("page" if panels > 1 else "column")
    columns = min(across, panels)
    rows = math.ceil(panels / columns)
    # Rows with more lines may be taller.
    heights = [height] * rows if isinstance(height, int | float) else list(height)
    if len(heights) != rows:
        raise ValueError(f"{len(heights)} heights for {rows} rows of panels")

    figure = plt.figure(figsize=(WIDTHS[width], sum(heights)), layout="constrained")
    # Axes of a stack have the same height.
    axis_heights = [row_height for row_height in heights for _ in range(stack)]
    grid = figure.subplots(
        rows * stack,
        columns,
        squeeze=False,
        sharey="row" if sharey else False,
        gridspec_kw={"height_ratios": axis_heights},
    )

    used_panels = []
    for index in range(rows * columns):
        top = stack * (index // columns)
        panel = list(grid[top : top + stack, index % columns])
        if index < panels:
            used_panels.append(panel if stack > 1 else panel[0])
        else:
            # The last row may have room for more panels than there are.
            for axis in panel:
                axis.remove()
    return figure, used_panels


def add_legend(
    figure: "Figure",
    handles: "Sequence[Artist]",
    labels: Sequence[str] | None = None,
    title: str | None = None,
) -> None:
    """Put a legend below the panels, in as many rows as its entries need, and make the figure taller by that.

    Args:
        figure: as ``create_panels`` returns it.
        handles: what is explained; nothing is drawn without any.
        labels: their names, where they have none.
        title: above the entries.
    """
    if not handles:
        return
    names = list(labels) if labels else [str(handle.get_label()) for handle in handles]
    width, height = figure.get_size_inches()
    longest = max(len(name) for name in names)
    # 0.45 inches are for an entry's line and the space around it.
    columns_that_fit = int(width / (0.45 + LEGEND_LETTER_WIDTH * longest))
    columns = max(1, min(len(names), columns_that_fit))
    rows = math.ceil(len(names) / columns) + (title is not None)

    figure.set_size_inches(width, height + LEGEND_ROW_HEIGHT * rows + 0.1)
    figure.legend(
        handles, names, loc="outside lower center", ncols=columns, title=title, columnspacing=1.2
    )


def page_boxes(figure: "Figure") -> "list[Bbox]":
    """Return the parts of a figure that fit a page, in inches, from the top: one, unless the figure is too tall.

    It is cut between rows of panels; a single row is never cut. The figure has been laid out (``draw_without_rendering``).
    """
    from matplotlib.transforms import Bbox

    width, height = (float(size) for size in figure.get_size_inches())
    if height <= PAGE_HEIGHT:
        return [Bbox([[0.0, 0.0], [width, height]])]

    # A cut is possible at the lower edge of a panel that cuts through no other panel.
    extents = _panel_extents(figure.axes, figure.dpi)
    lower_edges = {extent.bottom for extent in extents}
    cuts = []
    for candidate in lower_edges - {min(lower_edges)}:
        through_panel = any(extent.bottom < candidate < extent.top for extent in extents)
        if not through_panel:
            cuts.append(candidate)
    # The last cut is the figure's lower edge, below its legend.
    descending = [*sorted(cuts, reverse=True), 0.0]

    # A page ends at the last cut that it has room for.
    edges = [height]
    for cut, next_cut in pairwise(descending):
        if edges[-1] - next_cut > PAGE_HEIGHT:
            edges.append(cut)
    edges.append(0.0)

    boxes = []
    for top, bottom in pairwise(edges):
        boxes.append(Bbox([[0.0, bottom], [width, top]]))
    return boxes


class _Extent(NamedTuple):
    bottom: float
    top: float


def _panel_extents(axes: "Sequence[Axes]", dpi: float) -> list[_Extent]:
    """Return the vertical extent of every panel with its labels, in inches."""
    extents = []
    for axis in axes:
        box = axis.get_tightbbox()
        # Invisible axes have no box. A hundredth of an inch keeps the lowest label off the cut.
        if box is not None:
            bottom = box.y0 / dpi - 0.01
            extents.append(_Extent(bottom, top=box.y1 / dpi))
    return extents


def format_thousands(axis: "Axes") -> None:
    """Write the numbers of the horizontal axis with separators, few enough that they do not touch."""
    from matplotlib.ticker import MaxNLocator

    axis.xaxis.set_major_locator(MaxNLocator(4))
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")


def format_percent(axis: "Axes") -> None:
    """Write the numbers of the vertical axis, which are in 0 to 1, in percent."""
    axis.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
