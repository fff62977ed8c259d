"""The bandit of sec. 3.5: one state, whose actions win with fixed probabilities; the state score allocates rollouts to them.

The paper's theorem says that the allocation regret, rollouts of actions other than the hardest times how much easier
they are, grows with the logarithm of the rounds. Its proof leaves out the ceiling of eq. 3 and the gate of eq. 1, and
needs an alpha that grows with the number of rounds. ``VARIANTS`` are the rule as printed and the rules that the proof is
about. A rollout of the bandit is one draw of an action's success.
"""

import math
from dataclasses import astuple, dataclass, replace
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from threespo.rng import derive
from threespo.scoring.state import ScoreSettings

PROBABILITIES = (0.1, 0.3, 0.5, 0.7)
"""p*(a) of the actions; the smallest gap is 0.2."""

DEPTH = 2
"""t, the least at which lambda(t) is not 0."""

MARKS = (10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)
"""Rounds I at which the regret is recorded."""

SEEDS = 32


@dataclass(frozen=True, slots=True)
class AllocationRule:
    """How rollouts are allocated."""

    ceiling: bool = True
    """n = ceil(G_max S); otherwise G_max S in expectation, by randomised rounding."""
    gate: bool = True
    """The indicator of eq. 1."""
    alpha_of_rounds: bool = False
    """alpha is the theorem's, 2 log I / (min gap log 2), instead of the printed 50."""


# One assumption of the proof more in each, so that the regret shows which of them the logarithm needs.
VARIANTS = {
    "as printed": AllocationRule(),
    "without the gate": AllocationRule(gate=False),
    "without gate and ceiling": AllocationRule(ceiling=False, gate=False),
    "the theorem's": AllocationRule(ceiling=False, gate=False, alpha_of_rounds=True),
}


class RegretCurve(NamedTuple):
    """Sums over all rounds so far, for every round; both (seeds, rounds)."""

    regret: NDArray[np.float64]
    """R(i)."""
    rollouts: NDArray[np.float64]
    """Of all actions."""


def simulate_bandit(rule: AllocationRule, rounds: int) -> RegretCurve:
    """Play ``SEEDS`` bandits at the paper's constants of eq. 1 and eq. 3.

    Args:
        rule: how rollouts are allocated.
        rounds: rounds of each bandit, I of the theorem.
    """
    settings = ScoreSettings()
    truth = np.array(PROBABILITIES)
    gaps = truth - truth.min()
    if rule.alpha_of_rounds:
        # Known here alone: neither the gaps nor the number of rounds are known to a training run.
        smallest_gap = float(min(gap for gap in gaps if gap > 0))
        alpha = 2 * math.log(rounds) / (smallest_gap * math.log(2))
        settings = replace(settings, alpha=alpha)

    # All seeds are rows of one stream, which depends on the rule: variants are independent of each other.
    key = derive("bandit", *map(int, astuple(rule)), rounds)
    random = np.random.Generator(np.random.Philox(key=key))
    tried = np.zeros((SEEDS, len(truth)))
    won = np.zeros((SEEDS, len(truth)))
    regret = np.empty((SEEDS, rounds))
    rollouts = np.empty((SEEDS, rounds))

    for number in range(rounds):
        count = _allocate_rollouts(tried, won, rule, settings, random)
        tried += count
        won += random.binomial(count, truth)
        # sum over a != a_w of n_i(a) Delta_a; the gap of a_w, the hardest action, is 0.
        regret[:, number] = count @ gaps
        rollouts[:, number] = count.sum(axis=1)

    return RegretCurve(np.cumsum(regret, axis=1), np.cumsum(rollouts, axis=1))


def regret_table() -> pd.DataFrame:
    """Return the regret of every variant at ``MARKS``.

    Each row has mean, least and greatest over the seeds, and the mean number of rollouts so far.
    """
    rows = []
    for name, rule in VARIANTS.items():
        # The theorem's alpha depends on I, so every I is a bandit of its own.
        curve = None if rule.alpha_of_rounds else simulate_bandit(rule, MARKS[-1])
        for mark in MARKS:
            mark_curve = curve or simulate_bandit(rule, mark)
            regret = mark_curve.regret[:, mark - 1]
            row = {
                "variant": name,
                "rounds": mark,
                "mean": regret.mean(),
                "lowest": regret.min(),
                "highest": regret.max(),
                "rollouts": mark_curve.rollouts[:, mark - 1].mean(),
            }
            rows.append(row)
    return pd.DataFrame(rows)


def _allocate_rollouts(
    tried: NDArray[np.float64],
    won: NDArray[np.float64],
    rule: AllocationRule,
    settings: ScoreSettings,
    random: np.random.Generator,
) -> NDArray[np.int64]:
    """Return n(a) by eq. 1 and eq. 3, (seeds, actions)."""
    # Eq. 1 and eq. 3 for arrays; ``state_score`` takes one state at a time.
    rate = won / (tried + settings.eps)
    score = np.exp(-settings.alpha * math.log(DEPTH) * rate)
    if rule.gate:
        is_gated = (tried - won >= settings.xi) & (rate <= settings.zeta)
        score = np.where(is_gated, 0.0, score)

    wanted = settings.g_max * score
    # Drawn by every rule, so that all make equally many draws, and used without the ceiling.
    chance = random.random(wanted.shape)
    rounded = np.floor(wanted + chance)
    if rule.ceiling:
        # An open gate is worth one rollout however small S is, as in ``state_score``.
        rounded = np.maximum(np.ceil(wanted - 1e-9), score > 0)
    count: NDArray[np.int64] = rounded.astype(np.int64)
    return count
