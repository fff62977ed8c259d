"""Figures 3a and 3d: success on unseen games against what training has cost so far."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from threespo.results.analysis.statistics import mean_interval
from threespo.results.labels import label, styles, titled
from threespo.results.paper.layout import add_legend, create_panels, format_percent, format_thousands
from threespo.study.catalogue import UNIFORM_ROWS
from threespo.study.confirmatory import MIN_SEEDS
from threespo.tables import select_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CURVES = ("grpo", "gigpo", "hgpo", "3spo")
"""The paper's rows in figure 3a."""

UNIT_LABELS = {"optimizer_steps": "optimizer steps", "seconds": "seconds of training"}

DRAWN_COLUMNS = ("env", "policy", "method", "unit", "snapshot", "seeds", "at", "mean", "low", "high")


def select_paper_methods(points: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of figure 3a: those of the paper's methods, or all in a study that has none of them."""
    of_paper = points[points["paper_row"].isin(CURVES)]
    return of_paper if len(of_paper) else points


def select_uniform_rows(points: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of figure 3d: 3SPO with a uniform number of samples, and as it is with the same presets."""
    is_uniform = points["paper_row"].isin(UNIFORM_ROWS)
    has_preset = points["preset"].isin(points.loc[is_uniform, "preset"])
    is_adaptive = (points["paper_row"] == "3spo") & has_preset
    return points[is_uniform | is_adaptive]


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

    settings = points[["env", "policy"]].drop_duplicates().to_dict("records")
    panels = [(setting, unit) for setting in settings for unit in units]
    # A row has the units of one setting or, where there is one unit, several settings.
    across = len(units) if len(units) > 1 else 3
    figure, axes = create_panels(None, len(panels), 2.1, across=across)

    environments = list(dict.fromkeys(points["env"]))
    methods = list(dict.fromkeys(points["method"]))
    line_styles = styles(methods)
    rows: list[dict[str, Any]] = []
    for axis, (setting, unit) in zip(axes, panels, strict=True):
        in_panel = select_rows(points, **setting)
        for method, curves in in_panel.groupby("method", sort=False):
            means = _means_over_seeds(curves, unit)
            rows += means
            _draw_curve(axis, curves, means, unit, line_styles[str(method)])

        axis.set(xlabel=UNIT_LABELS.get(unit, unit), ylim=(0, 1), xlim=(0, None))
        format_thousands(axis)
        format_percent(axis)
        if unit == units[0]:
            env = setting["env"]
            split = in_panel["split"].iloc[0]
            axis.set_title(titled(setting["policy"], env, environments))
            axis.set_ylabel(f"success, {label(split, env)}")

    handles = []
    for method in methods:
        handles.append(Line2D([], [], ms=4, label=label(method), **line_styles[method]))
    add_legend(figure, handles)
    return figure, pd.DataFrame(rows, columns=list(DRAWN_COLUMNS))


def _means_over_seeds(curves: pd.DataFrame, unit: str) -> list[dict[str, Any]]:
    """Return the means over seeds of one method's curves, snapshot by snapshot."""
    seeds = curves["training_seed"].nunique()
    rows = []
    for snapshot, group in curves.groupby("snapshot", sort=True):
        # Where a seed is missing, the curve would jump because the mean is over other runs.
        if len(group) < seeds:
            continue
        successes = group["success"].tolist()
        # Snapshot 0 is the base: all seeds' curves begin with the same policy, which is no sample over seeds.
        interval = mean_interval(successes if snapshot else successes[:1])
        first = group.iloc[0]
        rows.append(
            {
                "env": first["env"],
                "policy": first["policy"],
                "method": first["method"],
                "unit": unit,
                "snapshot": snapshot,
                "seeds": seeds,
                "at": group[unit].mean(),
                "mean": interval.estimate,
                "low": interval.low,
                "high": interval.high,
            }
        )
    return rows


def _draw_curve(
    axis: "Axes", curves: pd.DataFrame, means: list[dict[str, Any]], unit: str, style: dict[str, Any]
) -> None:
    # A t interval from two seeds has one degree of freedom and would fill the panel.
    if curves["training_seed"].nunique() < MIN_SEEDS:
        for _, seed_curve in curves.groupby("training_seed", sort=True):
            axis.plot(seed_curve[unit], seed_curve["success"], lw=0.8, ms=3, **style)
        return

    all_costs = [row["at"] for row in means]
    success = [row["mean"] for row in means]
    axis.plot(all_costs, success, ms=4, **style)
    # The base has no interval over seeds.
    trained = [row for row in means if row["snapshot"]]
    costs = [row["at"] for row in trained]
    # A t interval may reach beyond the values that success can have.
    low = [min(max(row["low"], 0.0), 1.0) for row in trained]
    high = [min(max(row["high"], 0.0), 1.0) for row in trained]
    axis.fill_between(costs, low, high, color=style["color"], alpha=0.15, lw=0)
