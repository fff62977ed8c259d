"""The report stage: one self-contained HTML file (no network, no other file) from tables and figures."""

import base64
import io
import math
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
import pandas as pd

from threespo.errors import InputError
from threespo.files import write_text
from threespo.methods.tree_table import read_trees
from threespo.results.analysis.caveats import list_caveats
from threespo.results.analysis.curves import LEVELS, time_to_rows
from threespo.results.analysis.findings import describe_findings
from threespo.results.analysis.opening import build_opening
from threespo.results.analysis.published import compare_with_published
from threespo.results.claims.page import claims_page, preset_label
from threespo.results.collect import RUN_COLUMNS
from threespo.results.labels import label, titled
from threespo.results.paper.layout import WIDTHS
from threespo.results.paper.reasoning import episode_sections
from threespo.results.paper.registry import MAKERS
from threespo.results.report import sections
from threespo.results.report.captions import caption
from threespo.results.report.viewer import render_trees
from threespo.results.settings import ResultSettings
from threespo.study import catalogue
from threespo.study.matrix import shown_runs
from threespo.tables import read_table

if TYPE_CHECKING:
    from threespo.paths import Paths, Run
    from threespo.study.config import Study

TEMPLATES = Path(__file__).parent / "templates"

REPORT_TABLES = (
    "main", "episodes", "metrics", "timing", "wall_time", "time_to", "stages", "efficiency", "tuning", "laboratory",
    "claims", "provenance", "runs", "reasoning", "cells", "hyperparameters",
)  # fmt: skip
"""Tables that the report is made from."""

MAX_GAMES_WITH_TREES = 4
"""Games whose search trees the report shows, of each searching method."""

MISSING = "–"


def make_report(settings: ResultSettings) -> None:
    """The report stage: write ``report.html``.

    Raises:
        InputError: if a table or figure is missing, or a table is of another version.
    """
    study, paths = settings.study, settings.paths
    tables = {name: read_table(paths.table(name)) for name in REPORT_TABLES}
    try:
        html = _render(study, paths, tables, settings.mark)
    except (KeyError, jinja2.UndefinedError) as error:
        fault = f"{paths.tables}: a table lacks what this version of the report needs ({error})"
        remedy = "the workflow makes anew what another version has made; if it has just made this, the report has a bug"
        raise InputError(f"{fault}; {remedy}") from error

    write_text(paths.report, html)
    print(f"report: {paths.report}", file=sys.stderr)


def _render(study: "Study", paths: "Paths", tables: dict[str, pd.DataFrame], mark: str) -> str:
    """Return the page."""
    trees = [claims_page for run in shown_runs(study) if (claims_page := _trees(study, paths, run))]
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            study=study,
            several=len(study.environments) > 1,
            **_head(study),
            opening=build_opening(study, tables, mark),
            findings=describe_findings(study, tables["main"], tables["episodes"]),
            left_out=catalogue.missing_items(study),
            figures=[_figure(study, paths, item) for item in catalogue.figures_of(study)],
            paper_tables=[_paper_table(study, item, tables) for item in catalogue.table_items()],
            texts=[_text(study, paths, item) for item in catalogue.texts_of(study)],
            episodes=episode_sections(tables["reasoning"]),
            trees=trees,
            caveats=list_caveats(study, mark),
            runs=_runs(study, tables["runs"], tables["episodes"], {page["anchor"] for page in trees}),
            anchor=anchor,
            **_sections(study, tables),
        )
    )


def _head(study: "Study") -> dict[str, str]:
    """Return what the report's head says of the study, environment by environment where they differ."""
    here = {env: study.at(env) for env in study.environments}
    return {
        "data": sections.describe_tasks(study),
        "budget": sections.format_per_environment(
            study, {env: f"{one.training.budget:,}" for env, one in here.items()}
        ),
        "judged": sections.format_per_environment(
            study, {env: label(one.evaluation.splits[-1], env) for env, one in here.items()}
        ),
    }


def _sections(study: "Study", tables: dict[str, pd.DataFrame]) -> dict[str, Any]:
    """Return the report's tables by the names that its template has for them."""
    return {
        "claims": claims_page(tables["claims"]),
        "main_tables": sections.main_tables(study, tables["main"]),
        "main_rows": {
            anchor("main", *names) for names in tables["main"][["env", "policy", "method"]].to_numpy()
        },
        "published": compare_with_published(study, tables["main"]),
        "task_types": sections.task_types(study, tables["episodes"]),
        "efficiency": tables["efficiency"].to_dict("records"),
        "costs": sections.costs(tables["metrics"], tables["timing"]),
        "wall_time": tables["wall_time"].to_dict("records"),
        "levels": LEVELS,
        "soonest": time_to_rows(tables["time_to"]),
        "parts": sections.TIME_PARTS,
        "tuning": sections.tried_rates(tables["tuning"]),
        "families": sections.decision_tree_families(tables["laboratory"]),
        "stages": sections.stages(tables["stages"]),
        "provenance": sections.provenance(tables["provenance"]),
    }


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = {"spread": _spread, "number": _number, "count": _count, "signed": _signed}
    environment.filters.update(label=label, preset=preset_label, **filters)
    return environment


def _figure(study: "Study", paths: "Paths", item: catalogue.Item) -> dict[str, str]:
    drawn = _read(paths.figure(item.name, "svg"))
    encoded = base64.b64encode(drawn).decode("ascii")
    # Inches of print, at 72 points: a figure of a column is shown smaller than one of a page.
    width = re.search(rb'<svg[^>]* width="([\d.]+)pt"', drawn)
    kind = "column" if width and float(width[1]) < 72 * WIDTHS["page"] - 1 else "page"

    title, text = caption(study, item)
    source = f"data:image/svg+xml;base64,{encoded}"
    # Width and height of each page of one that is too tall for paper.
    parts = re.findall(rb'<view id="page-\d+" viewBox="\S+ \S+ (\S+) (\S+)"', drawn)
    pages = " ".join(f"{part[0].decode()}/{part[1].decode()}" for part in parts)
    return {
        "name": item.name,
        "title": title,
        "caption": text,
        "width": kind,
        "source": source,
        "pages": pages,
    }


def _text(study: "Study", paths: "Paths", item: catalogue.Item) -> dict[str, Any]:
    """Return an item that is text, with its rows: the template escapes them like all others."""
    title, text = caption(study, item)
    rows = pd.read_csv(
        io.BytesIO(_read(paths.figure(item.name, "csv"))), dtype=str, keep_default_na=False
    )
    return {
        "name": item.name,
        "title": title,
        "caption": text,
        "columns": list(rows),
        "rows": rows.to_numpy().tolist(),
    }


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); run the workflow again") from error


def _paper_table(
    study: "Study", item: catalogue.Item, tables: dict[str, pd.DataFrame]
) -> dict[str, Any]:
    """Return one of the paper's tables with ours beside it; all text in it is escaped."""
    title, text = caption(study, item)
    table = MAKERS[item.name](tables)
    # Without rows one line says so, and there is nothing to explain.
    shown = text if table.sections() else ""
    return {"name": item.name, "title": title, "caption": shown, "table": table}


def _trees(study: "Study", paths: "Paths", run: "Run") -> dict[str, str] | None:
    """Return the page of a run's search trees, for a frame of its own; none where none was recorded."""
    trees = read_trees(paths.run(run).trees)
    if trees.empty:
        return None
    # Games that were drawn in most epochs show best how a search changes.
    met = trees.groupby("task_id")["epoch"].nunique().sort_values(ascending=False, kind="stable")
    page = render_trees(
        trees[trees["task_id"].isin(met.index[:MAX_GAMES_WITH_TREES])],
        f"{label(run.method)}, {run.run_id}",
    )
    name = titled(label(run.method), run.env, study.environments)
    return {"name": name, "page": page, "anchor": anchor("trees", run.env, run.policy, run.method)}


def _runs(
    study: "Study", runs: pd.DataFrame, episodes: pd.DataFrame, trees: set[str]
) -> list[dict[Any, Any]]:
    """Return the training runs with their success on each environment's last split; a method's first one is linked to.

    ``trees`` are the places of the search trees that are shown.
    """
    last = {env: study.at(env).evaluation.splits[-1] for env in study.environments}
    judged = episodes[episodes["split"] == episodes["env"].map(last)]
    success = 100.0 * judged.groupby(RUN_COLUMNS)["success"].mean()

    rows: list[dict[Any, Any]] = runs.to_dict("records")
    met: set[str] = set()
    for row in rows:
        of_method = (row["env"], row["policy"], row["method"])
        name = anchor("runs", *of_method)
        row |= {
            "success": success.get((*of_method, row["training_seed"]), math.nan),
            "anchor": "" if name in met else name,
            "trees": shown
            if (shown := anchor("trees", *of_method)) in trees and name not in met
            else "",
        }
        met.add(name)
    return rows


def anchor(*names: str) -> str:
    """Return the id of a place in the report."""
    return "-".join(names)


def _number(value: float | None, digits: int = 1) -> str:
    return MISSING if value is None or math.isnan(value) else f"{value:.{digits}f}"


def _count(value: float) -> str:
    return MISSING if math.isnan(value) else f"{value:,.0f}"


def _signed(value: float | None, digits: int = 1) -> str:
    return (
        MISSING
        if value is None or math.isnan(value)
        else f"{value:+.{digits}f}".replace("-", "\N{MINUS SIGN}")
    )


def _spread(mean: float | None, std: float | None) -> str:
    """Return ``mean ± std``, or what there is of it."""
    if mean is None or math.isnan(mean):
        return MISSING
    return _number(mean) if std is None or math.isnan(std) else f"{_number(mean)} ± {_number(std)}"
