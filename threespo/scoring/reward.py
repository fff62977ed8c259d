"""Eq. 2: the step-wise reward, and the group advantage that it becomes (sec. 3.4)."""

import math
from collections.abc import Sequence
from typing import NamedTuple


class RewardTerms(NamedTuple):
    """The terms of eq. 2, each with its weight; tables, trees and pages take their names from here."""

    novelty: float
    difference: float
    success: float

    @property
    def total(self) -> float:
        """R_3SPO."""
        # Not ``sum``, which from Python 3.12 on compensates rounding: rewards would differ in their last bit.
        total = 0.0
        for term in self:
            total += term
        return total


TERM_LABELS = {"difference": "difference of scores"}
"""What readers see of a term whose name does not say it."""


def novelty_weight(n_total: float, omega_k: float, fixed: float | None = None) -> float:
    """omega(N) = 0.5 exp(-omega_k N), the weight of novelty in eq. 2.

    Args:
        n_total: N_total of the state that is left, s_t.
        omega_k: gamma of sec. 3.3, 0.1 in tab:hyperparams.
        fixed: takes the place of the formula (ablation w/o adaptive omega).
    """
    if fixed is not None:
        return fixed
    return 0.5 * math.exp(-omega_k * n_total)


def step_reward(
    *, omega: float, novel: bool, score: float, next_score: float, success: float
) -> RewardTerms:
    """R_3SPO(s_t, s_t+1) of eq. 2.

    Args:
        omega: weight of novelty, in [0, 0.5]; the difference of scores has 0.5 - omega.
        novel: R_novel, whether s_t+1 is new.
        score: S(s_t).
        next_score: S(s_t+1).
        success: R_success, in [0, 1].
    """
    return RewardTerms(
        novelty=omega * novel,
        difference=(0.5 - omega) * (score - next_score),
        success=0.5 * success,
    )


def group_advantages(
    rewards: Sequence[float], std_floor: float = 0.0, eps: float = 1e-6, normalise: bool = True
) -> list[float] | None:
    """Return (R_i - mean) / (std + eps) with ddof 1 over the siblings of one state, or R_i - mean (sec. 3.4).

    Args:
        rewards: reward of each sibling, (siblings,).
        std_floor: a smaller spread is not learned from: differences of S far below one sample are noise, which the
            division would blow up to unit size.
        eps: added to the standard deviation.
        normalise: divide by the standard deviation.

    Returns:
        An advantage for each sibling; ``None`` where there is nothing to learn: a single sibling, equal rewards, or a
        spread below ``std_floor``.
    """
    count = len(rewards)
    if count < 2 or max(rewards) == min(rewards):
        return None

    mean = math.fsum(rewards) / count
    std = math.sqrt(math.fsum((reward - mean) ** 2 for reward in rewards) / (count - 1))
    if std < std_floor:
        return None

    divisor = std + eps if normalise else 1.0
    return [(reward - mean) / divisor for reward in rewards]
