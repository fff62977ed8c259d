"""Success of trials against their learning rate: what each method does with smaller and larger steps than the chosen."""

from typing import TYPE_CHECKING, Any

import pandas as pd

from threespo.results.analysis.statistics import mean_interval
from threespo.results.labels import label, styles, titled
from threespo.results.paper.layout import add_legend, create_panels, format_percent
from threespo.study.confirmatory import MIN_SEEDS
from threespo.tables import select_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DRAWN_COLUMNS = (
    "env", "policy", "split", "method", "learning_rate", "seeds", "mean", "low", "high", "base", "base_low", "base_high",
    "chosen", "at_edge",
)  # fmt: skip

BASE_COLOUR = "#666666"

CHOSEN: dict[str, Any] = {"marker": "o", "ms": 8, "mfc": "none", "mec": "black", "mew": 0.8, "lw": 0}
"""The ring around the chosen rate."""


def draw_rates(rates: pd.DataFrame) -> "tuple[Figure, pd.DataFrame]":
    """Draw success against the learning rate, a panel for each environment, policy and split that trials were judged on.

    Lines are means over training seeds; bands are 95 % t intervals where there are at least ``MIN_SEEDS``. The grey line is
    the untrained base with its interval over clusters of tasks. A ring marks the chosen rate.

    Args:
        rates: the table ``rates``.

    Returns:
        The figure, and what is drawn: ``DRAWN_COLUMNS``, success in 0 to 1.
    """
    from matplotlib.lines import Line2D

    keys = ["env", "policy", "split"]
    panels = rates[keys].drop_duplicates().to_dict("records")
    figure, axes = create_panels(None, len(panels), 2.1, across=3)
    environments = list(dict.fromkeys(rates["env"]))
    methods = list(dict.fromkeys(rates["method"]))
    line_styles = styles(methods)

    rows: list[dict[str, Any]] = []
    for axis, panel in zip(axes, panels, strict=True):
        in_panel = select_rows(rates, **panel)
        _draw_base(axis, in_panel)
        for method, trials in in_panel.groupby("method", sort=False):
            means = _means_over_seeds(trials)
            rows += [{**panel, "method": method, **mean} for mean in means]
            _draw_method(axis, means, line_styles[str(method)])
        axis.set(xscale="log", xlabel="learning rate", ylim=(0, 1))
        format_percent(axis)
        axis.set_title(titled(panel["policy"], panel["env"], environments))
        axis.set_ylabel(f"success, {label(panel['split'], panel['env'])}")

    handles = [Line2D([], [], ms=4, label=label(method), **line_styles[method]) for method in methods]
    if handles:
        handles.append(Line2D([], [], color=BASE_COLOUR, label="untrained base"))
        handles.append(Line2D([], [], label="chosen", **CHOSEN))
    add_legend(figure, handles)
    return figure, pd.DataFrame(rows, columns=list(DRAWN_COLUMNS))


def _means_over_seeds(trials: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the mean over training seeds of each rate, rising, with the base beside it."""
    rows = []
    for rate, group in trials.groupby("learning_rate", sort=True):
        interval = mean_interval((group["success"] / 100).tolist())
        first = group.iloc[0]
        rows.append(
            {
                "learning_rate": rate,
                "seeds": len(group),
                "mean": interval.estimate,
                "low": interval.low,
                "high": interval.high,
                "base": first["base_success"] / 100,
                "base_low": first["base_low"] / 100,
                "base_high": first["base_high"] / 100,
                "chosen": first["chosen"],
                "at_edge": first["at_edge"],
            }
        )
    return rows


def _draw_base(axis: "Axes", trials: pd.DataFrame) -> None:
    first = trials.iloc[0]
    axis.axhline(first["base_success"] / 100, color=BASE_COLOUR, lw=1)
    if pd.notna(first["base_low"]):
        axis.axhspan(
            first["base_low"] / 100, first["base_high"] / 100, color=BASE_COLOUR, alpha=0.12, lw=0
        )


def _draw_method(axis: "Axes", means: list[dict[str, Any]], style: dict[str, Any]) -> None:
    tried = [row["learning_rate"] for row in means]
    axis.plot(tried, [row["mean"] for row in means], ms=4, **style)
    # A t interval from two seeds would fill the panel.
    if all(row["seeds"] >= MIN_SEEDS for row in means):
        # It may reach beyond the values that success can have.
        low = [min(max(row["low"], 0.0), 1.0) for row in means]
        high = [min(max(row["high"], 0.0), 1.0) for row in means]
        axis.fill_between(tried, low, high, color=style["color"], alpha=0.15, lw=0)
    for row in means:
        if row["chosen"]:
            axis.plot(row["learning_rate"], row["mean"], **CHOSEN)
