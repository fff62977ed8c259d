"""The search trees of a run as one page that can be explored: no network, no other file.

A run of 3SPO that records its trees has ``trees.parquet``, one row for each node. A tree is what one epoch's search of
one task has sampled; a node is a state in it, numbered in order of creation, so that parents come before children.
"""

import math
from pathlib import Path
from typing import Any

import pandas as pd

from threespo.errors import InputError
from threespo.files import write_text
from threespo.methods.tree_table import COUNTS, FLAGS, INTEGERS, REWARDS, TEXTS, read_trees
from threespo.results.html_templates import template_environment
from threespo.scoring.reward import TERM_LABELS, RewardTerms
from threespo.tables import select_rows

DIGITS = 6
"""Significant digits of the page's numbers."""


def write_view(file: Path, out: Path, title: str, task: str | None = None) -> None:
    """Write the page of the trees in ``file``, a run's ``trees.parquet``: those of one ``task_id``, or all.

    Raises:
        InputError: if the file is missing or wrong, or holds no tree of that task.
    """
    trees = read_trees(file)
    if task is not None:
        task_ids = sorted(set(trees["task_id"]))
        if task not in task_ids:
            # Five are enough to see what an id looks like.
            recorded = ", ".join(map(repr, task_ids[:5])) or "none at all"
            if len(task_ids) > 5:
                recorded += f" and {len(task_ids) - 5} more"
            raise InputError(
                f"{file}: no tree of task {task!r}; recorded are {recorded}. Choose another one."
            )
        trees = select_rows(trees, task_id=task)
    write_text(out, render_trees(trees, title))


def render_trees(trees: pd.DataFrame, title: str) -> str:
    """Return the page as HTML; ``trees`` has been checked by ``read_trees``."""
    environment = template_environment()
    # The filter `tojson` escapes <, >, & and ': no text of an environment or a model can end the script element.
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return environment.get_template("viewer.html").render(title=title, data=_page_data(trees))


def _page_data(trees: pd.DataFrame) -> dict[str, Any]:
    """Return what the page is drawn from: tasks, their trees by epoch, a tree column by column, each text once."""
    # Most observations and actions recur from epoch to epoch: each text is in the page once.
    text_indices: dict[str, int] = {}
    tasks = []
    for (task_type, goal, task_id), rows in trees.groupby(["task_type", "goal", "task_id"]):
        epochs = rows.groupby("epoch")
        drawn = [_tree_columns(int(epoch), nodes, text_indices) for epoch, nodes in epochs]
        tasks.append({"id": task_id, "type": task_type, "goal": goal, "trees": drawn})
    terms = [[name, TERM_LABELS.get(name, name)] for name in RewardTerms._fields]
    return {"tasks": tasks, "texts": list(text_indices), "terms": terms}


def _tree_columns(epoch: int, rows: pd.DataFrame, text_indices: dict[str, int]) -> dict[str, Any]:
    """Return one tree, column by column; its parents are indices into its columns, not numbers of nodes.

    Flags are 0 or 1, and texts, which repeat from tree to tree, indices into one list for the page, to which new ones are
    added.
    """
    # The page draws nodes in this order, in which parents come before their children.
    rows = rows.sort_values("node")
    node_indices = {node: index for index, node in enumerate(rows["node"].tolist())}
    columns: dict[str, Any] = {"epoch": epoch}
    for name in INTEGERS:
        if name not in ("epoch", "parent"):
            columns[name] = rows[name].tolist()
    parents = rows["parent"].tolist()
    columns["parent"] = [node_indices.get(parent, -1) for parent in parents]
    columns["end"] = rows["end"].tolist()
    for name in FLAGS:
        columns[name] = [int(flag) for flag in rows[name].tolist()]
    for name in TEXTS:
        texts = rows[name].tolist()
        columns[name] = [text_indices.setdefault(text, len(text_indices)) for text in texts]
    # Six digits are more than the page shows, and keep it small.
    for name in (*COUNTS, *REWARDS):
        columns[name] = [_shorten(value) for value in rows[name].tolist()]
    return columns


def _shorten(value: float) -> float | None:
    """Return a number with few digits: NaN, which JSON lacks, as None, and a whole number without a decimal point."""
    if math.isnan(value):
        return None
    rounded = float(f"{value:.{DIGITS}g}")
    return int(rounded) if rounded.is_integer() else rounded
