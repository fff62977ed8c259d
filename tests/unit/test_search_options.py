"""Every reading and ablation of 3SPO: what each option changes, against values by hand and an independent reading."""

import itertools
import json
import math
import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.toy import answer, common, drive, make_task, start
from tests.unit.test_search import cycle_all, observed, random_graphs, search
from threespo.methods.state_graph import StateGraph
from threespo.methods.threespo import Threespo
from threespo.methods.threespo_options import ThreespoOptions
from threespo.protocol import Sample
from threespo.scoring.table import StateTable

FORK = {"s1": {"a": "s2", "b": "s3"}, "s2": {"a": "s2"}, "s3": {"a": "s3"}}


def root_rewards(before=None, *, graph=FORK, goals=(), number=0, kinds=("a", "b"), depth=1, **options):
    """Return the rewards of the root's children under ``options``, up to their mean: undivided advantages by action."""
    method = Threespo(ThreespoOptions(normalise=False, **options), common(group_size=len(kinds)))
    method.table.counts.update(before or {})

    def choose(request):
        return [answer(kinds[i % len(kinds)], tokens=i + 1) for i in range(request.count)]

    steps = method.train_epoch(number, [start(make_task(graph, set(goals), "s1"), depth)])
    _, updates, _ = drive(steps, choose)
    values = {len(row.tokens): row.advantages[0] for row in updates[0]} if updates else {}
    return [values.get(place + 1, 0.0) for place in range(len(kinds))]


def difference(*arguments, **options):
    first, second = root_rewards(*arguments, **options)
    return first - second


def omega(total):
    return 0.5 * math.exp(-0.1 * total)


# s1 was on 4 paths, s2 on 3 of which 2 won; s3 is new. alpha = 1: S(s2) at t = 2 is exp(-ln 2 * 2/3).
KNOWN = {"s1": (4.0, 2.0), "s2": (3.0, 2.0)}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, (0.5 - omega(4)) * (1 - 2 ** (-2 / 3))),
        ({"difference": False}, 0.0),
        ({"omega_fixed": 0.25}, 0.25 * (1 - 2 ** (-2 / 3))),
        ({"omega_fixed": 0.5}, 0.0),
        ({"clock": "depth_plus_1"}, (0.5 - omega(4)) * (1 - 3 ** (-2 / 3))),
        ({"clock": "epoch", "number": 6, "uniform": True}, (0.5 - omega(4)) * (1 - 7 ** (-2 / 3))),
    ],
)
def test_eq_2_under_each_reading(options, expected):
    """Going to s2 instead of s3: both are new on the path, so only what is listed tells them apart."""
    assert difference(KNOWN, alpha=1.0, **options) == pytest.approx(expected, abs=1e-5)


def test_the_clock_of_completed_paths():
    method = Threespo(
        ThreespoOptions(clock="paths", alpha=1.0, normalise=False, uniform=True), common(group_size=2)
    )
    method.table.counts.update(KNOWN)
    method.table.paths = 9
    steps = method.train_epoch(0, [start(make_task(FORK, set(), "s1"), 1)])
    _, updates, _ = drive(steps, cycle_all(FORK))
    spread = max(row.advantages[0] for row in updates[0]) - min(row.advantages[0] for row in updates[0])
    assert spread == pytest.approx((0.5 - omega(4)) * (1 - 10 ** (-2 / 3)), abs=1e-5)


def test_a_gated_state_is_worth_nothing_in_the_reward():
    """s2 won 1 of 40: gated, so S = 0. Going there instead of to the new s3 pays (0.5 - omega) (1 - 0)."""
    known = {"s1": (4.0, 2.0), "s2": (40.0, 1.0)}
    assert difference(known, alpha=1.0) == pytest.approx(0.5 - omega(4), abs=1e-5)


def test_novel_is_a_state_or_an_observation_that_is_not_on_the_path():
    """s2's action a leads back to s1, which is not new on the path. b leads to s3."""
    graph = {"s1": {"x": "s2"}, "s2": {"a": "s1", "b": "s3", "c": "s2"}}
    rewards = {}
    keys = {
        "path": "obs",
        "none": "obs",
        "observation": "history",
        "path, with history": "history",
    }
    for reading, key in keys.items():
        options = ThreespoOptions(novelty=reading.split(",")[0], state_key=key, normalise=False)
        method = Threespo(options, common(group_size=3))
        choose = lambda request: (  # noqa: E731
            [answer("x")] * 3
            if observed(request) == "s1"
            else [answer(kind, tokens=i + 1) for i, kind in enumerate("abc")]
        )
        _, updates, _ = drive(method.train_epoch(0, [start(make_task(graph, set(), "s1"), 2)]), choose)
        rows = sorted(updates[-1], key=lambda row: len(row.tokens)) if updates else []
        rewards[reading] = [row.advantages[0] for row in rows]
    assert rewards["path"] == pytest.approx([-1 / 6, 1 / 3, -1 / 6])
    assert rewards["none"] == [], "all rewards are equal"
    # With the last steps in its key every state is new, unless observations are compared.
    assert rewards["path, with history"] == []
    assert rewards["observation"] == rewards["path"]


def test_without_backtracking_one_path_or_restarts_from_the_root():
    graph = {"s1": {"a": "s2", "b": "s3"}, "s2": {"a": "s4"}, "s3": {"a": "s4"}, "s4": {"a": "s4"}}
    limits = {"max_steps": 3, "group_size": 2, "max_generations_per_task": 12, "gate": False}
    _, one, _, order = search(graph, set(), frontier="none", **limits)
    assert (len(order), order[0], order[2]) == (3, "s1", "s4")
    assert one.env_steps == 6
    _, again, _, order = search(graph, set(), frontier="restart", **limits)
    assert [node for node in order if node == "s1"] == ["s1", "s1"]
    assert again.env_steps == 12
    # A root that gives nothing more ends the restarts: once gated, no sample is drawn.
    method, ended, _, _ = search(graph, set(), frontier="restart", max_steps=3, group_size=2, xi=2.0)
    assert method.table.get("s1")[0] >= 2
    assert ended.env_steps < 2 * 3 * 2


def winning(request):
    """s1: a wins, b goes on to s2; there again."""
    return [answer("ab"[i % 2]) for i in range(request.count)]


LADDER = {
    "s1": {"a": "goal", "b": "s2"},
    "s2": {"a": "goal", "b": "s3"},
    "s3": {"a": "goal", "b": "s4"},
    "s4": {"b": "s4"},
}


@pytest.mark.parametrize(
    ("unit", "pattern"),
    [("state", "SuSuSu"), ("tick", "SuSuSu"), ("path", "SuSuSu"), ("epoch", "SSSu")],
)
def test_when_it_is_learned(unit, pattern):
    """S a tick of samples, u a request for an update: here a child ends a path in every state."""
    assert trace(LADDER, unit) == (pattern, [4, 4, 4] if unit != "epoch" else [12])


def test_the_post_trajectory_control_takes_the_same_steps_later():
    """No child ends a path before the third state, so ``path`` holds back the first two groups."""
    graph = {"s1": {"a": "s2", "b": "s1"}, "s2": {"a": "s3", "b": "s2"}, "s3": {"a": "goal", "b": "s3"}}
    options = {"frontier": "none", "gate": False}
    assert trace(graph, "state", **options) == ("SuSuSu", [4, 4, 4])
    assert trace(graph, "path", **options) == ("SSSu", [4, 4, 4])
    assert trace(graph, "epoch", **options) == ("SSSu", [12])


def test_a_path_that_ends_at_a_gate_is_learned_from_then():
    """s2 is gated: the first path ends there, and its group does not wait for the next one."""
    graph = {
        "s1": {"a": "s2", "b": "s3"},
        "s2": {"a": "s2"},
        "s3": {"a": "s3", "b": "s4"},
        "s4": {"a": "s4"},
    }
    # Going to the gated s2 pays most (S = 0 there), so it comes first.
    patterns = {}
    for unit in ("path", "epoch"):
        method = Threespo(
            ThreespoOptions(update_unit=unit, tie_break="first", alpha=1.0), common(group_size=2)
        )
        method.table.counts.update({"s1": (20.0, 10.0), "s2": (40.0, 0.0)})
        steps, pattern, reply = (
            method.train_epoch(0, [start(make_task(graph, set(), "s1"), 3)]),
            "",
            None,
        )
        while True:
            try:
                request = steps.send(reply)
            except StopIteration:
                break
            if isinstance(request, tuple):
                pattern, reply = (
                    pattern + "S",
                    [[answer("ab"[i % 2]) for i in range(one.count)] for one in request],
                )
            else:
                pattern, reply = pattern + "u", []
        patterns[unit] = pattern
    assert patterns["path"].startswith("Su"), patterns
    assert patterns["epoch"].startswith("SS"), patterns


def trace(graph, unit, **options):
    method = Threespo(
        ThreespoOptions(update_unit=unit, tie_break="first", **options), common(group_size=4)
    )
    steps, pattern, sizes, reply = (
        method.train_epoch(0, [start(make_task(graph, {"goal"}, "s1"), 3)]),
        "",
        [],
        None,
    )
    while True:
        try:
            request = steps.send(reply)
        except StopIteration:
            return pattern, sizes
        if isinstance(request, tuple):
            pattern, reply = pattern + "S", [winning(one) for one in request]
        else:
            pattern, reply = pattern + "u", []
            sizes += [len(batch) for batch in request.batches]


def test_uniform_allocation_with_and_without_the_gate():
    graph = {"s1": {"a": "s2"}, "s2": {"a": "s1"}}
    for options, counts in (({}, [1]), ({"uniform": True}, [8])):
        method = Threespo(ThreespoOptions(clock="depth_plus_1", **options), common())
        method.table.counts["s1"] = (9.0, 9.0)
        _, _, batches = drive(
            method.train_epoch(0, [start(make_task(graph, set(), "s1"), 1)]), cycle_all(graph)
        )
        assert [request.count for batch in batches for request in batch] == counts
    for gate, asked in ((True, 0), (False, 8)):
        method = Threespo(ThreespoOptions(uniform=True, gate=gate), common())
        method.table.counts["s1"] = (40.0, 0.0)
        result, _, _ = drive(
            method.train_epoch(0, [start(make_task(graph, set(), "s1"), 1)]), cycle_all(graph)
        )
        assert result.env_steps == asked


def test_gates_reopen_by_decay_or_reset():
    graph = {"s1": {"a": "s2"}, "s2": {"a": "s1"}}

    def epochs(**options):
        method = Threespo(ThreespoOptions(**options), common())
        method.table.counts["s1"] = (40.0, 0.0)
        task = [start(make_task(graph, set(), "s1"), 1)]
        return [
            drive(method.train_epoch(number, task), cycle_all(graph))[0].env_steps for number in range(4)
        ]

    assert epochs() == [0, 0, 0, 0]
    assert epochs(gate_decay=0.6) == [0, 0, 0, 8], "40 x 0.6^3 = 8.64 failures are fewer than 10"
    assert epochs(gate_reset_every=2) == [0, 0, 8, 8]


@pytest.mark.parametrize(
    ("options", "root", "goal"),
    [
        ({}, (4, 2), (2, 2)),
        # The winning child ranks first and counts; the other is cut off at the cap.
        ({"max_generations_per_task": 4}, (2, 2), (2, 2)),
    ],
)
def test_what_a_path_adds_to_the_counts(options, root, goal):
    graph = {"s1": {"a": "goal", "b": "s2"}, "s2": {"a": "s2", "b": "s3"}}
    method = Threespo(ThreespoOptions(tie_break="first", gate=False, **options), common(group_size=4))
    drive(method.train_epoch(0, [start(make_task(graph, {"goal"}, "s1"), 2)]), winning_first(graph))
    assert method.table.get("s1")[0] >= root[0]
    assert method.table.get("s1")[1] == root[1]
    assert method.table.get("goal") == goal


def winning_first(graph):
    def choose(request):
        actions = sorted(graph[observed(request)])
        return [answer(actions[i % len(actions)]) for i in range(request.count)]

    return choose


def test_siblings_that_end_count_at_once_or_when_the_search_comes_to_them():
    """Four samples of the root: two win. At the cap of four only the best child counts if siblings wait their turn."""
    graph = {"s1": {"a": "goal", "b": "s2"}, "s2": {"a": "s2"}}
    for at_once, total in ((True, 2), (False, 1)):
        options = {"count_siblings": at_once, "max_generations_per_task": 4, "keep_duplicates": True}
        method, result, _, _ = search(graph, {"goal"}, group_size=4, **options)
        assert method.table.get("goal") == (total, total)
        assert result.completed_paths == total


def test_a_path_into_a_gated_state_does_not_count():
    graph = {"s1": {"a": "s2"}, "s2": {"a": "s3"}}
    method = Threespo(ThreespoOptions(), common(group_size=2))
    method.table.counts["s2"] = (40.0, 0.0)
    drive(method.train_epoch(0, [start(make_task(graph, set(), "s1"), 5)]), cycle_all(graph))
    assert method.table.get("s1")[0] == 0


def test_a_history_key_tells_the_last_two_steps_apart():
    graph = {"s1": {"a": "s2", "b": "s3"}, "s2": {"a": "s4"}, "s3": {"a": "s4"}, "s4": {"a": "s4"}}
    options = {"max_steps": 4, "gate": False, "group_size": 2, "max_generations_per_task": 99}
    plain, *_ = search(graph, set(), **options)
    keyed, *_ = search(graph, set(), state_key="history", **options)
    assert sum("s4" in key.splitlines()[-1] for key in plain.table.counts) == 1
    assert {key for key in keyed.table.counts if key.endswith("s4")} == {
        "reach the goal.\ns1 > a\ns2 > a\ns4",
        "reach the goal.\ns1 > b\ns3 > a\ns4",
        "reach the goal.\ns2 > a\ns4 > a\ns4",
        "reach the goal.\ns3 > a\ns4 > a\ns4",
        "reach the goal.\ns4 > a\ns4 > a\ns4",
    }


BINARY = {
    "s1": {"a": "s2", "b": "s3"},
    "s2": {"a": "s4", "b": "s5"},
    "s3": {"a": "s6", "b": "s7"},
    **{f"s{leaf}": {"a": f"s{leaf}"} for leaf in (4, 5, 6, 7)},
}


def test_backtracking_to_the_deepest_untried_child():
    options = {
        "max_steps": 3,
        "group_size": 2,
        "gate": False,
        "tie_break": "first",
        "max_generations_per_task": 99,
    }
    assert search(BINARY, set(), **options)[3] == ["s1", "s2", "s4", "s5", "s3", "s6", "s7"]


def test_the_most_samples_of_a_state_apart_from_the_group_size():
    """Unvisited states have S = 1, so n = G_max; the cap stays that of the group size."""
    _, result, _, order = search(BINARY, set(), max_steps=3, group_size=8, g_max=2, gate=False)
    assert result.env_steps == 2 * len(order)
    assert (result.details["n_2"], "n_8" in result.details) == (7.0, False)


def test_credit_of_the_subtree_is_the_success_rate_of_the_paths_below():
    """s5 is won: half of the paths through s2 succeed, none through s3. By its own step no child of s1 has succeeded."""
    wins = {"s5"}
    limits = {"max_steps": 2, "group_size": 2, "max_generations_per_task": 99}
    settings_ = {
        "gate": False,
        "tie_break": "first",
        "novelty": "none",
        "difference": False,
        "normalise": False,
    }
    _, _, updates, _ = search(BINARY, wins, credit="subtree", **limits, **settings_)
    groups = {rows[0].prompt: [row.advantages[0] for row in rows] for rows in updates}
    root, s2 = sorted(groups.values(), key=max)
    assert root == pytest.approx([0.5 * 0.25, -0.5 * 0.25]), "0.5 * (1/2 - mean of 1/2 and 0)"
    assert s2 == pytest.approx([-0.5 * 0.5, 0.5 * 0.5])
    _, _, own, _ = search(BINARY, wins, **limits, **settings_)
    assert len(own) == 1, "only the step that wins tells the children of s2 apart"
    # Cut off after the first path, s3's subtree is unknown, and with it there is no comparison at the root.
    limits["max_generations_per_task"] = 4
    _, _, cut, _ = search(BINARY, wins, credit="subtree", **limits, **settings_)
    assert [len(rows) for rows in cut] == [2]


def test_credit_by_the_graph_is_the_distance_from_success():
    """s5 is won. From s1 it is two steps through s2 and unreachable through s3; the graph of the run remembers it."""
    settings_ = {
        "gate": False,
        "tie_break": "first",
        "novelty": "none",
        "difference": False,
        "normalise": False,
    }
    limits = {"max_steps": 2, "group_size": 2, "max_generations_per_task": 99}
    _, _, updates, _ = search(BINARY, {"s5"}, credit="graph", **limits, **settings_)
    groups = sorted(([row.advantages[0] for row in rows] for rows in updates), key=max)
    assert groups[0] == pytest.approx([0.5 * 0.4, -0.5 * 0.4]), (
        "s2 is one step from success: half of 0.8, and 0 for s3"
    )
    assert groups[1] == pytest.approx([-0.5 * 0.5, 0.5 * 0.5])

    # The second search may draw two samples of the root: what is below them is known from the first, or not at all.
    options = ThreespoOptions(credit="graph", **settings_)
    method = Threespo(options, common(group_size=2))
    task = make_task(BINARY, {"s5"}, "s1")
    drive(method.train_epoch(0, [start(task, 2)]), cycle_all(BINARY))
    restored = Threespo(options, common(group_size=2))
    restored.restore(json.loads(json.dumps(method.dump())))
    for searching, learned in ((restored, 1), (Threespo(options, common(group_size=2)), 0)):
        _, updates, _ = drive(searching.train_epoch(1, [start(task, 1)]), cycle_all(BINARY))
        assert len(updates) == learned


@settings(max_examples=60, deadline=None)
@given(graph=random_graphs(), wins=st.sets(st.sampled_from(["s2", "s3", "s4"]), max_size=2))
def test_distances_are_those_of_floyd_and_warshall(graph, wins):
    known, nodes = StateGraph(), sorted(graph)
    edges = [(node, target) for node in nodes for target in graph[node].values() if node not in wins]
    for node, target in edges:
        known.add_step(node, target, target in wins)
        # Asked in between, so that a remembered answer must be given up.
        known.distance(node)
    everything = {*nodes, *(target for _, target in edges)}
    reached = {target for _, target in edges if target in wins}
    far = {(a, b): 0 if a == b else math.inf for a in everything for b in everything}
    far |= {(a, b): min(1, far[a, b]) for a, b in edges}
    for middle, a, b in itertools.product(everything, repeat=3):
        far[a, b] = min(far[a, b], far[a, middle] + far[middle, b])
    for node in everything:
        expected = min((far[node, won] for won in reached), default=math.inf)
        assert known.distance(node) == (None if expected == math.inf else expected)
        assert StateGraph.restore(json.loads(json.dumps(known.dump()))).distance(node) == known.distance(
            node
        )


def test_the_penalty_comes_off_the_reward_or_off_the_advantage():
    """Both children are new, one response is malformed. In the reward the penalty is all that tells them apart."""
    malformed = Sample((0,), (-1.0,), "<action>b</action>", True, 0)

    def first(goals, **options):
        method = Threespo(
            ThreespoOptions(normalise=False, difference=False, **options), common(group_size=2)
        )
        steps = method.train_epoch(0, [start(make_task(FORK, set(goals), "s1"), 1)])
        _, updates, _ = drive(steps, lambda _: [answer("a"), malformed])
        return [row.advantages[0] for row in updates[0]] if updates else None

    assert first({}) == pytest.approx([0.05, -0.05])
    assert first({}, penalty="advantage") == pytest.approx([0.0, -0.1]), (
        "equal rewards, and the penalty is still taken"
    )
    assert first({"s2"}) == pytest.approx([0.25 + 0.05, -0.25 - 0.05])
    assert first({"s2"}, penalty="advantage") == pytest.approx([0.25, -0.25 - 0.1])


def test_groups_without_a_signal_are_skipped_or_pulled_back_to_the_reference():
    for options, steps in (({}, 0), ({"without_signal": "kl"}, 2)):
        method = Threespo(
            ThreespoOptions(gate=False, novelty="none", **options),
            common(group_size=2, inadmissible_penalty=0.2),
        )
        # One of the two actions does not exist: groups that teach nothing must not learn from that either.
        steps_of = method.train_epoch(0, [start(make_task(FORK, set(), "s1"), 2)])
        _, updates, _ = drive(steps_of, lambda _: [answer("a"), answer("nowhere")])
        assert len(updates) == steps
        assert {value for rows in updates for row in rows for value in row.advantages} <= {0.0}
        assert all(sum(row.weight for row in rows) == pytest.approx(1.0) for rows in updates)


@dataclass
class SeenTable(StateTable):
    """Notes what each completed path finds counted of s1."""

    seen: list[float] = field(default_factory=list)

    def add_path(self, path, success):
        self.seen.append(self.get("s1")[0])
        super().add_path(path, success)


def test_a_path_counts_after_the_tick_or_at_once():
    """Two tasks share the observation s1. The first one's path ends in the tick in which the second rewards its own step."""
    for when, total in (("tick", 0.0), ("path", 2.0)):
        method = Threespo(ThreespoOptions(count_at=when, gate=False), common(group_size=2))
        seen = []
        method.table = SeenTable(seen=seen)
        starts = [start(make_task(FORK, set(), "s1", name), 1) for name in ("one", "two")]
        drive(method.train_epoch(0, starts), cycle_all(FORK))
        assert seen[2] == total, "what the second task's first path finds"


def test_duplicates_can_be_tried_each_for_itself():
    graph = {"s1": {"a": "s2"}, "s2": {"a": "s3"}}
    _, once, _, _ = search(graph, set(), max_steps=2, group_size=4, gate=False)
    apart = {"keep_duplicates": True, "max_generations_per_task": 99}
    _, each, _, _ = search(graph, set(), max_steps=2, group_size=4, gate=False, **apart)
    assert (once.env_steps, each.env_steps) == (4 + 4, 4 + 4 * 4)


@settings(max_examples=80, deadline=None)
@given(
    graph=random_graphs(),
    seed=st.integers(0, 3),
    options=st.fixed_dictionaries(
        {},
        optional={
            "clock": st.sampled_from(["depth", "depth_plus_1", "paths", "epoch", "ticks"]),
            "state_key": st.sampled_from(["obs", "task_obs", "history"]),
            "gate_decay": st.sampled_from([0.5, 1.0]),
            "gate_reset_every": st.sampled_from([None, 1, 2]),
            "count_siblings": st.booleans(),
            "omega_fixed": st.sampled_from([None, 0.25]),
            "novelty": st.sampled_from(["path", "observation", "change", "none"]),
            "difference": st.booleans(),
            "uniform": st.booleans(),
            "gate": st.booleans(),
            "frontier": st.sampled_from(["children", "restart", "none"]),
            "tie_break": st.sampled_from(["random", "first"]),
            "keep_duplicates": st.booleans(),
            "update_unit": st.sampled_from(["state", "tick", "path", "epoch"]),
            "g_max": st.sampled_from([None, 1, 2]),
            "credit": st.sampled_from(["step", "subtree", "graph"]),
            "penalty": st.sampled_from(["reward", "advantage", "none"]),
            "without_signal": st.sampled_from(["skip", "kl"]),
            "count_at": st.sampled_from(["tick", "path"]),
            "normalise": st.booleans(),
            "preset": st.sampled_from(["literal", "authors-gui"]),
            "allocation": st.sampled_from(["ceiling", "sigmoid"]),
            "r_success": st.sampled_from(["won", "evaluation_and_form"]),
            "success_above": st.sampled_from([None, 0.05]),
            "count_repeats": st.booleans(),
            "count_cut_paths": st.booleans(),
        },
    ),
)
def test_any_combination_ends_within_its_caps_repeats_itself_and_loses_no_group(graph, seed, options):
    depth, cap = 4, 40
    options = {"xi": 3.0, "max_generations_per_task": cap, "max_paths_per_task": 9, **options}

    def run():
        method, rng = Threespo(ThreespoOptions(**options), common(seed, 4)), random.Random(seed)

        def choose(request):
            return [answer(rng.choice(sorted(graph[observed(request)]))) for _ in range(request.count)]

        trees = []
        for number in range(2):
            result, updates, batches = drive(
                method.train_epoch(number, [start(make_task(graph, {"s2"}, "s1"), depth)]), choose
            )
            generations = sum(request.count for batch in batches for request in batch)
            assert result.env_steps == generations <= cap + 4 + depth
            assert all(
                f"step {depth + 1} " not in request.prompt for batch in batches for request in batch
            )
            assert all(0 <= won <= total for total, won in method.table.counts.values())
            trees.append(
                [(request.key, request.prompt, request.count) for batch in batches for request in batch]
            )
            trees.append(sorted((row.prompt, row.advantages) for rows in updates for row in rows))
        return trees, method.table

    assert run() == run()


@settings(max_examples=60, deadline=None)
@given(graph=random_graphs(), counts=st.integers(2, 4))
def test_the_order_of_expansion_is_that_of_an_independent_reading(graph, counts):
    """A recursive reading with one global table: expand, reward, count what ended, go into the children best first."""
    goal, depth, cap = "s2", 4, 25
    _, _, _, order = search(
        graph,
        {goal},
        max_steps=depth,
        group_size=counts,
        tie_break="first",
        max_generations_per_task=cap,
        choose=cycle_all(graph),
    )
    assert order == Reading(graph, goal, depth, cap, counts).order


class Reading:
    """Algorithm 1 with the printed constants, written without a stack: recursion, and an exception for the cap."""

    def __init__(self, graph, goal, depth, cap, most):
        self.graph, self.goal, self.depth, self.cap, self.most = graph, goal, depth, cap, most
        self.total, self.won, self.generations, self.paths, self.order = {}, {}, 0, 0, []
        self.visit(["s1"], greedy=False)

    def score(self, node, t):
        total, won = self.total.get(node, 0), self.won.get(node, 0)
        gated = total - won >= 10 and won / (total + 1e-6) <= 0.1
        return 0.0 if gated else t ** (-50 * won / (total + 1e-6)), gated

    def finish(self, path):
        self.paths += 1
        for node in set(path):
            self.total[node] = self.total.get(node, 0) + 1
            self.won[node] = self.won.get(node, 0) + (path[-1] == self.goal)

    def full(self):
        return self.generations >= self.cap or self.paths >= 32

    def visit(self, path, greedy):
        """Return False where the cap has ended everything."""
        node, t = path[-1], len(path)
        score, gated = self.score(node, t)
        if gated:
            return not greedy
        rollouts = 1 if self.full() else max(1, math.ceil(self.most * score - 1e-9))
        self.order.append(node)
        self.generations += rollouts
        actions = sorted(self.graph[node])
        children = [self.graph[node][actions[i % len(actions)]] for i in range(rollouts)]
        weight = 0.5 * math.exp(-0.1 * self.total.get(node, 0))
        rewards = [
            weight * (child not in path)
            + (0.5 - weight) * (score - self.score(child, t + 1)[0])
            + 0.5 * (child == self.goal)
            for child in children
        ]
        ranked = sorted(range(rollouts), key=lambda i: -rewards[i])
        ended = [i for i in ranked if children[i] == self.goal or t == self.depth]
        for i in ended:
            self.finish([*path, children[i]])
        going = list(dict.fromkeys(children[i] for i in ranked if i not in ended))
        if self.full():
            if ranked[0] in ended or not going:
                return False
            self.visit([*path, going[0]], greedy=True)
            return False
        return all(self.visit([*path, child], greedy=False) for child in going)
