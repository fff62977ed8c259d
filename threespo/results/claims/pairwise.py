"""Claims on the main table: which row is above which (the rule ``above``)."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from threespo.results.analysis.comparisons import QUESTIONS, Comparison, find_comparison
from threespo.results.analysis.statistics import (
    FAILED_RUN,
    Interval,
    interval_over_policies,
    seeds_needed,
)
from threespo.results.analysis.summaries import method_difference, percent_by_seed
from threespo.results.claims.evidence import (
    Cell,
    Column,
    Evidence,
    find_column,
    list_units,
    paper_gap,
    presets_to_judge,
)
from threespo.results.claims.finding import (
    Finding,
    Row,
    Verdict,
    combine,
    describe_correction,
    make_finding,
    require_min_seeds,
    verdict_vs_bound,
)
from threespo.results.claims.rules import Above
from threespo.results.claims.seeds import guard_floor_ceiling
from threespo.study.confirmatory import MIN_SEEDS
from threespo.study.matrix import local_policies, units_of_seeds

VERDICTS: dict[str, Verdict] = {"above": "holds", "below": "fails", "undecided": "undecided"}
"""What a comparison says of the claim that its method is above the other."""


def judge_above(rule: Above, name: str, printed: float | None, evidence: Evidence) -> Iterator[Row]:
    """Decide a rule in one column of the paper's main table, for every base policy and preset of 3SPO.

    Args:
        rule: the rule, which names rows of the paper.
        name: a column of the paper's main table (a value of ``paper.COLUMNS``).
        printed: the difference that the paper's text prints for the column, in points, if it prints one.
        evidence: the study's results and the paper's tables.

    Yields:
        Rows of the table ``claims``: where the rule was decided, with what result, and ``paper``, the difference in points
        in the paper's own table. One row with the verdict ``not here`` if the study lacks the environment or the split.
    """
    study = evidence.study
    column = find_column(name, printed, evidence)
    if column.episodes is None:
        yield {**column.as_row(), "verdict": "not here"}
        return

    # The paper claims it for these models only; a policy that substitutes another one cannot confirm or refute it.
    policies = local_policies(study)
    models = dict.fromkeys(study.policies[policy].stands_for for policy in policies)
    for model in [model for model in models if model in rule.models]:
        substitutes = [policy for policy in policies if study.policies[policy].stands_for == model]
        for preset in presets_to_judge(study, column.env, (*rule.upper, *rule.lower)):
            cells = [Cell(column.env, policy, preset) for policy in substitutes]
            groups = [[cell] for cell in cells]
            # Several policies are also judged together, where they are enough for a spread between them.
            if len(cells) >= MIN_SEEDS:
                groups.append(cells)
            for group in groups:
                yield {
                    **column.as_row(),
                    "policy": ", ".join(cell.policy for cell in group),
                    "preset": preset,
                    **_judge_group(rule, group, column, model, evidence),
                }


def _judge_group(
    rule: Above, cells: Sequence[Cell], column: Column, model: str, evidence: Evidence
) -> Row:
    """Return the finding on one policy, or on several together, and the paper's own difference."""
    rows = (*rule.upper, *rule.lower)
    present = {row for row in rows if all(cell.find_method(evidence.study, row) for cell in cells)}
    pairs = [pair for pair in itertools.product(rule.upper, rule.lower) if present.issuperset(pair)]

    # The claim is as strong as its weakest pair: of the paper's margins the smallest is shown, and ``combine`` reports the
    # weakest of ours. Pairs that the paper's table lacks do not count.
    gaps = [paper_gap(evidence, *pair, model, column.paper_cell) for pair in pairs]
    smallest = min((gap for gap in gaps if not math.isnan(gap)), default=math.nan)

    # Rows that the study lacks keep a claim from holding, though not from failing.
    findings = dict(_test_pair(pair, cells, column, rule.by, evidence) for pair in pairs)
    found = combine(findings, [row for row in rows if row not in present])
    return {"paper": smallest, **found.as_row()}


def _test_pair(
    pair: tuple[str, str], cells: Sequence[Cell], column: Column, bound: float, evidence: Evidence
) -> tuple[str, Finding]:
    """Return the names of the two methods and the finding; ``bound`` is the difference in points that must be exceeded.

    The names are those in the first cell: a study may have another method for the same row of the paper in another.
    """
    study = evidence.study
    intervals: dict[str, Interval] = {}
    arms: list[list[float]] = []
    names_by_cell = []
    seeds_by_cell: list[tuple[list[float], list[float]]] = []
    for cell in cells:
        upper, lower = (str(cell.find_method(study, row)) for row in pair)
        units = units_of_seeds(study, cell.env, cell.policy)
        names_by_cell.append((upper, lower))
        assert column.episodes is not None
        played = column.episodes[column.episodes["policy"] == cell.policy]
        intervals[cell.policy] = method_difference(
            played, (upper, lower), column.measure, study.methods, bound, units=units
        )
        # Prompted rows have no training seeds to spread over, so only trained ones can have too few.
        trained = [name for name in (upper, lower) if name in study.methods]
        seeds = {
            name: percent_by_seed(played[played["method"] == name], column.measure)
            for name in (upper, lower)
        }
        seeds_by_cell.append((seeds[upper], seeds[lower]))
        arms += [seeds[name] for name in trained]

    names = names_by_cell[0]
    if len(cells) > 1:
        first, second = zip(*seeds_by_cell, strict=True)
        floors = [FAILED_RUN if name in study.methods else math.inf for name in names]
        found = interval_over_policies(first, second, bound, floor=floors)
        finding = make_finding(found, verdict_vs_bound(found.low, found.high, bound), None)
    else:
        found = intervals[cells[0].policy]
        needed = None
        if len(arms) == 2:
            shared = list_units(study, column.env, cells[0].policy)
            needed = seeds_needed(arms[0], arms[1], bound, floor=FAILED_RUN, units=shared)
        finding = make_finding(found, verdict_vs_bound(found.low, found.high, bound), needed)
        # The table of comparisons tests differences from 0 only; a claim with another bound has a p of its own.
        listed = None
        if not bound:
            listed = find_comparison(
                evidence.comparisons, names, column.env, cells[0].policy, column.split, column.measure
            )
        if listed is not None:
            finding = _take_verdict(finding, listed)

    finding = require_min_seeds(finding, min(map(len, arms), default=MIN_SEEDS))
    # Below 0 the claim is that something costs little, which rows at 0 or 100 % satisfy without showing it.
    if bound < 0 and arms:
        finding = guard_floor_ceiling(finding, arms, -bound)
    return " and ".join(names), finding


def _take_verdict(finding: Finding, listed: Comparison) -> Finding:
    """Return the finding with the verdict that the table of comparisons has on the same difference."""
    corrected = replace(
        finding,
        verdict=VERDICTS[listed.verdict],
        p_holm=listed.p_holm,
        family=QUESTIONS[listed.family],
        tests=listed.tests,
    )
    if corrected.verdict == finding.verdict:
        return corrected
    return corrected.with_detail(describe_correction(listed.p, listed.p_holm, listed.tests))
