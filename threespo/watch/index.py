"""``results/index.html``: the studies of a folder, and two of them set beside each other row by row."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
import pandas as pd

from threespo.errors import InputError
from threespo.files import write_text
from threespo.paths import Paths
from threespo.pipeline.stages import accepted_steps, code_digest, list_jobs, read_acceptances
from threespo.results.analysis.opening import counts_of_claims
from threespo.results.labels import label
from threespo.results.report import render
from threespo.study.confirmatory import RULE
from threespo.study.load import load_study
from threespo.study.marks import changed_since_mark
from threespo.tables import read_table

if TYPE_CHECKING:
    from threespo.study.config import Study

TEMPLATES = (Path(__file__).parent / "templates", render.TEMPLATES)
"""The page's own, and style and script of the report."""

INDEX = "index.html"

NEEDED = ("main", "claims")
"""Tables that the index reads of every study."""


def write_index(results: Path) -> Path:
    """Write ``index.html`` into a folder of studies' results, and return it.

    Studies without a report are left out; those that another version of this package has made are named.

    Raises:
        InputError: if the folder has no study with a report.
    """
    studies = list(_studies(results))
    listed = {study["folder"] for study in studies}
    others = [
        file.parent.name
        for file in sorted(results.glob("*/report.html"))
        if file.parent.name not in listed
    ]
    if not studies:
        found = (
            f"reports of another version only ({', '.join(others)})"
            if others
            else "no study with a report"
        )
        raise InputError(f"{results}: {found}; make one with: snakemake --cores all")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    rows = {study["folder"]: study.pop("rows") for study in studies}
    write_text(
        results / INDEX,
        environment.get_template("index.html.j2").render(studies=studies, rows=rows, others=others),
    )
    return results / INDEX


def _studies(results: Path) -> Iterator[dict[str, Any]]:
    """Yield what the index shows of every study with a report, in the order of their names."""
    for file in sorted(results.glob("*/report.html")):
        paths = Paths(file.parent)
        try:
            study, (main, claims) = (
                load_study(paths.study),
                (read_table(paths.table(name)) for name in NEEDED),
            )
            (holds, fails, unclear), rows = counts_of_claims(claims), _rows(study, main)
        except (InputError, KeyError):
            # Of another version a study may have other fields, and a table other columns.
            continue
        yield {
            "folder": file.parent.name,
            "description": study.description,
            "seeds": len(study.seeds),
            "environments": ", ".join(label(env) for env in study.environments),
            "methods": len(study.methods),
            "mark": _mark(study, paths),
            "claims": f"{holds} hold, {fails} fail, {unclear} undecided",
            "rows": rows,
        }


def _mark(study: "Study", paths: Paths) -> str:
    """Return what is said of a study's mark beside its name."""
    mark = study.confirmatory
    if mark is None:
        return ""
    if mark.rule != RULE:
        return f"frozen before it ran, at commit {mark.commit[:12]}; to be checked there"
    changed = changed_since_mark(
        study, code_digest(study), accepted_steps(read_acceptances(list_jobs(study), paths), study)
    )
    return (
        f"frozen, but its {' and its '.join(changed)} has changed since"
        if changed
        else "frozen before it ran"
    )


def _rows(study: "Study", main: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """Return success in percent, its interval and its place in the report, by setting and method as a reader sees them."""
    shown = main[main["mean"].notna()]
    return {
        f"{label(row['env'])}, {label(row['split'], row['env'])}, {row['policy']}: {label(row['method'])}": {
            "place": render.anchor("main", row["env"], row["policy"], row["method"]),
            "mean": _plain(row["mean"]),
            "low": _plain(row["low"]),
            "high": _plain(row["high"]),
            "seeds": int(row["seeds"]) if row["method"] in study.methods else 0,
        }
        for row in shown.to_dict("records")
    }


def _plain(value: float) -> float | None:
    return None if math.isnan(value) else round(float(value), 2)
