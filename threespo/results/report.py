"""The report stage: one self-contained HTML file (no network, no other file) from tables and figures."""

import base64
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
import pandas as pd

from threespo.errors import InputError
from threespo.files import atomic_text
from threespo.results import outline
from threespo.results.figures import label
from threespo.results.findings import findings, limits
from threespo.results.tables import COSTS
from threespo.results.viewer import render_trees
from threespo.study.matrix import searching_runs
from threespo.tables import read_table
from threespo.tree_table import TREES, read_trees

if TYPE_CHECKING:
    from threespo.study.config import Study
    from threespo.study.matrix import Paths, Run

TEMPLATES = Path(__file__).parent / "templates"

FIGURES = {
    "main_results": (
        "Success on games that training never saw",
        "Each small dot is one training seed (mean over evaluation seeds), the large dot their mean, the bar the 95 % "
        "bootstrap interval over seeds and games. Diamonds are the paper's values: another model at another scale.",
    ),
    "training_curves": (
        "Success during training against generations",
        "Thin lines are training seeds, thick ones their mean. The paths counted here are those that a method itself "
        "takes, so a method that searches is not measured like one that plays plain episodes; only the evaluation "
        "above compares them.",
    ),
    "paper_training_curves": (
        "The paper's own training curves",
        "Not ours: read off the image of figure 3a that the authors published (1.5B model, success against epochs).",
    ),
    "mean_scores": (
        "Mean state score during training",
        "Figure 3b of the paper. Every method is measured alike: a state is an observation, scored by eq. 1 with the "
        "printed constants and the counts at the epoch's beginning. Thick: over visits; thin: every visited state once; "
        "dotted: all states known so far, at depth 10. With α = 50 a score is 1, 0 or nearly 0, so the mean is little "
        "more than the share of states that nothing has succeeded through.",
    ),
    "scores_by_type": (
        "Mean state score by kind of task",
        "Figure 3c: easy, medium and hard as the paper has them (Pick & Place, Examine in Light, Pick Two & Place); lines "
        "are means over the visits of an epoch (the paper shows distributions).",
    ),
    "high_scores": (
        "Share of visits to states with S > 0.5",
        "The paper's figure of high-score ratios, measured as above. Lines are means over training seeds, smoothed over "
        "three epochs.",
    ),
    "rollouts": (
        "Where 3SPO's samples go",
        "Expansions by n(s), the number of samples drawn there (0: gated, nothing is drawn), over all runs of a method; a "
        "capped expansion draws one sample and stands apart.",
    ),
    "case_study": (
        "One state at its first and at its tenth visit",
        "The paper's case study: of each method the state that its recorded trees expand most often, at its first and its "
        "tenth visit (or the last, if there are fewer). Bars: the weights of novelty and of the difference of scores in "
        "eq. 2. Dots: the scores of the children that were sampled; filled if they counted as new.",
    ),
    "calibration": (
        "Does the score measure what it claims?",
        "Each dot is a state of a frozen policy: its true success probability, estimated by playing on from it many times, "
        "against the counted success rate N_success / N_total (above) and against S(s) (below). The line is what a perfect "
        "estimate of p(s) would give; for S it is exp(−λ p) at depth 5. Hollow dots have not been visited, and have no "
        "counted rate. Later snapshots are darker.",
    ),
}

PARTS = ("sampling", "update", "environment", "method", "logging")
"""What a training run's time is made of."""

SHOWN_TREES = 4
"""Games whose search trees the report shows, of each searching method."""

MISSING = "–"


def write_report(study: "Study", paths: "Paths") -> None:
    """Write ``report.html``.

    Raises:
        InputError: if a table or figure is missing.
    """
    tables = {
        name: read_table(paths.tables / f"{name}.parquet")
        for name in ("main", "episodes", "metrics", "timing", "stages", "efficiency", "tuning", "laboratory", "provenance")
    }
    main = tables["main"]
    html = (
        _environment()
        .get_template("report.html.j2")
        .render(
            study=study,
            games=_games_in_words(study),
            findings=findings(study, main, tables["episodes"]),
            limits=limits(study),
            policies=[_policy_table(study, main, name) for name in study.policies],
            splits=list(study.evaluation.splits),
            figures=[_figure(paths, name) for name in outline.figures(study)],
            efficiency=tables["efficiency"].to_dict("records"),
            task_types=_task_types(study, tables["episodes"]),
            costs=_costs(tables["metrics"], tables["timing"]),
            parts=PARTS,
            trees=[_trees(paths, run) for run in searching_runs(study)],
            tuning=_tuning(tables["tuning"]),
            families=_families(tables["laboratory"]),
            stages=_stages(tables["stages"]),
            provenance=_sections(tables["provenance"]),
        )
    )
    atomic_text(paths.report, html)
    print(f"report: {paths.report}", file=sys.stderr)


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(label=label, spread=_spread, number=_number, count=lambda value: f"{value:,.0f}")
    return environment


def _games_in_words(study: "Study") -> str:
    games = study.alfworld
    if games.source == "embedded":
        return f"generated household games in ALFWorld's rules and texts, difficulty “{games.difficulty}”"
    return "the real ALFWorld games" + ("" if games.source == "official" else ", from a folder")


def _policy_table(study: "Study", main: pd.DataFrame, policy: str) -> dict[str, Any]:
    """Return the rows of one base policy: per method, a cell for each split."""
    mine = main[main["policy"] == policy]
    rows = []
    for method in dict.fromkeys(mine["method"]):
        cells = {row["split"]: row for row in mine[mine["method"] == method].to_dict("records")}
        several = method in study.agents and study.agents[method].agent in ("retry", "reflexion")
        rows.append({"method": method, "cells": cells, "any": next(iter(cells.values())), "several": several})
    return {
        "name": policy,
        "stands_for": study.policies[policy].stands_for,
        "kind": study.policies[policy].kind,
        "rows": rows,
    }


def _task_types(study: "Study", episodes: pd.DataFrame) -> dict[str, Any]:
    """Return success in percent by task type on the last split (unseen games), methods as columns."""
    split = study.evaluation.splits[-1]
    mine = episodes[episodes["split"] == split]
    wide = 100 * mine.pivot_table(index="task_type", columns=["policy", "method"], values="success", aggfunc="mean")
    games = mine.groupby("task_type")["task_id"].nunique()
    order = [
        (policy, method)
        for policy in study.policies
        for method in ("base", *study.agents, *study.methods, "strong")
        if (policy, method) in wide
    ]
    rows = [
        {"task_type": name, "games": games[name], "values": [wide.loc[name, key] for key in order]}
        for name in wide.index
    ]
    return {"split": split, "columns": order, "rows": rows}


def _costs(metrics: pd.DataFrame, timing: pd.DataFrame) -> list[dict[str, Any]]:
    """Return what each method's run spent, averaged over training seeds."""
    rows = []
    spent = timing[timing["stage"] == "train"].groupby(["policy", "method", "training_seed"])
    for (policy, method), group in metrics.groupby(["policy", "method"], sort=False):
        runs = group.groupby("training_seed").last()
        times = [spent.get_group((policy, method, seed)) for seed in runs.index]
        seconds = [frame["seconds"].sum() for frame in times]
        units = {name: runs[name].mean() for name in ("epoch", *COSTS)}
        shares = [_share(times, f"{name}_seconds") for name in PARTS]
        memory = max(frame["peak_memory_mb"].max() for frame in times)
        minutes = sum(seconds) / len(seconds) / 60
        rows.append({"policy": policy, "method": method, **units, "shares": shares, "minutes": minutes, "memory": memory})
    return rows


def _tuning(tuning: pd.DataFrame) -> list[dict[str, Any]]:
    """Return each method's trials, by policy; none where learning rates are given by hand."""
    groups = tuning.groupby(["policy", "method"], sort=False)
    return [{"policy": policy, "method": method, "trials": rows.to_dict("records")} for (policy, method), rows in groups]


def _families(laboratory: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the laboratory's rows by family of trees, the best first."""
    return [
        {"name": name, "rows": rows.sort_values("mean", ascending=False, kind="stable").to_dict("records")}
        for name, rows in laboratory.groupby("family", sort=False)
    ]


def _stages(stages: pd.DataFrame) -> list[dict[str, Any]]:
    """Return what each stage took: its jobs, their time together, and the most memory that one of them had."""
    groups = stages.groupby("stage", sort=False)
    return [
        {"stage": name, "jobs": len(jobs), "seconds": jobs["seconds"].sum(), "memory": jobs["peak_memory_mb"].max()}
        for name, jobs in groups
    ]


def _share(times: list[pd.DataFrame], column: str) -> float:
    return float(100 * sum(frame[column].sum() for frame in times) / sum(frame["seconds"].sum() for frame in times))


def _figure(paths: "Paths", name: str) -> dict[str, str]:
    path = paths.figures / f"{name}.svg"
    try:
        encoded = base64.b64encode(path.read_bytes()).decode("ascii")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); run the workflow again") from error
    title, caption = FIGURES[name]
    return {"name": name, "title": title, "caption": caption, "source": f"data:image/svg+xml;base64,{encoded}"}


def _trees(paths: "Paths", run: "Run") -> dict[str, str]:
    """Return the page of a run's search trees, for a frame of its own."""
    trees = read_trees(paths.run(run) / TREES)
    # Games that were met most often show best how a search changes.
    met = trees.groupby("task_id")["epoch"].nunique().sort_values(ascending=False, kind="stable")
    page = render_trees(trees[trees["task_id"].isin(met.index[:SHOWN_TREES])], f"{label(run.method)}, {run.run_id}")
    return {"method": run.method, "page": page}


def _sections(provenance: pd.DataFrame) -> dict[str, list[tuple[str, str]]]:
    return {
        str(section): list(zip(group["name"], group["value"], strict=True))
        for section, group in provenance.groupby("section", sort=False)
    }


def _number(value: float | None, digits: int = 1) -> str:
    return MISSING if value is None or math.isnan(value) else f"{value:.{digits}f}"


def _spread(mean: float | None, std: float | None) -> str:
    """Return ``mean ± std`` as far as there is one."""
    if mean is None or math.isnan(mean):
        return MISSING
    return _number(mean) if std is None or math.isnan(std) else f"{_number(mean)} ± {_number(std)}"
