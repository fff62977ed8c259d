"""Eq. 1 to 3 against reference values, the paper's printed examples, and properties."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threespo.scoring.reward import group_advantages, novelty_weight, step_reward
from threespo.scoring.state import ScoreSettings, state_score
from threespo.scoring.table import StateTable
from threespo.verify import scoring


def test_reference_cases(golden):
    report = scoring.verify(golden / "threespo.jsonl.xz")
    assert (report.cases, report.mismatches) == (95, 0)


def test_pipeline_figure_allocates_two_rollouts_for_a_score_of_a_fifth():
    # S = 0.2 at G_max = 8 gives n = ceil(1.6) = 2 (fig:pipeline); lambda(2) = ln 2 / ln 2 here, p = -ln(0.2).
    settings = ScoreSettings(alpha=-math.log(0.2) / math.log(2))
    got = state_score(9, 9, 2, settings)
    assert got.score == pytest.approx(0.2, abs=1e-6)
    assert got.rollouts == 2


def test_unvisited_state_is_worth_all_rollouts():
    assert state_score(0, 0, 5, ScoreSettings()).rollouts == 8


def test_gate_closes_at_ten_failures_without_success_and_can_be_left_out():
    assert state_score(9, 0, 3, ScoreSettings()).rollouts == 8
    assert state_score(10, 0, 3, ScoreSettings()) == state_score(10, 0, 9, ScoreSettings())
    assert state_score(10, 0, 3, ScoreSettings()).rollouts == 0
    assert state_score(10, 0, 3, ScoreSettings(), gate=False).rollouts == 8


@given(
    n=st.integers(0, 200),
    share=st.floats(0, 1),
    depth=st.integers(1, 50),
    alpha=st.sampled_from([0.5, 1.0, 50.0, 70.0]),
)
def test_an_open_gate_always_leaves_a_rollout(n, share, depth, alpha):
    got = state_score(n, round(n * share), depth, ScoreSettings(alpha=alpha))
    assert 0 <= got.score <= 1
    assert (got.rollouts == 0) == got.gated
    assert got.gated or 1 <= got.rollouts <= 8


@given(k=st.integers(1, 100), depth=st.integers(2, 50), g=st.integers(1, 16))
def test_mastered_state_gains_no_rollout_from_rounding(k, depth, g):
    """At alpha = 1 a state that always succeeds has S = 1/t in the limit eps -> 0: n = ceil(G/t), in integers."""
    assert state_score(k, k, depth, ScoreSettings(alpha=1.0, g_max=g)).rollouts == -(-g // depth)


def test_printed_constants_make_the_score_three_valued():
    """With alpha = 50, xi = 10, zeta = 0.1 no reachable state beyond the root is worth 2 to 7 rollouts."""
    reachable = {
        state_score(n, k, depth, ScoreSettings()).rollouts
        for depth in range(2, 51)
        for n in range(100)
        for k in range(n + 1)
    }
    assert reachable == {0, 1, 8}


def test_reward_terms_balance():
    assert novelty_weight(0, 0.1) == 0.5
    assert step_reward(omega=0.5, novel=True, score=1, next_score=0, success=True).total == 1.0
    assert step_reward(omega=0.0, novel=True, score=1, next_score=0.25, success=False).total == 0.375


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=8))
def test_group_advantages_are_centred_and_order_free(rewards):
    got = group_advantages(rewards)
    if got is None:
        assert len(set(rewards)) == 1
        return
    assert math.isclose(math.fsum(got), 0, abs_tol=1e-6)
    assert group_advantages(rewards[::-1]) == got[::-1]


def test_counts_follow_the_rows_of_the_pipeline_figure():
    table = StateTable()
    for row, won in (("1265", 1), ("1268", 0), ("1375", 1), ("1375", 1), ("1376", 0)):
        table.add_path(tuple(row), bool(won))
    assert table.get("1") == (0, 0), "paths count from the next commit on"
    table.commit()
    assert {key: table.get(key) for key in "1238"} == {
        "1": (5, 3),
        "2": (2, 1),
        "3": (3, 2),
        "8": (1, 0),
    }
    assert StateTable.restore(table.dump()) == table


def test_decay_reopens_a_gate():
    table = StateTable({"dead": (10.0, 0.0)})
    assert state_score(*table.get("dead"), 4, ScoreSettings()).gated
    table.decay(0.9)
    assert not state_score(*table.get("dead"), 4, ScoreSettings()).gated
