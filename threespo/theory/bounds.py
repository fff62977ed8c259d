"""The bounds of sec. 3.5, as formulas."""

import math
from collections.abc import Sequence

import numpy as np


def missed(probabilities: Sequence[float], draws: int, log_term: float) -> float:
    """Return the probability that some action's rate is further from the truth than the radius sqrt(log_term / N).

    Args:
        probabilities: p*(a) of the actions, each drawn independently.
        draws: N, of each action.
        log_term: log A in the text of sec. 3.5, log i in its proof.
    """
    wins = np.arange(draws + 1)
    far = np.sqrt(log_term / draws)
    logs = np.concatenate(([0.0], np.cumsum(np.log(np.arange(1, draws + 1)))))
    choose = logs[draws] - logs - logs[::-1]

    kept = 1.0
    for truth in probabilities:
        mass = np.exp(choose + wins * math.log(truth) + (draws - wins) * math.log1p(-truth))
        kept *= 1.0 - float(mass[np.abs(wins / draws - truth) > far].sum())
    return 1.0 - kept


def score_gap(alpha: float, clock: int, gap: float) -> float:
    """Return lambda exp(-lambda) gap / 2, the score separation, with lambda = alpha ln t at depth ``clock``."""
    annealing = alpha * math.log(clock)
    return annealing * math.exp(-annealing) * gap / 2


def share_bound(alpha: float, clock: int, gap: float) -> float:
    """Return t^(-alpha gap / 2), the bound on a non-worst action's share of the rollouts."""
    return float(clock ** (-alpha * gap / 2))


def least_alpha(rounds: int, gap: float) -> float:
    """Return 2 log I / (gap log 2), the least alpha at which the theorem has its logarithm."""
    return 2 * math.log(rounds) / (gap * math.log(2))
