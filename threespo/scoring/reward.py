"""Eq. 2: the step-wise reward, and the group advantage that it becomes (sec. 3.4)."""

import math
from collections.abc import Sequence
from typing import NamedTuple


class RewardTerms(NamedTuple):
    """The terms of eq. 2, each with its weight; columns of tables have their names."""

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
"""Names for readers, of terms whose own name is not clear enough."""


def novelty_weight(n_total: float, omega_k: float, fixed: float | None = None) -> float:
    """Return omega(N) = 0.5 exp(-omega_k N), the weight of novelty in eq. 2.

    Args:
        n_total: N_total of s_t, the state in which the action is taken.
        omega_k: gamma of sec. 3.3, 0.1 in tab:hyperparams.
        fixed: replaces the formula (ablation w/o adaptive omega).
    """
    if fixed is not None:
        return fixed
    # 0.5 for an unvisited state, where the difference of scores then has no weight.
    return 0.5 * math.exp(-omega_k * n_total)


def step_reward(
    *, omega: float, novel: bool, score: float, next_score: float, success: float
) -> RewardTerms:
    """Return the terms of R_3SPO(s_t, s_t+1), eq. 2.

    Args:
        omega: weight of novelty, in [0, 0.5]; the difference of scores has 0.5 - omega.
        novel: R_novel, whether s_t+1 is not on the path.
        score: S(s_t).
        next_score: S(s_t+1).
        success: R_success, as printed in [0, 1].
    """
    # The weights of novelty and difference sum to 0.5, and success has the other half whatever omega is.
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
        std_floor: least standard deviation that is learned from.
        eps: added to the standard deviation.
        normalise: divide by the standard deviation.

    Returns:
        An advantage for each sibling; ``None`` where there is nothing to learn: a single sibling, equal rewards, or a
        spread below ``std_floor``.
    """
    # The paper divides by 0 here. Compared directly, since a rounded mean would leave a tiny spread.
    count = len(rewards)
    if count < 2 or max(rewards) == min(rewards):
        return None

    mean = math.fsum(rewards) / count
    squares = math.fsum((reward - mean) ** 2 for reward in rewards)
    # ddof 1 and eps as in the released code; the paper only says std.
    std = math.sqrt(squares / (count - 1))
    # Differences of S of 1e-5, usual at alpha = 50, are noise; division would make them unit size.
    if std < std_floor:
        return None

    divisor = std + eps if normalise else 1.0
    return [(reward - mean) / divisor for reward in rewards]
