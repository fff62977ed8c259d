"""Figures 3a and 3d: success on unseen games against what training has cost so far."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from threespo.results.analysis.statistics import mean_interval
from threespo.results.labels import label, styles, titled
from threespo.results.paper.layout import add_legend, create_panels, format_percent, format_thousands
from threespo.study.catalogue import UNIFORM_ROWS
from threespo.study.confirmatory import MIN_SEEDS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CURVES = ("grpo", "gigpo", "hgpo", "3spo")
"""The paper's rows in figure 3a."""

UNIT_LABELS = {"optimizer_steps": "optimizer steps", "seconds": "seconds of training"}

DRAWN_COLUMNS = ("env", "policy", "method", "unit", "snapshot", "seeds", "at", "mean", "low", "high")


def select_paper_methods(points: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of figure 3a: those of the paper's methods, or all in a study that has none of them."""
    theirs = points[points["paper_row"].isin(CURVES)]
    return theirs if len(theirs) else points


def select_uniform_rows(points: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of figure 3d: 3SPO with a uniform number of samples, and as it is with the same presets."""
    uniform = points["paper_row"].isin(UNIFORM_ROWS)
    adaptive = (points["paper_row"] == "3spo") & points["preset"].isin(points.loc[uniform, "preset"])
    return points[uniform | adaptive]


def draw_curves(points: pd.DataFrame, units: Sequence[str]) -> "tuple[Figure, pd.DataFrame]":
    """Draw success against each unit, a row of panels for each environment and policy.

    A point is the mean over training seeds with its t interval, where there are at least ``MIN_SEEDS``; with fewer each
    seed is a thin line. A snapshot that some seed lacks is left out of means.

    Args:
        points: rows of the table ``learning``, with a column for each unit.
        units: what success is drawn against.

    Returns:
        The figure, and the means over seeds: ``DRAWN_COLUMNS``, success in 0 to 1, ends of intervals NaN with fewer seeds.
    """
    from matplotlib.lines import Line2D

    panels = [
        (place, unit)
        for place in dict.fromkeys(zip(points["env"], points["policy"], strict=True))
        for unit in units
    ]
    environments, methods = list(dict.fromkeys(points["env"])), list(dict.fromkeys(points["method"]))
    drawn_as = styles(methods)
    figure, axes = create_panels(None, len(panels), 2.1, across=len(units) if len(units) > 1 else 3)

    rows: list[dict[str, Any]] = []
    for axis, ((env, policy), unit) in zip(axes, panels, strict=True):
        here = points[(points["env"] == env) & (points["policy"] == policy)]
        for method in dict.fromkeys(here["method"]):
            means = _means(here[here["method"] == method], unit)
            rows += means
            _curve(axis, here[here["method"] == method], means, unit, drawn_as[method])
        axis.set(xlabel=UNIT_LABELS.get(unit, unit), ylim=(0, 1), xlim=(0, None))
        format_thousands(axis)
        format_percent(axis)
        if unit == units[0]:
            axis.set(
                title=titled(policy, env, environments),
                ylabel=f"success, {label(here['split'].iloc[0], env)}",
            )
    add_legend(
        figure, [Line2D([], [], ms=4, label=label(method), **drawn_as[method]) for method in methods]
    )
    return figure, pd.DataFrame(rows, columns=list(DRAWN_COLUMNS))


def _means(curves: pd.DataFrame, unit: str) -> list[dict[str, Any]]:
    """Return the means over seeds of one method's curves, snapshot by snapshot."""
    seeds, rows = curves["training_seed"].nunique(), []
    for snapshot, group in curves.groupby("snapshot", sort=True):
        if len(group) < seeds:
            continue
        # The base is one policy, whichever seed's curve begins with it.
        found = mean_interval(group["success"].tolist() if snapshot else group["success"].tolist()[:1])
        first = group.iloc[0]
        values = (
            first["env"],
            first["policy"],
            first["method"],
            unit,
            snapshot,
            seeds,
            group[unit].mean(),
        )
        rows.append(
            dict(zip(DRAWN_COLUMNS, (*values, found.estimate, found.low, found.high), strict=True))
        )
    return rows


def _curve(
    axis: "Axes", curves: pd.DataFrame, means: list[dict[str, Any]], unit: str, style: dict[str, Any]
) -> None:
    if curves["training_seed"].nunique() < MIN_SEEDS:
        for _, seed in curves.groupby("training_seed", sort=True):
            axis.plot(seed[unit], seed["success"], lw=0.8, ms=3, **style)
        return
    at, mean = [row["at"] for row in means], [row["mean"] for row in means]
    low, high = (
        [min(max(row[end], 0.0), 1.0) for row in means if row["snapshot"]] for end in ("low", "high")
    )
    axis.plot(at, mean, ms=4, **style)
    axis.fill_between(
        [row["at"] for row in means if row["snapshot"]],
        low,
        high,
        color=style["color"],
        alpha=0.15,
        lw=0,
    )
