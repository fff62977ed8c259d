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
from threespo.results.analysis.comparisons import compare_methods
from threespo.results.analysis.curves import LEVELS, time_to_rows
from threespo.results.analysis.findings import describe_findings
from threespo.results.analysis.opening import build_opening
from threespo.results.analysis.published import compare_with_published
from threespo.results.analysis.rates import rows_at_edge
from threespo.results.claims.page import claims_page, preset_label
from threespo.results.collect import RUN_COLUMNS
from threespo.results.html_templates import template_environment
from threespo.results.labels import label, titled, use_row_looks
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

REPORT_TABLES = (
    "main", "episodes", "metrics", "timing", "wall_time", "time_to", "stages", "efficiency", "tuning", "rates", "laboratory",
    "claims", "provenance", "runs", "rows", "reasoning", "cells", "hyperparameters",
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
    study = settings.study
    paths = settings.paths
    tables = {name: read_table(paths.table(name)) for name in REPORT_TABLES}
    use_row_looks(tables["rows"])
    # Tables are checked by what reads them: a missing column is a table of another version.
    try:
        html = _render(study, paths, tables, settings.mark)
    except (KeyError, jinja2.UndefinedError) as error:
        fault = f"{paths.tables}: a table lacks what this version of the report needs ({error})"
        remedy = "the workflow makes again what another version has made; if it has just made this, the report has a bug"
        raise InputError(f"{fault}; {remedy}") from error

    write_text(paths.report, html)
    print(f"report: {paths.report}", file=sys.stderr)


def _render(study: "Study", paths: "Paths", tables: dict[str, pd.DataFrame], mark: str) -> str:
    tree_pages = []
    for run in shown_runs(study):
        tree_page = _tree_page(study, paths, run)
        if tree_page is not None:
            tree_pages.append(tree_page)
    # Links to trees are made only where there are trees.
    anchors_of_trees = {tree_page["anchor"] for tree_page in tree_pages}

    edges = rows_at_edge(tables["rates"])
    comparisons = compare_methods(study, tables["episodes"], edges)
    template = _environment().get_template("report.html.j2")
    return template.render(
        study=study,
        several=len(study.environments) > 1,
        **_study_facts(study),
        opening=build_opening(study, tables, comparisons, mark),
        findings=describe_findings(study, tables["main"], comparisons),
        left_out=catalogue.missing_items(study),
        figures=[_figure(study, paths, item) for item in catalogue.figures_of(study)],
        paper_tables=[_paper_table(study, item, tables) for item in catalogue.table_items()],
        texts=[_text(study, paths, item) for item in catalogue.texts_of(study)],
        episodes=episode_sections(tables["reasoning"]),
        trees=tree_pages,
        caveats=list_caveats(study, mark, edges),
        runs=_training_runs(study, tables["runs"], tables["episodes"], anchors_of_trees),
        anchor=anchor,
        **_sections(study, tables),
    )


def _study_facts(study: "Study") -> dict[str, str]:
    """Return what the report's head says of the study, environment by environment where they differ."""
    # Environments may have budgets and splits of their own.
    budgets = {}
    judged_splits = {}
    for env in study.environments:
        settings = study.at(env)
        budgets[env] = f"{settings.training.budget:,}"
        judged_splits[env] = label(settings.evaluation.splits[-1], env)
    return {
        "data": sections.describe_tasks(study),
        "budget": sections.format_per_environment(study, budgets),
        "judged": sections.format_per_environment(study, judged_splits),
    }


def _sections(study: "Study", tables: dict[str, pd.DataFrame]) -> dict[str, Any]:
    """Return the report's tables by the names that its template has for them."""
    # The template makes links to these rows only, since others have no place in the report.
    main_rows = tables["main"][["env", "policy", "method"]].to_numpy()
    return {
        "claims": claims_page(tables["claims"]),
        "main_tables": sections.main_tables(study, tables["main"]),
        "main_rows": {anchor("main", *names) for names in main_rows},
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
    environment = template_environment()
    filters = {"spread": _spread, "number": _number, "count": _count, "signed": _signed}
    environment.filters.update(label=label, preset=preset_label, **filters)
    return environment


def _figure(study: "Study", paths: "Paths", item: catalogue.Item) -> dict[str, str]:
    drawn = _read_bytes(paths.figure(item.name, "svg"))
    # An inch has 72 points. A figure of a column is shown smaller than one of a page.
    page_points = 72 * WIDTHS["page"]
    width = re.search(rb'<svg[^>]* width="([\d.]+)pt"', drawn)
    is_column = width is not None and float(width[1]) < page_points - 1

    # Width and height of each page of one that is too tall for paper.
    views = re.findall(rb'<view id="page-\d+" viewBox="\S+ \S+ (\S+) (\S+)"', drawn)
    pages = []
    for page_width, page_height in views:
        pages.append(f"{page_width.decode()}/{page_height.decode()}")

    title, text = caption(study, item)
    # The report is one file without a network, so pictures are in it.
    encoded = base64.b64encode(drawn).decode("ascii")
    return {
        "name": item.name,
        "title": title,
        "caption": text,
        "width": "column" if is_column else "page",
        "source": f"data:image/svg+xml;base64,{encoded}",
        "pages": " ".join(pages),
    }


def _text(study: "Study", paths: "Paths", item: catalogue.Item) -> dict[str, Any]:
    """Return an item that is text, with its rows: the template escapes them like all others."""
    title, text = caption(study, item)
    # As text: numbers would be written with other digits, and a text "NA" would be missing.
    file = io.BytesIO(_read_bytes(paths.figure(item.name, "csv")))
    rows = pd.read_csv(file, dtype=str, keep_default_na=False)
    return {
        "name": item.name,
        "title": title,
        "caption": text,
        "columns": list(rows),
        "rows": rows.to_numpy().tolist(),
    }


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); run the workflow again") from error


def _paper_table(
    study: "Study", item: catalogue.Item, tables: dict[str, pd.DataFrame]
) -> dict[str, Any]:
    """Return one of the paper's tables with our numbers; all text in it is escaped."""
    title, text = caption(study, item)
    # Made again from the study's tables: the notebook has written it for papers, without links.
    table = MAKERS[item.name](tables)
    # Without rows one line says so, and there is nothing to explain.
    return {
        "name": item.name,
        "title": title,
        "caption": text if table.sections() else "",
        "table": table,
    }


def _tree_page(study: "Study", paths: "Paths", run: "Run") -> dict[str, str] | None:
    """Return the page of a run's search trees, for a frame of its own; none where none was recorded."""
    trees = read_trees(paths.run(run).trees)
    if trees.empty:
        return None
    # Games that were drawn in most epochs show best how a search changes.
    epochs_by_game = trees.groupby("task_id")["epoch"].nunique()
    most_epochs_first = epochs_by_game.sort_values(ascending=False, kind="stable")
    games = most_epochs_first.index[:MAX_GAMES_WITH_TREES]
    shown_trees = trees[trees["task_id"].isin(games)]
    method = label(run.method)
    return {
        "name": titled(method, run.env, study.environments),
        "page": render_trees(shown_trees, f"{method}, {run.run_id}"),
        "anchor": anchor("trees", run.env, run.policy, run.method),
    }


def _training_runs(
    study: "Study", runs: pd.DataFrame, episodes: pd.DataFrame, anchors_of_trees: set[str]
) -> list[dict[Any, Any]]:
    """Return the training runs with their success on each environment's last split.

    The first run of a method has the anchor of the method, and the link to its search trees if the report shows them.
    """
    last_splits = {env: study.at(env).evaluation.splits[-1] for env in study.environments}
    is_last_split = episodes["split"] == episodes["env"].map(last_splits)
    judged = episodes[is_last_split]
    success = 100.0 * judged.groupby(RUN_COLUMNS)["success"].mean()

    rows: list[dict[Any, Any]] = runs.to_dict("records")
    methods_met: set[tuple[str, str, str]] = set()
    for row in rows:
        method = (row["env"], row["policy"], row["method"])
        row["success"] = success.get((*method, row["training_seed"]), math.nan)
        row["anchor"] = ""
        row["trees"] = ""
        if method in methods_met:
            continue
        methods_met.add(method)
        row["anchor"] = anchor("runs", *method)
        trees = anchor("trees", *method)
        if trees in anchors_of_trees:
            row["trees"] = trees
    return rows


def anchor(*names: str) -> str:
    """Return the id of a place in the report."""
    return "-".join(names)


def _is_missing(value: float | None) -> bool:
    return value is None or math.isnan(value)


def _number(value: float | None, digits: int = 1) -> str:
    return MISSING if _is_missing(value) else f"{value:.{digits}f}"


def _count(value: float) -> str:
    return MISSING if _is_missing(value) else f"{value:,.0f}"


def _signed(value: float | None, digits: int = 1) -> str:
    if _is_missing(value):
        return MISSING
    return f"{value:+.{digits}f}".replace("-", "\N{MINUS SIGN}")


def _spread(mean: float | None, std: float | None) -> str:
    """Return ``mean ± std``, or what there is of it."""
    # A single seed has no standard deviation.
    if _is_missing(mean) or _is_missing(std):
        return _number(mean)
    return f"{_number(mean)} ± {_number(std)}"
