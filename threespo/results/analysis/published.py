"""The miniature study as it was published, next to the rows of the study that a report is of."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from threespo.errors import InputError
from threespo.paths import PUBLISHED_MINI
from threespo.results.paper_numbers import UNSEEN_SPLITS

if TYPE_CHECKING:
    from threespo.study.config import Study

COLUMNS = (
    *("env", "policy", "stands_for", "split", "method", "paper_row", "seeds"),
    *("mean", "low", "high", "paper_mean", "score_mean", "commit"),
)
"""Of ``config/published/mini.csv``: those of the table ``main``, and the commit."""

NUMBERS = ("seeds", "mean", "low", "high", "paper_mean", "score_mean")

REQUIRED = ("env", "policy", "stands_for", "split", "method", "seeds", "mean", "commit")
"""Columns in which every row has a value."""

KEY = ["env", "split", "stands_for", "method"]


def read_published() -> pd.DataFrame:
    """Return the published rows.

    Raises:
        InputError: if the file is not such a table.
    """
    remedy = "Restore it with git checkout"
    types = {name: float if name in NUMBERS else str for name in COLUMNS}
    try:
        rows = pd.read_csv(PUBLISHED_MINI, dtype=types)
    except (OSError, ValueError) as error:
        raise InputError(f"{PUBLISHED_MINI}: cannot be read ({error}). {remedy}") from error

    missing = [name for name in COLUMNS if name not in rows]
    if missing:
        raise InputError(f"{PUBLISHED_MINI}: has no column {missing[0]!r}. {remedy}")
    incomplete = [name for name in REQUIRED if rows[name].isna().any()]
    if incomplete:
        raise InputError(f"{PUBLISHED_MINI}: column {incomplete[0]!r} has an empty field. {remedy}")
    return rows


def compare_with_published(
    study: "Study", main: pd.DataFrame, published: pd.DataFrame | None = None
) -> dict[str, Any] | None:
    """Return the published study's success on unseen tasks with ours of the same rows.

    Args:
        study: the study that the report is of.
        main: its table ``main``.
        published: the rows of the published study; by default they are read.

    Returns:
        ``places`` (environment and split), ``rows`` with ``stands_for``, ``method`` and for each place a cell (``None``
        where there is none) of ``mean``, ``low``, ``high``, ``paper_mean`` and ``here``; ``seeds``, ``commits``. ``None``
        where nothing is published, for the published study itself, and where the two have no environment in common.
    """
    # Next to itself it would only repeat the report's first table.
    if study.name == PUBLISHED_MINI.stem:
        return None
    if published is None:
        published = read_published()
    unseen = published[
        published["split"].isin(UNSEEN_SPLITS) & published["env"].isin([*study.environments])
    ]
    if unseen.empty:
        return None

    # By the model that a policy substitutes and not by its name: two studies may name the same base differently.
    ours: Mapping[Any, float] = main.drop_duplicates(KEY).set_index(KEY)["mean"].to_dict()
    places = unseen[["env", "split"]].drop_duplicates()
    columns = list(places.itertuples(index=False, name=None))
    rows = []
    for (model, method), group in unseen.groupby(["stands_for", "method"], sort=False):
        cells = {(row["env"], row["split"]): row for row in group.to_dict("records")}
        for (env, split), cell in cells.items():
            cell["here"] = ours.get((env, split, model, method))
        shown = [cells.get(column) for column in columns]
        rows.append({"stands_for": model, "method": method, "cells": shown})
    return {
        "places": [{"env": env, "split": split} for env, split in columns],
        "rows": rows,
        "seeds": int(unseen["seeds"].max()),
        "commits": str(unseen["commit"].iloc[0]),
    }
