"""How many of the paper's claims hold, fail and are undecided: the one count that everything shows."""

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

OWN_PREFIX = "own-"
"""What ids of claims begin with that we have read into a figure or a formula; the paper has no such sentence."""

IDENTITY = "identity"
"""The rule of claims that restate the paper's equations or definitions, and so hold by algebra or by the text."""

SETTLED = (IDENTITY, "formula", "known")
"""Rules that no run decides."""

NOT_TESTED = ("not here", "open")
"""Verdicts of rules that this study does not test."""

VERB = {"fails": "fail", "unsupported": "are unsupported", "vacuous": "are vacuous", "holds": "hold"}
"""A verdict on several claims in words, the worst first."""


@dataclass(frozen=True, slots=True)
class ClaimTally:
    """The paper's claims, each counted once, judged on the paper's method."""

    total: int
    identities: int
    """Claims that hold by algebra or by the text alone: nothing that is measured could deny them."""
    settled: Mapping[str, int]
    """Other claims that the paper's own equations, text and numbers settle, by verdict."""
    holds: int
    """Claims that hold by measurement, in every setting in which runs of this study test them."""
    fails: int
    """Claims that fail in at least one setting: one contradicts a claim."""
    undecided: int

    @property
    def tested(self) -> int:
        """Claims that the study's runs test."""
        return self.holds + self.fails + self.undecided

    def describe_runs(self) -> str:
        """Return the counts by the study's runs."""
        return f"{self.holds} hold, {self.fails} fail, {self.undecided} undecided"

    def describe(self) -> list[str]:
        """Return the tally in sentences."""
        settled = sum(self.settled.values())
        words = ", ".join(f"{count} {VERB[verdict]}" for verdict, count in self.settled.items())
        sentences = [
            f"Of the paper's {self.total} claims its own equations, text and numbers settle {settled} ({words})."
        ]
        if self.identities:
            sentences.append(
                f"{self.identities} more hold by text or algebra: they restate its equations or definitions, and no "
                "measurement could deny them."
            )
        if self.tested:
            untested = self.total - self.identities - settled - self.tested
            sentences.append(
                f"This study tests {self.tested}: {self.holds} hold by measurement in every setting, {self.fails} fail "
                f"in at least one, {self.undecided} are undecided. The other {untested} need rows, splits or models "
                "that this study does not have."
            )
        return sentences


def tally_claims(claims: pd.DataFrame) -> ClaimTally:
    """Return the tally of the table ``claims``."""
    # What other presets do, or what was read into a figure, is no verdict on a sentence of the paper.
    is_papers = claims["method_of_paper"].astype(bool) & ~claims["claim"].str.startswith(OWN_PREFIX)
    papers = claims[is_papers]
    is_settled = papers["rule"].isin(SETTLED)

    # A claim with several rules may need runs for some of them.
    needs_runs = papers["claim"].isin(papers["claim"][~is_settled])
    by_text = papers[is_settled & ~needs_runs].groupby("claim")
    # A claim is an identity only if all of its rules are.
    is_identity = by_text["rule"].agg(lambda rules: bool((rules == IDENTITY).all())).astype(bool)
    settled = by_text["verdict"].agg(_worst_verdict)[~is_identity]

    judged = papers[~is_settled & ~papers["verdict"].isin(NOT_TESTED)]
    verdicts = list(judged.groupby("claim")["verdict"].agg(set))
    # A claim without condition holds only if all settings say so, and one counterexample is enough against it.
    holds = verdicts.count({"holds"})
    fails = sum("fails" in found for found in verdicts)
    return ClaimTally(
        total=papers["claim"].nunique(),
        identities=int(is_identity.sum()),
        settled=settled.value_counts().to_dict(),
        holds=holds,
        fails=fails,
        # All others: "undecided" in one setting at least, and no failure.
        undecided=len(verdicts) - holds - fails,
    )


def _worst_verdict(verdicts: "pd.Series[str]") -> str:
    return next(verdict for verdict in VERB if (verdicts == verdict).any())
