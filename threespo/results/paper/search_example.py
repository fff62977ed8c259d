"""A small real search, from which the schematics of the paper's figures 1 and 2 are drawn.

The task is a decision tree (``threespo.envs.tree``), the policy is uniform over branches and never updated, and the method
is 3SPO with α = 1: with the printed 50 no state below the root is worth more than one sample after a success, so the
example of figure 2 (S = 0.2, G_max = 8, n = 2) could not occur.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pandas as pd

from threespo.envs.episode import EpisodeSetup, start_episode
from threespo.envs.tree import TreeEnv, TreeTask
from threespo.methods.advantages import Steps, discounted_returns, gigpo_advantages, grpo_advantages
from threespo.methods.base import CommonSettings
from threespo.methods.threespo import Threespo
from threespo.methods.threespo_options import ThreespoOptions
from threespo.methods.tree_table import COLUMNS
from threespo.protocol import Sample, SampleRequest
from threespo.rng import derive
from threespo.scoring.reward import group_advantages
from threespo.tables import select_rows

TASK = TreeTask(number=6, depth=5, branching=2, solutions=8)
OPTIONS = ThreespoOptions(preset="calibrated", gate_decay=1.0, max_generations_per_task=64)
G_MAX = 8
SEED = 0
REWARD = 10.0
"""For a won path."""
LATER_EPOCH = 3
"""The epoch of the example of figure 2, from 1: by then there are counts. That of figure 1 is the first."""

VIEWS = ("GRPO", "GiGPO", "3SPO")


def run_example_search() -> dict[int, pd.DataFrame]:
    """Run the search for ``LATER_EPOCH`` epochs; return the nodes of each, siblings in the same state as one.

    Columns are those of ``tree_table``, and ``samples``, how many samples led to the node; ``reward`` and ``advantage`` are
    those of the first of them, which are those of all.
    """
    # No penalties: rewards are those of the search alone.
    common = CommonSettings(
        seed=SEED, group_size=G_MAX, clip=0.2, kl_coef=0.0, invalid_penalty=0.0, inadmissible_penalty=0.0,
        success_reward=REWARD, minibatch=1, statistics="trajectories", recorded=frozenset({TASK.task_id}),
    )  # fmt: skip
    method = Threespo(OPTIONS, common)
    start = start_episode(EpisodeSetup(TreeEnv(), TASK.depth, 0), TASK)
    trees = {}
    # The counts of states carry over from epoch to epoch, as in training.
    for epoch in range(1, LATER_EPOCH + 1):
        requests = method.train_epoch(epoch - 1, [start])
        reply: Any = None
        while True:
            try:
                request = requests.send(reply)
            except StopIteration as stop:
                nodes = pd.DataFrame(stop.value.trees).assign(epoch=epoch)
                trees[epoch] = _merge_siblings(nodes[list(COLUMNS)])
                break
            # A tuple asks for samples; all else are updates of a policy that stays as it is.
            reply = []
            if isinstance(request, tuple):
                reply = [_draw_samples(sample_request) for sample_request in request]
    return trees


def _draw_samples(request: SampleRequest) -> list[Sample]:
    """Draw branches, each with the same probability."""
    samples = []
    for number in range(request.count):
        branch = derive(SEED, *request.key, number) % TASK.branching
        response = f"<think></think><action>{branch}</action>"
        # Log-probabilities do not matter, since the policy is not updated.
        samples.append(Sample((branch,), (0.0,), response, True, 0))
    return samples


def _merge_siblings(tree: pd.DataFrame) -> pd.DataFrame:
    """Make one node of siblings in the same state, that which was expanded if one was."""
    # The children of the merged node are those of the expanded one, so it is that which has to be kept.
    expanded_first = tree.sort_values(
        ["parent", "state", "expanded"], ascending=[True, True, False], kind="stable"
    )
    samples = expanded_first.groupby(["parent", "state"])["node"].transform("size")
    merged = expanded_first.assign(samples=samples).drop_duplicates(["parent", "state"])
    return merged.sort_values("node", ignore_index=True)


def completed_paths(tree: pd.DataFrame) -> list[list[int]]:
    """Return the completed paths, as numbers of nodes from the root, in the order in which they were sampled."""
    parents = dict(zip(tree["node"], tree["parent"], strict=True))
    paths = []
    for leaf in tree.loc[tree["end"] != "", "node"]:
        path = [leaf]
        while parents[path[0]] >= 0:
            path.insert(0, parents[path[0]])
        paths.append(path)
    return paths


def advantages_by_method(tree: pd.DataFrame) -> pd.DataFrame:
    """Return what three methods would learn from the completed paths of a search, by their own functions.

    Args:
        tree: nodes, as ``run_example_search`` returns them.

    Returns:
        A row for each view, path and step: ``view`` (of ``VIEWS``), ``path``, ``node`` from which the step is taken,
        ``child``, ``group`` (the steps that are compared; the group's number, from 0, and -1 where a step is in none),
        ``update`` (in which it is learned from, from 1; 0 where there is nothing to learn) and ``advantage``.
        GRPO and GiGPO (γ = 0.95) take the paths for their episodes. 3SPO learns from the siblings of a state at once, so
        a step that several paths share is there once for each of them, with the same numbers.
    """
    nodes = tree.set_index("node")
    paths = completed_paths(tree)
    episodes = [_episode_of_path(nodes, path) for path in paths]
    advantages_by_grpo = grpo_advantages(episodes)
    advantages_by_gigpo = gigpo_advantages(episodes)
    sibling_advantages, updates = _learn_from_siblings(tree)

    # GiGPO compares the steps from a state that several paths visit.
    visited_states: list[Any] = []
    for path in paths:
        # The last node of a path is its end, from which no step is taken.
        visited_states += [nodes.loc[node, "state"] for node in path[:-1]]
    anchors = [state for state in dict.fromkeys(visited_states) if visited_states.count(state) > 1]

    rows = []
    for number, path in enumerate(paths):
        for step, (node, child) in enumerate(pairwise(path)):
            state = nodes.loc[node, "state"]
            anchor_group = anchors.index(state) if state in anchors else -1
            taken = (number, node, child)
            rows.append(("GRPO", *taken, 0, 1, advantages_by_grpo[number][step]))
            rows.append(("GiGPO", *taken, anchor_group, 1, advantages_by_gigpo[number][step]))
            rows.append(("3SPO", *taken, node, updates[node], sibling_advantages[child]))
    return pd.DataFrame(rows, columns=["view", "path", "node", "child", "group", "update", "advantage"])


def _episode_of_path(nodes: pd.DataFrame, path: Sequence[int]) -> Steps:
    """Return a path as an episode that GRPO and GiGPO can judge."""
    is_won = nodes.loc[path[-1], "end"] == "won"
    # A reward at the end only, as in the benchmarks.
    rewards = [0.0] * (len(path) - 2) + [REWARD * is_won]
    total = sum(rewards)
    states = [nodes.loc[node, "state"] for node in path[:-1]]
    # 0.95 is the default γ of ``threespo.methods.gigpo``.
    return Steps(states, [total] * len(rewards), discounted_returns(rewards, 0.95), total)


def _learn_from_siblings(tree: pd.DataFrame) -> tuple[dict[int, float], dict[int, int]]:
    """Return the advantage of each child among its state's samples, and the number of each state's update, 0 for none."""
    advantages: dict[int, float] = {}
    updates: dict[int, int] = {}
    number_of_updates = 0
    # In the order of the search: 3SPO updates the policy after each state.
    expanded = tree[tree["expanded"] >= 0].sort_values("expanded")
    for node in expanded["node"]:
        children = select_rows(tree, parent=node)
        # A merged child counts as often as it was sampled.
        rewards = children["reward"].repeat(children["samples"])
        estimated = group_advantages(rewards.tolist(), OPTIONS.std_floor)
        if estimated is None:
            # Rewards that are alike, or a single sample: nothing to learn, and no update.
            updates[node] = 0
            advantages.update(dict.fromkeys(children["node"], 0.0))
            continue

        number_of_updates += 1
        updates[node] = number_of_updates
        sample = 0
        for child in children.itertuples():
            advantages[child.node] = estimated[sample]
            sample += child.samples
    return advantages, updates
