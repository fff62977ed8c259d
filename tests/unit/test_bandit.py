"""The bandit of the paper's theory: against eq. 1 and eq. 3 themselves, and against what can be computed by hand."""

import numpy as np
import pytest

from threespo.scoring.state import ScoreSettings, state_score
from threespo.theory import bandit
from threespo.theory.bandit import (
    DEPTH,
    MARKS,
    PROBABILITIES,
    VARIANTS,
    AllocationRule,
    regret_table,
    simulate_bandit,
)


@pytest.mark.parametrize("gate", [True, False])
def test_rollouts_are_those_of_the_score(gate):
    random = np.random.default_rng(0)
    tried = random.integers(0, 40, size=(200, 4)).astype(float)
    won = np.floor(tried * random.random((200, 4)) * random.integers(0, 2, size=(200, 4)))
    settings = ScoreSettings()
    count = bandit._allocate_rollouts(tried, won, AllocationRule(gate=gate), settings, random)
    wanted = [
        [
            state_score(total, wins, DEPTH, settings, gate).rollouts
            for total, wins in zip(*row, strict=True)
        ]
        for row in zip(tried, won, strict=True)
    ]
    assert count.tolist() == wanted
    assert 0 in count or not gate


def test_chance_rounds_to_the_score_on_average():
    settings = ScoreSettings(alpha=1.0)
    tried, won = np.full((20_000, 1), 10.0), np.full((20_000, 1), 6.0)
    count = bandit._allocate_rollouts(
        tried, won, AllocationRule(ceiling=False), settings, np.random.default_rng(0)
    )
    assert count.mean() == pytest.approx(8 * state_score(10, 6, DEPTH, settings).score, rel=0.01)


def test_with_the_ceiling_regret_is_at_least_linear():
    """Every open action has a rollout a round: R(I) >= I times the sum of the gaps, 1.2, and one full round more at most
    while nothing has succeeded."""
    curve = simulate_bandit(VARIANTS["without the gate"], 1000).regret
    gaps = sum(probability - PROBABILITIES[0] for probability in PROBABILITIES)
    rounds = np.arange(1, 1001)
    assert (curve >= gaps * rounds - 1e-9).all()
    assert curve[:, -1].max() < gaps * 1000 + 60
    assert (np.diff(curve, axis=1) >= 0).all()


def test_the_gate_gives_up_the_hardest_action():
    """It wins once in ten, which is zeta: in most seeds the gate closes on what the theory wants sampled most."""
    with_gate, without = (
        simulate_bandit(VARIANTS[name], 1000).rollouts[:, -1].mean()
        for name in ("as printed", "without the gate")
    )
    assert with_gate < 0.8 * without


def test_the_theorems_rule_hardly_samples_at_all():
    # With alpha = 2 log I / (0.2 log 2) an action won once in ten is worth 8 / I rollouts a round.
    curve = simulate_bandit(VARIANTS["the theorem's"], 10_000)
    assert curve.rollouts[:, -1].mean() < 100
    assert curve.regret[:, -1].mean() < 30


def test_the_table_is_the_same_every_time():
    first, second = regret_table(), regret_table()
    assert first.equals(second)
    assert len(first) == len(VARIANTS) * len(MARKS)
    assert (first["lowest"] <= first["mean"]).all()
    assert (first["mean"] <= first["highest"]).all()
