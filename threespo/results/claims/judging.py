"""The paper's claims held against a study: what the numbers say of each, with the paper's own numbers beside them.

Every claim is decided for every environment, base policy and, where it is about 3SPO, every preset of it that the study
trains.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from threespo.results.claims.arms import Arms
from threespo.results.claims.finding import (
    OF_PAPER,
    Cell,
    Evidence,
    Finding,
    apply_holm,
    policies_for,
    presets,
)
from threespo.results.claims.formulas import FORMULAS
from threespo.results.claims.learning import of_curves
from threespo.results.claims.pairwise import of_column
from threespo.results.claims.panel import of_panel, of_sizes
from threespo.results.claims.reading import Claim
from threespo.results.claims.rules import (
    Above,
    Formula,
    Gain,
    Known,
    OfCurves,
    OfMetrics,
    OfPanel,
    OfRuns,
    OfSizes,
    Open,
    Rule,
    rows_of_rule,
)
from threespo.results.claims.searches import of_searches
from threespo.results.claims.training import of_metrics, of_paper
from threespo.results.paper_numbers import DETAILED_ENVIRONMENT

VERDICT_COLUMNS = (
    "claim", "text", "where", "rule", "env", "policy", "split", "measure", "preset", "method_of_paper",
    "printed", "paper", "measured", "low", "high", "p", "p_adjusted", "seeds_needed", "verdict", "detail",
)  # fmt: skip
"""``method_of_paper``: whether the row is about the paper's method, or about a preset of ours in its place."""

NUMBERS = ("printed", "paper", "measured", "low", "high", "p", "p_adjusted", "seeds_needed")

SMALL = "qwen2.5-1.5b-instruct"
"""The model whose training the paper shows."""


def judge_claims(claims: tuple[Claim, ...], evidence: Evidence) -> pd.DataFrame:
    """Return the table ``claims``: a row for every claim in every place that it is about, at least one for each claim.

    Args:
        claims: the paper's claims, as ``read_claims`` returns them.
        evidence: the study's results and the paper's tables.

    Returns:
        Columns ``VERDICT_COLUMNS``. Numbers that do not exist are NaN, texts are empty; ``detail`` never is.
    """
    rows: list[dict[str, Any]] = []
    for claim in claims:
        common = {"claim": claim.id, "text": claim.claim, "where": claim.where}
        for rule in claim.rule:
            # Places that the study lacks are left out, unless there is no other.
            every = list(_of_rule(rule, evidence))
            found = [
                {**row, "method_of_paper": (row.get("preset") or OF_PAPER[0]) in OF_PAPER}
                for row in every
                if row["verdict"] != "not here"
            ]
            # A claim is about the paper's method: what other presets do in its place does not decide it.
            if not any(row["method_of_paper"] for row in found):
                found.append({**_not_here(rule, every), "method_of_paper": True})
            rows += [{**common, "rule": rule.kind, **row} for row in found]

    frame = pd.DataFrame(apply_holm(rows), columns=list(VERDICT_COLUMNS))
    frame[list(NUMBERS)] = frame[list(NUMBERS)].astype(np.float64)
    return frame.fillna(
        {name: "" for name in VERDICT_COLUMNS if name not in (*NUMBERS, "method_of_paper")}
    )


def _not_here(rule: Rule, found: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the row of a rule that the study cannot decide, with what it compares."""
    said = list(dict.fromkeys(row["detail"] for row in found if row.get("detail")))
    models = getattr(rule, "models", ()) or [
        one for name in ("model", "more_with", "than_with") if (one := getattr(rule, name, ""))
    ]
    parts = (
        ", ".join(rows_of_rule(rule)),
        ", ".join(getattr(rule, "columns", ()) or (DETAILED_ENVIRONMENT,)),
        ", ".join(models),
    )
    return {
        "verdict": "not here",
        "detail": "; ".join([*said, f"it compares {' | '.join(filter(None, parts))}"]),
    }


def _of_rule(rule: Rule, evidence: Evidence) -> Iterator[dict[str, Any]]:
    match rule:
        case Open():
            yield {"verdict": "open", "detail": rule.because}
        case Known():
            yield {"verdict": rule.verdict, "detail": rule.because}
        case Formula():
            verdict, measured, detail = FORMULAS[rule.name]()
            yield {"verdict": verdict, "measured": measured, "detail": detail}
        case Above() | Gain():
            for column, printed in rule.columns.items():
                yield from of_column(rule, column, printed, evidence)
        case _ if isinstance(rule, OfPanel):
            for column, printed in rule.columns.items():
                yield from of_panel(rule, column, printed, evidence)
        case _ if isinstance(rule, OfSizes):
            yield from of_sizes(rule, evidence)
        case _:
            yield from _of_runs(rule, evidence)


def _of_runs(rule: OfRuns, evidence: Evidence) -> Iterator[dict[str, Any]]:
    """Decide a rule on runs in ALFWorld with the small model, for every base policy and preset of 3SPO."""
    study, env, rows = evidence.study, DETAILED_ENVIRONMENT, rows_of_rule(rule)
    if env not in study.environments:
        yield {"env": env, "verdict": "not here"}
        return
    for policy in policies_for(study, SMALL):
        for preset in presets(study, env, rows):
            arms = Arms(study, Cell(env, policy, preset), rows)
            numbers = {
                "printed": getattr(rule, "printed", None),
                "paper": of_paper(rule, evidence.paper),
            }
            place = {"env": env, "policy": policy, "preset": preset, "measure": "training"}
            yield {**place, **numbers, **_found(rule, arms, evidence).as_row()}


def _found(rule: OfRuns, arms: Arms, evidence: Evidence) -> Finding:
    if rows_of_rule(rule)[0] in arms.missing:
        return Finding("not here")
    if isinstance(rule, OfMetrics):
        return of_metrics(rule, arms, evidence)
    return (
        of_curves(rule, arms, evidence)
        if isinstance(rule, OfCurves)
        else of_searches(rule, arms, evidence)
    )
