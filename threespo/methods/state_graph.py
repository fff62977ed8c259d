"""The graph of a task's visited states: which leads to which in one step, and how far each is from success.

States are values and transitions deterministic, so a transition seen once stays true for the whole run.
"""

from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from threespo.methods.states import state_id

NodeT = TypeVar("NodeT", bound=Hashable)


def shortest_distances(
    goals: Iterable[NodeT], sources: Mapping[NodeT, Iterable[NodeT]]
) -> dict[NodeT, int]:
    """Return the fewest steps from each node to one of the goals, nearest nodes first; unconnected nodes are left out.

    ``sources`` has for each node those from which a step leads to it.
    """
    # Breadth first from the goals against the direction of the steps: one search gives all distances.
    distances = dict.fromkeys(goals, 0)
    queue = deque(distances)
    while queue:
        node = queue.popleft()
        for source in sources.get(node, ()):
            if source not in distances:
                distances[source] = distances[node] + 1
                queue.append(source)
    return distances


@dataclass(slots=True)
class StateGraph:
    """Nodes are state keys, by their short names; an edge is an action that an episode has taken."""

    sources: dict[str, dict[str, None]] = field(default_factory=dict)
    """Node -> the nodes from which an action has led to it, in the order in which they were met."""
    won: dict[str, None] = field(default_factory=dict)
    """Nodes at which an episode was won."""
    _distances: dict[str, int] | None = None
    """Distances in the graph as it is; ``None`` after a change, until they are needed again."""

    def add_step(self, origin: str, target: str, won: bool) -> None:
        """Add a transition between two states, given their keys; ``won`` says that the episode was won at ``target``."""
        start = state_id(origin)
        end = state_id(target)
        sources = self.sources.setdefault(end, {})
        is_new_win = won and end not in self.won
        # Most transitions are known: those must not make the distances be computed again.
        if start in sources and not is_new_win:
            return

        sources[start] = None
        if won:
            self.won[end] = None
        self._distances = None

    def distance(self, key: str) -> int | None:
        """Return the fewest known steps from a state to success, 0 if it is won; ``None`` if no known path leads there."""
        if self._distances is None:
            self._distances = shortest_distances(self.won, self.sources)
        return self._distances.get(state_id(key))

    def dump(self) -> dict[str, Any]:
        """Return the graph as JSON values, for checkpoints."""
        # The stored name of the edges is that of earlier versions.
        return {
            "before": [[node, list(sources)] for node, sources in self.sources.items()],
            "won": list(self.won),
        }

    @classmethod
    def restore(cls, dumped: Mapping[str, Any]) -> "StateGraph":
        """Return the graph that ``dump`` described."""
        sources = {node: dict.fromkeys(origins) for node, origins in dumped["before"]}
        return cls(sources, dict.fromkeys(dumped["won"]))
