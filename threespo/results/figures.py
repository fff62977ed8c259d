"""How figures look and are saved: one style, and the same bytes for the same data."""

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from threespo.envs.registry import ENVIRONMENTS, presentation

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

COLOURS = {
    "base": "#9a9a9a",
    "strong": "#4d4d4d",
    "grpo": "#c44e52",
    "rloo": "#dd8452",
    "ppo": "#937860",
    "gigpo": "#8172b3",
    "hgpo": "#da8bc3",
    "dapo": "#55a868",
    "reinforce-pp": "#ccb974",
    "direct": "#b0b7c3",
    "react": "#8fa3b5",
    "retry": "#7b8a97",
    "reflexion": "#5d6d7a",
    "3spo": "#4c72b0",
    "threespo-literal": "#64a8d8",
    "threespo-calibrated": "#1f4e8c",
    "threespo-narrow": "#3fa7a0",
    "threespo-improved": "#0b5d3b",
}
"""The paper's figure has 3SPO blue, GRPO red, GiGPO purple and HGPO pink; so has ours."""

LABELS = {
    "base": "base (weak start)",
    "strong": "strong clone (ceiling)",
    "grpo": "GRPO",
    "ppo": "PPO",
    "rloo": "RLOO",
    "gigpo": "GiGPO",
    "hgpo": "HGPO",
    "dapo": "DAPO",
    "reinforce-pp": "REINFORCE++",
    "tree-grpo": "Tree-GRPO",
    "vine": "VinePPO",
    "direct": "direct prompting",
    "react": "ReAct",
    "retry": "ReAct, plain retries",
    "reflexion": "Reflexion",
    "closed-gpt-4o": "GPT-4o, ReAct",
    "closed-gemini-25-pro": "Gemini-2.5-Pro, ReAct",
    "3spo": "3SPO",
    "threespo-literal": "3SPO as printed",
    "threespo-calibrated": "3SPO calibrated",
    "threespo-narrow": "3SPO narrow",
    "threespo-improved": "3SPO improved",
    "improved-wide": "improved, G_max 8",
    "improved-wo-novelty": "improved w/o R_novel",
    "improved-wo-difference": "improved w/o ΔS",
    "improved-wo-gate": "improved w/o gate",
    "improved-one-path": "improved, one path",
    "improved-epoch-end": "improved, after the epoch",
    "literal-narrow": "as printed, G_max 3",
    "calibrated-deep": "calibrated, four times the cap",
    "grpo-steps": "GRPO, as many steps",
    "wo-novelty": "w/o R_novel",
    "wo-difference": "w/o ΔS",
    "omega-quarter": "w/o adaptive ω (0.25)",
    "omega-half": "w/o adaptive ω (0.5)",
    "wo-adaptive-n": "w/o adaptive n, no gate",
    "wo-adaptive-n-gated": "w/o adaptive n, gated",
    "wo-gate": "w/o gate",
    "one-path": "w/o backtracking: one path",
    "restarts": "w/o backtracking: restarts",
    "tick": "update after each tick",
    "post-trajectory": "update after the path",
    "epoch-end": "update after the epoch",
}
"""Display names of methods; those of environments, splits and measures are the environments' own
(``envs/ENVIRONMENT/presentation.py``). Anything else is shown under its own name."""

_SPARE = (
    "#64b5cd", "#8c8c8c", "#a87855", "#cc7474", "#7a9e3b", "#b07aa1", "#e0a030", "#3d6b99", "#9c755f", "#59a14f",
)  # fmt: skip


def label(name: str, env: str | None = None) -> str:
    """Return the name that a reader sees.

    Args:
        name: of a method, an environment, a split or a measure.
        env: whose split or measure it is: environments have splits of the same name.
    """
    own = presentation(env).labels if env else {}
    environments = {known: presentation(known).label for known in ENVIRONMENTS}
    return {**environments, **LABELS, **own}.get(name, name)


def measures(env: str) -> tuple[str, ...]:
    """Return what episodes in an environment are measured by."""
    return presentation(env).measures


def shown_task_types(env: str, found: Iterable[str]) -> dict[str, str]:
    """Return the task types of an environment that figures show, with the names that a reader sees, of those ``found``."""
    # A shop's own categories, which matplotlib must not take for formulas.
    return dict(presentation(env).shown_task_types) or {name: name.replace("$", r"\$") for name in sorted(set(found))}


def titled(name: str, env: str, environments: Collection[str]) -> str:
    """Return ``name``, with its environment before it where there are several."""
    return f"{label(env)}, {name}" if len(environments) > 1 else name


def palette(names: list[str]) -> dict[str, str]:
    """Return a colour for every name: a method keeps its colour in all figures."""
    unknown = [name for name in names if name not in COLOURS]
    return {**{name: _SPARE[index % len(_SPARE)] for index, name in enumerate(unknown)}, **COLOURS}


def set_style() -> None:
    """Set seaborn's style and make SVG files reproducible."""
    import matplotlib as mpl
    import seaborn as sns

    sns.set_theme(context="notebook", style="whitegrid", font_scale=0.9)
    mpl.rcParams.update({"svg.hashsalt": "threespo", "axes.spines.top": False, "axes.spines.right": False})


def save_figure(figure: "Figure", folder: str | Path, name: str, data: "pd.DataFrame") -> None:
    """Write ``NAME.png``, ``NAME.svg`` and ``NAME.csv`` into ``folder``.

    Args:
        figure: what is drawn.
        folder: the study's folder of figures.
        name: of the figure, as ``threespo.study.catalogue`` lists it.
        data: the numbers that are drawn, for the CSV file.
    """
    from threespo.files import atomic_path

    # Dates and version numbers would make equal figures differ.
    metadata = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}

    for kind, fields in metadata.items():
        with atomic_path(Path(folder) / f"{name}.{kind}") as path:
            figure.savefig(path, format=kind, dpi=160, bbox_inches="tight", metadata=fields)

    with atomic_path(Path(folder) / f"{name}.csv") as path:
        data.map(_plain).to_csv(path, index=False, float_format="%.6g", lineterminator="\n")


def _plain(value: object) -> object:
    """Return a cell that no spreadsheet takes for a formula: products and models may have written its text."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value
