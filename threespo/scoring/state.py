"""Eq. 1 and eq. 3: the score of a state, and the number of actions that are sampled in it (the paper's rollouts)."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ScoreSettings:
    """Constants of eq. 1 and eq. 3; defaults are the paper's (tab:hyperparams)."""

    alpha: float = 50.0
    """Annealing: lambda(t) = alpha ln t."""
    xi: float = 10.0
    """Number of failures from which the gate can close."""
    zeta: float = 0.1
    """Success rate above which the gate stays open."""
    eps: float = 1e-6
    """Keeps the success rate of an unvisited state defined."""
    g_max: int = 8
    """G_max, the most samples of one state."""


@dataclass(frozen=True, slots=True)
class StateScore:
    """Eq. 1 and eq. 3 for one state at one depth."""

    success_rate: float
    """N_success / (N_total + eps)."""
    score: float
    """S(s_t) in [0, 1]; 0 behind a closed gate."""
    gated: bool
    """True where the indicator of eq. 1 is 0."""
    rollouts: int
    """n(s_t), the number of actions to sample in the state."""


def state_score(
    n_total: float, n_success: float, clock: int, settings: ScoreSettings, gate: bool = True
) -> StateScore:
    """Return S(s_t) by eq. 1 and n(s_t) by eq. 3, as printed.

    The statistics of all methods and the claims on the paper's formulas use it too: a variant of 3SPO belongs in
    ``StateScorer.score``.

    Args:
        n_total: N_total, completed paths through the state.
        n_success: N_success, those of them that were won.
        clock: t >= 1, as printed the 1-based depth at which a path meets the state.
        settings: the constants.
        gate: False leaves out the indicator of eq. 1.
    """
    success_rate = n_success / (n_total + settings.eps)

    # The negation of eq. 1's indicator, 1{N_fail < xi or success rate > zeta}.
    failures = n_total - n_success
    gated = gate and failures >= settings.xi and not success_rate > settings.zeta
    if gated:
        return StateScore(success_rate, 0.0, True, 0)

    # lambda(t) = alpha log t is 0 at t = 1: as printed, the first state of a path has S = 1.
    annealing = settings.alpha * math.log(clock)
    score = math.exp(-annealing * success_rate)

    # n(s_t) is that of the limit eps -> 0, so that eps cannot lift G_max S above an integer.
    limit_rate = n_success / n_total if n_total else 0.0
    limit_score = math.exp(-annealing * limit_rate)
    return StateScore(success_rate, score, False, printed_rollouts(limit_score, settings.g_max))


def printed_rollouts(score: float, g_max: int) -> int:
    """Return n(s_t) = ceil(G_max S(s_t)) of a state with an open gate, eq. 3."""
    # 1e-9 keeps a product that is an integer, but for its rounding, from being lifted to the next one.
    # With an open gate S > 0, so the exact ceiling is at least 1, even where S underflows.
    return max(1, math.ceil(g_max * score - 1e-9))
