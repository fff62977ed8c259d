"""What claims are judged by: a study's results, the settings in which rows of the paper are looked up, and their runs."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import pandas as pd

from threespo.envs.optional_splits import OPTIONAL_SPLITS
from threespo.methods.registry import searches
from threespo.results.analysis.comparisons import SAME_ROW, Comparison, compare_methods, preset_name
from threespo.results.analysis.summaries import percent_by_seed
from threespo.results.claims.seeds import Values
from threespo.results.paper_numbers import UNSEEN_SPLITS, PaperNumbers, parse_column
from threespo.study.matrix import local_policies, prompted_runs, units_of_seeds

if TYPE_CHECKING:
    from threespo.study.config import Study

Model = Literal["qwen2.5-1.5b-instruct", "qwen2.5-7b-instruct"]

SMALL_MODEL: Model = "qwen2.5-1.5b-instruct"
"""The model whose training the paper shows."""

LARGE_MODEL: Model = "qwen2.5-7b-instruct"

BOTH_MODELS: tuple[Model, ...] = (SMALL_MODEL, LARGE_MODEL)

PAPER_PRESETS = ("literal", "calibrated")
"""Presets of 3SPO that are the paper's method; other presets replace parts of it."""

Run: TypeAlias = pd.DataFrame
"""Rows of one training seed, in the order of time."""


@dataclass(frozen=True)
class Evidence:
    """A study's results, and the numbers of the paper."""

    study: "Study"
    episodes: pd.DataFrame
    """A row per evaluated episode."""
    metrics: pd.DataFrame
    """A row per training epoch."""
    task_types: pd.DataFrame
    """A row per training epoch and task type."""
    paper: PaperNumbers
    learning: pd.DataFrame
    """A row per snapshot of a training run, with its success on unseen games; may be empty."""
    probes: pd.DataFrame
    """A row per probed state; may be empty."""
    searches: pd.DataFrame
    """A row per run that recorded search trees (``analysis/search_facts.py``); may be empty."""
    edges: Mapping[tuple[str, str, str], str] = field(default_factory=dict)
    """Environment, policy and method of the rows whose learning rate is at an edge of what was tried, with the edge."""

    # Once for all claims: every pair of the main table is looked up in it.
    @functools.cached_property
    def comparisons(self) -> list[Comparison]:
        """The study's table of comparisons."""
        return compare_methods(self.study, self.episodes, self.edges)


class Cell(NamedTuple):
    """A setting in which rows of the paper are looked up: an environment, a policy, and the preset that is 3SPO there."""

    env: str
    policy: str
    preset: str | None

    def find_method(self, study: "Study", row: str) -> str | None:
        """Return the study's method, or prompting agent, for a row of the paper; None if none has runs here."""
        methods = self._find_trained(study, row)
        if methods:
            return methods[0]

        # A tiny policy follows no instructions, and a clone the expert's only: prompting it neither confirms nor refutes a
        # claim.
        policy = study.policies[self.policy]
        if policy.kind != "pretrained" or policy.warm_start is not None:
            return None
        for run in prompted_runs(study):
            is_cell = (run.env, run.policy) == (self.env, self.policy)
            if is_cell and study.agents[run.method].paper_row == row:
                return run.method
        return None

    def _find_trained(self, study: "Study", row: str) -> list[str]:
        """Return the trained methods for a row; those of the row that equals it, only where it has none of its own."""
        found: dict[str, list[str]] = {row: [], SAME_ROW.get(row, row): []}
        for name, entry in study.at(self.env).methods.items():
            if entry.paper_row not in found or not study.covers(entry.parts, self.env, self.policy):
                continue
            # Several methods that search may have the same ``paper_row``, one for each preset; others have no preset.
            if not searches(entry.method) or preset_name(entry.options) == self.preset:
                found[entry.paper_row].append(name)
        return [name for names in found.values() for name in names]


def list_units(study: "Study", env: str, policy: str) -> list[int] | None:
    """Return of each training seed, in order, what runs of it share there; None if nothing."""
    units = units_of_seeds(study, env, policy)
    return None if units is None else [units[seed] for seed in sorted(units)]


def presets_to_judge(study: "Study", env: str, rows: Sequence[str]) -> list[str | None]:
    """Return the presets of 3SPO for which a claim on these rows is decided; only None where it is not about 3SPO."""
    if not any(row.startswith("3spo") for row in rows):
        return [None]
    presets = (
        preset_name(entry.options)
        for entry in study.at(env).methods.values()
        if searches(entry.method) and entry.paper_row in rows
    )
    return list(dict.fromkeys(presets))


def policies_for_models(study: "Study", models: Sequence[str]) -> list[str]:
    """Return the study's policies that substitute one of these models of the paper, each once."""
    return [name for name in local_policies(study) if study.policies[name].stands_for in models]


def policy_for_model(study: "Study", model: str) -> str | None:
    """Return the first policy that substitutes one of the paper's models, if there is one."""
    return next(iter(policies_for_models(study, [model])), None)


@dataclass(frozen=True, slots=True)
class RowRuns:
    """The training runs of rows of the paper in one cell."""

    study: "Study"
    cell: Cell
    rows: tuple[str, ...]

    @property
    def methods(self) -> dict[str, str]:
        """The study's method for each row that it has."""
        found = {row: self.cell.find_method(self.study, row) for row in self.rows}
        return {row: name for row, name in found.items() if name}

    @property
    def units(self) -> list[int] | None:
        """Of each training seed, in order, what its runs share; None if nothing (``study.matrix.units_of_seeds``)."""
        return list_units(self.study, self.cell.env, self.cell.policy)

    @property
    def missing(self) -> list[str]:
        """Rows that the study does not run there."""
        return [row for row in self.rows if row not in self.methods]

    def select(self, frame: pd.DataFrame, order: str = "epoch") -> dict[str, list[Run]]:
        """Return the runs of each row in a table; rows without any are left out.

        Args:
            frame: a table with columns ``env``, ``policy``, ``method`` and ``training_seed``.
            order: the column that a run's rows are sorted by.
        """
        if frame.empty:
            return {}
        # Sorted here, so that the first and last row of a run are the first and last in time.
        in_cell = frame[(frame["env"] == self.cell.env) & (frame["policy"] == self.cell.policy)]
        runs = {}
        for row, name in self.methods.items():
            by_seed = in_cell[in_cell["method"] == name].groupby("training_seed")
            row_runs = [run.sort_values(order, kind="stable") for _, run in by_seed]
            if row_runs:
                runs[row] = row_runs
        return runs


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the paper's main table, and what a study played for it."""

    env: str
    split: str
    measure: str
    printed: float | None
    """What the paper's text prints for the column, in points, if it prints something."""
    paper_cell: tuple[str, str, str]
    """Environment, split and measure of the column in the paper."""
    episodes: pd.DataFrame | None
    """None if the study lacks the environment or the split."""

    def as_row(self) -> dict[str, Any]:
        """Return the first fields of a row of the table ``claims``."""
        return {
            "env": self.env,
            "split": self.split,
            "measure": self.measure,
            "printed": self.printed,
        }


def find_column(column: str, printed: float | None, evidence: Evidence) -> Column:
    """Return a column of the paper's main table (a value of ``paper.COLUMNS``) in a study.

    A panel for development or confirmation stands for the paper's unseen games, where the study is judged on that.
    """
    env, split, measure = parse_column(column)
    study = evidence.study
    if env not in study.environments:
        return Column(env, split, measure, printed, (env, split, measure), None)

    # Optional panels exist so that choosing variants does not use up the paper's unseen games.
    judged_split = split
    splits = study.at(env).evaluation.splits
    panels = [name for name in splits if name in OPTIONAL_SPLITS]
    if split in UNSEEN_SPLITS and split not in splits and panels:
        judged_split = panels[-1]
    played = None
    if judged_split in splits:
        episodes = evidence.episodes
        played = episodes[(episodes["env"] == env) & (episodes["split"] == judged_split)]
    return Column(env, judged_split, measure, printed, (env, split, measure), played)


def success_by_row(
    played: pd.DataFrame, cell: Cell, rows: Sequence[str], measure: str, study: "Study"
) -> dict[str, Values]:
    """Return each row's success in points by training seed, without rows that the study lacks."""
    found: dict[str, Values] = {}
    for row in rows:
        name = cell.find_method(study, row)
        episodes = played[played["method"] == name]
        if name and len(episodes):
            found[row] = percent_by_seed(episodes, measure)
    return found


def paper_gap(
    evidence: Evidence, upper: str, lower: str, model: str, cell: tuple[str, str, str]
) -> float:
    """Return how many points the paper's own table has ``upper`` above ``lower``; NaN where it lacks one of them."""
    first, second = (evidence.paper.results.value(row, model, *cell).mean for row in (upper, lower))
    return float("nan") if first is None or second is None else first - second
