"""Visit statistics: N_total and N_success of every state, from completed paths."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class StateTable:
    """Counts per state key, over the whole run.

    A path counts once for every distinct state on it, its terminal observation included (the pipeline figure's rows).
    """

    counts: dict[str, tuple[float, float]] = field(default_factory=dict)
    """state key -> (N_total, N_success)."""
    pending: list[tuple[tuple[str, ...], bool]] = field(default_factory=list)
    """(state keys, success) of the completed paths that do not count yet."""
    paths: int = 0
    """Completed paths that were counted, over the whole run: the clock of the released code."""

    def get(self, key: str) -> tuple[float, float]:
        """Return (N_total, N_success); (0, 0) for a state never seen."""
        return self.counts.get(key, (0.0, 0.0))

    def add_path(self, path: Sequence[str], success: bool) -> None:
        """Add a completed root-to-leaf path, as state keys in order; it counts from the next ``commit`` on."""
        self.pending.append((tuple(path), success))

    def commit(self) -> None:
        """Count all pending paths. Between two calls, by default once per tick, all tasks see the same statistics."""
        self.paths += len(self.pending)
        for path, success in self.pending:
            for key in self.counted_states(path):
                total, won = self.get(key)
                self.counts[key] = (total + 1, won + success)
        self.pending.clear()

    def counted_states(self, path: Sequence[str]) -> Iterable[str]:
        """Return the states that a path counts, in order."""
        # Each state once, as in the released code: N_total is a number of paths, and not of visits.
        return dict.fromkeys(path)

    def decay(self, factor: float) -> None:
        """Multiply all counts by ``factor``."""
        # Failures then fall below xi again and the gate opens. Only this and ``forget`` reopen it: hardly
        # any path goes through a gated state, so a window of recent paths would not do.
        if factor != 1.0:
            self.counts = {
                key: (total * factor, won * factor) for key, (total, won) in self.counts.items()
            }

    def forget(self) -> None:
        """Set all counts to zero."""
        self.counts = {}

    def dump(self) -> dict[str, Any]:
        """Return the table as JSON values, for checkpoints."""
        return {"paths": self.paths, "counts": [[key, *pair] for key, pair in self.counts.items()]}

    @classmethod
    def restore(cls, dumped: Mapping[str, Any]) -> "StateTable":
        """Return the table that ``dump`` described."""
        counts = {key: (total, won) for key, total, won in dumped["counts"]}
        return cls(counts, paths=dumped["paths"])
