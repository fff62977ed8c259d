"""Tree-GRPO: branches continue from their own step, and returns are compared within and between trees."""

import math

import pytest

from tests.toy import common, make_task, start
from tests.unit.test_vine import run as play
from threespo.methods.registry import make_method

GRAPH = {"s1": {"a": "s2"}, "s2": {"win": "goal", "lose": "s3"}, "s3": {"win": "goal"}}


def run(method, script, max_steps=2):
    return play(method, script, [start(make_task(GRAPH, {"goal"}, "s1"), max_steps)])


def script(key):
    """Two trees: the first begins with a loss and branches to a win, the second wins twice."""
    stream, _, slot, member, step = key
    if step == 0:
        return "a"
    return "lose" if (stream, slot, member) == ("rollout", 0, 0) else "win"


def test_a_branch_shares_the_steps_before_it_and_continues_from_there():
    method = make_method("tree_grpo", {"trees": 2}, common())
    updates, asked, result = run(method, script)
    assert result.details["branches"] == 2.0
    # Two episodes of two steps, and a branch of each from its second step: six responses, not eight.
    assert (len(asked), result.env_steps, result.completed_paths) == (6, 6, 4)
    branches = [request for request in asked if request.key[0] == "branch 0"]
    assert all("Observation 1: 's1', Action 1: 'a'" in request.prompt for request in branches)
    assert len({request.key for request in asked}) == 6
    assert sum(len(batch) for batch in updates) == 4 * 2, "shared steps are rows of each episode"


def test_advantages_are_those_within_the_tree_plus_those_of_the_task():
    """Returns 0, 10 in the first tree, 10, 10 in the second. Within: -+5 / std(0, 10), and 0; among all four: mean 7.5."""
    method = make_method("tree_grpo", {"trees": 2}, common())
    updates, _, _ = run(method, script)
    within, among = 5 / math.sqrt(50), math.sqrt((7.5**2 + 3 * 2.5**2) / 3)
    lost, won_there, won_elsewhere = -within - 7.5 / among, within + 2.5 / among, 2.5 / among
    got = sorted(row.advantages[0] for batch in updates for row in batch)
    assert got == pytest.approx(sorted([lost] * 2 + [won_there] * 2 + [won_elsewhere] * 4), abs=1e-5)


def test_one_step_episodes_have_no_node_to_branch_from():
    method = make_method("tree_grpo", {"trees": 2, "rounds": 3}, common())
    updates, asked, result = run(method, lambda key: "win", max_steps=1)
    assert result.details["branches"] == 0.0
    assert len(asked) == 2
    assert {row.advantages[0] for batch in updates for row in batch} == {0.0}


def test_later_rounds_can_branch_from_branches():
    method = make_method("tree_grpo", {"trees": 1, "branches": 2, "rounds": 3}, common(seed=4))
    _, asked, result = run(method, lambda key: "a" if key[-1] == 0 else "lose", max_steps=6)
    assert result.details["branches"] == 6.0
    assert {request.key[0] for request in asked} == {"rollout", "branch 0", "branch 1", "branch 2"}
    assert result.completed_paths == 7
