"""Statistics of states for the paper's figures, counted alike for every method and without influence on training.

3SPO decides by statistics of its own, under its preset's constants and key. So that methods can be compared, all of them
are measured here in one way: states are observations, scored by eq. 1 with the printed constants and the counts at the
beginning of the epoch.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from threespo.envs.episode import Episode
from threespo.rng import derive
from threespo.scoring.state import ScoreSettings, state_score
from threespo.scoring.table import StateTable

_PRINTED_CONSTANTS = ScoreSettings()

HIGH_SCORE = 0.5
"""A state is high-scoring above this (figure of high-score ratios)."""

_REFERENCE_DEPTH = 10
"""Depth at which all known states are scored, since the table does not keep where a state was met."""


def normalise_observation(observation: str) -> str:
    """Return the observation with every run of blanks as one."""
    return " ".join(observation.split())


def state_id(key: str) -> str:
    """Return the short name of a state key in tables, equal for equal states."""
    return hashlib.blake2b(key.encode(), digest_size=6).hexdigest()


@dataclass(slots=True)
class StateStatistics:
    """Counts of states over a run, and the scores of the states visited in the present epoch, by task type."""

    table: StateTable = field(default_factory=StateTable)
    met: set[int] = field(default_factory=set)
    """64-bit hashes of all states that the environment has shown, on completed paths or not."""
    _visits: dict[str, list[float]] = field(default_factory=dict)
    """Task type -> score at each visit."""
    _unique: dict[str, dict[str, float]] = field(default_factory=dict)
    """Task type -> state key -> score at the first visit."""

    def add_visit(self, episode: Episode, samples: int = 1) -> None:
        """Count a state in which actions are sampled; each of the ``samples`` counts as a visit."""
        key = normalise_observation(episode.observation)
        self.met.add(derive(key))

        # The clock of eq. 1 is the 1-based depth, the printed reading.
        n_total, n_success = self.table.get(key)
        score = state_score(n_total, n_success, episode.steps + 1, _PRINTED_CONSTANTS).score

        task_type = episode.task.task_type
        self._visits.setdefault(task_type, []).extend([score] * samples)
        self._unique.setdefault(task_type, {}).setdefault(key, score)

    def add_shown_state(self, episode: Episode) -> None:
        """Count a state that the environment has shown."""
        self.met.add(derive(normalise_observation(episode.observation)))

    def add_path(self, last: Episode) -> None:
        """Count a completed path, given its end."""
        keys = [normalise_observation(observation) for observation, _ in last.history]
        keys.append(normalise_observation(last.observation))
        self.table.add_path(keys, last.won)

    def close_epoch(self) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
        """End the epoch: commit its paths.

        Returns:
            The numbers of all tasks, and those of each task type.
        """
        self.table.commit()
        visits = [score for scores in self._visits.values() for score in scores]

        # A state that tasks of several types share is one state, with the score that its first type saw.
        unique: dict[str, float] = {}
        for scores in self._unique.values():
            unique = {**scores, **unique}

        known_scores = [
            state_score(n_total, n_success, _REFERENCE_DEPTH, _PRINTED_CONSTANTS).score
            for n_total, n_success in self.table.counts.values()
        ]
        numbers = {
            **_summarise_scores(visits, list(unique.values())),
            "state_met": float(len(self.met)),
            "state_known": float(len(known_scores)),
            "state_score_known": _mean(known_scores),
        }

        by_type = {
            task_type: _summarise_scores(scores, list(self._unique[task_type].values()))
            for task_type, scores in self._visits.items()
        }
        self._visits = {}
        self._unique = {}
        return numbers, by_type

    def dump(self) -> Any:
        """Return what is remembered between epochs, as JSON values."""
        # Sorted, since the order of a set depends on how it was filled: equal memories give equal checkpoints.
        return {"table": self.table.dump(), "met": sorted(self.met)}

    @classmethod
    def restore(cls, dumped: Any) -> "StateStatistics":
        """Return the statistics that ``dump`` described."""
        return cls(StateTable.restore(dumped["table"]), set(dumped["met"]))


class RemembersStates:
    """The memory of a method that keeps nothing between epochs but the statistics of states."""

    def __init__(self) -> None:
        self.states = StateStatistics()

    def dump(self) -> dict[str, Any]:
        return {"states": self.states.dump()}

    def restore(self, memory: dict[str, Any]) -> None:
        self.states = StateStatistics.restore(memory["states"])


def _summarise_scores(visits: list[float], unique: list[float]) -> dict[str, float]:
    """Return the metrics columns of the scores at all visits, and at the first visits of distinct states."""
    return {
        "state_visits": float(len(visits)),
        "state_visited": float(len(unique)),
        "state_score_visits": _mean(visits),
        "state_score_unique": _mean(unique),
        "state_high_visits": _mean([score > HIGH_SCORE for score in visits]),
        "state_high_unique": _mean([score > HIGH_SCORE for score in unique]),
    }


def _mean(values: Sequence[float]) -> float:
    # 0 for an epoch without visits, whose roots are all gated.
    return float(sum(values)) / max(1, len(values))
