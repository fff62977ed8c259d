"""Eq. 2: the step-wise reward, and the group advantage that it becomes (sec. 3.4)."""

import math
from collections.abc import Sequence
from typing import NamedTuple


class RewardTerms(NamedTuple):
    """The three terms of eq. 2, each with its weight."""

    novelty: float
    difference: float
    success: float

    @property
    def total(self) -> float:
        """R_3SPO."""
        return self.novelty + self.difference + self.success


def novelty_weight(n_total: float, omega_k: float, fixed: float | None = None) -> float:
    """omega(N) = 0.5 exp(-omega_k N); omega_k is gamma of sec. 3.3, 0.1 in tab:hyperparams. ``fixed`` takes its place."""
    return 0.5 * math.exp(-omega_k * n_total) if fixed is None else fixed


def step_reward(*, omega: float, novel: bool, score: float, next_score: float, success: float) -> RewardTerms:
    """R_3SPO(s_t, s_t+1) of eq. 2; ``success`` is R_success in [0, 1]."""
    return RewardTerms(omega * novel, (0.5 - omega) * (score - next_score), 0.5 * success)


def group_advantages(
    rewards: Sequence[float], std_floor: float = 0.0, eps: float = 1e-6, normalise: bool = True
) -> list[float] | None:
    """(R_i - mean) / (std + eps) with ddof 1 over the siblings of one state, or R_i - mean.

    Returns ``None`` where there is nothing to learn: a single sibling, equal rewards, or a spread below ``std_floor``
    (differences of S far below one rollout are noise, which the division would blow up to unit size).
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
