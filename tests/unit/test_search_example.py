"""Figures 1 and 2 are drawn from a search that was run: its numbers are those of eq. 1 and eq. 3 and of GRPO."""

import math

import numpy as np
import pytest

from threespo.results.paper.schematics import node_positions
from threespo.results.paper.search_example import (
    LATER_EPOCH,
    REWARD,
    advantages_by_method,
    completed_paths,
    run_example_search,
)


@pytest.fixture(scope="module")
def trees():
    return run_example_search()


def test_the_papers_example_occurs_once_and_every_open_state_has_its_samples(trees):
    later = trees[LATER_EPOCH]
    example = later[
        (later["expanded"] >= 0) & (later["rollouts"] == 2) & np.isclose(later["score"], 0.2, atol=1e-4)
    ]
    # S = exp(-ln 5 * 1) = 1/5 at depth 5 where all paths were won, and n = ceil(8 * 0.2).
    assert (len(example), example["depth"].iloc[0], example["successes"].iloc[0]) == (
        1,
        5,
        example["visits"].iloc[0],
    )
    for row in later[later["expanded"] >= 0].itertuples():
        rate = row.successes / row.visits if row.visits else 0.0
        assert row.score == pytest.approx(row.depth**-rate, rel=1e-5)
        below = later.loc[later["parent"] == row.node, "samples"].sum()
        assert below == row.rollouts
        # The cap of the search leaves single samples; none was needed here.
        assert row.rollouts == math.ceil(8 * row.depth**-rate - 1e-9)


def test_gated_states_have_failed_ten_times(trees):
    gated = trees[LATER_EPOCH][trees[LATER_EPOCH]["gated"]]
    assert len(gated)
    assert (gated["visits"] - gated["successes"] >= 10).all()
    assert (gated["expanded"] == -1).all()


def test_grpo_compares_whole_paths_and_3spo_siblings(trees):
    rows = advantages_by_method(trees[1])
    paths = completed_paths(trees[1])
    ends = trees[1].set_index("node")["end"]
    won = np.array([ends[path[-1]] == "won" for path in paths])
    returns = REWARD * won
    expected = (returns - returns.mean()) / returns.std(ddof=1)
    grpo = rows[rows["view"] == "GRPO"]
    for path, steps in grpo.groupby("path"):
        assert steps["advantage"].to_numpy() == pytest.approx(
            np.full(len(steps), expected[path]), abs=1e-5
        )
    assert set(grpo["update"]) == {1}

    siblings = rows[rows["view"] == "3SPO"].drop_duplicates("child")
    for node, steps in siblings.groupby("node"):
        samples = trees[1].set_index("node").loc[steps["child"], "samples"].to_numpy()
        rewards = np.repeat(trees[1].set_index("node").loc[steps["child"], "reward"].to_numpy(), samples)
        learned = steps["update"].iloc[0] > 0
        assert learned == (rewards.std(ddof=1) > 1e-3), node
        if learned:
            values = np.repeat(steps["advantage"].to_numpy(), samples)
            assert values == pytest.approx((rewards - rewards.mean()) / (rewards.std(ddof=1) + 1e-6))
    updates = siblings.loc[siblings["update"] > 0].drop_duplicates("node")["update"]
    assert sorted(updates) == list(range(1, len(updates) + 1)), "one update after another"


def test_gigpo_adds_a_comparison_of_steps_from_the_same_state(trees):
    rows = advantages_by_method(trees[1]).set_index(["path", "child"])
    gigpo, grpo = rows[rows["view"] == "GiGPO"], rows[rows["view"] == "GRPO"]
    added = gigpo["advantage"] - grpo["advantage"]
    # Advantages of a group sum up to zero; a step that nobody shares a state with has none of its own.
    assert added.groupby(gigpo["group"]).sum().to_numpy() == pytest.approx(0.0, abs=1e-5)
    assert added.abs().max() > 0.5


def test_no_two_nodes_stand_in_one_place_and_children_are_below_their_parents(trees):
    for tree in trees.values():
        where = node_positions(tree)
        assert len(set(where.values())) == len(tree)
        for row in tree[tree["parent"] >= 0].itertuples():
            assert where[row.node][1] == where[row.parent][1] - 1


def test_the_search_is_the_same_every_time(trees):
    again = run_example_search()
    assert all(trees[epoch].equals(again[epoch]) for epoch in trees)
