"""Which tables, notebooks and figures a study has: what the workflow promises and the report shows.

The catalogue of items, ``config/paper/items.yaml``, is the one place that says what there is: of each table and figure its
name, the paper's label, its part, its notebook and its caption. The workflow's rules, the report and docs/paper_index.md are
made from it. It is read and checked when a study is resolved, so that a missing caption is found before anything runs.
"""

import functools
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from threespo.errors import InputError
from threespo.paths import NOTEBOOKS_FOLDER, PAPER_FOLDER
from threespo.settings import DistinctListOf, ListOf, Name, Settings
from threespo.study.config import Study
from threespo.study.explain import explain_error, field_name
from threespo.study.matrix import learning_runs, searching_runs
from threespo.study.parts import Part
from threespo.study.reading import read_text, read_yaml

FIGURE_KINDS = ("svg", "pdf", "png", "csv")
"""The files of a figure, all at one width, a column's or a page's (``results/paper/layout.py``). ``csv`` is
what it draws."""

TEXT_KINDS = ("html", "md", "tex", "csv")
"""The files of an item that is text: a part of a page, the same for other documents, and its data."""

TABLE_KINDS = ("csv", "md", "tex")
"""The files of a table in the paper's layout."""

PAPER_NUMBERS = tuple(
    PAPER_FOLDER / name
    for name in (
        "results.yaml",
        "efficiency.csv",
        "claims.yaml",
        "hyperparameters.yaml",
        "tables_and_figures.yaml",
    )
)
"""Files that the tables compare our numbers with."""

REPORT_NUMBERS = (PAPER_FOLDER / "compute.yaml", PAPER_FOLDER / "limitations.yaml")
"""The paper's numbers that every report shows and the study's tables do not have. All but one also show ``PUBLISHED``."""

ITEMS = PAPER_FOLDER / "items.yaml"
"""The catalogue of items."""

MISSING_DATA = {
    "searches": "no row searches",
    "probe": "no `probe` of scores; mini has one",
    "snapshots": "no snapshots of training; smoke has them",
    "uniform": "no row with equally many samples in every state; mini has one",
    "laboratory": "no decision trees; trees has them",
    "tuning": "no trials of learning rates; early has them",
}
"""What is said where a study lacks what a notebook needs."""

UNIFORM_ROWS = "3spo_wo_adaptive_n", "3spo_wo_adaptive_n_gated"
"""3SPO with the same number of samples in every state (figure 3d): the paper's row, and the control that keeps the gate."""

TABLES = (
    "episodes",
    "metrics",
    "rows",
    "task_types",
    "state_scores",
    "timing",
    "wall_time",
    "stages",
    "runs",
    "main",
    "cells",
    "hyperparameters",
    "curves",
    "learning",
    "learning_time",
    "time_to",
    "efficiency",
    "probes",
    "case_study",
    "reasoning",
    "tuning",
    "rates",
    "laboratory",
    "claims",
    "regret",
    "provenance",
)

TIMED = ("timing", "wall_time", "learning_time", "time_to", "stages", "runs", "provenance")
"""Those with times, machines or commits: equal runs have different ones."""

Text = Annotated[str, Field(min_length=1, max_length=4000)]


class Notebook(Settings):
    """What a notebook needs; ``notebooks/NAME.ipynb`` is its source, unless it names another."""

    source: Name | None = None
    """The file in ``notebooks/`` where several entries share one; its parameters are ``table``, the entry's name, and
    ``inputs``, its ``tables``."""
    tables: DistinctListOf[Literal[TABLES]] = ()  # type: ignore[valid-type]
    """Tables of the study that it reads; none where it draws what is the same in every study."""
    needs: Literal["nothing", "searches", "probe", "snapshots", "uniform", "laboratory", "tuning"] = (
        "nothing"
    )
    """What a study must have for the notebook to have data."""
    paper: DistinctListOf[Annotated[str, Field(pattern=r"^[\w.-]+$")]] = ()
    """Files of ``config/paper`` that it reads besides tables."""
    environments: bool = True
    """Whether it shows environments or their tasks by name; if not, other names do not rerun it."""


class Item(Settings):
    """A table, figure or text that we show."""

    name: Name
    """Its files' name, and its place in the report."""
    kind: Literal["figure", "table", "text"] = "figure"
    """A text is typeset by its notebook: what pictures cannot show, and no table of numbers is."""
    paper: DistinctListOf[str] = ()
    """Labels of what the paper has there (``config/paper/tables_and_figures.yaml``); none: the paper lacks it."""
    part: Part | None = None
    """The part of a study whose runs it shows; ``null``: whatever runs there are, or none."""
    notebook: Name
    """The notebook that makes it."""
    title: Text
    caption: Text
    mean_of: Literal["seeds", "snapshots", "trees", "probes"] | None = None
    """What its numbers are means of; the caption says how many (training) seeds, of snapshots also how many tasks."""
    task_types: bool = False
    """Whether the caption ends with what the task types of the study's environments are."""


class Catalogue(Settings):
    """All notebooks and items, in the order of the report."""

    notebooks: dict[Name, Notebook]
    items: Annotated[ListOf[Item], Field(min_length=1)]

    @model_validator(mode="after")
    def _items_and_notebooks_fit(self) -> "Catalogue":
        names = [item.name for item in self.items]
        # Two items of one name would write the same files.
        repeated = sorted(name for name in names if names.count(name) > 1)
        if repeated:
            raise ValueError(
                f"items: {repeated[0]!r} is there twice; names are names of files, so each is needed once"
            )
        for item in self.items:
            if item.notebook not in self.notebooks:
                raise ValueError(
                    f"items.{item.name}.notebook: no entry {item.notebook!r} in 'notebooks'; add it"
                )
        # A notebook without an item would be executed for nothing.
        for name in self.notebooks:
            if not self.made_by(name):
                raise ValueError(
                    f"notebooks.{name}: no item is made by it; add the item, with title and caption"
                )
        return self

    def made_by(self, notebook: str) -> list[Item]:
        """Return the items that a notebook makes."""
        return [item for item in self.items if item.notebook == notebook]


EMPTY_CATALOGUE = Catalogue.model_construct(notebooks={}, items=())


def read_catalogue(folder: Path = PAPER_FOLDER) -> Catalogue:
    """Return the catalogue of items; an empty one where the repository's ``config`` is not: there are no notebooks either.

    Raises:
        InputError: naming the file, the item, the field and what is expected.
    """
    file = folder / ITEMS.name
    try:
        modified = file.stat().st_mtime_ns
    except OSError as error:
        if not folder.is_dir():
            return EMPTY_CATALOGUE
        raise InputError(
            f"{file}: cannot be read ({error.strerror}); restore it from the repository"
        ) from error
    # The absolute path too: the relative one means another file in another working directory.
    return _read_file(file, str(file.absolute()), modified)


@functools.lru_cache(maxsize=8)
def _read_file(file: Path, _absolute: str, _modified: int) -> Catalogue:
    """Read the catalogue once for each state of the file."""
    values = read_yaml(read_text(file, "Restore it from the repository."), str(file))
    try:
        return Catalogue.model_validate(values)
    except ValidationError as error:
        faults = [
            f"{_field_name(fault, values)}: {explain_error(fault, Catalogue)}"
            for fault in error.errors()
        ]
        # ``field_name`` is made for studies, and calls a fault of the whole file one of the study.
        message = "; ".join(faults).replace("study: ", "", 1)
        raise InputError(f"{file}: {message}") from error


def _field_name(fault: Any, values: Any) -> str:
    """Return the full name of a wrong field, with an item's name instead of its number."""
    parts = field_name(fault).split(".")
    is_in_item = parts[0] == "items" and len(parts) > 1 and parts[1].isdecimal()
    if is_in_item and isinstance(values, dict):
        item = values["items"][int(parts[1])]
        if isinstance(item, dict):
            parts[1] = str(item.get("name", parts[1]))
    return ".".join(parts)


def find_notebook(name: str) -> Notebook:
    """Return what a notebook needs.

    Raises:
        KeyError: if there is none of that name.
    """
    return read_catalogue().notebooks[name]


def notebook_file(name: str) -> Path:
    """Return the source of a notebook.

    Raises:
        KeyError: if there is none of that name.
    """
    return NOTEBOOKS_FOLDER / f"{find_notebook(name).source or name}.ipynb"


def notebooks_of(study: Study) -> list[str]:
    """Return the notebooks that a study has data for."""
    # The bases have snapshots, too, and are no methods.
    methods = {run.method for run in learning_runs(study)} & study.methods.keys()
    paper_rows = {study.methods[method].paper_row for method in methods}
    has_data = {
        "nothing": True,
        "searches": bool(searching_runs(study)),
        "probe": study.probe is not None,
        "snapshots": bool(learning_runs(study)),
        "laboratory": study.laboratory is not None,
        "tuning": study.tuning is not None,
        "uniform": not paper_rows.isdisjoint(UNIFORM_ROWS),
    }
    return [name for name, entry in read_catalogue().notebooks.items() if has_data[entry.needs]]


def figure_files_of(name: str) -> list[tuple[str, str]]:
    """Return the files of a notebook's figures and texts: item and kind."""
    # Tables have files, too, but in another folder (``tables_made_by``).
    kinds = {"figure": FIGURE_KINDS, "text": TEXT_KINDS, "table": ()}
    items = read_catalogue().made_by(name)
    return [(item.name, kind) for item in items for kind in kinds[item.kind]]


def tables_made_by(name: str) -> list[str]:
    """Return the tables in the paper's layout that a notebook writes."""
    return [item.name for item in read_catalogue().made_by(name) if item.kind == "table"]


def table_items() -> list[Item]:
    """Return the tables in the paper's layout, in the order of the report; a study without a table's rows says so there."""
    return [item for item in read_catalogue().items if item.kind == "table"]


def items_of(study: Study) -> list[Item]:
    """Return the items whose notebooks a study has, in the order of the report."""
    # A study without search has no figures of searches.
    drawn = notebooks_of(study)
    return [item for item in read_catalogue().items if item.notebook in drawn]


def figures_of(study: Study) -> list[Item]:
    """Return the figures that a study has, in the order of the report."""
    return [item for item in items_of(study) if item.kind == "figure"]


def missing_items(study: Study) -> list[tuple[Item, str]]:
    """Return the figures and texts that a study has no data for, each with what it lacks."""
    catalogue = read_catalogue()
    drawn = notebooks_of(study)
    missing = []
    for item in catalogue.items:
        # A table without rows says so itself.
        if item.notebook not in drawn and item.kind != "table":
            needed = catalogue.notebooks[item.notebook].needs
            missing.append((item, MISSING_DATA[needed]))
    return missing


def texts_of(study: Study) -> list[Item]:
    """Return the texts that a study has, in the order of the report."""
    return [item for item in items_of(study) if item.kind == "text"]
