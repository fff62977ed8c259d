"""The preset `authors-gui`: every term of the authors' own loop, by hand, and a search in an embedded game."""

import json
import math
import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.toy import ToyEnv, answer, common, drive, make_task, start
from tests.unit.test_search import cycle_all, observed
from threespo.envs.alfworld import Alfworld, compile_game
from threespo.envs.alfworld.embedded import generate_games
from threespo.envs.base import Transition
from threespo.envs.episode import EpisodeSetup, respond, start_episode
from threespo.methods.registry import check_options, full_options, job_options
from threespo.methods.scorer import Node
from threespo.methods.threespo import Threespo
from threespo.methods.threespo_options import ThreespoOptions
from threespo.protocol import Sample, UpdateRequest
from threespo.scoring.authors_gui import annealing_by_ticks, sigmoid_rollouts

SCORES = {"bad": 0.04, "fair": 0.3, "goal": 1.0}
"""Nodes at which a sale ends the episode, with what it is worth."""

SHOP = {
    "s1": {"a": "s2", "bad": "bad", "fair": "fair", "stay": "s1", "win": "goal"},
    "s2": {"a": "s1", "stay": "s2"},
}

GOOD = "<think>x</think><action>{}</action>"
MALFORMED = "<action>{}</action>"


@dataclass(frozen=True)
class SalesEnv(ToyEnv):
    """A graph in which some nodes are sales, as in a shop: any of them ends the episode, with a score of its own."""

    scores: dict[str, float] = field(default_factory=lambda: dict(SCORES))

    def step(self, state, action):
        plain = super().step(state, action)
        score = self.scores.get(plain.state.node, 0.0)
        return Transition(plain.state, plain.observation, score, score == 1.0, score > 0)


def at_shop(max_steps=9):
    return start_episode(EpisodeSetup(SalesEnv(), max_steps, 2), make_task(SHOP, {"goal"}, "s1"))


def authors_loop(counts=None, ticks=0, **options):
    shared = options.pop("common", common())
    method = Threespo(ThreespoOptions(preset="authors-gui", **options), shared)
    method.table.counts.update(counts or {})
    method.ticks.count = ticks
    return method


def score_of(counts, ticks=0):
    method = authors_loop({"s1": counts}, ticks)
    return method.scorer_at_epoch(0).score(Node(at_shop(), ("s1",)))


def terms_of(text, *, counts=None, ticks=0, first=(), max_steps=9):
    """Return the terms of eq. 2 for one response, after the actions ``first``."""
    scorer = authors_loop(counts, ticks).scorer_at_epoch(0)
    node = Node(at_shop(max_steps), ("s1",))
    for action in first:
        after = respond(node.episode, GOOD.format(action)).episode
        node = Node(after, (*node.path, scorer.state_key(after)))
    outcome = respond(node.episode, text)
    child = Node(outcome.episode, (*node.path, scorer.state_key(outcome.episode)))
    return scorer.compute_reward(node, scorer.score(node), child, outcome.valid)


def test_four_samples_below_a_score_of_0_51_and_five_above():
    assert [sigmoid_rollouts(score, 8) for score in (0.0, 0.3, 0.51, 0.511, 0.9, 1.0)] == [
        4,
        4,
        4,
        5,
        5,
        5,
    ]
    # 8 sigmoid(S) = 5 at S = ln(5/3).
    edge = math.log(5 / 3)
    assert (sigmoid_rollouts(edge - 1e-9, 8), sigmoid_rollouts(edge + 1e-9, 8)) == (4, 5)
    assert sigmoid_rollouts(0.0, 1) == 1


@given(score=st.floats(0, 1), g_max=st.integers(1, 64))
def test_every_state_has_at_least_half_of_g_and_less_than_three_quarters(score, g_max):
    assert max(1, g_max // 2) <= sigmoid_rollouts(score, g_max) <= max(1, 0.732 * g_max)


def test_lambda_grows_by_a_ten_thousandth_a_tick_and_is_0_095_after_a_thousand():
    assert annealing_by_ticks(0, 0.1) == 0
    assert annealing_by_ticks(1, 0.1) == pytest.approx(0.0001, rel=1e-4)
    assert annealing_by_ticks(1000, 0.1) == pytest.approx(0.0951626, rel=1e-6)
    assert annealing_by_ticks(10**7, 0.1) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("counts", "ticks", "score", "samples"),
    [
        ((0.0, 0.0), 0, 1.0, 5),
        ((10.0, 6.0), 0, 1.0, 5),
        ((10.0, 6.0), 1000, math.exp(-0.0951626 * 0.6), 5),
        ((7.0, 0.0), 1000, 1.0, 5),
        # Eight failures are enough, be the success rate 0 or 92 %.
        ((8.0, 0.0), 1000, 0.0, 4),
        ((100.0, 92.0), 1000, 0.0, 4),
        ((100.0, 93.0), 1000, math.exp(-0.0951626 * 0.93), 5),
        # After 15,000 ticks lambda is 0.777, and a mastered state is below 0.51.
        ((100.0, 100.0), 15_000, math.exp(-0.776870), 4),
    ],
)
def test_score_gate_and_samples_of_a_state(counts, ticks, score, samples):
    found = score_of(counts, ticks)
    assert found.score == pytest.approx(score, abs=1e-6)
    assert (found.rollouts, found.gated) == (samples, score == 0)


@pytest.mark.parametrize(("paths", "weight"), [(0, 0.5), (1, 0.1839397), (2, 0.0676676), (3, 0.0248935)])
def test_novelty_is_worth_little_from_the_third_path_on(paths, weight):
    terms = terms_of(GOOD.format("a"), counts={"s1": (float(paths), float(paths))})
    assert terms.novelty == pytest.approx(weight, abs=1e-7)


def test_novel_is_any_other_observation_than_the_last_one():
    assert terms_of(GOOD.format("a")).novelty == 0.5
    assert terms_of(GOOD.format("stay")).novelty == 0.0
    assert terms_of(GOOD.format("a"), first=["a"]).novelty == 0.5, (
        "s1 is on the path, and not the last one"
    )


@pytest.mark.parametrize(
    ("text", "success"),
    [
        (GOOD.format("a"), 0.25),
        (MALFORMED.format("a"), 0.0),
        (GOOD.format("fair"), 0.5 * (0.3 + 0.5)),
        (MALFORMED.format("fair"), 0.5 * 0.3),
        (GOOD.format("bad"), 0.5 * (0.04 + 0.5)),
        (GOOD.format("win"), 0.75),
        (MALFORMED.format("win"), 0.5),
    ],
)
def test_success_is_the_evaluation_at_the_end_and_good_form_at_every_step(text, success):
    assert terms_of(text).success == pytest.approx(success)


def test_an_episode_that_is_cut_has_the_evaluation_of_its_end():
    assert terms_of(GOOD.format("a"), max_steps=1).success == 0.25
    assert terms_of(GOOD.format("fair"), max_steps=1).success == pytest.approx(0.4)


def test_a_gated_next_state_is_worth_nothing_in_the_difference():
    known = {"s1": (2.0, 1.0), "s2": (20.0, 12.0)}
    score = math.exp(-0.0951626 * 0.5)
    found = terms_of(GOOD.format("a"), counts=known, ticks=1000)
    assert found.difference == pytest.approx((0.5 - 0.0676676) * score, abs=1e-6)


def test_malformed_responses_lose_what_good_form_earns_and_nothing_else():
    method = authors_loop(common=common(invalid_penalty=0.1), normalise=False)

    def choose(request):
        malformed = Sample((0,), (-1.0,), MALFORMED.format("a"), True, 0)
        return [malformed, *[answer("a")] * (request.count - 1)]

    steps = method.train_epoch(0, [start_episode(EpisodeSetup(SalesEnv(), 1, 2), at_shop().task)])
    _, updates, _ = drive(steps, choose)
    (rows,) = updates
    # Five samples: 0 against 0.25 four times, all else alike; the mean is 0.2.
    assert [row.advantages[0] for row in rows] == pytest.approx([-0.2, *[0.05] * 4])


def test_counts_are_of_paths_that_ended_and_of_every_visit():
    """Of five samples in s1 four stay there and one wins; there are two steps."""
    graph = {"s1": {"stay": "s1", "win": "goal"}}
    method = authors_loop(max_generations_per_task=100)

    def choose(request):
        return [*[answer("stay")] * (request.count - 1), answer("win")]

    result, _, batches = drive(
        method.train_epoch(0, [start(make_task(graph, {"goal"}, "s1"), 2)]), choose
    )
    # Duplicates are tried each for itself: the root, and the four states in which it stayed.
    assert [request.count for batch in batches for request in batch] == [5] * 5
    # (s1, goal) once, (s1, s1, goal) four times; the sixteen that stay a second time are cut.
    assert method.table.counts == {"s1": (9.0, 9.0), "goal": (5.0, 5.0)}
    assert (result.completed_paths, result.successes, method.table.paths) == (1 + 4 * 5, 5, 5)


def test_a_sale_above_a_twentieth_counts_as_a_success():
    method = authors_loop(max_generations_per_task=5)

    def choose(request):
        return [answer(action) for action in ("bad", "fair", "win", "bad", "fair")]

    drive(method.train_epoch(0, [at_shop()]), choose)
    assert method.table.counts == {"s1": (5, 3), "bad": (2, 0), "fair": (2, 2), "goal": (1, 1)}


def test_one_update_a_tick_on_all_tasks_with_the_authors_loss():
    tasks = [make_task(SHOP, {"goal"}, "s1", name) for name in ("one", "two")]
    method = authors_loop(common=common(kl_coef=0.01), max_generations_per_task=10)
    steps = method.train_epoch(
        0, [start_episode(EpisodeSetup(SalesEnv(), 2, 2), task) for task in tasks]
    )
    requests: list[UpdateRequest] = []

    def seen_by_learner():
        """Pass everything on, and keep the requests of the learner."""
        reply = None
        while True:
            try:
                request = steps.send(reply)
            except StopIteration as stop:
                return stop.value
            if isinstance(request, UpdateRequest):
                requests.append(request)
            reply = yield request

    result, _, batches = drive(seen_by_learner(), cycle_all(SHOP))
    assert method.ticks.count == len(batches) == result.details["ticks"] > 1
    assert [len(request.batches) for request in requests] == [1] * len(requests)
    assert len(requests[0].batches[0]) == 2 * 5
    assert {
        (request.loss.clip_low, request.loss.clip_high, request.loss.kl_coef) for request in requests
    } == {(0.2, 0.3, 0.0)}


def test_the_clock_goes_on_after_a_restart():
    def choose(request):
        actions = sorted(SHOP[observed(request)])
        return [answer(actions[place % len(actions)]) for place in range(request.count)]

    def next_epoch(method):
        _, updates, batches = drive(method.train_epoch(1, [at_shop(3)]), choose)
        return batches, [(row.prompt, row.advantages) for rows in updates for row in rows]

    method = authors_loop()
    result, _, _ = drive(method.train_epoch(0, [at_shop(3)]), choose)
    assert method.ticks.count == result.details["ticks"] > 0
    memory = json.loads(json.dumps(method.dump()))
    assert memory["ticks"] == result.details["ticks"]

    resumed = authors_loop()
    resumed.restore(memory)
    forgetful = authors_loop()
    forgetful.restore(memory | {"ticks": 0})
    expected = next_epoch(method)
    assert next_epoch(resumed) == expected
    assert resumed.dump() == method.dump()
    # The clock is part of what is learned, so a method that begins it again learns something else.
    assert next_epoch(forgetful) != expected


def test_memories_of_other_presets_are_what_they_were():
    assert set(Threespo(ThreespoOptions(), common()).dump()) == {"table", "states", "graphs"}


def test_a_search_of_an_embedded_game_truncates_nothing():
    (record,) = generate_games("train", 1, 3, "small")
    game = compile_game(record)
    shared = common(recorded=frozenset({game.task_id}))
    root = start_episode(EpisodeSetup(Alfworld(), 3, 2), game)
    method = authors_loop(common=shared, max_generations_per_task=10_000)
    # Twenty failures close the gate at the root, which is searched all the same.
    key = method.scorer_at_epoch(0).state_key(root)
    method.table.counts[key] = (20.0, 0.0)
    rng = random.Random(0)

    def choose(request):
        listed = request.prompt.rpartition("admissible actions")[2]
        actions = [line.strip(" ,'") for line in listed.splitlines() if line.strip().startswith("'")]
        assert actions
        return [answer(rng.choice(actions)) for _ in range(request.count)]

    result, updates, batches = drive(method.train_epoch(0, [root]), choose)
    nodes = result.trees
    assert [node["rollouts"] for node in nodes[:1]] == [4]
    assert nodes[0]["gated"]
    going_on = [node for node in nodes if node["end"] == ""]
    # The root, its four children, and five children of each of these.
    assert len(going_on) == 1 + 4 + 4 * 5
    assert all(node["expanded"] >= 0 and node["rollouts"] == 5 for node in going_on[1:])
    assert all(node["expanded"] < 0 for node in nodes if node["end"])
    assert sum(request.count for batch in batches for request in batch) == len(nodes) - 1
    assert len(updates) <= len(batches) == result.details["ticks"] == len(going_on)
    assert result.details["generation_caps"] == 0


@given(
    preset=st.sampled_from(["literal", "narrow", "authors-gui"]),
    given=st.fixed_dictionaries(
        {},
        optional={
            "allocation": st.sampled_from(["ceiling", "sigmoid"]),
            "clip_high": st.sampled_from([None, 0.3, 0.4]),
            "kl": st.booleans(),
            "success_above": st.sampled_from([None, 0.05]),
            "count_cut_paths": st.booleans(),
            "alpha": st.sampled_from([50.0, 0.1]),
        },
    ),
)
def test_a_job_reads_the_options_that_its_study_gives(preset, given):
    options = {"preset": preset, **given}
    settings = job_options("threespo", options)
    assert check_options("threespo", settings) == check_options("threespo", options)


def test_options_that_came_later_are_in_no_earlier_key():
    later = {
        "allocation", "clip_high", "count_cut_paths", "count_repeats", "kl", "r_success", "success_above",
    }  # fmt: skip
    for preset in ("literal", "calibrated", "narrow", "improved"):
        everything = full_options("threespo", {"preset": preset})
        assert set(everything) - set(job_options("threespo", {"preset": preset})) == later
    assert later <= set(job_options("threespo", {"preset": "authors-gui"}))
