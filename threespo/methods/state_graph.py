"""The graph of a task's visited states: which leads to which in one step, and how far each is from success.

States are values and transitions deterministic, so what a search has seen once stays true for the whole run.
"""

from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from threespo.methods.states import state_id

NodeT = TypeVar("NodeT", bound=Hashable)


def shortest_distances(
    goals: Iterable[NodeT], before: Mapping[NodeT, Iterable[NodeT]]
) -> dict[NodeT, int]:
    """Return the fewest steps from each node to one of the goals, nearest nodes first; without those that have no way.

    Args:
        goals: nodes at distance 0.
        before: node -> the nodes that a step leads from to it.
    """
    found = dict.fromkeys(goals, 0)
    waiting = deque(found)
    while waiting:
        node = waiting.popleft()
        for source in before.get(node, ()):
            if source not in found:
                found[source] = found[node] + 1
                waiting.append(source)
    return found


@dataclass(slots=True)
class StateGraph:
    """Nodes are state keys, by their short names; an edge is an action that somebody has taken."""

    before: dict[str, dict[str, None]] = field(default_factory=dict)
    """Node -> the nodes that an action has led from to it, in the order in which they were met."""
    won: dict[str, None] = field(default_factory=dict)
    """Nodes at which an episode was won."""
    _known: dict[str, int] | None = None

    def step(self, origin: str, target: str, won: bool) -> None:
        """Note a transition.

        Args:
            origin: key of the state that was left.
            target: key of the state that was reached.
            won: whether the episode was won there.
        """
        start, end = state_id(origin), state_id(target)
        sources = self.before.setdefault(end, {})
        if start not in sources or (won and end not in self.won):
            sources[start] = None
            self.won |= {end: None} if won else {}
            self._known = None

    def distance(self, key: str) -> int | None:
        """Return the fewest known steps from a state to success, 0 if it is won; ``None`` if no known way leads there."""
        if self._known is None:
            self._known = shortest_distances(self.won, self.before)
        return self._known.get(state_id(key))

    def dump(self) -> dict[str, Any]:
        """Return the graph as JSON values, for checkpoints."""
        return {
            "before": [[node, list(sources)] for node, sources in self.before.items()],
            "won": list(self.won),
        }

    @classmethod
    def restore(cls, dumped: Mapping[str, Any]) -> "StateGraph":
        """Return the graph that ``dump`` described."""
        return cls(
            {node: dict.fromkeys(sources) for node, sources in dumped["before"]},
            dict.fromkeys(dumped["won"]),
        )
