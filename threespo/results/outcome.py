"""What the workflow says when it has ended: the outcome in three lines, read from the study's tables."""

from typing import TYPE_CHECKING

import pandas as pd

from threespo.results.claims.page import counted
from threespo.results.labels import label
from threespo.tables import read_table

if TYPE_CHECKING:
    from threespo.paths import Paths
    from threespo.study.config import Study


def outcome(study: "Study", paths: "Paths") -> list[str]:
    """Return success of every method by environment, what becomes of the paper's claims, and where the report is.

    Nothing where a part of the workflow was asked for that makes no report.

    Raises:
        InputError: if a table cannot be read.
    """
    if not all(file.is_file() for file in (paths.report, paths.table("main"), paths.table("claims"))):
        return []
    main = read_table(paths.table("main"))
    lines = [_success(main, study, env) for env in study.environments]
    return [*lines, counted(read_table(paths.table("claims"))), f"report: {paths.report}"]


def _success(main: pd.DataFrame, study: "Study", env: str) -> str:
    """Return the mean success of the methods on the environment's last split, on the study's first policy."""
    split = study.at(env).evaluation.splits[-1]
    rows = main[(main["env"] == env) & (main["split"] == split) & main["mean"].notna()]
    rows = rows[rows["policy"] == rows["policy"].iloc[0]] if len(rows) else rows
    shown = ", ".join(
        f"{label(row.method)} {row.mean:.1f}" for row in rows[["method", "mean"]].itertuples(index=False)
    )
    return f"{label(env)}, success on {label(split, env)} in %: {shown or 'none yet'}"
