"""Names, colours and files of figures: a method looks the same in all of them, and equal data give equal bytes."""

import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from threespo.envs.registry import ENVIRONMENTS, presentation
from threespo.files import replace_file, write_text
from threespo.results.paper.csv_files import csv_text
from threespo.results.paper.layout import WIDTHS, page_boxes

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

COLOURS = {
    "base": "#a3a3a3",
    "strong": "#1b1b1b",
    "3spo": "#215cae",
    "threespo-literal": "#215cae",
    "threespo-calibrated": "#051b4e",
    "threespo-narrow": "#13858f",
    "threespo-improved": "#286a4d",
    "grpo": "#9a1014",
    "gigpo": "#8532dd",
    "hgpo": "#fccadc",
    "ppo": "#988259",
    "rloo": "#f26905",
    "dapo": "#b3a858",
    "reinforce-pp": "#ccb974",
    "direct": "#b0b7c3",
    "react": "#8fa3b5",
    "retry": "#7b8a97",
    "reflexion": "#5d6d7a",
}
"""The paper's figure has 3SPO blue, GRPO red, GiGPO purple and HGPO pink; so has ours. The shades are chosen so that the
first twelve differ for colour-blind readers too (tested); what is alike has other markers or dashes (``styles``)."""

LABELS = {
    "base": "base (weak start)",
    "strong": "strong clone (ceiling)",
    "3spo": "3SPO",
    "threespo-literal": "3SPO as printed",
    "threespo-calibrated": "3SPO calibrated",
    "threespo-narrow": "3SPO narrow",
    "threespo-improved": "3SPO improved",
    "grpo": "GRPO",
    "gigpo": "GiGPO",
    "hgpo": "HGPO",
    "ppo": "PPO",
    "rloo": "RLOO",
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
    "alpha-35": "α = 35",
    "alpha-50": "α = 50",
    "alpha-70": "α = 70",
    "xi-5": "ξ = 5, ζ = 0.05",
    "xi-20": "ξ = 20, ζ = 0.2",
    "xi-50": "ξ = 50, ζ = 0.3",
}
"""Display names of methods; those of environments, splits and measures are the environments' own
(``envs/ENVIRONMENT/presentation.py``). Anything else is shown under its own name."""

_SPARE = (
    "#64b5cd", "#8c8c8c", "#a87855", "#cc7474", "#7a9e3b", "#b07aa1", "#e0a030", "#3d6b99", "#9c755f", "#59a14f",
)  # fmt: skip


MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*", "p", "h", "d")
DASHES = ("-", (0, (4, 1.5)), (0, (1, 1)), (0, (5, 1, 1, 1)))
"""Solid, dashed, dotted, and both in turn."""

DOTS_PER_INCH = 300
"""Per inch, of the files that are made of dots."""


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
    return dict(presentation(env).shown_task_types) or {
        name: name.replace("$", r"\$") for name in sorted(set(found))
    }


def titled(name: str, env: str, environments: Collection[str]) -> str:
    """Return ``name``, with its environment before it where there are several."""
    return f"{label(env)}, {name}" if len(environments) > 1 else name


def palette(names: list[str]) -> dict[str, str]:
    """Return a colour for every name: a method keeps its colour in all figures."""
    unknown = [name for name in names if name not in COLOURS]
    return {**{name: _SPARE[index % len(_SPARE)] for index, name in enumerate(unknown)}, **COLOURS}


def styles(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return how the lines of every name are drawn: colour, marker and dashes, as matplotlib's arguments.

    A method looks the same in all figures. Lines whose colours some readers cannot tell apart differ in the others.
    """
    colours, known = palette(list(names)), [*LABELS, *(name for name in names if name not in LABELS)]
    places = {name: place for place, name in enumerate(known)}
    return {
        name: {
            "color": colours[name],
            "marker": MARKERS[places[name] % len(MARKERS)],
            "linestyle": DASHES[places[name] // len(MARKERS) % len(DASHES)],
            # Light colours need an edge to be seen on white.
            "markeredgecolor": "#333333",
            "markeredgewidth": 0.4,
        }
        for name in names
    }


_NO_TREES = (
    "No search tree of this study was recorded. To record those of four tasks: "
    "snakemake --config study=NAME 'set={training: {recorded_tasks: 4}}'"
)
WITHOUT_ROWS = {
    "case_study": _NO_TREES,
    "scores_by_type": _NO_TREES,
    "claims": "No two rows of this study are compared by a claim on success or score. `smoke` and `mini` have such rows.",
}
"""What stands in the place of a figure for which a study has no rows; of others one sentence for all."""


def save_figure(figure: "Figure", folder: str | Path, name: str, data: "pd.DataFrame") -> None:
    """Write ``NAME.svg``, ``NAME.pdf``, ``NAME.png`` and ``NAME.csv`` into ``folder``, at the width that the figure has.

    A figure that is taller than a page has several in its PDF file, and views ``#page-1`` and so on in its SVG file.
    Without data a sentence stands in its place (``WITHOUT_ROWS``): an empty frame would look like a result.

    Args:
        figure: what is drawn, as ``layout.canvas`` begins it.
        folder: the study's folder of figures.
        name: of the figure, as ``threespo.study.catalogue`` lists it.
        data: the numbers that are drawn, for the CSV file.

    Raises:
        ValueError: if the figure has none of the widths in ``layout.WIDTHS``.
    """
    from matplotlib.backends.backend_pdf import PdfPages

    width = float(figure.get_size_inches()[0])
    if width not in WIDTHS.values():
        raise ValueError(
            f"figure {name!r} is {width:g} inches wide; expected one of {list(WIDTHS.values())}"
        )

    if data.empty:
        figure = _sentence(WITHOUT_ROWS.get(name, "This study has no rows for this figure."), width)

    # All files have one layout, which takes longer than writing them. Laid out with few dots to an inch letters are narrower
    # than in the files, and long labels would be cut at the edge.
    figure.set_dpi(DOTS_PER_INCH)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")

    # Dates and version numbers would make equal figures differ.
    metadata = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}
    parts = page_boxes(figure)
    for kind, fields in metadata.items():
        with replace_file(Path(folder) / f"{name}.{kind}") as path:
            figure.savefig(path, format=kind, dpi=DOTS_PER_INCH, metadata=fields)
            if kind == "svg" and len(parts) > 1:
                drawn = path.read_text(encoding="utf-8")
                path.write_text(
                    drawn.replace("</svg>", f"{_views(figure, parts)}</svg>"), encoding="utf-8"
                )

    undated = dict.fromkeys(("CreationDate", "Creator", "Producer"))
    with replace_file(Path(folder) / f"{name}.pdf") as path, PdfPages(path, metadata=undated) as file:
        for part in parts:
            file.savefig(figure, bbox_inches=part)

    _write_data(data, folder, name)


def _sentence(text: str, width: float) -> "Figure":
    """Return a figure that is a sentence, in lines that fit its width in inches."""
    from matplotlib.figure import Figure

    lines = textwrap.wrap(text, int(13 * width), break_on_hyphens=False)
    figure = Figure(figsize=(width, 0.2 + 0.16 * len(lines)))
    figure.text(0.5, 0.5, "\n".join(lines), ha="center", va="center", fontsize=7.5, parse_math=False)
    return figure


def _views(figure: "Figure", parts: "Sequence[Bbox]") -> str:
    """Return an SVG view for each page of a figure, in points from the top; ``none``: it fills what it is shown in."""
    height = float(figure.get_size_inches()[1])
    boxes = [
        [72 * length for length in (part.x0, height - part.y1, part.width, part.height)]
        for part in parts
    ]
    return "".join(
        f'<view id="page-{number}" viewBox="{" ".join(f"{length:.2f}" for length in box)}" preserveAspectRatio="none"/>\n'
        for number, box in enumerate(boxes, start=1)
    )


def save_text(shown: Mapping[str, str], folder: str | Path, name: str, data: "pd.DataFrame") -> None:
    """Write an item that is text: ``NAME.html``, a part of a page, ``NAME.md``, ``NAME.tex``, and ``NAME.csv``.

    Args:
        shown: what is shown, by the file's kind, with everything that is data escaped.
        folder: the study's folder of figures.
        name: of the item, as ``threespo.study.catalogue`` lists it.
        data: what it shows, for the CSV file.
    """
    for kind, text in shown.items():
        write_text(Path(folder) / f"{name}.{kind}", text)
    _write_data(data, folder, name)


def _write_data(data: "pd.DataFrame", folder: str | Path, name: str) -> None:
    write_text(Path(folder) / f"{name}.csv", csv_text(data))
