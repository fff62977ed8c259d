"""Measures of evaluated episodes that are not pairs of rows: orders, equal and absolute success, models, task types."""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from threespo.results.analysis.statistics import (
    FAILED_RUN,
    contrast_interval,
    difference_to_policy,
    seeds_needed_for_contrast,
)
from threespo.results.analysis.summaries import percent_by_game, percent_by_seed, task_clusters
from threespo.results.claims.evidence import (
    Cell,
    Column,
    Evidence,
    find_column,
    list_units,
    paper_gap,
    policies_for_models,
    policy_for_model,
    presets_to_judge,
    success_by_row,
)
from threespo.results.claims.finding import (
    Finding,
    Row,
    combine,
    make_finding,
    require_min_seeds,
    verdict_vs_bound,
)
from threespo.results.claims.seeds import (
    Values,
    guard_floor_ceiling,
    mean,
    test_difference,
    test_equivalence,
    test_within,
)
from threespo.results.paper_numbers import DETAILED_ENVIRONMENT, PAPER_SEEDS

Columns = Mapping[str, float | None]
"""Columns of the paper's main table, with what its text prints for them."""


@dataclass(frozen=True, slots=True)
class ColumnSuccess:
    """The success of rows of the paper in one column of its main table, with one policy."""

    evidence: Evidence
    column: Column
    policy: str
    rows: tuple[str, ...]
    success: Mapping[str, Values]
    """In points by training seed, of the rows that the study has."""

    @property
    def model(self) -> str:
        """The model of the paper that the policy substitutes."""
        return self.evidence.study.policies[self.policy].stands_for

    @property
    def units(self) -> list[int] | None:
        """Of each training seed, in order, what its runs share; None if nothing, or if a row, as an agent, lacks seeds."""
        shared = list_units(self.evidence.study, self.column.env, self.policy)
        if shared is None or any(len(values) != len(shared) for values in self.success.values()):
            return None
        return shared

    @property
    def missing(self) -> list[str]:
        """Rows that the study lacks."""
        return [row for row in self.rows if row not in self.success]


ColumnTest = Callable[[ColumnSuccess], tuple[Finding, float | None]]
"""Returns the finding, and the number that the paper's own table gives."""


def judge_columns(
    columns: Columns, evidence: Evidence, rows: tuple[str, ...], models: Sequence[str], test: ColumnTest
) -> Iterator[Row]:
    """Yield the rows of a test in columns of the main table, for every base policy and preset of 3SPO."""
    study = evidence.study
    for name, printed in columns.items():
        column = find_column(name, printed, evidence)
        if column.episodes is None:
            yield {**column.as_row(), "verdict": "not here"}
            continue
        for policy in policies_for_models(study, models):
            played = column.episodes[column.episodes["policy"] == policy]
            for preset in presets_to_judge(study, column.env, rows):
                cell = Cell(column.env, policy, preset)
                success = success_by_row(played, cell, rows, column.measure, study)
                found, paper = test(ColumnSuccess(evidence, column, policy, rows, success))
                names = {"policy": policy, "preset": preset, "paper": paper}
                yield {**column.as_row(), **names, **found.as_row()}


def test_level(setting: ColumnSuccess, within: float) -> tuple[Finding, float | None]:
    """Decide by whether a row has the printed success, within so many points."""
    row = setting.rows[0]
    paper = setting.evidence.paper.results.value(row, setting.model, *setting.column.paper_cell).mean
    # Absolute success is that of one model: another one in its place, or a clone, confirms or refutes nothing.
    policy = setting.evidence.study.policies[setting.policy]
    if not policy.is_model_itself or setting.missing:
        return Finding("not here"), paper
    found = test_within(setting.success[row], within, setting.column.printed or 0.0, floor=FAILED_RUN)
    return combine({row: found}), paper


def test_equal_success(setting: ColumnSuccess, margin: float) -> tuple[Finding, float | None]:
    """Decide by whether two rows are no further apart than so many points, by two one-sided tests."""
    upper, lower = setting.rows
    paper = paper_gap(setting.evidence, upper, lower, setting.model, setting.column.paper_cell)
    if setting.missing:
        return Finding("not here"), paper
    # Two rows that are not significantly apart may only have too few seeds: equality needs a margin.
    found = test_equivalence(
        setting.success[upper], setting.success[lower], margin, floor=FAILED_RUN, units=setting.units
    )
    found = guard_floor_ceiling(found, (setting.success[upper], setting.success[lower]), margin)
    return combine({f"{upper} and {lower}": found}), paper


def test_order(setting: ColumnSuccess) -> tuple[Finding, None]:
    """Decide by the order of the means, the best row first.

    It fails with any pair that is clearly the other way round. It holds if the means have the printed order and
    those neighbours are clearly apart that are so in the paper's own table.
    """
    present = [row for row in setting.rows if row in setting.success]
    pairs = {
        f"{upper} and {lower}": test_difference(
            setting.success[upper], setting.success[lower], floor=FAILED_RUN, units=setting.units
        )
        for upper, lower in itertools.combinations(present, 2)
    }
    if not pairs:
        return Finding("not here"), None

    if any(found.verdict == "fails" for found in pairs.values()):
        found = combine(pairs, setting.missing)
    else:
        # The paper's own table, of three seeds, does not separate all neighbours: more is not asked of a study.
        neighbours = list(itertools.pairwise(present))
        clear = {
            f"{upper} and {lower}": pairs[f"{upper} and {lower}"]
            for upper, lower in neighbours
            if _clearly_apart_in_paper(setting, upper, lower)
        }
        found = combine(clear or pairs, setting.missing)
        means = [mean(setting.success[row]) for row in present]
        in_order = all(upper > lower for upper, lower in itertools.pairwise(means))
        if not in_order and found.verdict == "holds":
            found = replace(found, verdict="undecided", p=math.nan)
    order = " > ".join(sorted(setting.success, key=lambda row: -mean(setting.success[row])))
    return found.with_detail(f"by their means {order}"), None


def _clearly_apart_in_paper(setting: ColumnSuccess, upper: str, lower: str) -> bool:
    """Return whether the paper's table has two rows apart by more than two standard errors of their difference."""
    cell = setting.column.paper_cell
    values = [setting.evidence.paper.results.value(row, setting.model, *cell) for row in (upper, lower)]
    if any(value.mean is None or value.std is None for value in values):
        return False
    # Of the paper only means and standard deviations over seeds are known, so Welch's test would add nothing
    # to twice the standard error of the difference.
    variances = [(value.std or 0.0) ** 2 for value in values]
    error = math.sqrt(sum(variances) / PAPER_SEEDS)
    return paper_gap(setting.evidence, upper, lower, setting.model, cell) > 2 * error


def judge_gain(
    columns: Columns, evidence: Evidence, upper: str, lower: str, more_with: str, than_with: str
) -> Iterator[Row]:
    """Yield whether ``upper`` is further above ``lower`` with one model than with the other, on the same tasks."""
    for name, printed in columns.items():
        column = find_column(name, printed, evidence)
        if column.episodes is None:
            yield {**column.as_row(), "verdict": "not here"}
            continue
        more, less = (
            paper_gap(evidence, upper, lower, model, column.paper_cell)
            for model in (more_with, than_with)
        )
        # A gain compares two models, so it is decided over policies and not for each.
        for preset in presets_to_judge(evidence.study, column.env, (upper, lower)):
            found = _test_gain(column, preset, (upper, lower), (more_with, than_with), evidence)
            yield {**column.as_row(), "preset": preset, "paper": more - less, **found.as_row()}


def _test_gain(
    column: Column,
    preset: str | None,
    rows: tuple[str, str],
    models: tuple[str, str],
    evidence: Evidence,
) -> Finding:
    study = evidence.study
    terms: list[tuple[float, Values]] = []
    shared: list[list[int]] = []
    for sign, model in zip((1.0, -1.0), models, strict=True):
        policy = policy_for_model(study, model)
        if policy is None:
            return Finding("not here")
        cell = Cell(column.env, policy, preset)
        names = [cell.find_method(study, row) for row in rows]
        if None in names:
            return Finding("not here")
        assert column.episodes is not None
        played = column.episodes[column.episodes["policy"] == policy]
        upper, lower = (
            percent_by_seed(played[played["method"] == name], column.measure) for name in names
        )
        terms += [(sign, upper), (-sign, lower)]
        shared += filter(None, [list_units(study, column.env, policy)])

    # A difference of two differences: four independent arms of seeds, one Welch interval. Where seeds share something, the
    # unit is what the fewest share.
    units = min(shared, key=lambda of_policy: len(set(of_policy)), default=None)
    found = contrast_interval(terms, floor=FAILED_RUN, units=units)
    verdict = verdict_vs_bound(found.low, found.high, 0.0)
    finding = make_finding(
        found, verdict, seeds_needed_for_contrast(terms, floor=FAILED_RUN, units=units)
    )
    words = f"{rows[0]} and {rows[1]}, {models[0]} and {models[1]}"
    return require_min_seeds(finding.with_detail(words), min(len(values) for _, values in terms))


def judge_task_types(
    evidence: Evidence, upper: Sequence[str], lower: Sequence[str], wider: str, narrower: str
) -> Iterator[Row]:
    """Yield whether each of ``upper`` is further above each of ``lower`` in one ALFWorld task type than in another."""
    study = evidence.study
    if DETAILED_ENVIRONMENT not in study.environments:
        yield {"env": DETAILED_ENVIRONMENT, "verdict": "not here"}
        return
    rows = (*upper, *lower)
    models = list(dict.fromkeys(policy.stands_for for policy in study.policies.values()))
    played = evidence.episodes[evidence.episodes["env"] == DETAILED_ENVIRONMENT]
    for policy in policies_for_models(study, models):
        for preset in presets_to_judge(study, DETAILED_ENVIRONMENT, rows):
            cell = Cell(DETAILED_ENVIRONMENT, policy, preset)
            of_policy = played[played["policy"] == policy]
            found = _test_task_types(cell, of_policy, upper, lower, (wider, narrower), evidence)
            yield {
                "env": DETAILED_ENVIRONMENT,
                "policy": policy,
                "preset": preset,
                "measure": "task types",
                **found.as_row(),
            }


def _test_task_types(
    cell: Cell,
    played: pd.DataFrame,
    upper: Sequence[str],
    lower: Sequence[str],
    types: tuple[str, str],
    evidence: Evidence,
) -> Finding:
    """Decide by how much further a trained method is above a prompted one in the first task type than in the second."""
    of_types = played[played["task_type"].isin(types)]
    type_of_task = of_types.groupby("task_id")["task_type"].first().sort_index()
    if set(type_of_task) != set(types):
        return Finding("not here")

    # Games weighted so that their mean is the one type's success less the other's. A mean over games is what
    # the interval over clusters is for.
    counts = type_of_task.value_counts()
    weight_of_type = {
        types[0]: len(type_of_task) / counts[types[0]],
        types[1]: -len(type_of_task) / counts[types[1]],
    }
    weights = np.array([weight_of_type[name] for name in type_of_task])
    success = {}
    for row in (*upper, *lower):
        name = cell.find_method(evidence.study, row)
        episodes = of_types[of_types["method"] == name]
        if name and len(episodes):
            success[row] = percent_by_game(episodes, "success").to_numpy(dtype=np.float64) * weights

    clusters = task_clusters(cell.env, list(type_of_task.index))
    pairs = {}
    for first, second in itertools.product(upper, lower):
        if first in success and second in success:
            # A prompted row has no training seeds: its evaluations are averaged and it is a single policy.
            found = difference_to_policy(success[first], success[second].mean(axis=0), clusters)
            verdict = verdict_vs_bound(found.low, found.high, 0.0)
            finding = require_min_seeds(make_finding(found, verdict, None), len(success[first]))
            pairs[f"{first} and {second}"] = finding
    return combine(pairs, [row for row in (*upper, *lower) if row not in success])


def judge_two_models(
    evidence: Evidence,
    frame: pd.DataFrame,
    column: str,
    rows: Sequence[str],
    models: Sequence[str],
    measure: str,
    scale: float = 1.0,
) -> Iterator[Row]:
    """Yield whether a number of each training seed in ALFWorld is higher with the first model than with the second.

    Args:
        evidence: the study's results.
        frame: a table with ``column``, of which a seed's number is the mean.
        column: the column.
        rows: rows of the paper, which all have to be higher.
        models: the paper's models.
        measure: what the table ``claims`` calls it.
        scale: by which the numbers are multiplied.
    """
    study = evidence.study
    if DETAILED_ENVIRONMENT not in study.environments:
        yield {"env": DETAILED_ENVIRONMENT, "verdict": "not here"}
        return
    substitutes = [policy_for_model(study, model) for model in models]
    policies = [policy for policy in substitutes if policy]
    for preset in presets_to_judge(study, DETAILED_ENVIRONMENT, rows):
        found = Finding("not here")
        if len(policies) == len(models):
            cells = [Cell(DETAILED_ENVIRONMENT, policy, preset) for policy in policies]
            found = _test_two_models(cells, frame, column, rows, scale, evidence)
        yield {"env": DETAILED_ENVIRONMENT, "preset": preset, "measure": measure, **found.as_row()}


def _test_two_models(
    cells: Sequence[Cell],
    frame: pd.DataFrame,
    column: str,
    rows: Sequence[str],
    scale: float,
    evidence: Evidence,
) -> Finding:
    pairs: dict[str, Finding] = {}
    missing = []
    for row in rows:
        values = [_means_by_seed(frame, cell, row, column, scale, evidence) for cell in cells]
        if all(values):
            pairs[row] = test_difference(values[0], values[1])
        else:
            missing.append(row)
    return combine(pairs, missing)


def _means_by_seed(
    frame: pd.DataFrame, cell: Cell, row: str, column: str, scale: float, evidence: Evidence
) -> list[float]:
    method = cell.find_method(evidence.study, row)
    is_cell = (frame["env"] == cell.env) & (frame["policy"] == cell.policy)
    means = frame[is_cell & (frame["method"] == method)].groupby("training_seed")[column].mean()
    return [scale * float(value) for value in means]
