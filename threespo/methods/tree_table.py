"""The table of search trees, ``trees.parquet``: one row for each node that a recorded search has sampled.

A tree is one epoch's search of one task; a node is a state in it, numbered in order of creation, so that parents come
before children.
"""

import math
from pathlib import Path
from typing import TYPE_CHECKING

from threespo.errors import InputError
from threespo.scoring.reward import RewardTerms
from threespo.tables import read_table

if TYPE_CHECKING:
    import pandas as pd

KEY = ("epoch", "task_id", "node")
"""Identifies a node."""

INTEGERS = ("epoch", "node", "parent", "depth", "expanded", "rollouts")
"""``node`` is 0 for the root, whose ``parent`` is -1 and ``depth`` 1; ``expanded`` is the index in the order of
expansions from 0, or -1; ``rollouts`` is n(s), the samples drawn there."""

COUNTS = ("visits", "successes", "score")
"""N_total, N_success and S(s) of eq. 1 when the search came to the node, or else when it was created."""

REWARDS = ("reward", *RewardTerms._fields, "advantage")
"""Eq. 2 less the penalty for malformed responses, its terms as they enter the sum, and the group's advantage before the
penalty for inadmissible actions; NaN where there is none."""

FLAGS = ("valid", "admissible", "gated")

TEXTS = ("state", "action", "response", "observation")
"""``state`` is the same for equal states in all trees."""

NAMES = ("task_id", "task_type", "goal", "end")

ENDS = ("", "won", "limit", "over")
"""Not ended, won, at the step limit, or ended without being won."""

COLUMNS = (
    "epoch", "task_id", "task_type", "goal", "node", "parent", "depth", "state", "action", "response", "observation",
    "valid", "admissible", "end", "visits", "successes", "score", "gated", "expanded", "rollouts", *REWARDS,
)  # fmt: skip
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
        others = f", as are {len(missing) - 1} others" if len(missing) > 1 else ""
        raise _refuse_table(file, missing[0], f"missing{others}")
    if len(trees):
        _check_types(file, trees)
        _check_values(file, trees)
        _check_parents(file, trees)
        _check_depths(file, trees)
    return trees


def _check_types(file: Path, trees: "pd.DataFrame") -> None:
    # Training imports this module for its columns, and needs no pandas.
    import pandas as pd

    types = pd.api.types
    for names, has_type, expected in (
        (INTEGERS, types.is_integer_dtype, "integers"),
        (FLAGS, types.is_bool_dtype, "true or false"),
        ((*COUNTS, *REWARDS), types.is_numeric_dtype, "numbers"),
    ):
        for name in names:
            if not has_type(trees[name]):
                raise _refuse_table(file, name, f"of type {trees[name].dtype}; expected {expected}")


def _check_values(file: Path, trees: "pd.DataFrame") -> None:
    for name in (*COUNTS, *REWARDS):
        # NaN says that there is no reward or advantage; a count always has a value.
        may_be_nan = name in REWARDS
        wrong = [
            value
            for value in trees[name].tolist()
            if math.isinf(value) or (math.isnan(value) and not may_be_nan)
        ]
        if wrong:
            raise _refuse_table(file, name, f"{wrong[0]} in {len(wrong)} rows; expected finite numbers")

    for name in (*TEXTS, *NAMES):
        if not trees[name].map(lambda value: isinstance(value, str)).all():
            raise _refuse_table(file, name, "not text in every row")

    unknown = sorted(set(trees["end"]) - set(ENDS))
    if unknown:
        expected = ", ".join(map(repr, ENDS))
        raise _refuse_table(file, "end", f"{unknown[0]!r}; expected one of {expected}")


def _check_parents(file: Path, trees: "pd.DataFrame") -> None:
    """Refuse rows that are not trees: each tree has one root, and every parent comes before its children."""
    repeated = trees[trees.duplicated(list(KEY))]
    if len(repeated):
        raise _refuse_table(file, "node", f"{_name_first_node(repeated)} is there twice")

    is_root = trees["node"] == 0
    misplaced = trees[is_root != (trees["parent"] == -1)]
    if len(misplaced):
        parent = misplaced["parent"].iloc[0]
        found = f"{_name_first_node(misplaced)} has parent {parent}; expected -1 for node 0 only"
        raise _refuse_table(file, "parent", found)

    joined = _join_parents(trees)
    # A parent that is no row of the tree has no depth in the join.
    children = joined[joined["node"] != 0]
    orphans = children[children["parent_depth"].isna() | (children["parent"] >= children["node"])]
    if len(orphans):
        parent = orphans["parent"].iloc[0]
        found = f"{_name_first_node(orphans)} has parent {parent}; expected an earlier node of its tree"
        raise _refuse_table(file, "parent", found)


def _check_depths(file: Path, trees: "pd.DataFrame") -> None:
    joined = _join_parents(trees)
    wrong = joined[joined["depth"] != joined["parent_depth"].fillna(0) + 1]
    if len(wrong):
        depth = wrong["depth"].iloc[0]
        found = (
            f"{_name_first_node(wrong)} has {depth}; "
            "expected 1 for the root, 1 more than its parent's below"
        )
        raise _refuse_table(file, "depth", found)


def _join_parents(trees: "pd.DataFrame") -> "pd.DataFrame":
    """Return the rows with ``parent_depth``, NaN for those without a parent."""
    parents = trees[[*KEY, "depth"]].rename(columns={"node": "parent", "depth": "parent_depth"})
    return trees.merge(parents, how="left", on=["epoch", "task_id", "parent"])


def _name_first_node(rows: "pd.DataFrame") -> str:
    row = rows.iloc[0]
    return f"node {row['node']} of task {row['task_id']!r} in epoch {row['epoch']}"


def _refuse_table(file: Path, field: str, found: str) -> InputError:
    return InputError(
        f"{file}: not a table of search trees, field {field!r}: {found}. "
        "Give the trees.parquet of a run, or train the run again."
    )
