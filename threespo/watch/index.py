"""``results/index.html``: the studies of a folder and, if there are several, two of them compared row by row."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from threespo.errors import InputError
from threespo.files import write_text
from threespo.paths import Paths
from threespo.pipeline.stages import accepted_steps, code_digest, list_jobs, read_acceptances
from threespo.results.analysis.tally import tally_claims
from threespo.results.html_templates import TEMPLATES, template_environment
from threespo.results.labels import label, looks_of_study, use_row_looks
from threespo.results.report.render import anchor
from threespo.study.confirmatory import RULE
from threespo.study.load import load_study
from threespo.study.marks import changed_since_mark
from threespo.tables import read_table

if TYPE_CHECKING:
    from threespo.study.config import Study

TEMPLATE_FOLDERS = (Path(__file__).parent / "templates", TEMPLATES)
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
    studies = list(_read_studies(results))
    listed = {study["folder"] for study in studies}
    reports = sorted(results.glob("*/report.html"))
    others = [file.parent.name for file in reports if file.parent.name not in listed]
    if not studies:
        found = "no study with a report"
        if others:
            found = f"reports of another version only ({', '.join(others)})"
        raise InputError(f"{results}: {found}; make one with: snakemake --cores all")

    # The page's script compares the rows of the two studies that are chosen.
    rows = {study["folder"]: study.pop("rows") for study in studies}
    template = template_environment(TEMPLATE_FOLDERS).get_template("index.html.j2")
    write_text(results / INDEX, template.render(studies=studies, rows=rows, others=others))
    return results / INDEX


def _read_studies(results: Path) -> Iterator[dict[str, Any]]:
    """Yield what the index shows of every study with a report, in the order of their names."""
    for file in sorted(results.glob("*/report.html")):
        paths = Paths(file.parent)
        try:
            study = load_study(paths.study)
            main, claims = [read_table(paths.table(name)) for name in NEEDED]
            tally = tally_claims(claims)
            rows = _main_rows(study, main)
        except (InputError, KeyError):
            # Of another version a study may have other fields, and a table other columns.
            continue
        yield {
            "folder": file.parent.name,
            "description": study.description,
            "seeds": len(study.seeds),
            "environments": ", ".join(label(env) for env in study.environments),
            "methods": len(study.methods),
            "mark": _explain_mark(study, paths),
            "claims": tally.describe_runs(),
            "rows": rows,
        }


def _explain_mark(study: "Study", paths: Paths) -> str:
    """Return what the index says of a study's mark; "" without one."""
    mark = study.confirmatory
    if mark is None:
        return ""
    # By another version's rule: only its code can tell whether the mark holds.
    if mark.rule != RULE:
        return f"frozen before it ran, at commit {mark.commit[:12]}; to be checked there"
    steps = accepted_steps(read_acceptances(list_jobs(study), paths), study)
    changed = changed_since_mark(study, code_digest(study), steps)
    if changed:
        return f"frozen, but its {' and its '.join(changed)} has changed since"
    return "frozen before it ran"


def _main_rows(study: "Study", main: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """Return success in percent, its interval and its place in the report, by setting and method as a reader sees them."""
    # Two studies may label the same row differently; each is shown by its own labels.
    use_row_looks(looks_of_study(study))
    rows = {}
    for row in main[main["mean"].notna()].to_dict("records"):
        env = row["env"]
        setting = f"{label(env)}, {label(row['split'], env)}, {row['policy']}"
        # The key that both studies of a comparison share: what a reader sees, not the names in the files.
        rows[f"{setting}: {label(row['method'])}"] = {
            "place": anchor("main", env, row["policy"], row["method"]),
            "mean": _rounded(row["mean"]),
            "low": _rounded(row["low"]),
            "high": _rounded(row["high"]),
            # Rows of the paper or of prompting agents have no training seeds.
            "seeds": int(row["seeds"]) if row["method"] in study.methods else 0,
        }
    return rows


def _rounded(value: float) -> float | None:
    # JSON has no NaN.
    return None if math.isnan(value) else round(float(value), 2)
