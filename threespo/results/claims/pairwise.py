"""Claims on the main table: which row is above which."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pandas as pd

from threespo.results.analysis.statistics import (
    contrast_interval,
    interval_over_policies,
    seeds_needed_for_contrast,
)
from threespo.results.analysis.summaries import method_difference, percent_by_seed
from threespo.results.claims.finding import (
    Cell,
    Evidence,
    Finding,
    combine,
    in_column,
    make_finding,
    policy_for,
    presets,
    require_min_seeds,
    verdict_vs_bound,
)
from threespo.results.claims.rules import Above, Gain
from threespo.results.claims.seeds import guard_floor_ceiling
from threespo.results.paper_numbers import parse_column
from threespo.study.confirmatory import MIN_SEEDS
from threespo.study.matrix import local_policies

if TYPE_CHECKING:
    from threespo.study.config import Study


def of_column(
    rule: Above | Gain, column: str, printed: float | None, evidence: Evidence
) -> Iterator[dict[str, Any]]:
    """Decide a rule in one column of the paper's main table, for every base policy and preset of 3SPO.

    Args:
        rule: the rule, which names rows of the paper.
        column: a column of the paper's main table (a value of ``paper.COLUMNS``).
        printed: the difference that the paper's text prints for the column, in points, if it prints one.
        evidence: the study's results and the paper's tables.

    Yields:
        Rows of the table ``claims``: where the rule was decided, with what result, and ``paper``, the difference in points
        in the paper's own table. One row with the verdict ``not here`` if the study lacks the environment or the split.
    """
    study = evidence.study
    cell, (common, played) = parse_column(column), in_column(column, printed, evidence)
    if played is None:
        yield {**common, "verdict": "not here"}
        return

    env, measure = common["env"], common["measure"]
    if isinstance(rule, Gain):
        # A gain compares two models, so it is decided over policies and not for each.
        paper = sum(
            sign * paper_gap(evidence, rule.upper, rule.lower, model, cell)
            for sign, model in _sides(rule)
        )
        for preset in presets(study, env, (rule.upper, rule.lower)):
            found = _gain(rule, env, preset, measure, played, study)
            yield {**common, "preset": preset, "paper": paper, **found.as_row()}
        return

    bases = local_policies(study)
    # The paper claims it for these models only; a policy that substitutes another one cannot confirm or refute it.
    for model in dict.fromkeys(study.policies[policy].stands_for for policy in bases):
        if model not in rule.models:
            continue
        same = [policy for policy in bases if study.policies[policy].stands_for == model]
        for preset in presets(study, env, (*rule.upper, *rule.lower)):
            places = [Cell(env, policy, preset) for policy in same]
            # Several bases are also judged together, where they are enough for a spread between them.
            groups = [[place] for place in places] + [places] * (len(places) >= MIN_SEEDS)
            for group in groups:
                pairs, missing = _pairs(rule, group, study)

                # The claim is as strong as its weakest pair: of the paper's margins the smallest is shown, and ``together``
                # reports the weakest of ours. Pairs that the paper's table lacks do not count.
                gaps = [paper_gap(evidence, *pair, model, cell) for pair in pairs]
                paper = min((gap for gap in gaps if not math.isnan(gap)), default=math.nan)

                each = dict(_compare(pair, group, measure, rule.by, played, study) for pair in pairs)
                # Rows that the study lacks keep a claim from holding, though not from failing.
                found, name = combine(each, missing), ", ".join(place.policy for place in group)
                yield {**common, "policy": name, "preset": preset, "paper": paper, **found.as_row()}


def _pairs(
    rule: Above, places: Sequence[Cell], study: "Study"
) -> tuple[list[tuple[str, str]], list[str]]:
    """Return the pairs (upper row, lower row) that the study can compare, and the rows that it lacks."""
    rows = (*rule.upper, *rule.lower)
    there = {row for row in rows if all(place.find_method(study, row) for place in places)}
    pairs = [pair for pair in itertools.product(rule.upper, rule.lower) if there.issuperset(pair)]
    return pairs, [row for row in rows if row not in there]


def paper_gap(
    evidence: Evidence, upper: str, lower: str, model: str, cell: tuple[str, str, str]
) -> float:
    """Return how many points the paper's own table has ``upper`` above ``lower``; NaN where it lacks one of them."""
    values = [evidence.paper.results.value(row, model, *cell).mean for row in (upper, lower)]
    return math.nan if values[0] is None or values[1] is None else values[0] - values[1]


def _compare(
    pair: tuple[str, str],
    places: Sequence[Cell],
    measure: str,
    bound: float,
    played: pd.DataFrame,
    study: "Study",
) -> tuple[str, Finding]:
    """Return the names of the two methods and the finding; ``bound`` is the difference in points that must be exceeded.

    On several base policies the difference is that over bases, see ``statistics.over_bases``. The names are those on the
    first one: a study may have another method for the same row of the paper on another.
    """
    named = [
        (str(place.find_method(study, pair[0])), str(place.find_method(study, pair[1])))
        for place in places
    ]
    gaps, arms = {}, []
    for place, names in zip(places, named, strict=True):
        there = played[played["policy"] == place.policy]
        gaps[place.policy] = method_difference(there, names, measure, study.methods, bound)
        # Prompted rows have no training seeds to spread over, so only trained ones can be too few.
        arms += [
            percent_by_seed(there[there["method"] == name], measure)
            for name in names
            if name in study.methods
        ]
    found = interval_over_policies(gaps, bound) if len(places) > 1 else gaps[places[0].policy]
    several = len(arms) == 2 and len(places) == 1
    needed = seeds_needed_for_contrast([(1.0, arms[0]), (-1.0, arms[1])], bound) if several else None
    seen = make_finding(found, verdict_vs_bound(found.low, found.high, bound), needed)
    decided = require_min_seeds(seen, min((len(arm) for arm in arms), default=MIN_SEEDS))
    return " and ".join(named[0]), guard_floor_ceiling(
        decided, arms, -bound
    ) if bound < 0 and arms else decided


def _sides(rule: Gain) -> tuple[tuple[float, str], tuple[float, str]]:
    """Return sign and model of both gains: the claim is that their sum is above zero."""
    return (1.0, rule.more_with), (-1.0, rule.than_with)


def _gain(
    rule: Gain, env: str, preset: str | None, measure: str, played: pd.DataFrame, study: "Study"
) -> Finding:
    """Compare the gains with two models on the same tasks."""
    terms = []
    for sign, model in _sides(rule):
        policy = policy_for(study, model)
        names = _both(study, env, policy, preset, (rule.upper, rule.lower)) if policy else None
        if names is None:
            return Finding("not here")

        of_policy = played[played["policy"] == policy]
        upper, lower = (
            percent_by_seed(of_policy[of_policy["method"] == name], measure) for name in names
        )
        terms += [(sign, upper), (-sign, lower)]

    found = contrast_interval(terms)
    words = f"{rule.upper} and {rule.lower}, {rule.more_with} and {rule.than_with}"
    seen = replace(
        make_finding(
            found, verdict_vs_bound(found.low, found.high, 0.0), seeds_needed_for_contrast(terms)
        ),
        detail=words,
    )
    return require_min_seeds(seen, min(len(one) for _, one in terms))


def _both(
    study: "Study", env: str, policy: str, preset: str | None, rows: Sequence[str]
) -> list[str] | None:
    """Return the study's methods for both rows; None if it lacks one of them."""
    names = [Cell(env, policy, preset).find_method(study, row) for row in rows]
    return [name for name in names if name is not None] if None not in names else None
