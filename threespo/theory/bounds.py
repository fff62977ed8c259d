"""The bounds of sec. 3.5, as formulas."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from threespo.scoring.reward import novelty_weight
from threespo.scoring.state import ScoreSettings, state_score
from threespo.theory.bandit import PROBABILITIES

ROUNDS = (2, 3, 5, 10, 20, 30, 50, 100, 200, 300, 500, 1_000, 2_000, 3_000, 5_000, 10_000)
"""Rounds i at which the probability of the good event is computed."""

REPAIRED_RADIUS = 1.5
"""c of the radius sqrt(c log i / N) for which the proof's union over A actions and N <= i gives 2 A / i^2: Hoeffding's bound
is 2 i^(-2c) for each, and there are A i of them."""

OMEGA_K = 0.1
"""gamma of sec. 3.3, with the value of tab:hyperparams."""

EPOCHS = 400
"""Rounds I of the paper's training runs."""


def bad_event_probability(probabilities: Sequence[float], draws: int, log_term: float) -> float:
    """Return the probability that some action's rate is further than sqrt(log_term / N) from the truth (the "bad event").

    Args:
        probabilities: p*(a) of the actions, each drawn independently.
        draws: N, of each action.
        log_term: log A in the text of sec. 3.5, log i in its proof.
    """
    wins = np.arange(draws + 1)
    rates = wins / draws
    radius = np.sqrt(log_term / draws)

    # Binomial probabilities by logarithms of factorials, since the coefficients overflow.
    log_factorials = np.concatenate(([0.0], np.cumsum(np.log(np.arange(1, draws + 1)))))
    log_choose = log_factorials[draws] - log_factorials - log_factorials[::-1]

    # The actions are independent, so the probability is exact where the proof has a union bound.
    all_within = 1.0
    for truth in probabilities:
        log_wins = wins * math.log(truth)
        log_losses = (draws - wins) * math.log1p(-truth)
        probability = np.exp(log_choose + log_wins + log_losses)
        outside = np.abs(rates - truth) > radius
        all_within *= 1.0 - float(probability[outside].sum())
    return 1.0 - all_within


def score_separation_bound(alpha: float, clock: int, gap: float) -> float:
    """Return lambda exp(-lambda) gap / 2, the score separation, with lambda = alpha ln t at depth ``clock``."""
    annealing = alpha * math.log(clock)
    return annealing * math.exp(-annealing) * gap / 2


def allocation_share_bound(alpha: float, clock: int, gap: float) -> float:
    """Return t^(-alpha gap / 2), the bound on a non-worst action's share of the rollouts."""
    return float(clock ** (-alpha * gap / 2))


def min_alpha(rounds: int, gap: float) -> float:
    """Return 2 log I / (gap log 2), the least alpha at which the theorem has its logarithm."""
    return 2 * math.log(rounds) / (gap * math.log(2))


def weight_schedule_gamma(rounds: int, gap: float) -> float:
    """Return gap^2 log 2 / (16 log I), the decay of omega at which both weights of eq. 2 are equal after T_a visits."""
    return gap**2 * math.log(2) / (16 * math.log(rounds))


def bound_curves() -> pd.DataFrame:
    """Return what the figure of the bounds draws, at the paper's constants: columns ``panel``, ``series``, ``x``, ``y``.

    ``coverage``: the probability of the bad event against the round i, in which each action of the bandit has been drawn
    i times, for the radius sqrt(c / i) with c of the text, the proof and the repaired proof; and 1 / i^2, the paper's claim.
    ``separation``: the difference of S that rates of 0.4 and 0.6 have, and its bound, against the depth.
    ``allocation``: the easier of two actions' share of the rollouts at depth 2, and its bound, against the gap; the harder
    one wins once in five. ``omega``: weights of eq. 2 against visits.
    """
    rows = [*_coverage_rows(), *_separation_rows(), *_allocation_rows(), *_omega_rows()]
    return pd.DataFrame(rows)


class CurvePoint(NamedTuple):
    """A point of one of the figure's curves."""

    panel: str
    series: str
    x: float
    y: float


def _coverage_rows() -> Iterator[CurvePoint]:
    for draws in ROUNDS:
        # Sec. 3.5 prints log A, the number of actions; its proof in appendix A has log i.
        log_terms = {
            "radius of the text": math.log(len(PROBABILITIES)),
            "radius of the proof": math.log(draws),
            "repaired": REPAIRED_RADIUS * math.log(draws),
        }
        for name, log_term in log_terms.items():
            probability = bad_event_probability(PROBABILITIES, draws, log_term)
            yield CurvePoint("coverage", name, draws, probability)
        yield CurvePoint("coverage", "claimed, 1/i²", draws, draws**-2.0)


def _separation_rows() -> Iterator[CurvePoint]:
    # At depth 1 all scores are 1, and the bound is 0.
    for clock in range(2, 51):
        for alpha in (ScoreSettings().alpha, 1.0):
            hard = math.exp(-alpha * math.log(clock) * 0.4)
            easy = math.exp(-alpha * math.log(clock) * 0.6)
            bound = score_separation_bound(alpha, clock, 0.2)
            yield CurvePoint("separation", f"S, α = {alpha:g}", clock, hard - easy)
            yield CurvePoint("separation", f"bound, α = {alpha:g}", clock, bound)


def _allocation_rows() -> Iterator[CurvePoint]:
    settings = ScoreSettings()
    # So many that neither eps nor the exploration threshold T_a matters.
    visits = 1_000_000
    for percent in range(0, 81, 2):
        gap = percent / 100
        hard = state_score(visits, visits * 0.2, 2, settings)
        easy = state_score(visits, visits * (0.2 + gap), 2, settings)
        printed = easy.rollouts / (hard.rollouts + easy.rollouts)
        unrounded = easy.score / (hard.score + easy.score)
        bound = allocation_share_bound(settings.alpha, 2, gap)
        yield CurvePoint("allocation", "as printed", gap, printed)
        yield CurvePoint("allocation", "without the ceiling", gap, unrounded)
        yield CurvePoint("allocation", "bound", gap, bound)


def _omega_rows() -> Iterator[CurvePoint]:
    # At a gap of 1, the largest that there is: any smaller gap gives a still slower decay.
    theorem_gamma = weight_schedule_gamma(EPOCHS, 1.0)
    for visits in range(41):
        weight = novelty_weight(visits, OMEGA_K)
        yield CurvePoint("omega", "ω", visits, weight)
        yield CurvePoint("omega", "0.5 − ω", visits, 0.5 - weight)
        yield CurvePoint("omega", "ω, γ of the theorem", visits, novelty_weight(visits, theorem_gamma))
