"""VinePPO: values are means of forked episodes, and advantages their differences along the way."""

import pytest

from tests.toy import answer, common, drive, make_task, start
from threespo.methods.registry import make_method

GRAPH = {"s1": {"a": "s2"}, "s2": {"win": "goal"}}


def run(method, script, episodes):
    """Answer from ``script`` by the request's key; return the updates, all requests and the result."""
    result, updates, batches = drive(
        method.train_epoch(0, episodes), lambda request: [answer(script(request.key))]
    )
    return updates, [request for batch in batches for request in batch], result


def test_advantages_are_differences_of_forked_values():
    """Step 1 leads to s2, step 2 wins. Of two forks from s1 one wins (V = 5), of two from s2 both (V = 10):
    the advantages are 10 - 5 and 10 - 10."""

    def script(key):
        stream, _, slot, member, step = key
        if stream == "fork" and slot == 0 and member == 1:
            return "lose"
        return "a" if step == 0 else "win"

    method = make_method("vine", {"forks": 2, "whiten": False}, common())
    updates, asked, result = run(method, script, [start(make_task(GRAPH, {"goal"}, "s1"), 2)])
    rows = sorted((row for batch in updates for row in batch), key=lambda row: len(row.prompt))
    assert [row.advantages[0] for row in rows] == [5.0, 0.0]
    assert len({request.key for request in asked}) == len(asked)
    # One episode of two steps, two forks of two from its first state and two of one from its second.
    assert result.env_steps == 2 + 2 * 2 + 2 * 1
    assert result.details["valued_states"] == 2.0


def test_states_with_one_history_are_valued_once():
    """Two episodes go the same way: two states, not four, are forked from."""
    script = lambda key: "a" if key[-1] == 0 else "win" if key[3] == 0 else "lose"  # noqa: E731
    method = make_method("vine", {"forks": 1, "episodes": 2}, common())
    _, _, result = run(method, script, [start(make_task(GRAPH, {"goal"}, "s1"), 2)])
    assert result.details["valued_states"] == 2.0


def test_whitened_advantages_have_unit_variance():
    script = lambda key: "a" if key[-1] == 0 else "win" if key[0] == "rollout" else "lose"  # noqa: E731
    method = make_method("vine", {"forks": 1}, common())
    updates, _, _ = run(method, script, [start(make_task(GRAPH, {"goal"}, "s1"), 2)])
    values = [row.advantages[0] for batch in updates for row in batch]
    assert sum(values) == pytest.approx(0.0, abs=1e-6)
    assert sum(value**2 for value in values) == pytest.approx(1.0, rel=1e-3)
