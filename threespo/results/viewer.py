"""The search trees of a run as one page that can be explored: no network, no other file.

A run of 3SPO that records its trees has ``trees.parquet``, one row for each node. A tree is what one epoch's search of
one task has sampled; a node is a state in it, numbered in order of creation, so that parents come before children.
"""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd

from threespo.errors import InputError
from threespo.files import atomic_text
from threespo.tables import read_table

TEMPLATES = Path(__file__).parent / "templates"

TREES = "trees.parquet"
"""Name of the table in a run's folder."""

KEY = ("epoch", "task_id", "node")
"""What tells nodes apart."""

INTEGERS = ("epoch", "node", "parent", "depth", "expanded", "rollouts")
"""``node`` is 0 for the root, whose ``parent`` is -1 and ``depth`` 1; ``expanded`` is the place in the order of
expansions from 0, or -1; ``rollouts`` is n(s), the samples that were drawn there."""

COUNTS = ("visits", "successes", "score")
"""N_total, N_success and S(s) of eq. 1 when the node was expanded, or else created."""

REWARDS = ("reward", "novelty", "difference", "success", "advantage")
"""Eq. 2 with its three terms as they enter the sum, and eq. 5; NaN where there is none."""

FLAGS = ("valid", "admissible", "gated")

TEXTS = ("state", "action", "response", "observation")
"""``state`` is the same for equal states in all trees."""

NAMES = ("task_id", "task_type", "goal", "end")

ENDS = ("", "won", "limit")

COLUMNS = (*INTEGERS, *COUNTS, *REWARDS, *FLAGS, *TEXTS, *NAMES)

DIGITS = 6
"""Significant digits of the page's numbers."""


def write_view(file: Path, out: Path, title: str, task: str | None = None) -> None:
    """Write the page of the trees in ``file``, of one task only if ``task`` is its ``task_id``.

    Raises:
        InputError: if the file is missing or wrong, or holds no tree of that task.
    """
    trees = read_trees(file)
    if task is not None:
        known = sorted(set(trees["task_id"]))
        if task not in known:
            some = ", ".join(map(repr, known[:5])) + (f" and {len(known) - 5} more" if known[5:] else "")
            raise InputError(f"{file}: no tree of task {task!r}; recorded are {some or 'none at all'}. Choose another one.")
        trees = trees[trees["task_id"] == task]
    atomic_text(out, render_trees(trees, title))


def read_trees(file: Path) -> pd.DataFrame:
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
        raise _refused(file, missing[0], f"missing, as are {len(missing) - 1} others" if missing[1:] else "missing")
    if len(trees):
        _check_values(file, trees)
        _check_parents(file, trees)
    return trees


def render_trees(trees: pd.DataFrame, title: str) -> str:
    """Return the page as HTML. ``trees`` has ``COLUMNS`` and is sound, as :func:`read_trees` returns it."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined
    )
    # The filter `tojson` escapes <, >, & and ': no text of an environment or a model can end the script element.
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return environment.get_template("viewer.html").render(title=title, data=_data(trees))


def _check_values(file: Path, trees: pd.DataFrame) -> None:
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
        bad = [value for value in trees[name].tolist() if math.isinf(value) or (name in COUNTS and math.isnan(value))]
        if bad:
            raise _refused(file, name, f"{bad[0]} in {len(bad)} rows; expected finite numbers")
    for name in (*TEXTS, *NAMES):
        if not trees[name].map(lambda value: isinstance(value, str)).all():
            raise _refused(file, name, "not text in every row")
    if strange := sorted(set(trees["end"]) - set(ENDS)):
        raise _refused(file, "end", f"{strange[0]!r}; expected one of {', '.join(map(repr, ENDS))}")


def _check_parents(file: Path, trees: pd.DataFrame) -> None:
    """Refuse rows that are not trees: what is left has one root each, and every parent before its children."""
    again = trees[trees.duplicated(list(KEY))]
    if len(again):
        raise _refused(file, "node", f"{_place(again)} is there twice")
    root = trees["node"] == 0
    astray = trees[root != (trees["parent"] == -1)]
    if len(astray):
        found = astray["parent"].iloc[0]
        raise _refused(file, "parent", f"{_place(astray)} has parent {found}; expected -1 for node 0 only")
    above = trees[[*KEY, "depth"]].rename(columns={"node": "parent", "depth": "above"})
    joined = trees.merge(above, how="left", on=["epoch", "task_id", "parent"])
    children = joined[joined["node"] != 0]
    unknown = children[children["above"].isna() | (children["parent"] >= children["node"])]
    if len(unknown):
        found = unknown["parent"].iloc[0]
        raise _refused(file, "parent", f"{_place(unknown)} has parent {found}; expected an earlier node of its tree")
    wrong = joined[joined["depth"] != joined["above"].fillna(0) + 1]
    if len(wrong):
        found = wrong["depth"].iloc[0]
        raise _refused(
            file, "depth", f"{_place(wrong)} has {found}; expected 1 for the root, 1 more than its parent's below"
        )


def _place(rows: pd.DataFrame) -> str:
    row = rows.iloc[0]
    return f"node {row['node']} of task {row['task_id']!r} in epoch {row['epoch']}"


def _refused(file: Path, field: str, found: str) -> InputError:
    return InputError(f"{file}: not a table of search trees, field {field!r}: {found}. Delete it and train the run again.")


def _data(trees: pd.DataFrame) -> dict[str, Any]:
    """Return what the page is drawn from: tasks, their trees by epoch, a tree column by column, each text once."""
    texts: dict[str, int] = {}
    tasks = [
        {
            "id": task_id,
            "type": task_type,
            "goal": goal,
            "trees": [_tree(int(epoch), nodes, texts) for epoch, nodes in rows.groupby("epoch")],
        }
        for (task_type, goal, task_id), rows in trees.groupby(["task_type", "goal", "task_id"])
    ]
    return {"tasks": tasks, "texts": list(texts)}


def _tree(epoch: int, rows: pd.DataFrame, texts: dict[str, int]) -> dict[str, Any]:
    """Return one tree; its parents are places in its columns, not numbers of nodes."""
    rows = rows.sort_values("node")
    place = {number: index for index, number in enumerate(rows["node"].tolist())}
    columns: dict[str, Any] = {name: rows[name].tolist() for name in INTEGERS if name not in ("epoch", "parent")}
    columns["parent"] = [place.get(number, -1) for number in rows["parent"].tolist()]
    columns["end"] = rows["end"].tolist()
    for name in FLAGS:
        columns[name] = [int(value) for value in rows[name].tolist()]
    for name in TEXTS:
        columns[name] = [texts.setdefault(text, len(texts)) for text in rows[name].tolist()]
    for name in (*COUNTS, *REWARDS):
        columns[name] = list(_short(rows[name].tolist()))
    return {"epoch": epoch, **columns}


def _short(values: Iterable[float]) -> Iterable[float | None]:
    for value in values:
        rounded = None if math.isnan(value) else float(f"{value:.{DIGITS}g}")
        yield int(rounded) if rounded is not None and rounded.is_integer() else rounded
