"""The paper's claims held against a study: what the numbers say of each, with the paper's own numbers beside them.

Every claim is decided for every environment, base policy and, where it is about 3SPO, every preset of it that the study
trains.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from threespo.results.claims.comparisons import of_column
from threespo.results.claims.finding import Evidence, corrected
from threespo.results.claims.formulas import FORMULAS
from threespo.results.claims.rules import Above, Claim, Formula, Gain, Known, Open, Order
from threespo.results.claims.training import of_training

VERDICT_COLUMNS = (
    "claim", "text", "where", "rule", "env", "policy", "split", "measure", "preset",
    "printed", "paper", "measured", "low", "high", "p", "p_adjusted", "seeds_needed", "verdict", "detail",
)  # fmt: skip


def verdicts(claims: tuple[Claim, ...], evidence: Evidence) -> pd.DataFrame:
    """Return the table ``claims``: a row for every claim in every place that it is about, at least one for each claim.

    Args:
        claims: the paper's claims, as ``read_claims`` returns them.
        evidence: the study's results and the paper's tables.

    Returns:
        Columns ``VERDICT_COLUMNS``. Numbers that do not exist are NaN, texts are empty.
    """
    rows: list[dict[str, Any]] = []
    for claim in claims:
        # Places that the study lacks are left out, unless there is no other.
        found = [row for row in _of_claim(claim, evidence) if row["verdict"] != "not here"] or [{"verdict": "not here"}]
        common = {"claim": claim.id, "text": claim.claim, "where": claim.where, "rule": claim.rule.kind}
        rows += [{**common, **row} for row in found]

    frame = pd.DataFrame(corrected(rows), columns=list(VERDICT_COLUMNS))
    numbers = ["printed", "paper", "measured", "low", "high", "p", "p_adjusted", "seeds_needed"]
    frame[numbers] = frame[numbers].astype(np.float64)
    return frame.fillna({name: "" for name in VERDICT_COLUMNS if name not in numbers})


def _of_claim(claim: Claim, evidence: Evidence) -> Iterator[dict[str, Any]]:
    rule = claim.rule
    match rule:
        case Open():
            yield {"verdict": "open", "detail": rule.because}
        case Known():
            yield {"verdict": "holds" if rule.holds else "fails", "detail": rule.because}
        case Formula():
            holds, measured, detail = FORMULAS[rule.name]()
            yield {"verdict": "holds" if holds else "fails", "measured": measured, "detail": detail}
        case Above() | Order() | Gain():
            for column, printed in rule.columns.items():
                yield from of_column(rule, column, printed, evidence)
        case _:
            yield from of_training(rule, evidence)
