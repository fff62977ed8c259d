"""Group estimators against reference values, closed forms and properties; and the rows that methods make of them."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.toy import answer, common, drive, make_task, start
from threespo.errors import InputError
from threespo.methods.advantages import Steps, discounted, gigpo, grpo, hgpo, rloo
from threespo.methods.registry import check_options, make_method
from threespo.verify import advantages

EPISODE_METHODS = ("grpo", "rloo", "gigpo", "hgpo")
ESTIMATORS = {"grpo": grpo, "rloo": rloo, "gigpo": gigpo, "hgpo": hgpo}


def episode(scores, total, keys=None, gamma=1.0):
    rewards = [0.0] * (len(scores) - 1) + [total]
    returns = [g + score - total for g, score in zip(discounted(rewards, gamma), scores, strict=True)]
    return Steps(keys or [f"step {i}" for i in range(len(scores))], scores, returns, total)


@pytest.mark.parametrize(("estimator", "cases"), [("grpo", 19), ("rloo", 12), ("gigpo", 22), ("hgpo", 27)])
def test_reference_cases(golden, estimator, cases):
    report = advantages.verify(golden / "advantages.jsonl.xz", only=estimator)
    assert (report.cases, report.mismatches) == (cases, 0)


def test_unknown_estimator_is_named(golden):
    with pytest.raises(InputError, match="--only magic"):
        advantages.verify(golden / "advantages.jsonl.xz", only="magic")


def test_rows_weigh_long_failures_more_than_trajectories_do():
    """4 wins of 12 steps and 4 losses of 50: +2.04/-0.49 over rows, +0.94/-0.94 over trajectories; likewise RLOO."""
    group = [episode([10.0] * 12, 10.0)] * 4 + [episode([0.0] * 50, 0.0)] * 4
    for estimator, rows, trajectories in ((grpo, (2.04, -0.49), (0.935, -0.935)), (rloo, (8.10, -1.94), (5.714, -5.714))):
        for population, expected in (("rows", rows), ("trajectories", trajectories)):
            got = estimator(group, population=population)
            assert (got[0][0], got[7][0]) == pytest.approx(expected, abs=6e-3)


def test_equal_returns_teach_nothing_but_the_penalties():
    group = [episode([0.0, -0.1], 0.0), episode([0.0, 0.0], 0.0)]
    assert grpo(group) == [[0.0, -0.1], [0.0, 0.0]]
    assert rloo([episode([10.0, 9.9], 10.0)]) == [[10.0, 9.9]], "alone: the return itself"
    for name in EPISODE_METHODS:
        even = [episode([0.0] * 3, 0.0), episode([0.0] * 2, 0.0)]
        assert list(itertools.chain(*ESTIMATORS[name](even))) == [0.0] * 5, name


def test_discounted_returns_in_closed_form():
    assert discounted([0.0, 0.0, 10.0], 0.95) == pytest.approx([10 * 0.95**2, 9.5, 10.0])
    assert discounted([1.0, 1.0, 1.0], 1.0) == [3.0, 2.0, 1.0]


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=8))
def test_rloo_compares_with_the_mean_of_the_others(returns):
    got = rloo([episode([value], value) for value in returns])
    for place, ((value,), own) in enumerate(zip(got, returns, strict=True)):
        others = returns[:place] + returns[place + 1 :]
        assert value == pytest.approx(own - math.fsum(others) / len(others), abs=1e-9)


def test_gigpo_compares_steps_from_the_same_observation():
    """Two episodes share their first observation only; both differences from the mean are half the gap of returns."""
    group = [episode([10.0, 10.0], 10.0, ["start", "left"], 0.5), episode([0.0, 0.0], 0.0, ["start", "right"], 0.5)]
    whole = grpo(group, normalise=False)
    got = gigpo(group, normalise=False)
    assert [one[0] - other[0] for one, other in zip(got, whole, strict=True)] == pytest.approx([2.5, -2.5])
    assert [one[1] - other[1] for one, other in zip(got, whole, strict=True)] == [0.0, 0.0]


def test_hgpo_weighs_longer_matches_more():
    """Level 1 compares all four steps at "b" (returns 10, 10, 0, 4), level 2 those that came by the same way."""
    group = [
        episode([10.0, 10.0], 10.0, ["a", "b"]), episode([0.0, 0.0], 0.0, ["a", "b"]),
        episode([10.0, 10.0], 10.0, ["c", "b"]), episode([4.0, 4.0], 4.0, ["c", "b"]),
    ]  # fmt: skip
    got = [values[1] for values in hgpo(group, normalise=False, history=1)]
    level_one, level_two = (4.0, -6.0, 4.0, -2.0), (5.0, -5.0, 3.0, -3.0)
    assert got == pytest.approx([(2 * x + 3 * y) / 5 for x, y in zip(level_one, level_two, strict=True)], rel=1e-6)


@pytest.mark.parametrize("name", EPISODE_METHODS)
@given(returns=st.lists(st.sampled_from([0.0, 10.0]), min_size=2, max_size=8), rng=st.randoms())
def test_advantages_follow_their_trajectory_under_permutation(name, returns, rng):
    keys = [[rng.choice("abc") for _ in range(3)] for _ in returns]
    group = [episode([value] * 3, value, key, 0.9) for value, key in zip(returns, keys, strict=True)]
    order = list(range(len(returns)))
    rng.shuffle(order)
    plain, moved = ESTIMATORS[name](group), ESTIMATORS[name]([group[i] for i in order])
    for place, index in enumerate(order):
        assert moved[place] == pytest.approx(plain[index], abs=1e-12)


@pytest.mark.parametrize("name", EPISODE_METHODS)
def test_group_methods_play_groups_and_update_on_every_step(name):
    graph = {"s1": {"a": "s2", "b": "s3"}, "s2": {"win": "s4"}, "s3": {"stay": "s3"}}
    tasks = [make_task(graph, {"s4"}, "s1", name) for name in ("one", "two")]
    method = make_method(name, {"minibatch": 16}, common(group_size=4))
    asked = []

    def choose(request):
        asked.append(request.key)
        node = request.prompt.split("current observation is: ")[1].split("\n")[0]
        if node == "s1":
            action = "ab"[request.key[3] % 2]
            return [answer(action, tokens=3 if action == "a" else 4)]
        return [answer("win" if node == "s2" else "stay")]

    result, updates, _ = drive(method.epoch(3, [start(task, 4) for task in tasks]), choose)
    assert (result.completed_paths, result.successes) == (8, 4)
    assert result.env_steps == 2 * (2 * 2 + 2 * 4)
    assert len(set(asked)) == len(asked), "every draw has its own counters"
    assert sum(len(update) for update in updates) == result.env_steps
    assert len(updates) == round(result.env_steps / 16)
    first = [row for update in updates for row in update if "is: s1" in row.prompt]
    # "a" (three tokens) leads to success, "b" (four) does not.
    assert {(len(row.tokens), row.advantages[0] > 0) for row in first} == {(3, True), (4, False)}


def test_inadmissible_actions_cost_the_same_in_every_method():
    graph = {"s1": {"a": "s2"}}
    for name in (*EPISODE_METHODS, "threespo"):
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
    with pytest.raises(ValueError, match="no method 'grop'; there are: grpo, rloo, gigpo, hgpo, threespo"):
        check_options("grop", {})
