"""Recorded search trees: enough to replay every episode, and in agreement with the search that they tell of."""

import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.toy import answer, common, drive, make_task, start
from tests.unit.test_search import observed, random_graphs
from threespo.envs.episode import take_action
from threespo.methods.search_records import SearchLog
from threespo.methods.threespo import Threespo
from threespo.methods.threespo_options import ThreespoOptions
from threespo.methods.tree_table import COLUMNS


def recorded(graph, goals=("s2",), *, epochs=1, max_steps=4, record=True, **options):
    """Search one task; return its start, the trees of all epochs, the last result and the requests."""
    task = make_task(graph, set(goals), "s1")
    tasks = frozenset({task.task_id}) if record else frozenset()
    method = Threespo(ThreespoOptions(**options), common(group_size=3, recorded=tasks))
    begun, trees, requests = start(task, max_steps), [], []

    def choose(request):
        requests.append(request)
        actions = sorted(graph[observed(request)])
        return [answer(actions[i % len(actions)]) for i in range(request.count)]

    for number in range(epochs):
        result, updates, _ = drive(method.train_epoch(number, [begun]), choose)
        trees.append((result, result.trees, updates))
    return begun, trees, requests


@settings(max_examples=50, deadline=None)
@given(
    graph=random_graphs(),
    frontier=st.sampled_from(["children", "restart"]),
    epochs=st.integers(1, 3),
)
def test_a_tree_replays_every_episode_and_agrees_with_the_counts(graph, frontier, epochs):
    options = {"frontier": frontier, "gate_decay": 0.9, "alpha": 1.0, "max_generations_per_task": 40}
    begun, trees, _ = recorded(graph, epochs=epochs, **options)
    for result, rows, updates in trees:
        assert [row["node"] for row in rows] == list(range(len(rows)))
        episodes = {-1: None}
        for row in rows:
            assert tuple(row) == COLUMNS[1:]
            parent = episodes[row["parent"]]
            episode = take_action(parent, row["action"]) if parent else begun
            episodes[row["node"]] = episode
            assert (episode.observation, episode.steps + 1) == (row["observation"], row["depth"])
            assert row["end"] == ("won" if episode.won else "limit" if episode.done else "")
            assert math.isnan(row["reward"]) == (not parent)
            assert not parent or row["reward"] == pytest.approx(
                row["novelty"] + row["difference"] + row["success"]
            )
        born = Counter(row["parent"] for row in rows)
        assert all(row["rollouts"] == born[row["node"]] for row in rows)
        assert sum(row["rollouts"] for row in rows) == result.env_steps
        places = sorted(row["expanded"] for row in rows if row["expanded"] >= 0)
        assert frontier != "children" or places == list(range(int(result.details["expansions"])))
        learned = sorted(row["advantage"] for row in rows if not math.isnan(row["advantage"]))
        if frontier == "children":
            assert learned == sorted(row.advantages[0] for group in updates for row in group)
    states = {}
    for _, rows, _ in trees:
        for row in rows:
            assert states.setdefault(row["state"], row["observation"]) == row["observation"], (
                "a key stands for one state"
            )


def test_recording_changes_nothing():
    graph = {
        "s1": {"a": "s2", "b": "s3"},
        "s2": {"a": "s1"},
        "s3": {"a": "s4", "b": "s1"},
        "s4": {"a": "s2"},
    }
    _, with_trees, asked = recorded(graph, goals=("s4",), epochs=3)
    _, without, asked_without = recorded(graph, goals=("s4",), epochs=3, record=False)
    assert asked == asked_without
    assert all(not rows for _, rows, _ in without)
    for (result, rows, updates), (other, _, others) in zip(with_trees, without, strict=True):
        assert rows
        assert (result.details, updates) == (other.details, others)


def test_a_gated_state_is_in_the_tree_and_has_no_children():
    graph = {"s1": {"a": "s2"}, "s2": {"a": "s3"}, "s3": {"a": "s3"}}
    method = Threespo(ThreespoOptions(), common(group_size=2, recorded=frozenset({"toy"})))
    method.table.counts["s2"] = (40.0, 0.0)
    task = make_task(graph, set(), "s1")
    method.common = common(group_size=2, recorded=frozenset({task.task_id}))
    result, _, _ = drive(
        method.train_epoch(0, [start(task, 5)]), lambda request: [answer("a")] * request.count
    )
    rows = result.trees
    gated = [row for row in rows if row["gated"]]
    assert {(row["observation"], row["visits"], row["score"], row["rollouts"]) for row in gated} == {
        ("s2", 40.0, 0.0, 0)
    }
    assert not any(row["parent"] == row_gated["node"] for row in rows for row_gated in gated)


def test_numbers_of_task_types_add_up_to_those_of_the_epoch():
    graph = {"s1": {"a": "s2", "b": "s3"}, "s2": {"a": "s4"}, "s3": {"a": "s4"}, "s4": {"a": "s1"}}
    starts = [start(make_task(graph, {"s4"}, at), 4) for at in ("s1", "s2", "s3")]
    kinds = ("put", "heat", "put")
    typed = [_as(begun, kind) for begun, kind in zip(starts, kinds, strict=True)]
    method = Threespo(ThreespoOptions(), common(group_size=2))
    result, _, _ = drive(
        method.train_epoch(0, typed), lambda request: [answer("a"), answer("b")][: request.count]
    )
    assert list(result.by_type) == ["heat", "put"]
    for name in ("expansions", "skipped_groups", "learned_groups", "n_2"):
        assert sum(numbers[name] for numbers in result.by_type.values()) == result.details[name]
    for name in (
        "env_steps",
        "completed_paths",
        "successes",
        "invalid_format",
        "inadmissible",
        "nothing_happens",
    ):
        assert sum(numbers[name] for numbers in result.by_type.values()) == getattr(result, name)
    visits = sum(numbers["state_visits"] for numbers in result.by_type.values())
    assert visits == result.details["state_visits"]


def _as(begun, kind):
    from dataclasses import replace

    return replace(begun, task=_Typed(begun.task, kind))


class _Typed:
    """A task of another type."""

    def __init__(self, task, kind):
        self._task, self.task_type = task, kind

    def __getattr__(self, name):
        return getattr(self._task, name)


def test_a_type_whose_tasks_are_all_given_up_has_its_row():
    """Gated roots take no sample and complete no path; they are what the row is for."""
    method = Threespo(ThreespoOptions(), common(group_size=2))
    method.table.counts["s1"] = (40.0, 0.0)
    given_up = _as(start(make_task({"s1": {"a": "s1"}}, set(), "s1"), 4), "put")
    result, _, _ = drive(method.train_epoch(0, [given_up]), lambda _: [])
    assert (result.by_type["put"]["gated_roots"], result.by_type["put"]["n_0"]) == (1.0, 1.0)
    assert (result.by_type["put"]["env_steps"], result.env_steps) == (0, 0)


@settings(max_examples=40, deadline=None)
@given(graph=random_graphs(), key=st.sampled_from(["obs", "task_obs"]))
def test_the_counts_of_a_tree_are_those_of_the_paths_of_the_trees_before(graph, key):
    """Recounted from the rows alone: every leaf that ended is a path, and counts once for each different state on it."""
    _, trees, _ = recorded(
        graph, epochs=3, gate=False, state_key=key, max_generations_per_task=30, alpha=1.0
    )
    total, won = Counter(), Counter()
    for _, rows, _ in trees:
        root = rows[0]
        assert (root["visits"], root["successes"]) == (total[root["state"]], won[root["state"]])
        assert root["score"] == 1.0, "at depth 1 lambda is 0"
        assert all(row["visits"] >= total[row["state"]] for row in rows), "counts only grow"
        for row in (row for row in rows if row["end"]):
            path, at = {row["state"]}, row
            while at["parent"] >= 0:
                at = rows[at["parent"]]
                path.add(at["state"])
            total.update(path)
            won.update(path if row["end"] == "won" else ())


def test_merged_logs_are_the_log_of_everything():
    one, other = (
        SearchLog(histogram={1: 2, 3: 1}, capped=1, visited={"a"}),
        SearchLog(histogram={3: 4}, visited={"a", "b"}),
    )
    whole = SearchLog.merge_logs([one, other])
    assert (whole.histogram, whole.capped, whole.visited) == ({1: 2, 3: 5}, 1, {"a", "b"})
    assert (one.histogram, other.visited) == ({1: 2, 3: 1}, {"a", "b"}), "the parts are left alone"
