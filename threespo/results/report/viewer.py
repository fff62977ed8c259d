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
from threespo.files import write_text
from threespo.methods.tree_table import COUNTS, FLAGS, INTEGERS, REWARDS, TEXTS, read_trees
from threespo.scoring.reward import TERM_LABELS, RewardTerms

TEMPLATES = Path(__file__).parent / "templates"

DIGITS = 6
"""Significant digits of the page's numbers."""


def write_view(file: Path, out: Path, title: str, task: str | None = None) -> None:
    """Write the page of the trees in ``file``.

    Args:
        file: a run's ``trees.parquet``.
        out: the HTML file.
        title: of the page.
        task: ``task_id`` of the one task to show; None shows all.

    Raises:
        InputError: if the file is missing or wrong, or holds no tree of that task.
    """
    trees = read_trees(file)
    if task is not None:
        known = sorted(set(trees["task_id"]))
        if task not in known:
            some = ", ".join(map(repr, known[:5])) + (f" and {len(known) - 5} more" if known[5:] else "")
            raise InputError(
                f"{file}: no tree of task {task!r}; recorded are {some or 'none at all'}. Choose another one."
            )
        trees = trees[trees["task_id"] == task]
    write_text(out, render_trees(trees, title))


def render_trees(trees: pd.DataFrame, title: str) -> str:
    """Return the page as HTML; ``trees`` has been checked by ``read_trees``."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined
    )
    # The filter `tojson` escapes <, >, & and ': no text of an environment or a model can end the script element.
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return environment.get_template("viewer.html").render(title=title, data=_data(trees))


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
    terms = [[name, TERM_LABELS.get(name, name)] for name in RewardTerms._fields]
    return {"tasks": tasks, "texts": list(texts), "terms": terms}


def _tree(epoch: int, rows: pd.DataFrame, texts: dict[str, int]) -> dict[str, Any]:
    """Return one tree; its parents are places in its columns, not numbers of nodes."""
    rows = rows.sort_values("node")
    place = {number: index for index, number in enumerate(rows["node"].tolist())}
    columns: dict[str, Any] = {
        name: rows[name].tolist() for name in INTEGERS if name not in ("epoch", "parent")
    }
    columns["parent"] = [place.get(number, -1) for number in rows["parent"].tolist()]
    columns["end"] = rows["end"].tolist()

    # Small: flags as 0 or 1, and texts, which repeat from tree to tree, as places in one list for the page.
    for name in FLAGS:
        columns[name] = [int(value) for value in rows[name].tolist()]
    for name in TEXTS:
        columns[name] = [texts.setdefault(text, len(texts)) for text in rows[name].tolist()]
    for name in (*COUNTS, *REWARDS):
        columns[name] = list(_short(rows[name].tolist()))

    return {"epoch": epoch, **columns}


def _short(values: Iterable[float]) -> Iterable[float | None]:
    """Yield numbers with few digits: NaN, which JSON lacks, as None, and whole numbers without a decimal point."""
    for value in values:
        rounded = None if math.isnan(value) else float(f"{value:.{DIGITS}g}")
        yield int(rounded) if rounded is not None and rounded.is_integer() else rounded
