"""The paper's own numbers (config/paper), read once and looked up by study labels."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from threespo.errors import InputError
from threespo.paths import PAPER_FOLDER

PROMPTED_BASE = "qwen2_5"
"""The paper's row of the untrained base model, with which our base is compared."""

DETAILED_ENVIRONMENT = "alfworld"
"""The environment for which the paper shows the course of training, states, searches and efficiency."""

PAPER_COLUMNS = {
    ("alfworld", "valid_seen", "success"): "alfworld_in",
    ("alfworld", "valid_unseen", "success"): "alfworld_out",
    ("webshop", "test", "score"): "webshop_score",
    ("webshop", "test", "success"): "webshop_success",
}
"""The paper's columns by environment, split and measure; it calls seen rooms in-distribution and unseen ones
out-of-distribution."""

UNSEEN_SPLITS = ("valid_unseen", "test")
"""The paper's splits that no training sees and that are not of training rooms."""


def parse_column(column: str) -> tuple[str, str, str]:
    """Return the environment, split and measure of a column of the paper's main table."""
    return next(key for key, name in PAPER_COLUMNS.items() if name == column)


VISITS = (1, 10)
"""Visits to a state that the paper's case study shows."""

PAPER_SEEDS = 3
"""Seeds of the paper's means and standard deviations (caption of its main table)."""


@dataclass(frozen=True, slots=True)
class PaperValue:
    """A cell of the paper's table in percent; None where it prints nothing."""

    mean: float | None
    std: float | None


NO_VALUE = PaperValue(None, None)


@dataclass(frozen=True, slots=True)
class PaperResults:
    """The paper's main table by (method, base model, column)."""

    cells: dict[tuple[str, str, str], PaperValue]
    names: Mapping[str, str] = field(default_factory=dict)
    """What readers see of the ids of methods and base models."""
    kinds: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Of each (method, base model), in the paper's order: ``prompting``, ``rl_training``, ``ablation``, ``sensitivity``."""

    def value(
        self, method: str | None, base_model: str, env: str, split: str, measure: str = "success"
    ) -> PaperValue:
        """Return the paper's value for one of our cells, or ``NO_VALUE`` if it has none.

        Args:
            method: the method's id in ``results.yaml``; None for a row that the paper lacks.
            base_model: the paper's base model, for example ``qwen2.5-1.5b-instruct``.
            env: the environment.
            split: one of its evaluated splits.
            measure: ``success`` or ``score``.
        """
        column = PAPER_COLUMNS.get((env, split, measure))
        if method is None or column is None:
            return NO_VALUE
        return self.cells.get((method, base_model, column), NO_VALUE)


@dataclass(frozen=True, slots=True)
class PaperNumbers:
    """The paper's tables."""

    results: PaperResults
    efficiency: dict[tuple[str, str], dict[str, float]]
    """(environment, method) -> ``paper_rollouts`` and ``paper_states``."""


def read_paper(folder: Path = PAPER_FOLDER) -> PaperNumbers:
    """Read both tables.

    Raises:
        InputError: if a file is missing or does not have the expected form.
    """
    return PaperNumbers(read_results(folder), read_efficiency(folder))


def read_efficiency(folder: Path = PAPER_FOLDER) -> dict[tuple[str, str], dict[str, float]]:
    """Return the paper's rollouts and unique states by (environment, method).

    Raises:
        InputError: if ``efficiency.csv`` is missing or does not have the expected form.
    """
    path = folder / "efficiency.csv"
    # The paper's table counts rollouts, in a unit that it does not explain; we keep its numbers as printed.
    numbers = {}
    try:
        with path.open(encoding="utf-8", newline="") as lines:
            for row in csv.DictReader(lines):
                numbers[row["env"], row["method"]] = {
                    "paper_rollouts": float(row["rollouts"]),
                    "paper_states": float(row["unique_states"]),
                }
    except (OSError, KeyError, ValueError, TypeError) as error:
        raise _unreadable(path, error) from error
    return numbers


def read_results(folder: Path = PAPER_FOLDER) -> PaperResults:
    """Read ``results.yaml``.

    Raises:
        InputError: if it is missing or does not have the expected form.
    """
    path = folder / "results.yaml"
    cells = {}
    kinds = {}
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
        names = {str(name): str(shown) for name, shown in values["names"].items()}
        # Rows are in the paper's order, which tables keep.
        for row in values["rows"]:
            method = str(row["method"])
            base_model = str(row["base_model"])
            kinds[method, base_model] = str(row["kind"])
            # In a row of the file only cells are mappings (mean, std); all other fields describe the row.
            for column, cell in row.items():
                if isinstance(cell, dict):
                    cells[method, base_model, column] = PaperValue(cell["mean"], cell["std"])
    except (OSError, yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        raise _unreadable(path, error) from error
    return PaperResults(cells, names, kinds)


def read_tables_and_figures(folder: Path = PAPER_FOLDER) -> dict[str, dict[str, Any]]:
    """Return what each table and figure of the paper shows, by its label.

    Raises:
        InputError: if ``tables_and_figures.yaml`` is missing or does not have the expected form.
    """
    path = folder / "tables_and_figures.yaml"
    try:
        entries = yaml.safe_load(path.read_text(encoding="utf-8"))
        return {entry["label"]: entry for entry in entries}
    except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
        raise InputError(
            f"{path}: not the list of what the paper shows ({error!r}); restore it from the repository"
        ) from error


def _unreadable(path: Path, error: Exception) -> InputError:
    return InputError(
        f"{path}: not readable as the paper's table ({error!r}); restore it from the repository"
    )
