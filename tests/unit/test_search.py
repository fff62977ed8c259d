"""Algorithm 1 on toy graphs: order of expansion, counts, caps, restoration, against independent readings."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.toy import answer, common, drive, make_task, start
from threespo.methods.threespo import Threespo
from threespo.methods.threespo_options import ThreespoOptions

# The pipeline figure: s1 -> s2, s3; s2 -> s5 (won), s6; s6 -> s5 (won), s8 (dead end); s3 -> s7; s7 -> s5, s6.
FIGURE = {
    "s1": {"to2": "s2", "to3": "s3"},
    "s2": {"to5": "s5", "to6": "s6"},
    "s6": {"to5": "s5", "to8": "s8"},
    "s3": {"to7": "s7"},
    "s7": {"to5": "s5", "to9": "s9"},
}


def observed(request):
    """The current observation, read out of the prompt as an agent would."""
    return request.prompt.split("current observation is: ")[1].split("\n")[0]


def cycle_all(graph):
    """A policy that samples each admissible action in turn."""

    def choose(request):
        actions = sorted(graph[observed(request)])
        return [answer(actions[i % len(actions)]) for i in range(request.count)]

    return choose


def search(graph, goals, *, max_steps=10, choose=None, seed=0, group_size=8, **options):
    method = Threespo(ThreespoOptions(**options), common(seed, group_size))
    steps = method.train_epoch(0, [start(make_task(graph, goals, "s1"), max_steps)])
    result, updates, batches = drive(steps, choose or cycle_all(graph))
    return method, result, updates, [observed(request) for batch in batches for request in batch]


def test_pipeline_figure_is_searched_depth_first_with_the_best_sibling_first():
    graph = FIGURE | {"s8": {"stay": "s8"}, "s9": {"stay": "s9"}}
    method, result, _, order = search(graph, {"s5"}, max_steps=3, max_generations_per_task=120)
    # Either child of s1 may come first (equal rewards, random tie); below it, deepest first.
    assert order in (["s1", "s2", "s6", "s3", "s7"], ["s1", "s3", "s7", "s2", "s6"])
    # s2's winning children count at once (4 of 8 samples), then s6's 8 leaves at the step limit; s7 gives 8 leaves.
    assert result.completed_paths == 4 + 8 + 8
    assert result.successes == 4 + 4 + 4
    assert method.table.get("s1") == (20, 12)
    assert method.table.get("s2") == (12, 8)
    assert method.table.get("s8") == (4, 0)
    assert method.table.get("s5") == (12, 12), "the terminal observation belongs to its path"


def test_popped_children_continue_from_their_own_history():
    graph = FIGURE | {"s8": {"stay": "s8"}, "s9": {"stay": "s9"}}
    seen = []

    def choose(request):
        seen.append(request.prompt)
        return cycle_all(graph)(request)

    search(graph, {"s5"}, max_steps=3, choose=choose, max_generations_per_task=120)
    after_s3 = next(prompt for prompt in seen if "observation is: s7\n" in prompt)
    assert "[Observation 1: 's1', Action 1: 'to3']\n[Observation 2: 's3', Action 2: 'to7']" in after_s3
    assert "s2" not in after_s3


def test_one_update_per_expanded_state_with_the_groups_own_rows():
    graph = FIGURE | {"s8": {"stay": "s8"}, "s9": {"stay": "s9"}}
    _, _, updates, _ = search(graph, {"s5"}, max_steps=3, max_generations_per_task=120)
    # s1, s3 and s6 at depth 3 reward all children alike or not: only groups with a spread are learned from.
    assert updates, "s2 has winning and other children"
    for update in updates:
        assert len({row.prompt for row in update}) == 1
        assert sum(row.weight for row in update) == pytest.approx(1.0)
        assert sum(row.advantages[0] for row in update) == pytest.approx(0.0, abs=1e-6)


def test_a_mastered_state_is_sampled_once_and_not_learned_from():
    graph = {"s1": {"a": "s2"}, "s2": {"win": "s5"}}
    method = Threespo(ThreespoOptions(), common())
    task = make_task(graph, {"s5"}, "s1")
    drive(method.train_epoch(0, [start(task)]), cycle_all(graph))
    _, updates, batches = drive(method.train_epoch(1, [start(task)]), cycle_all(graph))
    assert [[request.count for request in batch] for batch in batches] == [[8], [1]], (
        "the root has S = 1 at t = 1"
    )
    assert updates == []


def test_a_gated_root_ends_the_search_under_literal_and_not_under_calibrated():
    graph = {"s1": {"a": "s2"}, "s2": {"a": "s1"}}
    for preset, requests in (("literal", 0), ("calibrated", 1)):
        method = Threespo(ThreespoOptions(preset=preset), common())
        task = make_task(graph, set(), "s1")
        key = "s1" if preset == "literal" else "reach the goal.\ns1"
        method.table.counts[key] = (40.0, 0.0)
        result, _, batches = drive(method.train_epoch(0, [start(task, 1)]), cycle_all(graph))
        assert len(batches) == requests
        assert result.details["gated_roots"] == 1 - requests


def test_preset_fills_in_what_is_not_given():
    options = ThreespoOptions(preset="calibrated", alpha=2.0)
    assert (options.alpha, options.state_key, options.gate_decay, options.gate_at_root) == (
        2.0,
        "task_obs",
        0.9,
        False,
    )


def test_tick_unit_pools_the_groups_of_one_tick():
    graph = {"s1": {"a": "s5", "b": "s2"}, "s2": {"a": "s2"}}
    tasks = [make_task(graph, {"s5"}, "s1", name) for name in ("one", "two")]
    for unit, sizes in (("state", [8, 8]), ("tick", [16])):
        method = Threespo(ThreespoOptions(update_unit=unit), common())
        _, updates, _ = drive(
            method.train_epoch(0, [start(task, 1) for task in tasks]), cycle_all(graph)
        )
        assert [len(update) for update in updates] == sizes


def test_the_default_cap_is_a_group_of_whole_episodes():
    graph = {"s1": {"a": "s2", "b": "s3"}, "s2": {"a": "s1", "b": "s3"}, "s3": {"a": "s1", "b": "s2"}}
    _, result, _, _ = search(graph, set(), max_steps=5, group_size=4)
    # Five expansions of four, the whole first path, and not one more.
    assert result.env_steps == 4 * 5
    assert result.details["generation_caps"] == 1


def test_at_a_cap_a_finished_path_is_the_end():
    """The best child won: its runner-up is not played on."""
    graph = {"s1": {"a": "s5", "b": "s2"}, "s2": {"a": "s2"}}
    _, result, _, order = search(graph, {"s5"}, max_generations_per_task=8)
    assert order == ["s1"]
    assert result.completed_paths == 4


@st.composite
def random_graphs(draw):
    size = draw(st.integers(2, 7))
    nodes = [f"s{i + 1}" for i in range(size)]
    return {
        node: {f"a{i}": draw(st.sampled_from(nodes)) for i in range(draw(st.integers(1, 3)))}
        for node in nodes
    }


@settings(max_examples=60, deadline=None)
@given(graph=random_graphs(), seed=st.integers(0, 5), cap=st.integers(1, 60), paths=st.integers(1, 20))
def test_search_ends_within_its_caps_and_counts_like_a_recount(graph, seed, cap, paths):
    goal, depth = "s2", 4
    rng = random.Random(seed)
    method = Threespo(
        ThreespoOptions(max_generations_per_task=cap, max_paths_per_task=paths),
        common(seed, 4, invalid_penalty=0.0),
    )

    def choose(request):
        if (
            observed(request) not in graph
        ):  # "Nothing happens." never occurs: all sampled actions are admissible
            raise AssertionError(request.prompt)
        return [answer(rng.choice(sorted(graph[observed(request)]))) for _ in range(request.count)]

    result, _, batches = drive(
        method.train_epoch(0, [start(make_task(graph, {goal}, "s1"), depth)]), choose
    )
    generations = sum(request.count for batch in batches for request in batch)
    # At a cap the current path is finished with one sample a step: at most depth - 1 more, and 4 in the step before.
    assert generations <= cap + 4 + depth
    assert result.env_steps == generations
    total, won = method.table.get("s1")
    assert total == result.completed_paths
    assert won == result.successes
    assert all(0 <= k <= n <= total for n, k in method.table.counts.values())
    assert method.table.pending == []
    again = Threespo(method.options, method.common)
    rng.seed(seed)
    drive(again.train_epoch(0, [start(make_task(graph, {goal}, "s1"), depth)]), choose)
    assert again.table == method.table, "same seed, same tree"
