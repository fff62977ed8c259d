"""Every cell of the paper's tables of results, with ours beside it: the table ``cells``."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from threespo.methods.registry import full_options
from threespo.policy.endpoint import NOT_RUN
from threespo.results.paper.hyperparameters import compare_hyperparameters, read_hyperparameters
from threespo.results.paper_numbers import (
    DETAILED_ENVIRONMENT,
    NO_VALUE,
    PaperNumbers,
    PaperResults,
    parse_column,
    read_tables_and_figures,
)

if TYPE_CHECKING:
    from threespo.study.config import Study

PAPER_LABELS = {
    "main_table": "tab:main_results",
    "ablation": "tab:ablation",
    "thresholds": "tab:thresholds",
    "alpha": "tab:alpha",
    "efficiency": "tab:efficiency",
}
"""The paper's label of each item."""

FULL_METHOD = "3spo"

SAME_ROW = {"3spo_alpha_50": FULL_METHOD, "3spo_xi_10_zeta_01": FULL_METHOD}
"""Rows of the sensitivity tables that are 3SPO itself, and so need no run of their own."""

COUNTS = {"rollouts": ("generations", "paper_rollouts"), "unique_states": ("states", "paper_states")}
"""Columns of the efficiency table: ours, and the paper's, in the table ``efficiency``."""

ITEMS_OF_CHANGES = ("ablation", "thresholds", "alpha")
"""Items whose rows are 3SPO with something changed: beside them stands the 3SPO that they differ least from."""

COLUMNS = (
    "item", "paper_row", "paper_name", "kind", "base_model", "column", "env", "split", "measure", "policy", "method",
    "paper", "paper_std", "mean", "std", "low", "high", "seeds", "episodes", "note", "paper_difference", "difference",
)  # fmt: skip
"""``paper_row`` to ``column`` say which cell of the paper it is, ``env`` to ``method`` which row of ``main`` is ours (of the
table ``efficiency`` in the item of that name); ``policy`` and ``method`` are empty where the study has none. Differences are
from 3SPO, in points."""

Line = tuple[str, str]
"""A row of the paper: method and base model."""

Ours = tuple[str, str]
"""A row of the study: policy and method."""

_NUMBERS = ("mean", "std", "low", "high")


@dataclass(frozen=True, slots=True)
class _Table:
    """One of the paper's tables, and what the study has of it."""

    item: str
    lines: list[Line]
    ours: dict[Line, list[Ours]]
    full: Mapping[str, str]
    """Of each method the 3SPO that it is compared with."""


def compare_with_paper(
    study: "Study", main: pd.DataFrame, efficiency: pd.DataFrame, paper: PaperNumbers
) -> dict[str, pd.DataFrame]:
    """Return the tables ``cells`` and ``hyperparameters``: what the paper prints, and what the study has in its place."""
    return {
        "cells": compare_cells(study, main, efficiency, paper, read_tables_and_figures()),
        "hyperparameters": compare_hyperparameters(study, read_hyperparameters()),
    }


def compare_cells(
    study: "Study",
    main: pd.DataFrame,
    efficiency: pd.DataFrame,
    paper: PaperNumbers,
    shown: Mapping[str, Mapping[str, Any]],
) -> pd.DataFrame:
    """Return a row for each cell of the paper's tables and each of the study's rows that stands for it.

    Args:
        study: the study.
        main: the table ``main``.
        efficiency: the table ``efficiency``.
        paper: its numbers.
        shown: its tables, as ``read_shown`` returns them.

    Returns:
        A frame with the columns ``COLUMNS``, in the paper's order; a cell that the study lacks is there once.
    """
    played = main[main["note"] != NOT_RUN]
    found = {
        (row["env"], row["policy"], row["method"], row["split"]): row
        for row in played.to_dict("records")
    }
    counted = {
        (row["policy"], row["method"]): row
        for row in efficiency[efficiency["env"] == DETAILED_ENVIRONMENT].to_dict("records")
    }

    rows: list[dict[str, Any]] = []
    for item, label in PAPER_LABELS.items():
        table = _table(study, item, played, paper, shown[label])
        if item == "efficiency":
            rows += _counts(table, counted, paper)
        else:
            rows += _successes(table, found, paper, shown[label]["columns"])
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _table(
    study: "Study", item: str, played: pd.DataFrame, paper: PaperNumbers, entry: Mapping[str, Any]
) -> _Table:
    """Return the rows of one of the paper's tables, and those of the study that stand for them."""
    lines = [(row, model) for row in entry.get("rows", ()) for model in entry.get("models", ())]
    # Controls that no table has are rows without a cell.
    printed = {(row, model) for row, model, _ in paper.results.cells}
    lines += [
        line
        for line, kind in paper.results.kinds.items()
        if kind in entry.get("kinds", ()) and line in printed
    ]

    there = played[["policy", "method", "paper_row", "stands_for"]].drop_duplicates()
    ours: dict[Line, list[Ours]] = {line: [] for line in lines}
    for row in there.to_dict("records"):
        line = (row["paper_row"], row["stands_for"])
        if line in ours:
            ours[line].append((row["policy"], row["method"]))
    return (
        _changed(study, item, ours, there) if item in ITEMS_OF_CHANGES else _Table(item, lines, ours, {})
    )


def _changed(study: "Study", item: str, ours: dict[Line, list[Ours]], there: pd.DataFrame) -> _Table:
    """Return a table of changes to 3SPO, with the study's own 3SPO beside its changes and beside nothing else."""
    fulls = [
        name
        for name, entry in study.methods.items()
        if entry.paper_row == FULL_METHOD and name in set(there["method"])
    ]
    unchanged = [line for line in ours if SAME_ROW.get(line[0], line[0]) == FULL_METHOD]
    changes = [pair for line, pairs in ours.items() if line not in unchanged for pair in pairs]
    full = {method: nearest for _, method in changes if (nearest := _nearest(study, method, fulls))}

    for line in unchanged:
        # A study may have this row under its own name.
        if not any(method not in fulls for _, method in ours[line]):
            policies = dict.fromkeys(policy for policy, method in changes if method in full)
            ours[line] = [(policy, name) for policy in policies for name in dict.fromkeys(full.values())]
    return _Table(item, list(ours), ours, full)


def _nearest(study: "Study", method: str, fulls: list[str]) -> str | None:
    """Return the 3SPO that a method differs from in the fewest options, the first of several."""
    own = full_options(study.methods[method].method, dict(study.methods[method].options))

    def differences(name: str) -> int:
        other = full_options(study.methods[name].method, dict(study.methods[name].options))
        return sum(own.get(option) != other.get(option) for option in {*own, *other} - {"preset"})

    return min(fulls, key=differences, default=None)


def _successes(
    table: _Table,
    found: Mapping[tuple[str, str, str, str], Mapping[Any, Any]],
    paper: PaperNumbers,
    columns: list[str],
) -> Iterator[dict[str, Any]]:
    cells, names = paper.results.cells, paper.results
    unchanged = next(
        (line for line in table.lines if SAME_ROW.get(line[0], line[0]) == FULL_METHOD), None
    )
    for line in table.lines:
        for column in columns:
            env, split, measure = parse_column(column)
            prefix = "" if measure == "success" else f"{measure}_"
            value = cells.get((*line, column), NO_VALUE)
            base = (
                cells.get((*unchanged, column), NO_VALUE)
                if unchanged and table.full and line != unchanged
                else NO_VALUE
            )
            for policy, method in table.ours[line] or [("", "")]:
                row = found.get((env, policy, method, split), {})
                own = found.get((env, policy, table.full.get(method, ""), split), {})
                yield {
                    **_labels(table, line, names),
                    **{
                        "column": column,
                        "env": env,
                        "split": split,
                        "measure": measure,
                        "policy": policy,
                        "method": method,
                    },
                    **{"paper": or_nan(value.mean), "paper_std": or_nan(value.std)},
                    **{name: row.get(prefix + name, math.nan) for name in _NUMBERS},
                    **{
                        "seeds": row.get("seeds", 0),
                        "episodes": row.get("episodes", 0),
                        "note": row.get("note", ""),
                    },
                    "paper_difference": or_nan(value.mean) - or_nan(base.mean),
                    "difference": row.get(prefix + "mean", math.nan)
                    - own.get(prefix + "mean", math.nan),
                }


def _counts(
    table: _Table, counted: Mapping[Ours, Mapping[Any, Any]], paper: PaperNumbers
) -> Iterator[dict[str, Any]]:
    nothing = dict.fromkeys(
        ("std", "low", "high", "paper_std", "paper_difference", "difference"), math.nan
    )
    for line in table.lines:
        printed = paper.efficiency.get((DETAILED_ENVIRONMENT, line[0]), {})
        for column, (ours, theirs) in COUNTS.items():
            for pair in [one for one in table.ours[line] if one in counted] or [("", "")]:
                yield {
                    **_labels(table, line, paper.results),
                    **{"column": column, "env": DETAILED_ENVIRONMENT, "split": "", "measure": ours},
                    **{"policy": pair[0], "method": pair[1]},
                    **nothing,
                    **{
                        "paper": printed.get(theirs, math.nan),
                        "mean": counted.get(pair, {}).get(ours, math.nan),
                    },
                    **{"seeds": 0, "episodes": 0, "note": ""},
                }


def _labels(table: _Table, line: Line, results: PaperResults) -> dict[str, str]:
    names = {
        "paper_name": results.names.get(line[0], line[0]),
        "base_model": results.names.get(line[1], line[1]),
    }
    return {"item": table.item, "paper_row": line[0], "kind": results.kinds.get(line, ""), **names}


def or_nan(value: float | None) -> float:
    """Return a number of the paper; NaN where it prints none."""
    return math.nan if value is None else value
