"""Claims on the main table: which row is above which."""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from threespo.results.claims.finding import Evidence, Finding, Place, inside, policy_for, presets, side
from threespo.results.claims.rules import Above, Gain, Order
from threespo.results.paper import COLUMNS
from threespo.results.statistics import by_game, contrast_interval, difference_interval
from threespo.rng import derive
from threespo.study.matrix import local_policies

if TYPE_CHECKING:
    from threespo.study.config import Study


def of_column(
    rule: Above | Order | Gain, column: str, printed: float | None, evidence: Evidence
) -> Iterator[dict[str, Any]]:
    """Judge a rule in every place of one of the main table's columns."""
    study = evidence.study
    cell = env, split, measure = next(key for key, name in COLUMNS.items() if name == column)
    common = {"env": env, "split": split, "measure": measure, "printed": printed}
    if env not in study.environments or split not in study.at(env).evaluation.splits:
        yield {**common, "verdict": "not here"}
        return
    played = evidence.episodes[(evidence.episodes["env"] == env) & (evidence.episodes["split"] == split)]
    if isinstance(rule, Gain):
        paper = sum(sign * _paper_gap(evidence, rule.upper, rule.lower, model, cell) for sign, model in _sides(rule))
        for preset in presets(study, env, (rule.upper, rule.lower)):
            found = _gain(rule, env, preset, measure, played, study)
            yield {**common, "preset": preset, "paper": paper, **found.as_row()}
        return
    upper_and_lower = itertools.pairwise(rule.rows) if isinstance(rule, Order) else itertools.product(rule.upper, rule.lower)
    pairs = list(upper_and_lower)
    rows = tuple(dict.fromkeys(itertools.chain(*pairs)))
    within = rule.within if isinstance(rule, Above) else None
    for policy in local_policies(study):
        model = study.policies[policy].stands_for
        if model in rule.models:
            gaps = [_paper_gap(evidence, *pair, model, cell) for pair in pairs]
            paper = min((gap for gap in gaps if not math.isnan(gap)), default=math.nan)
            for preset in presets(study, env, rows):
                mine = played[played["policy"] == policy]
                found = _pairs(pairs, Place(env, policy, preset), measure, within, mine, study)
                yield {**common, "policy": policy, "preset": preset, "paper": paper, **found.as_row()}


def _paper_gap(evidence: Evidence, upper: str, lower: str, model: str, cell: tuple[str, str, str]) -> float:
    """Return how many points the paper's own table has ``upper`` above ``lower``; NaN where it has not both."""
    values = [evidence.paper.results.value(row, model, *cell).mean for row in (upper, lower)]
    return math.nan if values[0] is None or values[1] is None else values[0] - values[1]


def _pairs(
    pairs: list[tuple[str, str]], place: Place, measure: str, within: float | None, played: pd.DataFrame, study: "Study"
) -> Finding:
    """Compare every pair of rows and report the one that speaks most against the claim; at least half must be there."""
    found: list[tuple[float, float, float, str]] = []
    missing: list[str] = []
    for pair in pairs:
        names = [place.method(study, row) for row in pair]
        missing += [row for row, name in zip(pair, names, strict=True) if name is None]
        if None not in names:
            first, second = (by_game(played[played["method"] == name], measure) for name in names)
            key = derive("claim", place.env, place.policy, *map(str, names), measure)
            low, high = difference_interval(first, second, key)
            found.append((float(first.mean() - second.mean()), low, high, f"{names[0]} and {names[1]}"))
    if 2 * len(found) < len(pairs):
        return Finding("not here")
    worst = min(found) if within is None else max(found, key=lambda one: abs(one[0]))
    measured, low, high, names_of_worst = worst
    verdict = side(low, high, 0.0) if within is None else inside(low, high, within)
    if within is None and any(one[2] < 0 for one in found):
        verdict = "fails"
    words = [f"the least of {len(found)} differences, {names_of_worst}"] if len(found) > 1 else []
    if missing:
        # What is missing could still contradict it.
        verdict = "unclear" if verdict == "holds" else verdict
        words.append(f"not in this study: {', '.join(dict.fromkeys(missing))}")
    return Finding(verdict, measured, low, high, "; ".join(words))


def _sides(rule: Gain) -> tuple[tuple[float, str], tuple[float, str]]:
    return (1.0, rule.more_with), (-1.0, rule.than_with)


def _gain(rule: Gain, env: str, preset: str | None, measure: str, played: pd.DataFrame, study: "Study") -> Finding:
    """Compare the gains with two models on the same tasks."""
    terms = []
    for sign, model in _sides(rule):
        policy = policy_for(study, model)
        names = _both(study, env, policy, preset, (rule.upper, rule.lower)) if policy else None
        if names is None:
            return Finding("not here")
        mine = played[played["policy"] == policy]
        upper, lower = (by_game(mine[mine["method"] == name], measure) for name in names)
        terms += [(sign, upper), (-sign, lower)]
    low, high = contrast_interval(terms, derive("claim", env, str(preset), measure, rule.more_with))
    return Finding(side(low, high, 0.0), float(sum(weight * one.mean() for weight, one in terms)), low, high)


def _both(study: "Study", env: str, policy: str, preset: str | None, rows: Sequence[str]) -> list[str] | None:
    names = [Place(env, policy, preset).method(study, row) for row in rows]
    return [name for name in names if name is not None] if None not in names else None
