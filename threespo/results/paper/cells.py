"""Every cell of the paper's tables of results, with ours: the table ``cells``."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from threespo.methods.registry import full_options
from threespo.policy.endpoint import NOT_RUN
from threespo.results.analysis.comparisons import SAME_ROW
from threespo.results.paper.hyperparameters import compare_hyperparameters, read_hyperparameters
from threespo.results.paper_numbers import (
    DETAILED_ENVIRONMENT,
    NO_VALUE,
    PaperNumbers,
    PaperResults,
    parse_column,
    read_tables_and_figures,
)
from threespo.tables import select_rows

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
"""The paper's row of 3SPO without changes."""

COUNTS = {"rollouts": ("generations", "paper_rollouts"), "unique_states": ("states", "paper_states")}
"""Columns of the efficiency table: ours, and the paper's, in the table ``efficiency``."""

ITEMS_OF_CHANGES = ("ablation", "thresholds", "alpha")
"""Items whose rows are 3SPO with something changed; each change is compared with the 3SPO that it differs least from."""

COLUMNS = (
    "item", "paper_row", "paper_name", "kind", "base_model", "column", "env", "split", "measure", "policy", "method",
    "paper", "paper_std", "mean", "std", "low", "high", "seeds", "episodes", "note", "paper_difference", "difference",
)  # fmt: skip
"""``paper_row`` to ``column`` say which cell of the paper it is, ``env`` to ``method`` which row of ``main`` is ours (of the
table ``efficiency`` in the item of that name); ``policy`` and ``method`` are empty where the study has none. Differences are
from 3SPO, in points."""

OUR_NUMBERS = ("mean", "std", "low", "high")


class PaperRow(NamedTuple):
    """A row of the paper's tables."""

    method: str
    base_model: str


class StudyRow(NamedTuple):
    """A row of the study."""

    policy: str
    method: str


NO_ROW = StudyRow("", "")


@dataclass(frozen=True, slots=True)
class _ItemRows:
    """The rows of one of the paper's tables, and those of the study that stand for them."""

    item: str
    ours: dict[PaperRow, list[StudyRow]]
    full_methods: Mapping[str, str]
    """The 3SPO that each changed method is compared with; empty for tables that are not of changes."""

    @property
    def unchanged(self) -> PaperRow | None:
        """The paper's row that is 3SPO itself."""
        return next((row for row in self.ours if _is_full_method(row)), None)


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

    The rows are in the paper's order; a cell that the study lacks is there once. ``shown`` is what
    ``read_tables_and_figures`` returns.
    """
    # Closed models that were not run have rows without numbers.
    played = main[main["note"] != NOT_RUN]
    records: list[dict[str, Any]] = []
    for item, label in PAPER_LABELS.items():
        item_rows = _rows_of_item(study, item, played, paper, shown[label])
        if item == "efficiency":
            records += _count_cells(item_rows, efficiency, paper)
        else:
            records += _success_cells(item_rows, played, paper, shown[label]["columns"])
    return pd.DataFrame(records, columns=list(COLUMNS))


def or_nan(value: float | None) -> float:
    """Return a number of the paper; NaN where it prints none."""
    return math.nan if value is None else value


def _rows_of_item(
    study: "Study", item: str, played: pd.DataFrame, paper: PaperNumbers, entry: Mapping[str, Any]
) -> _ItemRows:
    """Return the rows of one of the paper's tables, and those of the study that stand for them."""
    # Either a table names its rows and base models, or it has all rows of some kinds.
    rows = []
    for method, base_model in product(entry.get("rows", ()), entry.get("models", ())):
        rows.append(PaperRow(method, base_model))
    printed = {(row, model) for row, model, _ in paper.results.cells}
    for key, kind in paper.results.kinds.items():
        # Controls that no table has are rows without a cell.
        if kind in entry.get("kinds", ()) and key in printed:
            rows.append(PaperRow(*key))

    # A row of the study is in ``main`` once for each environment and split.
    study_rows = played[["policy", "method", "paper_row", "stands_for"]].drop_duplicates()
    ours: dict[PaperRow, list[StudyRow]] = {row: [] for row in rows}
    for record in study_rows.to_dict("records"):
        paper_row = PaperRow(record["paper_row"], record["stands_for"])
        if paper_row in ours:
            ours[paper_row].append(StudyRow(record["policy"], record["method"]))

    if item in ITEMS_OF_CHANGES:
        return _with_full_methods(study, item, ours, set(study_rows["method"]))
    return _ItemRows(item, ours, {})


def _is_full_method(row: PaperRow) -> bool:
    # Some tables have 3SPO under the value that it has for what they change, for example α = 50.
    return SAME_ROW.get(row.method, row.method) == FULL_METHOD


def _with_full_methods(
    study: "Study", item: str, ours: dict[PaperRow, list[StudyRow]], played_methods: set[str]
) -> _ItemRows:
    """Return a table of changes to 3SPO in which only those 3SPO are the paper's 3SPO that a change is compared with."""
    full_methods = [
        name
        for name, entry in study.methods.items()
        if entry.paper_row == FULL_METHOD and name in played_methods
    ]
    changes = []
    for paper_row, study_rows in ours.items():
        if not _is_full_method(paper_row):
            changes += study_rows

    compared: dict[str, str] = {}
    for row in changes:
        nearest = _nearest_method(study, row.method, full_methods)
        if nearest is not None:
            compared[row.method] = nearest

    policies = dict.fromkeys(row.policy for row in changes if row.method in compared)
    shown_methods = dict.fromkeys(compared.values())
    for paper_row, study_rows in ours.items():
        # A study may have this row under its own name, besides its 3SPO.
        has_own_row = any(row.method not in full_methods for row in study_rows)
        if _is_full_method(paper_row) and not has_own_row:
            ours[paper_row] = [StudyRow(policy, name) for policy in policies for name in shown_methods]
    return _ItemRows(item, ours, compared)


def _nearest_method(study: "Study", method: str, candidates: list[str]) -> str | None:
    """Return the candidate that a method differs from in the fewest options, the first of several."""

    def options_of(name: str) -> dict[str, Any]:
        entry = study.methods[name]
        return full_options(entry.method, dict(entry.options))

    options = options_of(method)

    def count_differences(name: str) -> int:
        other_options = options_of(name)
        # A preset is a name for values of other options, which are counted themselves.
        names = {*options, *other_options} - {"preset"}
        return sum(options.get(option) != other_options.get(option) for option in names)

    return min(candidates, key=count_differences, default=None)


def _success_cells(
    item_rows: _ItemRows, played: pd.DataFrame, paper: PaperNumbers, columns: list[str]
) -> Iterator[dict[str, Any]]:
    """Yield the cells of a table of success and score."""
    keys = ["env", "policy", "method", "split"]
    main_rows: dict[tuple[Any, ...], dict[Any, Any]] = {}
    for row in played.to_dict("records"):
        main_rows[tuple(row[key] for key in keys)] = row
    unchanged = item_rows.unchanged

    for paper_row, our_rows in item_rows.ours.items():
        for column in columns:
            env, split, measure = parse_column(column)
            # Columns of the score have its name before theirs.
            prefix = "" if measure == "success" else f"{measure}_"
            printed = paper.results.cells.get((*paper_row, column), NO_VALUE)
            # In a table of changes the paper's own difference is the one from its row of 3SPO.
            full = NO_VALUE
            if unchanged and item_rows.full_methods and paper_row != unchanged:
                full = paper.results.cells.get((*unchanged, column), NO_VALUE)

            # A cell that no row of the study stands for is in the table once, with the paper's number only.
            for our_row in our_rows or [NO_ROW]:
                ours = main_rows.get((env, our_row.policy, our_row.method, split), {})
                full_method = item_rows.full_methods.get(our_row.method, "")
                our_full = main_rows.get((env, our_row.policy, full_method, split), {})
                our_mean = ours.get(f"{prefix}mean", math.nan)
                yield {
                    **_paper_columns(item_rows.item, paper_row, paper.results),
                    "column": column,
                    "env": env,
                    "split": split,
                    "measure": measure,
                    "policy": our_row.policy,
                    "method": our_row.method,
                    "paper": or_nan(printed.mean),
                    "paper_std": or_nan(printed.std),
                    **{name: ours.get(prefix + name, math.nan) for name in OUR_NUMBERS},
                    "seeds": ours.get("seeds", 0),
                    "episodes": ours.get("episodes", 0),
                    "note": ours.get("note", ""),
                    "paper_difference": or_nan(printed.mean) - or_nan(full.mean),
                    "difference": our_mean - our_full.get(f"{prefix}mean", math.nan),
                }


def _count_cells(
    item_rows: _ItemRows, efficiency: pd.DataFrame, paper: PaperNumbers
) -> Iterator[dict[str, Any]]:
    """Yield the cells of the table of efficiency, which has means only."""
    # The paper counts in ALFWorld only.
    counts: dict[StudyRow, dict[Any, Any]] = {}
    for row in select_rows(efficiency, env=DETAILED_ENVIRONMENT).to_dict("records"):
        counts[StudyRow(row["policy"], row["method"])] = row

    not_printed = ("std", "low", "high", "paper_std", "paper_difference", "difference")
    for paper_row, study_rows in item_rows.ours.items():
        printed = paper.efficiency.get((DETAILED_ENVIRONMENT, paper_row.method), {})
        our_rows = [row for row in study_rows if row in counts]
        for column, (our_column, paper_column) in COUNTS.items():
            for our_row in our_rows or [NO_ROW]:
                yield {
                    **_paper_columns(item_rows.item, paper_row, paper.results),
                    "column": column,
                    "env": DETAILED_ENVIRONMENT,
                    "split": "",
                    "measure": our_column,
                    "policy": our_row.policy,
                    "method": our_row.method,
                    **dict.fromkeys(not_printed, math.nan),
                    "paper": printed.get(paper_column, math.nan),
                    "mean": counts.get(our_row, {}).get(our_column, math.nan),
                    "seeds": 0,
                    "episodes": 0,
                    "note": "",
                }


def _paper_columns(item: str, row: PaperRow, results: PaperResults) -> dict[str, str]:
    """Return the columns that name the paper's row."""
    return {
        "item": item,
        "paper_row": row.method,
        "kind": results.kinds.get(row, ""),
        "paper_name": results.names.get(row.method, row.method),
        "base_model": results.names.get(row.base_model, row.base_model),
    }
