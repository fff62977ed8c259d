"""Generalised advantage estimation over the tokens of one response, and whitening over a batch, in float64."""

import math
from collections.abc import Sequence


def generalised_advantages(
    rewards: Sequence[float],
    values: Sequence[float],
    *,
    gamma: float = 1.0,
    lam: float = 1.0,
    tail: float = 0.0,
) -> tuple[list[float], list[float]]:
    """Return (advantages, returns), each (tokens,), of one response.

    delta_t = r_t + gamma V_{t+1} - V_t, A_t = delta_t + gamma lam A_{t+1}, return_t = A_t + V_t.

    Args:
        rewards: reward after each token, (tokens,).
        values: V before each token, (tokens,).
        gamma: discount from token to token.
        lam: weight of longer estimates.
        tail: V after the last token. An ended response has none, so it is 0; the reference code keeps the critic's, which
            changes nothing where ``lam`` is 1.
    """
    advantages = [0.0] * len(rewards)

    # With the tail's own advantage -tail behind it, the return of the last token is r + gamma (1 - lam) tail.
    next_advantage = -tail
    next_value = tail
    for token in range(len(rewards) - 1, -1, -1):
        # One expression, in this order: the last bits of the result depend on it.
        next_advantage = (
            rewards[token] + gamma * next_value - values[token] + gamma * lam * next_advantage
        )
        next_value = values[token]
        advantages[token] = next_advantage

    returns = [advantage + value for advantage, value in zip(advantages, values, strict=True)]
    return advantages, returns


def whiten_advantages(rows: Sequence[Sequence[float]], eps: float = 1e-8) -> list[list[float]]:
    """Return (x - mean) / sqrt(var + eps) with mean and variance (ddof 1) over all values of all rows.

    Args:
        rows: advantages of each response, (tokens,) each; lengths may differ.
        eps: added to the variance.
    """
    values = [value for row in rows for value in row]
    mean = math.fsum(values) / len(values)
    squares = math.fsum((value - mean) ** 2 for value in values)
    variance = squares / max(1, len(values) - 1)
    # The reference multiplies by rsqrt, which differs from a division in the last bit.
    scale = 1.0 / math.sqrt(variance + eps)
    return [[(value - mean) * scale for value in row] for row in rows]


def explained_variance(values: Sequence[float], returns: Sequence[float]) -> float:
    """Return 1 - Var(return - V) / Var(return).

    Args:
        values: V of each position, (positions,).
        returns: the returns observed there, (positions,).

    Returns:
        1 for a critic that predicts every return, 0 for a constant one; NaN where returns are equal.
    """
    total = _variance(returns)
    # An epoch that won or lost everything has nothing to explain: neither 0 nor 1 would be true of its critic.
    if total == 0.0:
        return math.nan
    errors = [observed - value for observed, value in zip(returns, values, strict=True)]
    return 1.0 - _variance(errors) / total


def _variance(values: Sequence[float]) -> float:
    # Exactly 0 for equal values, which the rounded mean would miss.
    if max(values) == min(values):
        return 0.0
    mean = math.fsum(values) / len(values)
    squares = math.fsum((value - mean) ** 2 for value in values)
    return squares / len(values)
