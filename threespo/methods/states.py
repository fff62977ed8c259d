"""What the paper's figures count of states, for every method alike and without influence on training.

3SPO steers by statistics of its own, under its preset's constants and key. To set methods beside each other, all of them
are measured here in one way: states are observations, scored by eq. 1 with the printed constants and the counts that stood
at the beginning of the epoch.
"""

from dataclasses import dataclass, field
from typing import Any

from threespo.envs.episode import Episode
from threespo.scoring.state import ScoreSettings, state_score
from threespo.scoring.table import StateTable

_PRINTED = ScoreSettings()

HIGH_SCORE = 0.5
"""A state is high-scoring above this (figure of high-score ratios)."""


def state_key(observation: str) -> str:
    """Return the observation with every run of blanks as one."""
    return " ".join(observation.split())


@dataclass(slots=True)
class StateStatistics:
    """Counts of states over a run, and the scores that were met in the present epoch."""

    table: StateTable = field(default_factory=StateTable)
    _visits: list[float] = field(default_factory=list)
    _unique: dict[str, float] = field(default_factory=dict)

    def visit(self, episode: Episode, samples: int = 1) -> None:
        """Note a state in which so many actions are sampled; each is a visit."""
        key = state_key(episode.observation)
        score = state_score(*self.table.get(key), episode.steps + 1, _PRINTED).score
        self._visits += [score] * samples
        self._unique.setdefault(key, score)

    def path(self, last: Episode) -> None:
        """Note a completed path, given its end."""
        keys = [state_key(observation) for observation, _ in last.history]
        self.table.complete([*keys, state_key(last.observation)], last.won)

    def close(self) -> dict[str, float]:
        """End the epoch: count its paths and return its numbers."""
        self.table.commit()
        visits, unique = self._visits, list(self._unique.values())
        numbers = {
            "state_visits": float(len(visits)),
            "state_visited": float(len(unique)),
            "state_known": float(len(self.table.counts)),
            "state_score_visits": _mean(visits),
            "state_score_unique": _mean(unique),
            "state_high_visits": _mean([score > HIGH_SCORE for score in visits]),
            "state_high_unique": _mean([score > HIGH_SCORE for score in unique]),
        }
        self._visits, self._unique = [], {}
        return numbers

    def dump(self) -> Any:
        """Return what is remembered between epochs, as JSON values."""
        return self.table.dump()

    @classmethod
    def restore(cls, rows: Any) -> "StateStatistics":
        """Return the statistics that ``dump`` described."""
        return cls(StateTable.restore(rows))


class RemembersStates:
    """The memory of a method that keeps nothing between epochs but the statistics of states."""

    def __init__(self) -> None:
        self.states = StateStatistics()

    def dump(self) -> dict[str, Any]:
        return {"states": self.states.dump()}

    def restore(self, memory: dict[str, Any]) -> None:
        self.states = StateStatistics.restore(memory["states"])


def _mean(values: list[Any]) -> float:
    return float(sum(values)) / max(1, len(values))
