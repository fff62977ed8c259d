"""Group estimators against reference values, closed forms and properties; and the rows that methods make of them."""

import itertools
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.toy import answer, common, drive, make_task, start
from threespo.errors import InputError
from threespo.methods.advantages import (
    Steps,
    discounted_returns,
    gigpo_advantages,
    grpo_advantages,
    hgpo_advantages,
    reinforce_pp_advantages,
    rloo_advantages,
)
from threespo.methods.registry import check_options, make_method
from threespo.protocol import UpdateRequest
from threespo.verify import advantages

EPISODE_METHODS = ("grpo", "rloo", "gigpo", "hgpo", "reinforce_pp")
ESTIMATORS = {
    "grpo": grpo_advantages,
    "rloo": rloo_advantages,
    "gigpo": gigpo_advantages,
    "hgpo": hgpo_advantages,
    "reinforce_pp": lambda group: reinforce_pp_advantages([group])[0],
}


def episode(scores, total, keys=None, gamma=1.0):
    rewards = [0.0] * (len(scores) - 1) + [total]
    returns = [
        g + score - total for g, score in zip(discounted_returns(rewards, gamma), scores, strict=True)
    ]
    return Steps(keys or [f"step {i}" for i in range(len(scores))], scores, returns, total)


@pytest.mark.parametrize(
    ("estimator", "cases"), [("grpo", 19), ("rloo", 12), ("gigpo", 22), ("hgpo", 27)]
)
def test_reference_cases(golden, estimator, cases):
    report = advantages.verify(golden / "advantages.jsonl.xz", only=estimator)
    assert (report.cases, report.mismatches) == (cases, 0)


def test_unknown_estimator_is_named(golden):
    with pytest.raises(InputError, match="--only magic"):
        advantages.verify(golden / "advantages.jsonl.xz", only="magic")


def test_rows_weigh_long_failures_more_than_trajectories_do():
    """4 wins of 12 steps and 4 losses of 50: +2.04/-0.49 over rows, +0.94/-0.94 over trajectories; likewise RLOO."""
    group = [episode([10.0] * 12, 10.0)] * 4 + [episode([0.0] * 50, 0.0)] * 4
    for estimator, rows, trajectories in (
        (grpo_advantages, (2.04, -0.49), (0.935, -0.935)),
        (rloo_advantages, (8.10, -1.94), (5.714, -5.714)),
    ):
        for population, expected in (("rows", rows), ("trajectories", trajectories)):
            got = estimator(group, population=population)
            assert (got[0][0], got[7][0]) == pytest.approx(expected, abs=6e-3)


def test_equal_returns_teach_nothing_but_the_penalties():
    group = [episode([0.0, -0.1], 0.0), episode([0.0, 0.0], 0.0)]
    assert grpo_advantages(group) == [[0.0, -0.1], [0.0, 0.0]]
    assert rloo_advantages([episode([10.0, 9.9], 10.0)]) == [[10.0, 9.9]], "alone: the return itself"
    for name in EPISODE_METHODS:
        even = [episode([0.0] * 3, 0.0), episode([0.0] * 2, 0.0)]
        assert list(itertools.chain(*ESTIMATORS[name](even))) == [0.0] * 5, name


def test_one_malformed_step_among_equal_failures_is_not_blown_up():
    """Eight lost episodes of 15 steps in one place: divided, it is 119 / sqrt(120) = 10.9 deviations below the rest."""
    keys, clean = ["here"] * 15, [0.0] * 15
    penalties = [0.1, *[0.0] * 14]
    scores = [-penalty for penalty in penalties]
    bad = Steps(keys, scores, scores, 0.0, penalties=penalties)
    group = [bad, *[Steps(keys, clean, clean, 0.0, penalties=clean)] * 7]
    rows = {name: ESTIMATORS[name](group, population="rows")[0][0] for name in ("gigpo", "hgpo")}
    below = {"gigpo": -2 * 119 / math.sqrt(120), "hgpo": -math.sqrt(119)}
    assert rows == pytest.approx(below, abs=0.01)
    for name in ("grpo", "gigpo", "hgpo"):
        assert -0.2 <= ESTIMATORS[name](group, population="trajectories")[0][0] <= -0.09, name


def test_discounted_returns_in_closed_form():
    assert discounted_returns([0.0, 0.0, 10.0], 0.95) == pytest.approx([10 * 0.95**2, 9.5, 10.0])
    assert discounted_returns([1.0, 1.0, 1.0], 1.0) == [3.0, 2.0, 1.0]


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=8))
def test_rloo_compares_with_the_mean_of_the_others(returns):
    got = rloo_advantages([episode([value], value) for value in returns])
    for place, ((value,), own) in enumerate(zip(got, returns, strict=True)):
        others = returns[:place] + returns[place + 1 :]
        assert value == pytest.approx(own - math.fsum(others) / len(others), abs=1e-9)


def test_gigpo_compares_steps_from_the_same_observation():
    """Two episodes share their first observation only; both differences from the mean are half the gap of returns."""
    group = [
        episode([10.0, 10.0], 10.0, ["start", "left"], 0.5),
        episode([0.0, 0.0], 0.0, ["start", "right"], 0.5),
    ]
    whole = grpo_advantages(group, normalise=False)
    got = gigpo_advantages(group, normalise=False)
    assert [one[0] - other[0] for one, other in zip(got, whole, strict=True)] == pytest.approx(
        [2.5, -2.5]
    )
    assert [one[1] - other[1] for one, other in zip(got, whole, strict=True)] == [0.0, 0.0]


def test_hgpo_weighs_longer_matches_more():
    """Level 1 compares all four steps at "b" (returns 10, 10, 0, 4), level 2 those that came by the same way."""
    group = [
        episode([10.0, 10.0], 10.0, ["a", "b"]), episode([0.0, 0.0], 0.0, ["a", "b"]),
        episode([10.0, 10.0], 10.0, ["c", "b"]), episode([4.0, 4.0], 4.0, ["c", "b"]),
    ]  # fmt: skip
    got = [values[1] for values in hgpo_advantages(group, normalise=False, history=1)]
    level_one, level_two = (4.0, -6.0, 4.0, -2.0), (5.0, -5.0, 3.0, -3.0)
    assert got == pytest.approx(
        [(2 * x + 3 * y) / 5 for x, y in zip(level_one, level_two, strict=True)], rel=1e-6
    )


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
    method = make_method(name, {}, common(group_size=4, minibatch=16))
    asked = []

    def choose(request):
        asked.append(request.key)
        node = request.prompt.split("current observation is: ")[1].split("\n")[0]
        if node == "s1":
            action = "ab"[request.key[3] % 2]
            return [answer(action, tokens=3 if action == "a" else 4)]
        return [answer("win" if node == "s2" else "stay")]

    result, updates, _ = drive(method.train_epoch(3, [start(task, 4) for task in tasks]), choose)
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
        steps = method.train_epoch(0, [start(make_task(graph, set(), "s1"), 1)])
        _, updates, _ = drive(
            steps, lambda request, given=actions: [answer(next(given)) for _ in range(request.count)]
        )
        plain = make_method(name, {}, common(group_size=2))
        actions = iter(["a", "nonsense"] * 2)
        steps = plain.train_epoch(0, [start(make_task(graph, set(), "s1"), 1)])
        _, expected, _ = drive(
            steps, lambda request, given=actions: [answer(next(given)) for _ in range(request.count)]
        )
        got = sorted(row.advantages[0] for update in updates for row in update)
        want = sorted(row.advantages[0] for update in expected for row in update)
        assert sum(want) - sum(got) == pytest.approx(0.2), name


def test_reinforce_pp_normalises_over_the_whole_epoch():
    """Two groups of equal returns each teach GRPO nothing; over the epoch they are 10, 10 and 0, 0."""
    groups = [[episode([10.0] * 2, 10.0)] * 2, [episode([0.0] * 3, 0.0)] * 2]
    assert [grpo_advantages(group)[0][0] for group in groups] == [0.0, 0.0]
    std = math.sqrt(100 / 3)
    got = reinforce_pp_advantages(groups)
    assert got[0] == [pytest.approx([5 / std] * 2)] * 2
    assert got[1] == [pytest.approx([-5 / std] * 3)] * 2


def test_reinforce_pp_over_rows_counts_tokens():
    """One token of 10 and three of 2: mean 4, variance (36 + 3 x 4) / 3 = 16."""
    groups = [[Steps(["a"], [10.0], [10.0], 10.0, [1])], [Steps(["a"], [2.0], [2.0], 2.0, [3])]]
    assert reinforce_pp_advantages(groups, population="rows") == [
        [[pytest.approx(1.5)]],
        [[pytest.approx(-0.5)]],
    ]


def win_or_lose(wins):
    """Answer the episodes of a one-step task: those in ``wins``, by (epoch, member), win."""
    return lambda request: [answer("win" if (request.key[1], request.key[3]) in wins else "lose")]


def test_dapo_waits_for_groups_that_teach_and_clips_higher():
    task = make_task({"s1": {"win": "goal"}}, {"goal"}, "s1")
    two = [start(task, 1), start(task, 1)]
    settings = common(group_size=2)
    method = make_method("dapo", {}, settings)
    _, updates, _ = drive(method.train_epoch(0, two), win_or_lose({(0, 0)}))
    assert [len(batch) for batch in updates] == [4], "both groups are mixed"
    for number, wins in ((1, set()), (2, {(2, 0), (2, 1)})):
        result, updates, _ = drive(method.train_epoch(number, two), win_or_lose(wins))
        assert updates == [], "all lost, all won"
        assert result.details["waiting_groups"] == 0.0
    _, updates, _ = drive(method.train_epoch(3, two[:1]), win_or_lose({(3, 1)}))
    assert [sorted(row.advantages[0] > 0 for row in batch) for batch in updates] == [[False, True]]
    request = next_update(method.train_epoch(4, two), win_or_lose({(4, 0)}))
    assert (request.loss.clip_low, request.loss.clip_high) == (0.2, 0.28)
    assert request.loss.kl_coef == settings.kl_coef > 0
    free = make_method("dapo", {"kl": False}, settings)
    assert next_update(free.train_epoch(0, two), win_or_lose({(0, 0)})).loss.kl_coef == 0.0


def test_dapo_does_not_wait_for_ever():
    """Three epochs at most: whatever waits then is trained on, and the count begins anew, also where nothing waited."""
    task = make_task({"s1": {"win": "goal"}}, {"goal"}, "s1")
    two = [start(task, 1)] * 2
    one_of_two = lambda request: [answer("win" if request.key[2:4] == (0, 0) else "lose")]  # noqa: E731
    method = make_method("dapo", {"most_epochs": 3}, common(group_size=2))
    lost = win_or_lose(set())
    sizes = []
    for number, choose in enumerate([one_of_two, lost, lost, lost, lost, lost, one_of_two, lost, lost]):
        _, updates, _ = drive(method.train_epoch(number, two), choose)
        sizes.append(sum(map(len, updates)))
    assert sizes == [0, 0, 2, 0, 0, 0, 0, 0, 2]


def test_dapo_remembers_what_waits():
    task = make_task({"s1": {"win": "goal"}}, {"goal"}, "s1")
    one, two = [start(task, 1)], [start(task, 1)] * 2
    half = lambda request: [answer("win" if request.key[2:4] == (0, 0) else "lose")]  # noqa: E731
    method, copy = (make_method("dapo", {}, common(group_size=2)) for _ in range(2))
    _, updates, _ = drive(method.train_epoch(0, two), half)
    assert updates == []
    copy.restore(json.loads(json.dumps(method.dump())))
    (_, first, _), (_, second, _) = (drive(each.train_epoch(1, one), half) for each in (method, copy))
    assert first == second
    assert len(first[0]) == 4, "the waiting group and the new one"


def next_update(steps, choose):
    reply = None
    while not isinstance(request := steps.send(reply), UpdateRequest):
        reply = [choose(one) for one in request]
    return request


@pytest.mark.parametrize("name", ["grpo", "threespo"])
def test_states_are_measured_alike_and_change_nothing(name):
    """Epoch 0 visits s1 only with N = 0, so S = 1; then s1 at depth 1 has S = 1 still (ln 1 = 0), s2 at depth 2 is solved:
    S = 2^-50."""
    task = make_task({"s1": {"a": "s2"}, "s2": {"win": "s3"}}, {"s3"}, "s1")
    method = make_method(name, {}, common(group_size=2))
    choose = lambda request: [answer("a" if "is: s1" in request.prompt else "win")] * request.count  # noqa: E731
    first, _, _ = drive(method.train_epoch(0, [start(task)]), choose)
    assert (first.details["state_known"], first.details["state_score_visits"]) == (3.0, 1.0)
    assert first.details["state_visited"] == 2.0
    assert first.details["state_visits"] == first.env_steps == 4.0, (
        "a visit is a response, in every method"
    )
    copy = make_method(name, {}, common(group_size=2))
    copy.restore(json.loads(json.dumps(method.dump())))
    second, _, _ = drive(method.train_epoch(1, [start(task)]), choose)
    again, _, _ = drive(copy.train_epoch(1, [start(task)]), choose)
    assert second.details == again.details
    assert second.details["state_high_unique"] == 0.5
    assert second.details["state_score_unique"] == pytest.approx((1 + 2.0**-50) / 2)


def test_misspelt_option_is_named():
    with pytest.raises(ValueError, match=r"options\.normalize"):
        check_options("grpo", {"normalize": True})
    with pytest.raises(
        ValueError, match="no method 'grop'; there are: ppo, grpo, rloo, gigpo, hgpo, dapo"
    ):
        check_options("grop", {})
