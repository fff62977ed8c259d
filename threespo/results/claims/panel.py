"""Claims on evaluated episodes that are not pairs of rows: orders, equal and absolute success, task types, lengths."""

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from threespo.results.analysis.statistics import difference_to_policy
from threespo.results.analysis.summaries import percent_by_game, percent_by_seed, task_clusters
from threespo.results.claims.finding import (
    Cell,
    Evidence,
    Finding,
    combine,
    in_column,
    make_finding,
    policies_for,
    policy_for,
    presets,
    require_min_seeds,
    verdict_vs_bound,
)
from threespo.results.claims.pairwise import paper_gap
from threespo.results.claims.rules import Alike, Level, Longer, LoopsBySize, OfSizes, Order, TypeGap
from threespo.results.claims.seeds import (
    Values,
    guard_floor_ceiling,
    test_difference,
    test_equivalence,
    test_within,
)
from threespo.results.paper_numbers import DETAILED_ENVIRONMENT, PAPER_SEEDS, parse_column

if TYPE_CHECKING:
    from threespo.study.config import Study

Cell = tuple[str, str, str]
"""Environment, split and measure."""


def of_panel(
    rule: Alike | Order | Level, column: str, printed: float | None, evidence: Evidence
) -> Iterator[dict[str, Any]]:
    """Decide a rule in one column of the paper's main table, for every base policy and preset of 3SPO.

    Args:
        rule: the rule, which names rows of the paper.
        column: a column of the paper's main table (a value of ``paper.COLUMNS``).
        printed: what the paper's text prints for the column, in points, if it prints something.
        evidence: the study's results and the paper's tables.

    Yields:
        Rows of the table ``claims``.
    """
    study = evidence.study
    cell, (common, played) = parse_column(column), in_column(column, printed, evidence)
    if played is None:
        yield {**common, "verdict": "not here"}
        return

    env, measure = common["env"], common["measure"]
    rows = (
        rule.rows
        if isinstance(rule, Order)
        else (rule.row,)
        if isinstance(rule, Level)
        else (rule.upper, rule.lower)
    )
    for policy in policies_for(study, *((rule.model,) if isinstance(rule, Level) else rule.models)):
        model = study.policies[policy].stands_for
        here = played[played["policy"] == policy]
        for preset in presets(study, env, rows):
            place = Cell(env, policy, preset)
            seeds = _by_row(here, place, rows, measure, study)
            missing = [row for row in rows if row not in seeds]
            if isinstance(rule, Level):
                # Absolute success is that of a model, and no other model has it.
                itself = study.policies[policy].kind == "pretrained"
                level = (
                    {rule.row: test_within(seeds[rule.row], rule.within, printed or 0.0)}
                    if itself and not missing
                    else {}
                )
                found = combine(level)
                paper = evidence.paper.results.value(rule.row, model, *cell).mean
            elif isinstance(rule, Alike):
                pair = f"{rule.upper} and {rule.lower}"
                both = () if missing else (seeds[rule.upper], seeds[rule.lower])
                found = combine(
                    {pair: guard_floor_ceiling(test_equivalence(*both, rule.margin), both, rule.margin)}
                    if both
                    else {}
                )
                paper = paper_gap(evidence, rule.upper, rule.lower, model, cell)
            else:
                found, paper = _order(rule, seeds, missing, evidence, (model, cell)), None
            yield {**common, "policy": policy, "preset": preset, "paper": paper, **found.as_row()}


def of_sizes(rule: OfSizes, evidence: Evidence) -> Iterator[dict[str, Any]]:
    """Decide a rule that compares models or task types in ALFWorld, for every preset of 3SPO.

    Args:
        rule: the rule.
        evidence: the study's results.

    Yields:
        Rows of the table ``claims``.
    """
    study, env = evidence.study, DETAILED_ENVIRONMENT
    if env not in study.environments:
        yield {"env": env, "verdict": "not here"}
        return
    played = evidence.episodes[evidence.episodes["env"] == env]
    if isinstance(rule, TypeGap):
        rows = (*rule.upper, *rule.lower)
        for policy in policies_for(
            study, *dict.fromkeys(one.stands_for for one in study.policies.values())
        ):
            for preset in presets(study, env, rows):
                found = _type_gap(
                    rule, Cell(env, policy, preset), played[played["policy"] == policy], study
                )
                yield {
                    "env": env,
                    "policy": policy,
                    "preset": preset,
                    "measure": "task types",
                    **found.as_row(),
                }
        return

    policies = [policy_for(study, model) for model in (rule.more_with, rule.than_with)]
    rows = rule.rows if isinstance(rule, Longer) else (rule.row,)
    for preset in presets(study, env, rows):
        found = _two_sizes(
            rule, [Cell(env, policy, preset) for policy in policies if policy], played, evidence
        )
        yield {
            "env": env,
            "preset": preset,
            "measure": "training" if isinstance(rule, LoopsBySize) else "steps",
            **found.as_row(),
        }


def _by_row(
    played: pd.DataFrame, place: Cell, rows: tuple[str, ...], measure: str, study: "Study"
) -> dict[str, Values]:
    """Return each row's success in points by training seed, without rows that the study lacks."""
    names = {row: name for row in rows if (name := place.find_method(study, row))}
    return {
        row: percent_by_seed(of_method, measure)
        for row, name in names.items()
        if len(of_method := played[played["method"] == name])
    }


def _order(
    rule: Order,
    seeds: dict[str, Values],
    missing: list[str],
    evidence: Evidence,
    where: tuple[str, Cell],
) -> Finding:
    """Decide by the order of the means: it fails with any pair that is clearly the other way round.

    It holds if the means have the printed order, and neighbours are clearly apart that the paper's own table has apart by
    more than two standard errors; it cannot tell others apart itself.
    """
    pairs = {
        f"{a} and {b}": test_difference(seeds[a], seeds[b])
        for a, b in itertools.combinations([row for row in rule.rows if row in seeds], 2)
    }
    if not pairs:
        return Finding("not here")
    means = [sum(values) / len(values) for row in rule.rows if (values := seeds.get(row))]
    places = " > ".join(sorted(seeds, key=lambda row: -sum(seeds[row]) / len(seeds[row])))
    if any(one.verdict == "fails" for one in pairs.values()):
        found = combine(pairs, missing)
    else:
        clear = {
            name: pairs[name]
            for a, b in itertools.pairwise(row for row in rule.rows if row in seeds)
            if (name := f"{a} and {b}") in pairs and _clearly_apart(evidence, a, b, *where)
        }
        found = combine(clear or pairs, missing)
        if any(a <= b for a, b in itertools.pairwise(means)) and found.verdict == "holds":
            found = replace(found, verdict="unclear", p=math.nan)
    return found.said(f"by their means {places}")


def _clearly_apart(evidence: Evidence, upper: str, lower: str, model: str, cell: Cell) -> bool:
    """Return whether the paper's table has two rows apart by more than two standard errors of their difference."""
    values = [evidence.paper.results.value(row, model, *cell) for row in (upper, lower)]
    if any(value.mean is None or value.std is None for value in values):
        return False
    error = math.sqrt(sum((value.std or 0.0) ** 2 for value in values) / PAPER_SEEDS)
    return paper_gap(evidence, upper, lower, model, cell) > 2 * error


def _type_gap(rule: TypeGap, place: Cell, played: pd.DataFrame, study: "Study") -> Finding:
    """Decide by how much further a trained method is above a prompted one in one task type than in the other."""
    names = {row: name for row in (*rule.upper, *rule.lower) if (name := place.find_method(study, row))}
    both = played[played["task_type"].isin([rule.wider, rule.narrower])]
    kinds = both.groupby("task_id")["task_type"].first()
    if set(kinds) != {rule.wider, rule.narrower}:
        return Finding("not here")

    # Games weighted so that their mean is the one type's success less the other's.
    counts = kinds.value_counts()
    weights = np.array(
        [len(kinds) / counts[kind] * (1 if kind == rule.wider else -1) for kind in kinds.sort_index()]
    )
    there = {
        row: percent_by_game(own, "success").to_numpy(dtype=np.float64) * weights
        for row, name in names.items()
        if len(own := both[both["method"] == name])
    }
    clusters = task_clusters(place.env, list(kinds.sort_index().index))
    pairs = {}
    for upper, lower in itertools.product(rule.upper, rule.lower):
        if {upper, lower} <= set(there):
            found = difference_to_policy(there[upper], there[lower].mean(axis=0), clusters)
            pairs[f"{upper} and {lower}"] = require_min_seeds(
                make_finding(found, verdict_vs_bound(found.low, found.high, 0.0), None),
                len(there[upper]),
            )
    return combine(pairs, [row for row in (*rule.upper, *rule.lower) if row not in there])


def _two_sizes(
    rule: Longer | LoopsBySize, places: list[Cell], played: pd.DataFrame, evidence: Evidence
) -> Finding:
    """Decide by a number of each seed with the one model and with the other."""
    if len(places) < 2:
        return Finding("not here")
    frame, column, scale = (
        (played, "steps", 1.0) if isinstance(rule, Longer) else (evidence.searches, "back", 100.0)
    )
    pairs, missing = {}, []
    for row in rule.rows if isinstance(rule, Longer) else (rule.row,):
        of_models = [
            _per_seed(frame, place, place.find_method(evidence.study, row), column, scale)
            for place in places
        ]
        if all(of_models):
            pairs[row] = test_difference(of_models[0], of_models[1])
        else:
            missing.append(row)
    return combine(pairs, missing)


def _per_seed(
    frame: pd.DataFrame, place: Cell, method: str | None, column: str, scale: float
) -> list[float]:
    here = frame[
        (frame["env"] == place.env) & (frame["policy"] == place.policy) & (frame["method"] == method)
    ]
    return [scale * float(value) for value in here.groupby("training_seed")[column].mean()]
