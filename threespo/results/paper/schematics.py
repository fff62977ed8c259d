"""Figures 1 and 2 of the paper, drawn from a search that is really run (``threespo.results.paper.search_example``)."""

from typing import TYPE_CHECKING, Any

import pandas as pd

from threespo.results.paper.layout import add_legend, create_panels
from threespo.results.paper.search_example import G_MAX, VIEWS, advantages_by_method, completed_paths

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

UP, DOWN, NONE = "#215cae", "#f26905", "#9a9a9a"
"""Advantages above, below and at zero; also solid, dashed and dotted."""

GROUPS = ("#8532dd", "#13858f", "#9a1014", "#988259", "#1b1b1b", "#286a4d")

ENDS = {"won": ("*", "#286a4d"), "limit": ("X", "#9a1014"), "over": ("X", "#9a1014")}

SAID = {
    "GRPO": "one group of whole episodes,\none update after all of them",
    "GiGPO": "besides, steps from the same state\n(rings), one update after all episodes",
    "3SPO": "siblings of one state (bars),\nan update after each state (numbers)",
}


def node_positions(tree: pd.DataFrame) -> dict[int, tuple[float, float]]:
    """Return where nodes stand: leaves side by side in the order of the search, parents amid their children."""
    children = {node: rows["node"].tolist() for node, rows in tree.groupby("parent")}
    depths = dict(zip(tree["node"], tree["depth"], strict=True))
    found: dict[int, tuple[float, float]] = {}
    leaves = 0

    def place(node: int) -> float:
        nonlocal leaves
        below = [place(child) for child in children.get(node, [])]
        leaves += not below
        across = sum(below) / len(below) if below else float(leaves - 1)
        found[node] = (across, -float(depths[node]))
        return across

    place(0)
    return found


def draw_comparison(tree: pd.DataFrame) -> "tuple[Figure, pd.DataFrame]":
    """Draw figure 1: what GRPO, GiGPO and 3SPO compare in the same paths, and when they learn.

    Args:
        tree: a search, as ``search_example.example_trees`` returns it.

    Returns:
        The figure, and its rows (``search_example.views``).
    """
    rows, paths = advantages_by_method(tree), completed_paths(tree)
    # Only what lies on completed paths: a cap may have left other nodes.
    on_paths = tree[tree["node"].isin({node for path in paths for node in path})]
    where = node_positions(on_paths)
    figure, axes = create_panels("page", len(VIEWS), 2.9, across=len(VIEWS))
    for axis, view in zip(axes, VIEWS, strict=True):
        mine = rows[rows["view"] == view]
        if view == "3SPO":
            _siblings(axis, mine, where)
        else:
            _episodes(axis, mine, where, len(paths))
        if view == "GiGPO":
            _anchors(axis, mine, where)
        _nodes(axis, on_paths, where)
        axis.set(title=view, xlabel=SAID[view])
        _bare(axis, where)

    add_legend(figure, _handles())
    return figure, rows


def draw_pipeline(tree: pd.DataFrame) -> "tuple[Figure, pd.DataFrame]":
    """Draw figure 2: a search in the order of its expansions, with score, samples and counts of every state.

    Args:
        tree: a search, as ``search_example.example_trees`` returns it.

    Returns:
        The figure, and the nodes of the tree.
    """
    where = node_positions(tree)
    figure, (axis,) = create_panels("page", 1, 4.6, across=1)
    for row in tree[tree["parent"] >= 0].itertuples():
        (x, y), (above, top) = where[row.node], where[row.parent]
        axis.plot([above, x], [top, y], zorder=1, lw=0.6 + 0.25 * row.samples, **_look(row.advantage))
        axis.text(
            (above + 2 * x) / 3,
            (top + 2 * y) / 3,
            f"×{row.samples}",
            fontsize=5,
            ha="center",
            va="center",
            **_BOX,
        )

    _nodes(axis, tree, where)
    for row in tree.itertuples():
        x, y = where[row.node]
        counts = f"{row.successes:.3g}/{row.visits:.3g}"
        if row.expanded >= 0:
            axis.plot(x, y, "o", ms=12, mfc="white", mec="#333333", mew=0.8, zorder=3)
            axis.text(x, y, row.expanded + 1, fontsize=6, ha="center", va="center", zorder=4)
            text = f"S {row.score:.2f}, n {row.rollouts}\n{counts} won"
            weight = "bold" if row.rollouts == 2 and round(row.score, 3) == 0.2 else "normal"
            axis.text(x + 0.24, y, text, fontsize=5.5, va="center", weight=weight, zorder=5, **_BOX)
        else:
            axis.text(
                x,
                y - 0.2,
                f"{'gated, ' if row.gated else ''}{counts}",
                fontsize=5,
                ha="center",
                va="top",
            )
    _bare(axis, where)
    axis.set(ylabel="depth in the path", yticks=range(-int(tree["depth"].max()), 0))
    axis.yaxis.set_major_formatter(lambda value, _: f"{-value:.0f}")
    axis.grid(visible=False)
    circle = axis.plot(
        [], [], "o", ms=8, mfc="white", mec="#333333", ls="", label="expanded, in this order"
    )
    gate = axis.plot([], [], "s", ms=4, color=NONE, ls="", label=f"not expanded (G_max = {G_MAX})")
    add_legend(figure, [*_handles(), *circle, *gate])
    return figure, tree


_BOX: dict[str, Any] = {"bbox": {"facecolor": "white", "edgecolor": "none", "pad": 0.4, "alpha": 0.85}}


def _look(advantage: float) -> dict[str, Any]:
    """Return how a step is drawn; without a number there was nothing to learn."""
    if not abs(advantage) > 1e-9:
        return {"color": NONE, "linestyle": (0, (1, 1))}
    return (
        {"color": UP, "linestyle": "-"} if advantage > 0 else {"color": DOWN, "linestyle": (0, (4, 1.5))}
    )


def _handles() -> list[Any]:
    from matplotlib.lines import Line2D

    lines = [(1.0, "advantage above 0"), (-1.0, "below 0"), (0.0, "nothing to learn")]
    shown = [Line2D([], [], label=name, **_look(advantage)) for advantage, name in lines]
    ends = [("won", "path is won"), ("limit", "path fails")]
    return shown + [
        Line2D([], [], ls="", ms=6, marker=ENDS[end][0], color=ENDS[end][1], label=name)
        for end, name in ends
    ]


def _nodes(axis: "Axes", tree: pd.DataFrame, where: dict[int, tuple[float, float]]) -> None:
    for row in tree.itertuples():
        marker, colour = ENDS.get(
            row.end, ("o" if row.expanded >= 0 else "s", "#333333" if row.expanded >= 0 else NONE)
        )
        axis.plot(*where[row.node], marker, color=colour, ms=7 if row.end == "won" else 4.5, zorder=3)


def _episodes(
    axis: "Axes", rows: pd.DataFrame, where: dict[int, tuple[float, float]], paths: int
) -> None:
    """Draw each path as a line of its own, beside the others where they share a step."""
    for path, steps in rows.groupby("path"):
        beside, last = (path - (paths - 1) / 2) * 0.09, steps["child"].iloc[-1]
        for step in steps.itertuples():
            (x, y), (below, bottom) = where[step.node], where[step.child]
            across = [x + beside, below + beside * (step.child != last)]
            axis.plot(across, [y, bottom], lw=1.1, zorder=2, **_look(step.advantage))


def _anchors(axis: "Axes", rows: pd.DataFrame, where: dict[int, tuple[float, float]]) -> None:
    """Ring the states from which several steps are compared."""
    compared = rows[rows["group"] >= 0].groupby("group")
    for number, (_, steps) in enumerate(compared):
        if len(steps) > 1:
            for node in set(steps["node"]):
                axis.plot(
                    *where[node],
                    "o",
                    ms=14,
                    mfc="none",
                    mec=GROUPS[number % len(GROUPS)],
                    mew=1.3,
                    zorder=4,
                )


def _siblings(axis: "Axes", rows: pd.DataFrame, where: dict[int, tuple[float, float]]) -> None:
    """Draw each sampled step once, a bar over the siblings, and the number of the update that they give."""
    for node, steps in rows.groupby("node"):
        x, y = where[node]
        children = sorted({where[child][0] for child in steps["child"]})
        for step in steps.drop_duplicates("child").itertuples():
            below, bottom = where[step.child]
            axis.plot([x, below], [y, bottom], lw=1.4, zorder=2, **_look(step.advantage))
        update = int(steps["update"].iloc[0])
        if update:
            ends = [x + (child - x) * 0.45 for child in (children[0], children[-1])]
            colour = GROUPS[(update - 1) % len(GROUPS)]
            axis.plot(ends, [y - 0.45] * 2, color=colour, lw=1.3, zorder=2)
            axis.text(
                x + 0.18, y, f"{update}", fontsize=7, color=colour, weight="bold", va="center", zorder=5
            )


def _bare(axis: "Axes", where: dict[int, tuple[float, float]]) -> None:
    """Leave room around the nodes, and nothing of the axes."""
    across, down = zip(*where.values(), strict=True)
    axis.set(
        xlim=(min(across) - 0.6, max(across) + 1.0),
        ylim=(min(down) - 0.6, max(down) + 0.6),
        xticks=[],
        yticks=[],
    )
    axis.spines[:].set_visible(False)
