"""Group-relative advantages of whole episodes, in float64.

Reference implementations take their statistics over *rows* (steps), so a long failure weighs more than a short success;
the methods' papers take them over trajectories. Both are here: ``population`` says which.
"""

import math
from collections.abc import Sequence
from typing import Literal

Population = Literal["trajectories", "rows", "first_rows"]
"""``trajectories``: one return per trajectory (the papers; our default). ``rows``: every step, as the reference code
runs. ``first_rows``: the first step's score of each trajectory, the reference's ``compute_mean_std_cross_steps=false``."""


def grpo(
    scores: Sequence[Sequence[float]],
    *,
    returns: Sequence[float] | None = None,
    population: Population = "trajectories",
    normalise: bool = True,
    eps: float = 1e-6,
) -> list[list[float]]:
    """GRPO: A = (x - mean) / (std + eps) within one task's group, one value per step.

    Args:
        scores: per trajectory, per step: the episode return minus the step's own penalty.
        returns: per trajectory: the episode return; needed for ``population="trajectories"``.
        population: what mean and std (ddof 1) are taken over.
        normalise: divide by the standard deviation (``mean_std_norm``), or not (``mean_norm``).
        eps: added to the standard deviation.

    With ``trajectories`` a group of equal returns is centred and not divided: there is nothing to learn from it but the
    penalties, which would otherwise be divided by eps. A group of one row gets its raw score, as in the reference.
    """
    if population == "trajectories":
        if returns is None:
            raise ValueError("population 'trajectories' needs the episode returns")
        values = list(returns)
    elif population == "rows":
        values = [score for trajectory in scores for score in trajectory]
    else:
        values = [trajectory[0] for trajectory in scores]
    mean, std = _mean_std(values)
    divisor = std + eps if normalise else 1.0
    if population == "trajectories" and std == 0.0:
        divisor = 1.0
    return [[(score - mean) / divisor for score in trajectory] for trajectory in scores]


def _mean_std(values: Sequence[float]) -> tuple[float, float]:
    """Return mean and standard deviation (ddof 1); (0, 1) for a single value."""
    if len(values) == 1:
        return 0.0, 1.0
    if max(values) == min(values):
        return values[0], 0.0
    mean = math.fsum(values) / len(values)
    return mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
