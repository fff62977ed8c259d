"""Which tables, notebooks and figures a study has: what the workflow promises and the report shows."""

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from threespo.study.config import Study


class Notebook(TypedDict):
    """What a notebook needs and draws."""

    tables: tuple[str, ...]
    figures: tuple[str, ...]


MEASURES = {"alfworld": ("success",), "webshop": ("score", "success")}
"""What an environment's episodes are judged by, in the order of the paper's columns; ALFWorld's score is its success."""

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
    "main_results": {"tables": ("main", "episodes"), "figures": ("main_results",)},
    "training_curves": {"tables": ("metrics", "curves"), "figures": ("training_curves", "paper_training_curves")},
    "state_scores": {
        "tables": ("metrics", "state_scores"),
        "figures": ("mean_scores", "scores_by_type", "high_scores", "rollouts"),
    },
    "case_study": {"tables": ("case_study",), "figures": ("case_study",)},
    "calibration": {"tables": ("probes",), "figures": ("calibration",)},
    "claims": {"tables": ("claims",), "figures": ("claims",)},
    "theory": {"tables": ("regret",), "figures": ("regret",)},
}
"""The notebooks, the tables that each one loads, and the figures that it draws."""


def notebooks(study: "Study") -> list[str]:
    """Return the notebooks that a study has data for."""
    searches = any(entry.method == "threespo" for entry in study.methods.values())
    wanted = {"state_scores": searches, "case_study": searches, "calibration": study.probe is not None}
    return [name for name in NOTEBOOKS if wanted.get(name, True)]


def figures(study: "Study") -> list[str]:
    """Return the figures of a study's notebooks."""
    return [figure for name in notebooks(study) for figure in NOTEBOOKS[name]["figures"]]
