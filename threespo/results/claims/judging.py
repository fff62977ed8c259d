"""Judging the paper's claims: the table ``claims``, with the study's numbers and the paper's own.

Every claim is decided for every environment, base policy and, where it is about 3SPO, every preset of it that the study
trains.
"""

import math
from collections.abc import Iterator

import numpy as np
import pandas as pd

from threespo.results.claims.checks import CHECKS, EpisodeCheck
from threespo.results.claims.evidence import (
    PAPER_PRESETS,
    SMALL_MODEL,
    Cell,
    Evidence,
    RowRuns,
    policies_for_models,
    presets_to_judge,
)
from threespo.results.claims.finding import Finding, Row, apply_holm
from threespo.results.claims.formulas import FORMULAS
from threespo.results.claims.learning import compare_arrivals
from threespo.results.claims.pairwise import judge_above
from threespo.results.claims.rules import (
    Above,
    CheckRule,
    Claim,
    Formula,
    Known,
    Open,
    Rule,
    Sooner,
    States,
    rows_of_rule,
    rule_label,
)
from threespo.results.claims.training import (
    compare_states,
    rollouts_ratio_in_paper,
    states_ratio_in_paper,
)
from threespo.results.paper_numbers import DETAILED_ENVIRONMENT

VERDICT_COLUMNS = (
    "claim", "text", "where", "rule", "env", "policy", "split", "measure", "preset", "method_of_paper",
    "printed", "paper", "measured", "low", "high", "p", "p_adjusted", "family", "tests", "seeds_needed", "verdict", "detail",
)  # fmt: skip
"""``method_of_paper``: whether the row is about the paper's method, or about a preset of ours in its place."""

NUMBERS = ("printed", "paper", "measured", "low", "high", "p", "p_adjusted", "tests", "seeds_needed")


def judge_claims(claims: tuple[Claim, ...], evidence: Evidence) -> pd.DataFrame:
    """Return the table ``claims``: a row for every claim in every setting that it is about, at least one for each claim.

    Args:
        claims: the paper's claims, as ``read_claims`` returns them.
        evidence: the study's results and the paper's tables.

    Returns:
        Columns ``VERDICT_COLUMNS``. Numbers that do not exist are NaN, texts are empty; ``detail`` never is.
    """
    rows: list[Row] = []
    for claim in claims:
        for rule in claim.rule:
            names = {
                "claim": claim.id,
                "text": claim.claim,
                "where": claim.where,
                "rule": rule_label(rule),
            }
            judged = _rows_of_paper_and_ours(rule, evidence)
            rows += [{**names, **_note_edges(rule, row, evidence)} for row in judged]

    # After all claims are judged: Holm's correction needs every test of a family.
    frame = pd.DataFrame(apply_holm(rows), columns=list(VERDICT_COLUMNS))
    frame[list(NUMBERS)] = frame[list(NUMBERS)].astype(np.float64)
    # Rules leave out what they do not have; parquet needs one type a column.
    texts = [name for name in VERDICT_COLUMNS if name not in (*NUMBERS, "method_of_paper")]
    return frame.fillna(dict.fromkeys(texts, ""))


def _rows_of_paper_and_ours(rule: Rule, evidence: Evidence) -> list[Row]:
    """Return the rows of a rule, at least one of them about the paper's method."""
    every = list(_judge_rule(rule, evidence))
    # Settings that the study lacks are left out, unless there is no other.
    rows = [row for row in every if row["verdict"] != "not here"]
    for row in rows:
        preset = row.get("preset")
        # Without a preset the row is not about 3SPO, and so about methods as the paper has them.
        row["method_of_paper"] = not preset or preset in PAPER_PRESETS

    # A claim is about the paper's method: what other presets do in its place does not decide it.
    if not any(row["method_of_paper"] for row in rows):
        rows.append({**_not_here(rule, every), "method_of_paper": True})
    return rows


def _note_edges(rule: Rule, row: Row, evidence: Evidence) -> Row:
    """Return a row with a remark on methods whose learning rate is at an edge of what was tried.

    In a confirmatory study it is undecided: a rate beyond the edge may turn it round.
    """
    study = evidence.study
    env, policy = row.get("env"), row.get("policy")
    if not evidence.edges or env not in study.environments or policy not in study.policies:
        return row
    cell = Cell(str(env), str(policy), row.get("preset") or None)
    methods = dict.fromkeys(cell.find_method(study, name) for name in rows_of_rule(rule))
    marked = [name for name in methods if name and (env, policy, name) in evidence.edges]
    if not marked:
        return row

    rates = ", ".join(f"{name} ({evidence.edges[str(env), str(policy), name]})" for name in marked)
    remark = f"learning rate at an edge of what was tried: {rates}"
    detail = "; ".join(filter(None, [row.get("detail"), remark]))
    withheld = study.confirmatory is not None and row["verdict"] in ("holds", "fails")
    return {**row, "detail": detail, **({"verdict": "undecided"} if withheld else {})}


def _not_here(rule: Rule, rows: list[Row]) -> Row:
    """Return the row of a rule that the study cannot decide, with what it compares."""
    columns: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    if isinstance(rule, Above):
        columns = tuple(rule.columns)
        models = rule.models
    elif isinstance(rule, CheckRule):
        check = CHECKS[rule.name]
        columns = tuple(rule.columns or ())
        models = check.models if isinstance(check, EpisodeCheck) else ()

    # What has no columns is about the course of training, which the paper shows for one environment.
    parts = [
        ", ".join(rows_of_rule(rule)),
        ", ".join(columns or (DETAILED_ENVIRONMENT,)),
        ", ".join(models),
    ]
    compared = f"it compares {' | '.join(filter(None, parts))}"
    reasons = list(dict.fromkeys(row["detail"] for row in rows if row.get("detail")))
    return {"verdict": "not here", "detail": "; ".join([*reasons, compared])}


def _judge_rule(rule: Rule, evidence: Evidence) -> Iterator[Row]:
    match rule:
        case Open():
            yield {"verdict": "open", "detail": rule.because}
        case Known():
            yield {"verdict": rule.verdict, "detail": rule.because}
        case Formula():
            verdict, measured, detail = FORMULAS[rule.name]()
            yield {"verdict": verdict, "measured": measured, "detail": detail}
        case Above():
            for column, printed in rule.columns.items():
                yield from judge_above(rule, column, printed, evidence)
        case States() | Sooner():
            yield from _judge_runs(rule, evidence)
        case CheckRule():
            check = CHECKS[rule.name]
            if isinstance(check, EpisodeCheck):
                columns = {str(name): printed for name, printed in (rule.columns or {}).items()}
                yield from check.function(columns, evidence)
            else:
                yield from _judge_runs(rule, evidence)


def _judge_runs(rule: States | Sooner | CheckRule, evidence: Evidence) -> Iterator[Row]:
    """Decide a rule on runs in ALFWorld with the small model, for every base policy and preset of 3SPO."""
    study = evidence.study
    rows = rows_of_rule(rule)
    if DETAILED_ENVIRONMENT not in study.environments:
        yield {"env": DETAILED_ENVIRONMENT, "verdict": "not here"}
        return

    paper = _ratio_in_paper(rule, evidence)
    for policy in policies_for_models(study, [SMALL_MODEL]):
        for preset in presets_to_judge(study, DETAILED_ENVIRONMENT, rows):
            runs = RowRuns(study, Cell(DETAILED_ENVIRONMENT, policy, preset), rows)
            found = _test_runs(rule, runs, evidence)
            yield {
                "env": DETAILED_ENVIRONMENT,
                "policy": policy,
                "preset": preset,
                "measure": "training",
                "printed": rule.printed,
                "paper": paper,
                **found.as_row(),
            }


def _test_runs(rule: States | Sooner | CheckRule, runs: RowRuns, evidence: Evidence) -> Finding:
    # Other rows may be missing, which keeps the claim from holding; without the row that a rule is about there
    # is nothing to compare.
    if runs.rows[0] in runs.missing:
        return Finding("not here")
    if isinstance(rule, States):
        return compare_states(runs, evidence, rule.upper, rule.lower, rule.at_least)
    if isinstance(rule, Sooner):
        return compare_arrivals(runs, evidence, rule.upper, rule.lower, rule.success, rule.at_least)
    check = CHECKS[rule.name]
    assert not isinstance(check, EpisodeCheck)
    return check.function(runs, evidence)


def _ratio_in_paper(rule: States | Sooner | CheckRule, evidence: Evidence) -> float:
    """Return the ratio that the paper's efficiency table gives; NaN for what is not in it."""
    if isinstance(rule, States):
        return states_ratio_in_paper(evidence.paper, rule.upper, rule.lower, rule.per_rollout)
    if isinstance(rule, CheckRule):
        check = CHECKS[rule.name]
        if not isinstance(check, EpisodeCheck) and check.is_rollout_ratio:
            return rollouts_ratio_in_paper(evidence.paper, check.rows[0], check.rows[1])
    return math.nan
