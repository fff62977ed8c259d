"""What readers see of rows, environments, splits and measures: their names, and the colours and markers of rows.

A row's label and colour are those of its entry in the study, or else those of ``config/paper/rows.yaml``. Names of
environments, splits and measures are the environments' own (``envs/ENVIRONMENT/presentation.py``).
"""

import functools
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from pydantic import TypeAdapter, ValidationError

from threespo.envs.registry import ENVIRONMENTS, presentation
from threespo.errors import InputError
from threespo.paths import ROW_LOOKS
from threespo.settings import RowColour, RowLabel, Settings
from threespo.study.reading import read_text, read_yaml

if TYPE_CHECKING:
    from threespo.study.config import AgentEntry, MethodSettings, Study

SPARE_COLOURS = (
    "#64b5cd", "#8c8c8c", "#a87855", "#cc7474", "#7a9e3b", "#b07aa1", "#e0a030", "#3d6b99", "#9c755f", "#59a14f",
)  # fmt: skip
"""Of rows without a colour, in the order in which a figure names them."""

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*", "p", "h", "d")

DASHES = ("-", (0, (4, 1.5)), (0, (1, 1)), (0, (5, 1, 1, 1)))
"""Solid, dashed, dotted, and both in turn."""


class RowLook(Settings):
    """How a row looks; ``None``: its id as the label, a spare colour."""

    label: RowLabel | None = None
    colour: RowColour | None = None


def read_row_looks(file: Path = ROW_LOOKS) -> dict[str, RowLook]:
    """Return the looks that hold for all studies; none outside the repository.

    Raises:
        InputError: naming the file and what is wrong in it.
    """
    # An installed package has no folder ``config``.
    if not file.parent.is_dir():
        return {}
    values = read_yaml(read_text(file, "Restore it from the repository."), str(file))
    try:
        return TypeAdapter(dict[str, RowLook]).validate_python(values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the whole file"
        raise InputError(
            f"{file}, {where}: {first['msg']}; its first lines explain the fields"
        ) from error


def looks_of_study(study: "Study") -> pd.DataFrame:
    """Return the table ``rows``: ``name``, ``label`` and ``colour`` of rows, "" where neither study nor file gives one."""
    # In the order of the file, which decides markers; rows that only the study labels come last.
    looks = read_row_looks()
    entries: dict[str, AgentEntry | MethodSettings] = {**study.agents, **study.methods}
    for name, entry in entries.items():
        if entry.label is None and entry.colour is None:
            continue
        default = looks.get(name, RowLook())
        shown_label = entry.label or default.label
        colour = entry.colour or default.colour
        looks[name] = RowLook(label=shown_label, colour=colour)

    rows = []
    for name, look in looks.items():
        rows.append({"name": name, "label": look.label or "", "colour": look.colour or ""})
    return pd.DataFrame(rows, columns=["name", "label", "colour"])


# Like matplotlib's style, the looks are set once for a process, which shows a single study: a job or a notebook.
_looks_in_use: dict[str, RowLook] = {}


def use_row_looks(rows: pd.DataFrame) -> None:
    """Show the rows of a study from now on as its table ``rows`` says."""
    _looks_in_use.clear()
    for name, label, colour in rows[["name", "label", "colour"]].itertuples(index=False):
        _looks_in_use[str(name)] = RowLook(label=label or None, colour=colour or None)


@functools.cache
def _default_looks() -> dict[str, RowLook]:
    return read_row_looks()


def row_looks() -> dict[str, RowLook]:
    """Return the looks in use, in the order that decides markers: those of the file until a study's are set."""
    return _looks_in_use or _default_looks()


def label(name: str, env: str | None = None) -> str:
    """Return the name that a reader sees.

    Args:
        name: of a row, an environment, a split or a measure.
        env: whose split or measure it is: environments have splits of the same name.
    """
    # Environments may have splits and measures of the same name with different labels.
    if env is not None and name in presentation(env).labels:
        return presentation(env).labels[name]

    look = row_looks().get(name)
    if look is not None and look.label is not None:
        return look.label
    return presentation(name).label if name in ENVIRONMENTS else name


def titled(name: str, env: str, environments: Collection[str]) -> str:
    """Return ``name``, with its environment before it where there are several."""
    return f"{label(env)}, {name}" if len(environments) > 1 else name


def measures(env: str) -> tuple[str, ...]:
    """Return what episodes in an environment are measured by."""
    return presentation(env).measures


def shown_task_types(env: str, found: Iterable[str]) -> dict[str, str]:
    """Return the task types of an environment that figures show, with the names that a reader sees, of those ``found``."""
    shown = dict(presentation(env).shown_task_types)
    if shown:
        return shown
    # A shop has categories of its own, in which matplotlib would take dollar signs for formulas.
    return {name: name.replace("$", r"\$") for name in sorted(set(found))}


def row_colour(name: str) -> str | None:
    """Return the colour that a row has in all figures; ``None`` if it has none of its own."""
    look = row_looks().get(name)
    return look.colour if look is not None else None


def palette(names: Sequence[str]) -> dict[str, str]:
    """Return a colour for every name; those without one of their own get spare ones in their order."""
    # By the order in a figure: a row without a colour may differ between figures.
    without_colour = [name for name in names if row_colour(name) is None]
    spare = {
        name: SPARE_COLOURS[index % len(SPARE_COLOURS)] for index, name in enumerate(without_colour)
    }
    return {name: row_colour(name) or spare[name] for name in names}


def styles(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return how the lines of every name are drawn: colour, marker and dashes, as matplotlib's arguments.

    A row looks the same in all figures. Lines whose colours some readers cannot tell apart differ in the others.
    """
    colours = palette(names)
    looks = row_looks()
    without_look = [name for name in names if name not in looks]
    order = [*looks, *without_look]

    styles_by_name = {}
    for name in names:
        # The position in the list of all rows, not in this figure, so that it is the same in every figure.
        position = order.index(name)
        # When all markers are used, they begin again with the next kind of dashes.
        cycle = position // len(MARKERS)
        styles_by_name[name] = {
            "color": colours[name],
            "marker": MARKERS[position % len(MARKERS)],
            "linestyle": DASHES[cycle % len(DASHES)],
            # Light colours need an edge to be seen on white.
            "markeredgecolor": "#333333",
            "markeredgewidth": 0.4,
        }
    return styles_by_name
