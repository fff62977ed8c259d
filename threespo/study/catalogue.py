"""Which tables, notebooks and figures a study has: what the workflow promises and the report shows."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from threespo.methods.registry import searches
from threespo.study.config import Study
from threespo.study.paths import PAPER


@dataclass(frozen=True, slots=True)
class Notebook:
    """What a notebook needs and draws."""

    tables: tuple[str, ...]
    figures: tuple[str, ...]
    needs: Literal["nothing", "searches", "probe"] = "nothing"
    """What a study must have for the notebook to have data."""
    paper: tuple[Path, ...] = ()
    """Files of the paper's numbers that it reads besides tables."""
    modules: tuple[str, ...] = ("threespo.results.figures",)
    """Modules of this package that its cells import (tested)."""


FIGURE_KINDS = ("png", "svg", "csv")
"""The files of a figure; ``csv`` is the data that it draws."""

PAPER_NUMBERS = tuple(PAPER / name for name in ("results.yaml", "efficiency.csv", "claims.yaml"))
"""What the tables compare ours with."""

TABLES = (
    "episodes",
    "metrics",
    "task_types",
    "state_scores",
    "timing",
    "wall_time",
    "stages",
    "main",
    "curves",
    "efficiency",
    "probes",
    "case_study",
    "tuning",
    "laboratory",
    "claims",
    "regret",
    "provenance",
)

NOTEBOOKS: dict[str, Notebook] = {
    "main_results": Notebook(("main", "episodes"), ("main_results",)),
    "training_curves": Notebook(
        ("metrics", "curves"), ("training_curves", "paper_training_curves"), paper=(PAPER / "fig3a.csv",)
    ),
    "state_scores": Notebook(
        ("metrics", "state_scores"), ("mean_scores", "scores_by_type", "high_scores", "samples_per_state"), "searches"
    ),
    "case_study": Notebook(("case_study",), ("case_study",), "searches"),
    "score_reliability": Notebook(("probes",), ("score_reliability",), "probe"),
    "claims": Notebook(
        ("claims",), ("claims",), modules=("threespo.results.claims.page", "threespo.results.figures")
    ),
    "theory": Notebook(("regret",), ("regret",)),
}
"""The notebooks, in the order of the report's figures."""


def notebooks(study: Study) -> list[str]:
    """Return the notebooks that a study has data for."""
    has = {
        "nothing": True,
        "searches": any(searches(entry.method) for entry in study.methods.values()),
        "probe": study.probe is not None,
    }
    return [name for name, notebook in NOTEBOOKS.items() if has[notebook.needs]]


def figures(study: Study) -> list[str]:
    """Return the figures of a study's notebooks."""
    return [figure for name in notebooks(study) for figure in NOTEBOOKS[name].figures]
