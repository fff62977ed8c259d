"""Eq. 1 and eq. 3: the score of a state, and the number of actions that are sampled in it (the paper's rollouts)."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ScoreSettings:
    """Constants of eq. 1 and eq. 3; defaults are the paper's (tab:hyperparams)."""

    alpha: float = 50.0
    """Annealing: lambda(t) = alpha ln t."""
    xi: float = 10.0
    """The gate can close from this many failures on."""
    zeta: float = 0.1
    """It stays open above this success rate."""
    eps: float = 1e-6
    """Keeps the success rate defined for an unvisited state."""
    g_max: int = 8
    """G_max, the most samples of one state."""


@dataclass(frozen=True, slots=True)
class StateScore:
    """What eq. 1 and eq. 3 say of one state at one depth."""

    success_rate: float
    """N_success / (N_total + eps)."""
    score: float
    """S(s_t) in [0, 1]; 0 behind a closed gate."""
    gated: bool
    """The indicator of eq. 1 is 0."""
    rollouts: int
    """n(s_t), actions to be sampled in the state."""


def state_score(
    n_total: float, n_success: float, clock: int, settings: ScoreSettings, gate: bool = True
) -> StateScore:
    """Return eq. 1 and eq. 3 for one state, as printed.

    The statistics of all methods and the claims on the paper's formulas use it too: a variant of 3SPO belongs in
    ``StateScorer.score``.

    The number of samples uses the success rate without eps, which could lift G_max * S above an integer. It is at least 1
    wherever the gate is open: there S > 0, so its exact ceiling is 1, however small S is in floating point.

    Args:
        n_total: N_total, completed paths through the state.
        n_success: N_success, those of them that were won.
        clock: t >= 1, as printed the 1-based depth at which a path meets the state.
        settings: the constants.
        gate: False leaves out the indicator of eq. 1.
    """
    rate = n_success / (n_total + settings.eps)
    gated = gate and n_total - n_success >= settings.xi and not rate > settings.zeta
    if gated:
        return StateScore(rate, 0.0, True, 0)

    annealing = settings.alpha * math.log(clock)
    limit = n_success / n_total if n_total else 0.0
    exact = math.exp(-annealing * limit)

    # 1e-9 keeps a product that is an integer, but for its rounding, from being lifted to the next one.
    rollouts = max(1, math.ceil(settings.g_max * exact - 1e-9))
    return StateScore(rate, math.exp(-annealing * rate), False, rollouts)
