"""How a search allocates its samples, against the true success probabilities (sec. 3.5, sec. 4.2).

Decision trees have them. The theory calls a sample well spent in the state with the lowest success probability;
``regret`` is what the samples of a search lose by that measure.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from threespo.envs.tree import Node, TreeEnv, TreeState, TreeTask

Probabilities = Mapping[str, Mapping[Node, float]]
"""Task id -> node -> p(s), under the policy as it was when the search began."""


class Allocation(NamedTuple):
    """Sums over an epoch's searches, to be divided by their counts."""

    samples: float = 0.0
    """Samples drawn."""
    difficulty: float = 0.0
    """Sum of p(s) over samples."""
    expansions: float = 0.0
    expanded_difficulty: float = 0.0
    """Sum of p(s) over expansions: what an equal number of samples for each state would give."""
    compared: float = 0.0
    """Samples drawn in states with siblings that were expanded, too."""
    regret: float = 0.0
    """Sum over those of p(s) less the least p among the siblings."""

    def plus(self, other: "Allocation") -> "Allocation":
        """Return both together."""
        return Allocation(*(own + its for own, its in zip(self, other, strict=True)))

    def measures(self) -> dict[str, float]:
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
    nodes = _nodes(rows, tasks)
    total = Allocation()
    siblings: dict[tuple[str, int], Counter[Node]] = defaultdict(Counter)
    for row in rows:
        if row["rollouts"]:
            node = nodes[row["task_id"], row["node"]]
            p = truth[row["task_id"]][node]
            total = total.plus(Allocation(row["rollouts"], row["rollouts"] * p, 1, p))
            # A state may be sampled again, as another row.
            siblings[row["task_id"], row["parent"]][node] += row["rollouts"]

    for (task, _), group in siblings.items():
        if len(group) > 1:
            least = min(truth[task][node] for node in group)
            lost = sum(count * (truth[task][node] - least) for node, count in group.items())
            total = total.plus(Allocation(compared=sum(group.values()), regret=lost))

    return total


def count_observations(tasks: Sequence[TreeTask], truth: Probabilities) -> int:
    """Return how many different observations the trees can show.

    Args:
        tasks: the trees.
        truth: its keys are the nodes of each tree that can be reached.
    """
    return len({task.look(node) for task in tasks for node in truth[task.task_id]})


def _nodes(
    rows: Sequence[Mapping[str, Any]], tasks: Mapping[str, TreeTask]
) -> dict[tuple[str, int], Node]:
    """Return which node of its tree each row is, by (task id, number)."""
    env = TreeEnv()
    states: dict[tuple[str, int], TreeState] = {}
    # A row has no node of its tree, but its actions lead there: parents come before children.
    for row in rows:
        task = row["task_id"]
        parent = states.get((task, row["parent"]))
        states[task, row["node"]] = (
            env.step(parent, row["action"]).state if parent else env.initial(tasks[task])
        )
    return {place: state.node for place, state in states.items()}
