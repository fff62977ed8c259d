"""The lemmas of sec. 3.5, one by one: what holds as printed, what with a stated repair, what not at all.

What is printed is judged by the same functions as the claims (``threespo.results.claims.formulas``); each repair is checked
by numbers of its own.
"""

import itertools
import math
from collections.abc import Callable
from typing import NamedTuple

import pandas as pd

from threespo.results.claims.formulas import FORMULAS, MAX_DEPTH, PRINTED
from threespo.theory.bandit import PROBABILITIES, VARIANTS, simulate_bandit
from threespo.theory.bounds import (
    REPAIRED_RADIUS,
    allocation_share_bound,
    bad_event_probability,
    score_separation_bound,
)

COLUMNS = ("lemma", "verdict", "as_printed", "repair", "with_repair")

Checked = tuple[bool, str]
"""Whether a repaired statement holds where it was computed, and the numbers."""


class Lemma(NamedTuple):
    """A statement of the paper's theory."""

    statement: str
    formula: str
    """What judges it as printed (``formulas.FORMULAS``)."""
    repair: str = ""
    """What has to change for it to be true; empty where nothing would do."""
    check: Callable[[], Checked] | None = None
    """Computes the repaired statement."""


def _check_concentration() -> Checked:
    """P(bad event) after i draws of each action is below 2 A / i^2."""
    worst = max(
        bad_event_probability(PROBABILITIES, draws, REPAIRED_RADIUS * math.log(draws))
        * draws**2
        / (2 * len(PROBABILITIES))
        for draws in (10, 100, 1_000, 10_000)
    )
    return (
        worst <= 1,
        f"at most {worst:.2g} of 2A/i² for i of 10 to 10,000, exactly computed for four actions",
    )


def _check_finitely_often() -> Checked:
    """The sum of P(bad event) over all rounds is finite: so is its bound, 2 A pi^2 / 6."""
    # By 2 A / i^2 the rest of the infinite sum is below 2 A / 399.
    bound = 2 * len(PROBABILITIES) * math.pi**2 / 6
    found = sum(
        bad_event_probability(PROBABILITIES, draws, REPAIRED_RADIUS * math.log(draws))
        for draws in range(2, 400)
    )
    return found < bound, f"the first 400 rounds sum up to {found:.2g}, the bound of all is {bound:.1f}"


def _check_separation() -> Checked:
    """S(a) - S(b) is at least the bound, for all pairs of rates whose counts are as far apart as the good event has them."""
    broken = total = 0
    for clock in (2, 3, 7, 20, MAX_DEPTH):
        annealing = PRINTED.alpha * math.log(clock)
        for low, high in itertools.combinations(range(21), 2):
            # In the good event counted rates are as far apart as half of the true gap, each nearer by a quarter of it.
            gap = (high - low) / 20
            low_rate_score = math.exp(-annealing * (low / 20 + gap / 4))
            high_rate_score = math.exp(-annealing * (high / 20 - gap / 4))
            bound = score_separation_bound(PRINTED.alpha, clock, gap)
            broken += low_rate_score - high_rate_score < bound
            total += 1
    greatest = score_separation_bound(PRINTED.alpha, 2, 1.0)
    return (
        not broken,
        f"{total - broken} of {total} pairs; vacuous, since the bound is {greatest:.1e} at most, at depth 2",
    )


def _check_allocation() -> Checked:
    """An easier action's share is below its bound where rollouts are proportional to S."""
    broken = total = 0
    for clock in (2, 3, 7, 20, MAX_DEPTH):
        for hard, easy in itertools.combinations(range(11), 2):
            # Counted rates may be closer to each other by half of the gap. Divided by S of the harder one, for small S.
            ratio = math.exp(-PRINTED.alpha * math.log(clock) * (easy - hard) / 20)
            share = ratio / (1 + ratio)
            bound = allocation_share_bound(PRINTED.alpha, clock, (easy - hard) / 10)
            # For small S the two are equal but for rounding.
            broken += share > bound * (1 + 1e-9)
            total += 1
    return not broken, f"{total - broken} of {total} pairs of actions"


def _check_regret() -> Checked:
    """R(I) of the theorem's rule at 10,000 rounds is at most twice that at 100, as a logarithm's is."""
    # Two simulations, not two points of one: the theorem's alpha depends on the number of rounds.
    short = simulate_bandit(VARIANTS["the theorem's"], 100)
    long = simulate_bandit(VARIANTS["the theorem's"], 10_000)
    growth = float(long.regret[:, -1].mean() / short.regret[:, -1].mean())
    drawn = float(long.rollouts[:, -1].mean())
    return (
        growth <= 2,
        f"from 100 to 10,000 rounds it grows {growth:.1f}-fold, with {drawn:.0f} rollouts in all of them",
    )


LEMMAS = (
    Lemma(
        "Counted rates are within their radius of the true ones with probability 1 − O(1/i²)", "good_event",
        "radius √(1.5 log i / N) in place of √(log A / N): Hoeffding, and a union over actions and over N up to i",
        _check_concentration,
    ),
    Lemma(
        "Almost surely they are outside finitely often", "finitely_often",
        "the same radius: its probabilities have a finite sum (Borel and Cantelli)", _check_finitely_often,
    ),
    Lemma(
        "Scores of two actions differ by λ exp(−λ) Δ/2 at least", "separation",
        "the sign of f′, and no gate: a gated action has S = 0, whatever it wins", _check_separation,
    ),
    Lemma(
        "An action that is not the worst gets at most t^(−αΔ/2) of the rollouts", "allocation_bound",
        "rollouts proportional to S: no ceiling in eq. 3 and no gate in eq. 1", _check_allocation,
    ),
    Lemma(
        "The allocation regret is O(log I)", "regret",
        "no ceiling, no gate, and α that grows with the logarithm of the number of rounds", _check_regret,
    ),
    Lemma("α of 2 log I / (Δ log 2) makes an easier action's share at most 1/I", "alpha_condition"),
    Lemma("With γ = log 2 / T the two weights of eq. 2 are equal after T visits", "gamma_algebra"),
    Lemma("The γ that is used is such a γ", "gamma_used"),
)  # fmt: skip


def lemma_table() -> pd.DataFrame:
    """Return a row for each lemma: ``COLUMNS``.

    ``verdict`` is *holds*, *holds with a repair* or *fails*; ``as_printed`` says why, ``with_repair`` gives the numbers of
    the repaired statement. What is true and without consequence counts as *holds with a repair* where the proof needs one.
    """
    rows = []
    for lemma in LEMMAS:
        printed, _, sentence = FORMULAS[lemma.formula]()
        repaired, numbers = lemma.check() if lemma.check else (False, "")
        verdict = "holds with a repair" if repaired else "fails"
        if printed == "holds":
            verdict = "holds"
        rows.append(
            (
                lemma.statement,
                verdict,
                sentence,
                lemma.repair if repaired else "",
                numbers if repaired else "",
            )
        )
    return pd.DataFrame(rows, columns=list(COLUMNS))
