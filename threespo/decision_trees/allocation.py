"""How a search allocates its samples, measured by the true success probabilities, which decision trees have (sec. 3.5).

The theory calls a sample well spent in the state with the lowest success probability; ``regret`` is what the samples of a
search lose by that measure.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from threespo.envs.tree import Node, TreeEnv, TreeState, TreeTask

Probabilities = Mapping[str, Mapping[Node, float]]
"""Task id -> node -> p(s), under the policy as it was when the search began."""


class RowKey(NamedTuple):
    """Identifies a row of one epoch's recorded trees."""

    task_id: str
    number: int


class Allocation(NamedTuple):
    """Sums over an epoch's searches, to be divided by their counts."""

    samples: float = 0.0
    """Samples drawn."""
    difficulty: float = 0.0
    """Sum of p(s) over samples."""
    expansions: float = 0.0
    expanded_difficulty: float = 0.0
    """Sum of p(s) over expansions, which an equal number of samples in each state would give."""
    compared: float = 0.0
    """Samples drawn in states of which siblings were expanded, too."""
    regret: float = 0.0
    """Sum over these samples of p(s) less the least p among the siblings."""

    def plus(self, other: "Allocation") -> "Allocation":
        """Return the sums of both together."""
        sums = [ours + theirs for ours, theirs in zip(self, other, strict=True)]
        return Allocation(*sums)

    def mean_measures(self) -> dict[str, float]:
        """Return p(s) at samples less p(s) at expansions (below 0: harder states get more), and the regret a sample."""
        sampled = self.difficulty / max(1, self.samples)
        expanded = self.expanded_difficulty / max(1, self.expansions)
        return {
            "allocation": sampled - expanded,
            "regret": self.regret / self.compared if self.compared else math.nan,
        }


def measure_allocation(
    rows: Sequence[Mapping[str, Any]], tasks: Mapping[str, TreeTask], truth: Probabilities
) -> Allocation:
    """Measure one epoch's recorded trees.

    Args:
        rows: their nodes, rows of ``threespo.methods.tree_table``.
        tasks: the trees by task id.
        truth: p(s) under the policy as it was when the epoch began.
    """
    nodes = _find_tree_nodes(rows, tasks)
    total = Allocation()
    samples_by_parent: dict[RowKey, Counter[Node]] = defaultdict(Counter)
    for row in rows:
        samples = row["rollouts"]
        if not samples:
            continue
        task_id = row["task_id"]
        node = nodes[RowKey(task_id, row["node"])]
        probability = truth[task_id][node]
        total = total.plus(Allocation(samples, samples * probability, 1, probability))
        # A state may be sampled again, as another row.
        samples_by_parent[RowKey(task_id, row["parent"])][node] += samples

    # Siblings are the arms of sec. 3.5's bandit: the regret compares them with the hardest one.
    for (task_id, _), siblings in samples_by_parent.items():
        if len(siblings) == 1:
            continue
        probabilities = truth[task_id]
        lowest = min(probabilities[node] for node in siblings)
        regret = sum(samples * (probabilities[node] - lowest) for node, samples in siblings.items())
        total = total.plus(Allocation(compared=sum(siblings.values()), regret=regret))

    return total


def count_observations(tasks: Sequence[TreeTask], truth: Probabilities) -> int:
    """Return how many different observations the trees can show."""
    # The keys of ``truth`` are the nodes that can be reached; aliased ones look alike and count once.
    return len({task.look(node) for task in tasks for node in truth[task.task_id]})


def _find_tree_nodes(
    rows: Sequence[Mapping[str, Any]], tasks: Mapping[str, TreeTask]
) -> dict[RowKey, Node]:
    """Return the node of its decision tree for each row of a search."""
    env = TreeEnv()
    states: dict[RowKey, TreeState] = {}
    # A row has no node of the decision tree, but its actions lead there: parents come before children.
    for row in rows:
        task_id = row["task_id"]
        state = env.initial(tasks[task_id])
        if row["node"] != 0:
            parent = states[RowKey(task_id, row["parent"])]
            state = env.step(parent, row["action"]).state
        states[RowKey(task_id, row["node"])] = state
    return {key: state.node for key, state in states.items()}
