"""Which tables, notebooks and figures a study has: what the workflow promises and the report shows."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from threespo.methods.registry import searches
from threespo.study.config import Study
from threespo.study.matrix import learning_runs
from threespo.study.paths import PAPER


@dataclass(frozen=True, slots=True)
class Notebook:
    """What a notebook needs and draws."""

    tables: tuple[str, ...]
    figures: tuple[str, ...]
    needs: Literal["nothing", "searches", "probe", "snapshots", "uniform"] = "nothing"
    """What a study must have for the notebook to have data."""
    paper: tuple[Path, ...] = ()
    """Files of the paper's numbers that it reads besides tables."""
    modules: tuple[str, ...] = ("threespo.results.figures",)
    """Modules of this package that its cells import (tested)."""
    environments: bool = True
    """Whether it shows environments or their tasks by name; if not, other names do not rerun it."""


FIGURE_KINDS = ("png", "svg", "csv")
"""The files of a figure; ``csv`` is the data that it draws."""

PAPER_NUMBERS = tuple(PAPER / name for name in ("results.yaml", "efficiency.csv", "claims.yaml"))
"""What the tables compare ours with."""

UNIFORM_ROW = "3spo_wo_adaptive_n"
"""The paper's row of 3SPO with the same number of samples in every state (figure 3d)."""

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
    "learning",
    "learning_time",
    "time_to",
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
    "learning_curves": Notebook(
        ("learning", "learning_time", "time_to"),
        ("learning_curves", "learning_time"),
        "snapshots",
        modules=("threespo.results.curves", "threespo.results.figures", "threespo.results.learning_figure"),
    ),
    "adaptive_curves": Notebook(
        ("learning", "learning_time"),
        ("adaptive_curves", "adaptive_time"),
        "uniform",
        modules=("threespo.results.curves", "threespo.results.figures", "threespo.results.learning_figure"),
    ),
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
    "theory": Notebook(("regret",), ("regret",), environments=False),
}
"""The notebooks, in the order of the report's figures."""


def notebooks(study: Study) -> list[str]:
    """Return the notebooks that a study has data for."""
    has = {
        "nothing": True,
        "searches": any(searches(entry.method) for entry in study.methods.values()),
        "probe": study.probe is not None,
        "snapshots": bool(learning_runs(study)),
        "uniform": bool(learning_runs(study)) and UNIFORM_ROW in {entry.paper_row for entry in study.methods.values()},
    }
    return [name for name, notebook in NOTEBOOKS.items() if has[notebook.needs]]


def figures(study: Study) -> list[str]:
    """Return the figures of a study's notebooks."""
    return [figure for name in notebooks(study) for figure in NOTEBOOKS[name].figures]
