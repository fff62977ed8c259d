"""PPO: estimates against reference values and closed forms, and what it asks of its critic."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.toy import STATS, answer, common, make_task, start
from threespo.methods.gae import explained_variance, generalised_advantages, whiten_advantages
from threespo.methods.registry import make_method
from threespo.protocol import UpdateRequest, ValueRequest, ValueStats, ValueUpdateRequest
from threespo.verify import gae as reference

numbers = st.floats(-5, 5)


def test_reference_cases(golden):
    report = reference.verify(golden / "gae.jsonl.xz")
    assert (report.cases, report.mismatches) == (12, 0)


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=8), st.floats(0.5, 1), st.floats(0, 1))
def test_advantages_are_the_weighted_sum_of_temporal_differences(tokens, gamma, lam):
    rewards, values = (list(column) for column in zip(*tokens, strict=True))
    advantages, returns = generalised_advantages(rewards, values, gamma=gamma, lam=lam)
    following = [*values[1:], 0.0]
    deltas = [r + gamma * after - v for r, v, after in zip(rewards, values, following, strict=True)]
    for t, advantage in enumerate(advantages):
        expected = math.fsum((gamma * lam) ** (u - t) * deltas[u] for u in range(t, len(deltas)))
        assert advantage == pytest.approx(expected, abs=1e-9)
        assert returns[t] == pytest.approx(expected + values[t], abs=1e-9)


def test_a_tail_matters_to_the_last_return_unless_lambda_is_one():
    assert generalised_advantages([0.0, 10.0], [1.0, 2.0], lam=1.0, tail=4.0)[1] == [10.0, 10.0]
    assert generalised_advantages([10.0], [2.0], gamma=0.9, lam=0.5, tail=4.0)[1] == pytest.approx(
        [10.0 + 0.9 * 0.5 * 4.0]
    )


@given(st.lists(st.lists(numbers, min_size=1, max_size=5), min_size=2, max_size=5))
def test_whitening_leaves_mean_zero_and_variance_one(rows):
    flat = [value for row in whiten_advantages(rows) for value in row]
    assert math.fsum(flat) == pytest.approx(0.0, abs=1e-6)
    spread = max(value for row in rows for value in row) - min(value for row in rows for value in row)
    if spread > 0.1:
        assert math.fsum(value**2 for value in flat) / (len(flat) - 1) == pytest.approx(1.0, rel=1e-4)


def test_explained_variance_of_a_perfect_an_ignorant_and_a_wrong_critic():
    returns = [0.0, 10.0, 0.0, 10.0]
    assert explained_variance(returns, returns) == 1.0
    assert explained_variance([3.0] * 4, returns) == 0.0
    assert explained_variance([10.0, 0.0, 10.0, 0.0], returns) == -3.0
    assert math.isnan(explained_variance([1.0, 2.0], [5.0, 5.0]))


def test_every_token_is_compared_with_what_the_critic_expected():
    """Two one-step episodes, one won: with V = 4 before the won one's tokens and 1 before the other's, gamma = lambda = 1,
    the unwhitened advantages are 10 - 4 and 0 - 1, and every token's target is its episode's return."""
    method = make_method("ppo", {}, common(group_size=2, minibatch=1))
    steps = method.train_epoch(0, [start(make_task({"s1": {"win": "goal"}}, {"goal"}, "s1"), 1)])
    requests = next(steps)
    request = steps.send([[answer("win", tokens=2)], [answer("lose", tokens=3)]])
    assert [one.key for one in requests] == [("rollout", 0, 0, 0, 0), ("rollout", 0, 0, 1, 0)]
    assert isinstance(request, ValueRequest)
    assert [len(tokens) for _, tokens in request.responses] == [2, 3]

    critic = steps.send([[4.0, 4.0, 9.0], [1.0, 1.0, 1.0, 9.0]])
    assert isinstance(critic, ValueUpdateRequest)
    targets = {
        len(row.tokens): (row.old_values, row.returns) for batch in critic.batches for row in batch
    }
    assert targets == {2: ((4.0, 4.0), (10.0, 10.0)), 3: ((1.0,) * 3, (0.0,) * 3)}

    update = steps.send([ValueStats(1.0, 0.0, 1.0, 2), ValueStats(2.0, 0.5, 3.0, 3)])
    assert isinstance(update, UpdateRequest)
    advantages = {len(row.tokens): row.advantages for batch in update.batches for row in batch}
    expected = whiten_advantages([[6.0, 6.0], [-1.0] * 3])
    assert advantages == {2: pytest.approx(expected[0]), 3: pytest.approx(expected[1])}
    with pytest.raises(StopIteration) as end:
        steps.send([STATS] * 2)
    details = end.value.value.details
    assert details["critic_loss"] == pytest.approx((1.0 * 2 + 2.0 * 3) / 5)
    # Returns 10, 10, 0, 0, 0 have variance 24; the errors 6, 6, -1, -1, -1 have 11.76.
    assert details["explained_variance"] == pytest.approx(1 - 11.76 / 24)
