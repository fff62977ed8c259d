"""GRPO against reference values, closed forms and properties; and the method's rows."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.toy import answer, common, drive, make_task, start
from threespo.errors import InputError
from threespo.methods.advantages import grpo
from threespo.methods.grpo import Grpo, GrpoOptions
from threespo.methods.registry import check_options
from threespo.verify import advantages


def test_reference_cases(golden):
    report = advantages.verify(golden / "advantages.jsonl.xz", only="grpo")
    assert (report.cases, report.mismatches) == (19, 0)


def test_unknown_estimator_is_named(golden):
    with pytest.raises(InputError, match="--only magic"):
        advantages.verify(golden / "advantages.jsonl.xz", only="magic")


def test_rows_weigh_long_failures_more_than_trajectories_do():
    """4 wins of 12 steps and 4 losses of 50: +2.04/-0.49 over rows, +0.94/-0.94 over trajectories."""
    scores = [[10.0] * 12] * 4 + [[0.0] * 50] * 4
    rows = grpo(scores, population="rows")
    ours = grpo(scores, returns=[10.0] * 4 + [0.0] * 4)
    assert (rows[0][0], rows[7][0]) == (pytest.approx(2.04, abs=5e-3), pytest.approx(-0.49, abs=5e-3))
    assert (ours[0][0], ours[7][0]) == (pytest.approx(0.935, abs=1e-3), pytest.approx(-0.935, abs=1e-3))


def test_equal_returns_teach_nothing_but_the_penalties():
    got = grpo([[0.0, -0.1], [0.0, 0.0]], returns=[0.0, 0.0])
    assert got == [[0.0, -0.1], [0.0, 0.0]]


@given(st.lists(st.sampled_from([0.0, 10.0]), min_size=2, max_size=8), st.randoms())
def test_advantages_follow_their_trajectory_under_permutation(returns, rng):
    order = list(range(len(returns)))
    rng.shuffle(order)
    plain = grpo([[value] for value in returns], returns=returns)
    moved = grpo([[returns[i]] for i in order], returns=[returns[i] for i in order])
    assert [plain[i] for i in order] == moved
    assert math.isclose(math.fsum(row[0] for row in plain), 0, abs_tol=1e-9)


def test_grpo_plays_groups_and_updates_on_every_step():
    graph = {"s1": {"a": "s2", "b": "s3"}, "s2": {"win": "s4"}, "s3": {"stay": "s3"}}
    tasks = [make_task(graph, {"s4"}, "s1", name) for name in ("one", "two")]
    method = Grpo(GrpoOptions(minibatch=16), common(group_size=4))
    asked = []

    def choose(request):
        asked.append(request.key)
        node = request.prompt.split("current observation is: ")[1].split("\n")[0]
        if node == "s1":
            return [answer("ab"[request.key[3] % 2])]
        return [answer("win" if node == "s2" else "stay")]

    result, updates, _ = drive(method.epoch(3, [start(task, 4) for task in tasks]), choose)
    assert (result.completed_paths, result.successes) == (8, 4)
    assert result.env_steps == 2 * (2 * 2 + 2 * 4)
    assert len(set(asked)) == len(asked), "every draw has its own counters"
    assert sum(len(update) for update in updates) == result.env_steps
    assert len(updates) == round(result.env_steps / 16)
    signs = {row.advantages[0] > 0 for update in updates for row in update if "stay" in row.prompt}
    assert signs == {False}, "steps of failed episodes are pushed down"


def test_inadmissible_actions_cost_the_same_in_every_method():
    graph = {"s1": {"a": "s2"}}
    for name in ("grpo", "threespo"):
        from threespo.methods.registry import make_method

        method = make_method(name, {}, common(group_size=2, inadmissible_penalty=0.2))
        actions = iter(["a", "nonsense"] * 2)
        steps = method.epoch(0, [start(make_task(graph, set(), "s1"), 1)])
        _, updates, _ = drive(steps, lambda request, given=actions: [answer(next(given)) for _ in range(request.count)])
        plain = make_method(name, {}, common(group_size=2))
        actions = iter(["a", "nonsense"] * 2)
        steps = plain.epoch(0, [start(make_task(graph, set(), "s1"), 1)])
        _, expected, _ = drive(steps, lambda request, given=actions: [answer(next(given)) for _ in range(request.count)])
        got = sorted(row.advantages[0] for update in updates for row in update)
        want = sorted(row.advantages[0] for update in expected for row in update)
        assert sum(want) - sum(got) == pytest.approx(0.2), name


def test_misspelt_option_is_named():
    with pytest.raises(ValueError, match=r"options\.sucess_reward"):
        check_options("grpo", {"sucess_reward": 1})
    with pytest.raises(ValueError, match="no method 'grop'; there are: grpo, threespo"):
        check_options("grop", {})
