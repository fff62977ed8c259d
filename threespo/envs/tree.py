"""Small decision trees: an environment whose success probabilities can be computed, for questions of mechanism.

A node is the tuple of actions that lead to it; a fixed hash of (task, node) says what it is. Every path is ``depth`` actions
long. Aliased nodes look like all others of their kind, in all tasks; from a dead end nothing leads on.
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from threespo.envs.base import TextInterface, Transition
from threespo.rng import derive

CORRIDOR = "a corridor"
DEAD_END = "a dead end"
"""Observations of aliased nodes, which are the same in all trees."""

Node = tuple[int, ...]


@dataclass(frozen=True)
class TreeTask:
    """One tree. Equal fields are equal trees."""

    number: int
    depth: int = 5
    branching: int = 3
    solutions: int = 3
    """Leaves that are won; at least the first is reachable."""
    dead_ends: float = 0.0
    """Share of inner nodes, off the way to the first solution, that lead nowhere."""
    aliased: float = 0.0
    """Share of inner nodes that look like a corridor; that share of dead ends looks like the dead end."""

    @property
    def task_id(self) -> str:
        return f"tree-{self.number}"

    @property
    def task_type(self) -> str:
        return f"depth {self.depth}"

    @property
    def goal(self) -> str:
        return f"leave maze {self.number}."

    @cached_property
    def goals(self) -> frozenset[Node]:
        """The leaves that are won."""
        # The leaves with the smallest hashes: a draw without replacement that needs no generator.
        leaves = itertools.product(range(self.branching), repeat=self.depth)
        return frozenset(sorted(leaves, key=lambda leaf: self._hash("leaf", leaf))[: self.solutions])

    @cached_property
    def _way(self) -> Node:
        return min(self.goals, key=lambda leaf: self._hash("leaf", leaf))

    def is_dead_end(self, node: Node) -> bool:
        """Return whether nothing leads on from ``node``."""
        # The way to the first solution stays open, so every tree can be won.
        is_inner = 0 < len(node) < self.depth
        on_the_way = node == self._way[: len(node)]
        return is_inner and not on_the_way and self._share("dead", node) < self.dead_ends

    def look(self, node: Node) -> str:
        """Return what ``node`` looks like."""
        if 0 < len(node) < self.depth and self._share("alias", node) < self.aliased:
            return DEAD_END if self.is_dead_end(node) else CORRIDOR
        return f"room {self.number}:" + "-".join(map(str, node))

    def _hash(self, what: str, node: Node) -> int:
        return derive("tree", self.number, what, *node)

    def _share(self, what: str, node: Node) -> float:
        return self._hash(what, node) / 2.0**64


@dataclass(frozen=True, slots=True)
class TreeState:
    """Where the agent is."""

    task: TreeTask
    node: Node

    @property
    def observation(self) -> str:
        return self.task.look(self.node)


def tree_prompt(goal: str, observation: str, *_: object, **__: object) -> str:
    """Return all that a table needs to know of a decision tree (a ``PromptTemplate``)."""
    return f"{goal}\n{observation}"


class TreeEnv:
    """The environment. Actions are the numbers of branches; anything else, and any step in a dead end, changes nothing."""

    name = "tree"
    text = TextInterface(prompt=tree_prompt, persona="", fallback_length=30)

    def initial(self, task: TreeTask) -> TreeState:
        return TreeState(task, ())

    def step(self, state: TreeState, action: str) -> Transition[TreeState]:
        after = state
        if action in self.admissible(state) and not state.task.is_dead_end(state.node):
            after = TreeState(state.task, (*state.node, int(action)))
        return Transition(after, after.observation, int(self.won(after)), self.won(after))

    def admissible(self, state: TreeState) -> tuple[str, ...]:
        if len(state.node) == state.task.depth:
            return ()
        return tuple(str(branch) for branch in range(state.task.branching))

    def won(self, state: TreeState) -> bool:
        return state.node in state.task.goals


def success_probabilities(
    task: TreeTask, choose: Callable[[str], Mapping[str, float]]
) -> dict[Node, float]:
    """Return p(s), the probability of winning from every node that can be reached, under a policy.

    A path has exactly as many steps as the tree is deep, so a dead end wins nothing.

    Args:
        task: the tree.
        choose: from an observation to the probability of each action.
    """
    known: dict[Node, float] = {}

    def visit(node: Node) -> float:
        if len(node) == task.depth or task.is_dead_end(node):
            value = float(node in task.goals)
        else:
            probabilities = choose(task.look(node))
            value = sum(
                probabilities.get(str(branch), 0.0) * visit((*node, branch))
                for branch in range(task.branching)
            )
        known[node] = value
        return value

    visit(())
    return known
