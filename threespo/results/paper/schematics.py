"""Figures 1 and 2 of the paper, drawn from a real search (``threespo.results.paper.search_example``)."""

import math
from typing import TYPE_CHECKING, Any

import pandas as pd

from threespo.results.paper.layout import add_legend, create_panels
from threespo.results.paper.search_example import G_MAX, VIEWS, advantages_by_method, completed_paths
from threespo.tables import select_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POSITIVE = "#215cae"
NEGATIVE = "#f26905"
NEUTRAL = "#9a9a9a"
"""Colours of advantages above, below and at zero, which are also solid, dashed and dotted."""

GROUP_COLOURS = ("#8532dd", "#13858f", "#9a1014", "#988259", "#1b1b1b", "#286a4d")

END_MARKERS = {"won": ("*", "#286a4d"), "limit": ("X", "#9a1014"), "over": ("X", "#9a1014")}
"""Marker and colour of a path's last node, by how it ended."""

EXPLANATIONS = {
    "GRPO": "one group of whole episodes,\none update after all of them",
    "GiGPO": "besides, steps from the same state\n(rings), one update after all episodes",
    "3SPO": "siblings of one state (bars),\nan update after each state (numbers)",
}

_TEXT_BOX: dict[str, Any] = {
    "bbox": {"facecolor": "white", "edgecolor": "none", "pad": 0.4, "alpha": 0.85}
}

Positions = dict[int, tuple[float, float]]
"""Where each node is drawn: across and, below the root, minus its depth."""


def node_positions(tree: pd.DataFrame) -> Positions:
    """Return the positions of nodes: leaves in the order of the search, parents above the middle of their children."""
    children = {node: rows["node"].tolist() for node, rows in tree.groupby("parent")}
    depths = dict(zip(tree["node"], tree["depth"], strict=True))
    positions: Positions = {}
    leaves = 0

    def place_subtree(node: int) -> float:
        nonlocal leaves
        child_positions = [place_subtree(child) for child in children.get(node, [])]
        if child_positions:
            across = sum(child_positions) / len(child_positions)
        else:
            across = float(leaves)
            leaves += 1
        positions[node] = (across, -float(depths[node]))
        return across

    place_subtree(0)
    return positions


def draw_comparison(tree: pd.DataFrame) -> "tuple[Figure, pd.DataFrame]":
    """Draw figure 1: what GRPO, GiGPO and 3SPO compare in the same paths, and when they learn.

    Returns:
        The figure, and its rows (``search_example.advantages_by_method``).
    """
    rows = advantages_by_method(tree)
    paths = completed_paths(tree)
    # The cap on generations may end a search with nodes that are on no completed path.
    completed = {node for path in paths for node in path}
    drawn = tree[tree["node"].isin(completed)]
    positions = node_positions(drawn)

    figure, axes = create_panels("page", len(VIEWS), 2.9, across=len(VIEWS))
    for axis, view in zip(axes, VIEWS, strict=True):
        steps = select_rows(rows, view=view)
        if view == "3SPO":
            _draw_sibling_steps(axis, steps, positions)
        else:
            _draw_episodes(axis, steps, positions, len(paths))
        if view == "GiGPO":
            _draw_anchor_states(axis, steps, positions)
        _draw_nodes(axis, drawn, positions)
        axis.set(title=view, xlabel=EXPLANATIONS[view])
        _hide_axes(axis, positions)

    add_legend(figure, _legend_handles())
    return figure, rows


def draw_pipeline(tree: pd.DataFrame) -> "tuple[Figure, pd.DataFrame]":
    """Draw figure 2: a search in the order of its expansions, with score, samples and counts of every state.

    Returns:
        The figure, and the nodes of the tree.
    """
    positions = node_positions(tree)
    figure, (axis,) = create_panels("page", 1, 4.6, across=1)
    # The root has no step that leads to it.
    for row in tree[tree["parent"] >= 0].itertuples():
        _draw_sampled_step(axis, row, positions)
    _draw_nodes(axis, tree, positions)
    for row in tree.itertuples():
        _label_state(axis, row, positions)

    _hide_axes(axis, positions)
    # Positions below the root are negative, and so are the ticks; their labels are depths.
    deepest = int(tree["depth"].max())
    axis.set(ylabel="depth in the path", yticks=range(-deepest, 0))
    axis.yaxis.set_major_formatter(lambda value, _: f"{-value:.0f}")
    axis.grid(visible=False)

    circle = axis.plot(
        [], [], "o", ms=8, mfc="white", mec="#333333", ls="", label="expanded, in this order"
    )
    square = axis.plot([], [], "s", ms=4, color=NEUTRAL, ls="", label=f"not expanded (G_max = {G_MAX})")
    add_legend(figure, [*_legend_handles(), *circle, *square])
    return figure, tree


def _draw_sampled_step(axis: "Axes", row: Any, positions: Positions) -> None:
    """Draw the line from a node's parent to it, the thicker the more samples led there."""
    x, y = positions[row.node]
    parent_x, parent_y = positions[row.parent]
    width = 0.6 + 0.25 * row.samples
    axis.plot([parent_x, x], [parent_y, y], zorder=1, lw=width, **_line_style(row.advantage))
    # A third of the way up, so that labels of siblings do not touch.
    label_x = (parent_x + 2 * x) / 3
    label_y = (parent_y + 2 * y) / 3
    axis.text(label_x, label_y, f"×{row.samples}", fontsize=5, ha="center", va="center", **_TEXT_BOX)


def _label_state(axis: "Axes", row: Any, positions: Positions) -> None:
    """Write the numbers of a state: score, samples and counts where it was expanded, otherwise the counts."""
    x, y = positions[row.node]
    counts = f"{row.successes:.3g}/{row.visits:.3g}"
    if row.expanded < 0:
        text = f"gated, {counts}" if row.gated else counts
        axis.text(x, y - 0.2, text, fontsize=5, ha="center", va="top")
        return

    circle: dict[str, Any] = {"ms": 12, "mfc": "white", "mec": "#333333", "mew": 0.8}
    axis.plot(x, y, "o", zorder=3, **circle)
    # Expansions are counted from 0.
    axis.text(x, y, row.expanded + 1, fontsize=6, ha="center", va="center", zorder=4)
    text = f"S {row.score:.2f}, n {row.rollouts}\n{counts} won"
    # The paper's figure 2 has this example: S = 0.2 gives n = 2.
    is_paper_example = row.rollouts == 2 and round(row.score, 3) == 0.2
    weight = "bold" if is_paper_example else "normal"
    axis.text(x + 0.24, y, text, fontsize=5.5, va="center", weight=weight, zorder=5, **_TEXT_BOX)


def _line_style(advantage: float) -> dict[str, Any]:
    """Return how a step is drawn; with a NaN there was nothing to learn."""
    # Advantages of equal rewards may be rounding errors instead of zeros.
    if math.isnan(advantage) or abs(advantage) <= 1e-9:
        return {"color": NEUTRAL, "linestyle": (0, (1, 1))}
    if advantage > 0:
        return {"color": POSITIVE, "linestyle": "-"}
    return {"color": NEGATIVE, "linestyle": (0, (4, 1.5))}


def _legend_handles() -> list[Any]:
    from matplotlib.lines import Line2D

    # Any number of each sign has the same style.
    advantages = {"advantage above 0": 1.0, "below 0": -1.0, "nothing to learn": 0.0}
    handles = []
    for name, advantage in advantages.items():
        handles.append(Line2D([], [], label=name, **_line_style(advantage)))
    for end, name in (("won", "path is won"), ("limit", "path fails")):
        marker, colour = END_MARKERS[end]
        handles.append(Line2D([], [], ls="", ms=6, marker=marker, color=colour, label=name))
    return handles


def _draw_nodes(axis: "Axes", tree: pd.DataFrame, positions: Positions) -> None:
    for row in tree.itertuples():
        inner = ("o", "#333333") if row.expanded >= 0 else ("s", NEUTRAL)
        marker, colour = END_MARKERS.get(row.end, inner)
        # A star looks smaller than a cross of its size.
        size = 7 if row.end == "won" else 4.5
        axis.plot(*positions[row.node], marker, color=colour, ms=size, zorder=3)


def _draw_episodes(axis: "Axes", rows: pd.DataFrame, positions: Positions, paths: int) -> None:
    """Draw each path as a line of its own, next to the others where they share a step."""
    for path, steps in rows.groupby("path"):
        # The middle path goes through the middle of the nodes.
        shift = (path - (paths - 1) / 2) * 0.09
        last = steps["child"].iloc[-1]
        for step in steps.itertuples():
            x, y = positions[step.node]
            child_x, child_y = positions[step.child]
            # All paths to a leaf end in its middle.
            child_shift = 0.0 if step.child == last else shift
            line_x = [x + shift, child_x + child_shift]
            axis.plot(line_x, [y, child_y], lw=1.1, zorder=2, **_line_style(step.advantage))


def _draw_anchor_states(axis: "Axes", rows: pd.DataFrame, positions: Positions) -> None:
    """Ring the states from which several steps are compared."""
    compared = rows[rows["group"] >= 0].groupby("group")
    for number, (_, steps) in enumerate(compared):
        # A step alone in its group is compared with nothing.
        if len(steps) == 1:
            continue
        ring: dict[str, Any] = {
            "mfc": "none",
            "mec": GROUP_COLOURS[number % len(GROUP_COLOURS)],
            "mew": 1.3,
        }
        for node in set(steps["node"]):
            axis.plot(*positions[node], "o", ms=14, zorder=4, **ring)


def _draw_sibling_steps(axis: "Axes", rows: pd.DataFrame, positions: Positions) -> None:
    """Draw each sampled step once, a bar over the siblings, and the number of the update that they give."""
    for node, steps in rows.groupby("node"):
        x, y = positions[node]
        # A step that several paths share has the same advantage in all of them.
        for step in steps.drop_duplicates("child").itertuples():
            child_x, child_y = positions[step.child]
            axis.plot([x, child_x], [y, child_y], lw=1.4, zorder=2, **_line_style(step.advantage))

        update = int(steps["update"].iloc[0])
        if not update:
            continue
        # At 0.45 of the way down to the children, from the leftmost step to the rightmost.
        across = [positions[child][0] for child in steps["child"]]
        left = x + (min(across) - x) * 0.45
        right = x + (max(across) - x) * 0.45
        bar_y = y - 0.45
        colour = GROUP_COLOURS[(update - 1) % len(GROUP_COLOURS)]
        axis.plot([left, right], [bar_y, bar_y], color=colour, lw=1.3, zorder=2)
        font: dict[str, Any] = {"fontsize": 7, "color": colour, "weight": "bold"}
        axis.text(x + 0.18, y, f"{update}", va="center", zorder=5, **font)


def _hide_axes(axis: "Axes", positions: Positions) -> None:
    """Leave room around the nodes, and nothing of the axes."""
    xs, ys = zip(*positions.values(), strict=True)
    # More room on the right, where the numbers of a state are written.
    axis.set(
        xlim=(min(xs) - 0.6, max(xs) + 1.0),
        ylim=(min(ys) - 0.6, max(ys) + 0.6),
        xticks=[],
        yticks=[],
    )
    axis.spines[:].set_visible(False)
