"""The table of search trees, ``trees.parquet``: one row for each node that a recorded search has sampled.

A tree is one epoch's search of one task; a node is a state in it, numbered in order of creation, so that parents come
before children.
"""

import math
from pathlib import Path
from typing import TYPE_CHECKING

from threespo.errors import InputError
from threespo.tables import read_table

if TYPE_CHECKING:
    import pandas as pd

KEY = ("epoch", "task_id", "node")
"""What tells nodes apart."""

INTEGERS = ("epoch", "node", "parent", "depth", "expanded", "rollouts")
"""``node`` is 0 for the root, whose ``parent`` is -1 and ``depth`` 1; ``expanded`` is the place in the order of
expansions from 0, or -1; ``rollouts`` is n(s), the samples that were drawn there."""

COUNTS = ("visits", "successes", "score")
"""N_total, N_success and S(s) of eq. 1 when the search came to the node, or else when it was created."""

REWARDS = ("reward", "novelty", "difference", "success", "advantage")
"""Eq. 2 less the penalty for malformed responses, its three terms as they enter the sum, and the group's advantage before
the penalty for inadmissible actions; NaN where there is none."""

FLAGS = ("valid", "admissible", "gated")

TEXTS = ("state", "action", "response", "observation")
"""``state`` is the same for equal states in all trees."""

NAMES = ("task_id", "task_type", "goal", "end")

ENDS = ("", "won", "limit", "over")
"""Nothing, won, at the step limit, or over without being won."""

COLUMNS = (
    "epoch",
    "task_id",
    "task_type",
    "goal",
    "node",
    "parent",
    "depth",
    "state",
    "action",
    "response",
    "observation",
    "valid",
    "admissible",
    "end",
    "visits",
    "successes",
    "score",
    "gated",
    "expanded",
    "rollouts",
    "reward",
    "novelty",
    "difference",
    "success",
    "advantage",
)
"""In the order in which they are written."""


def read_trees(file: Path) -> "pd.DataFrame":
    """Read a table of trees and check that it is one.

    Raises:
        InputError: if it is missing, lacks a column, or its rows are not trees.
    """
    if not file.is_file():
        raise InputError(
            f"{file}: there is no such file. Search trees are recorded by the methods that search them (3SPO, its presets "
            "and ablations) where the study's field `training.recorded_tasks` turns it on; set it and train the run again."
        )
    trees = read_table(file)
    missing = [name for name in COLUMNS if name not in trees]
    if missing:
        raise _refused(
            file, missing[0], f"missing, as are {len(missing) - 1} others" if missing[1:] else "missing"
        )
    if len(trees):
        _check_values(file, trees)
        _check_parents(file, trees)
    return trees


def _check_values(file: Path, trees: "pd.DataFrame") -> None:
    import pandas as pd

    types = pd.api.types
    for names, fits, expected in (
        (INTEGERS, types.is_integer_dtype, "integers"),
        (FLAGS, types.is_bool_dtype, "true or false"),
        ((*COUNTS, *REWARDS), types.is_numeric_dtype, "numbers"),
    ):
        for name in names:
            if not fits(trees[name]):
                raise _refused(file, name, f"of type {trees[name].dtype}; expected {expected}")
    for name in (*COUNTS, *REWARDS):
        bad = [
            value
            for value in trees[name].tolist()
            if math.isinf(value) or (name in COUNTS and math.isnan(value))
        ]
        if bad:
            raise _refused(file, name, f"{bad[0]} in {len(bad)} rows; expected finite numbers")
    for name in (*TEXTS, *NAMES):
        if not trees[name].map(lambda value: isinstance(value, str)).all():
            raise _refused(file, name, "not text in every row")
    if unknown := sorted(set(trees["end"]) - set(ENDS)):
        raise _refused(file, "end", f"{unknown[0]!r}; expected one of {', '.join(map(repr, ENDS))}")


def _check_parents(file: Path, trees: "pd.DataFrame") -> None:
    """Refuse rows that are not trees: what is left has one root each, and every parent before its children."""
    again = trees[trees.duplicated(list(KEY))]
    if len(again):
        raise _refused(file, "node", f"{_place(again)} is there twice")

    root = trees["node"] == 0
    astray = trees[root != (trees["parent"] == -1)]
    if len(astray):
        found = astray["parent"].iloc[0]
        raise _refused(
            file, "parent", f"{_place(astray)} has parent {found}; expected -1 for node 0 only"
        )

    above = trees[[*KEY, "depth"]].rename(columns={"node": "parent", "depth": "above"})
    joined = trees.merge(above, how="left", on=["epoch", "task_id", "parent"])
    children = joined[joined["node"] != 0]
    unknown = children[children["above"].isna() | (children["parent"] >= children["node"])]
    if len(unknown):
        found = unknown["parent"].iloc[0]
        raise _refused(
            file, "parent", f"{_place(unknown)} has parent {found}; expected an earlier node of its tree"
        )

    wrong = joined[joined["depth"] != joined["above"].fillna(0) + 1]
    if len(wrong):
        found = wrong["depth"].iloc[0]
        raise _refused(
            file,
            "depth",
            f"{_place(wrong)} has {found}; expected 1 for the root, 1 more than its parent's below",
        )


def _place(rows: "pd.DataFrame") -> str:
    row = rows.iloc[0]
    return f"node {row['node']} of task {row['task_id']!r} in epoch {row['epoch']}"


def _refused(file: Path, field: str, found: str) -> InputError:
    return InputError(
        f"{file}: not a table of search trees, field {field!r}: {found}. "
        "Give the trees.parquet of a run, or train the run again."
    )
