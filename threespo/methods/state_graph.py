"""The graph of a task's visited states: which leads to which in one step, and how far each is from success.

States are values and transitions deterministic, so what a search has seen once stays true for the whole run.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from threespo.methods.states import state_id


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
            self._known = dict.fromkeys(self.won, 0)
            waiting = deque(self.won)
            while waiting:
                node = waiting.popleft()
                for source in self.before.get(node, ()):
                    if source not in self._known:
                        self._known[source] = self._known[node] + 1
                        waiting.append(source)
        return self._known.get(state_id(key))

    def dump(self) -> dict[str, Any]:
        """Return the graph as JSON values, for checkpoints."""
        return {"before": [[node, list(sources)] for node, sources in self.before.items()], "won": list(self.won)}

    @classmethod
    def restore(cls, dumped: Mapping[str, Any]) -> "StateGraph":
        """Return the graph that ``dump`` described."""
        return cls({node: dict.fromkeys(sources) for node, sources in dumped["before"]}, dict.fromkeys(dumped["won"]))
