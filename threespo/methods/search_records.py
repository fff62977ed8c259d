"""Records of 3SPO's searches: counts over an epoch, and the nodes of chosen trees."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any

from threespo.envs.episode import Episode, Outcome
from threespo.methods.states import HIGH_SCORE, state_id
from threespo.methods.tree_table import COLUMNS
from threespo.scoring.reward import RewardTerms
from threespo.scoring.state import StateScore


@dataclass(slots=True)
class SearchLog:
    """Counts over the searches of an epoch that share a task type."""

    histogram: dict[int, int] = field(default_factory=dict)
    """n(s_t) -> expansions and gated states, capped ones left out."""
    capped: int = 0
    """Expansions with one sample because a cap was reached."""
    gated_roots: int = 0
    unvisited: int = 0
    """Expansions of states with N_total = 0, where omega = 0.5 removes the score difference from eq. 2."""
    score_sum: float = 0.0
    """Visit-weighted sum of S over expansions."""
    high_scores: int = 0
    """Expansions of states with S above ``HIGH_SCORE``."""
    term_sums: dict[str, float] = field(default_factory=lambda: dict.fromkeys(RewardTerms._fields, 0.0))
    """Sum of each term of eq. 2 over children."""
    children: int = 0
    learned_groups: int = 0
    spread_sum: float = 0.0
    """Sum of the standard deviations of rewards over learned groups."""
    advantage_sum: float = 0.0
    """Sum of |A| over the rows of learned groups."""
    advantage_rows: int = 0
    skipped_groups: int = 0
    """Groups of two or more without a usable spread of rewards."""
    generation_caps: int = 0
    path_caps: int = 0
    visited: set[str] = field(default_factory=set)

    @classmethod
    def merge_logs(cls, logs: Iterable["SearchLog"]) -> "SearchLog":
        """Return the counts of several logs together."""
        merged = cls()
        for log in logs:
            for column in fields(cls):
                ours = getattr(merged, column.name)
                theirs = getattr(log, column.name)
                if isinstance(ours, dict):
                    for key, value in theirs.items():
                        ours[key] = ours.get(key, 0) + value
                elif isinstance(ours, set):
                    ours |= theirs
                else:
                    setattr(merged, column.name, ours + theirs)
        return merged

    def add_expansion(self, key: str, score: StateScore, n_total: float) -> None:
        """Count a state in which actions are sampled; ``n_total`` is its N_total before these samples."""
        self.unvisited += n_total == 0
        self.score_sum += score.score
        self.high_scores += score.score > HIGH_SCORE
        self.visited.add(key)

    def add_child(self, terms: RewardTerms) -> None:
        """Count the reward of a child."""
        self.children += 1
        for name, value in zip(RewardTerms._fields, terms, strict=True):
            self.term_sums[name] += value

    def add_group(self, rewards: list[float], advantages: list[float] | None) -> None:
        """Count the rewards of siblings and what is learned from them.

        Args:
            rewards: reward of each child, (siblings,).
            advantages: advantage of each child, or ``None`` if the group is skipped.
        """
        if advantages is None:
            # A single sample "proceeds to the next state without policy optimization" (sec. 3.4): nothing was skipped.
            self.skipped_groups += len(rewards) > 1
            return
        mean = math.fsum(rewards) / len(rewards)
        squares = math.fsum((reward - mean) ** 2 for reward in rewards)
        self.learned_groups += 1
        self.spread_sum += math.sqrt(squares / (len(rewards) - 1))
        self.advantage_sum += math.fsum(abs(advantage) for advantage in advantages)
        self.advantage_rows += len(advantages)

    def to_metrics(self, g_max: int) -> dict[str, float]:
        """Return the columns of the metrics table, with a histogram of n(s) from 0 to ``g_max``."""
        sampled = sum(count for rollouts, count in self.histogram.items() if rollouts)
        expansions = self.capped + sampled

        # An epoch whose roots are all gated has none of these: its means are 0.
        per_expansion = max(1, expansions)
        per_child = max(1, self.children)

        return {
            **{f"n_{rollouts}": float(self.histogram.get(rollouts, 0)) for rollouts in range(g_max + 1)},
            "expansions": float(expansions),
            "capped_expansions": float(self.capped),
            "gated_roots": float(self.gated_roots),
            "visited_states": float(len(self.visited)),
            "unvisited_share": self.unvisited / per_expansion,
            "mean_score_visit": self.score_sum / per_expansion,
            "high_score_share": self.high_scores / per_expansion,
            **{f"{name}_term": total / per_child for name, total in self.term_sums.items()},
            "learned_groups": float(self.learned_groups),
            "skipped_groups": float(self.skipped_groups),
            "reward_spread": self.spread_sum / max(1, self.learned_groups),
            "advantage_size": self.advantage_sum / max(1, self.advantage_rows),
            "generation_caps": float(self.generation_caps),
            "path_caps": float(self.path_caps),
        }


@dataclass(slots=True)
class TreeRecord:
    """The nodes of one search, as rows of ``threespo.methods.tree_table.COLUMNS``, without the epoch."""

    rows: list[dict[str, Any]] = field(default_factory=list)

    def add_root(self, episode: Episode, key: str) -> None:
        """Begin the tree with its first state, whose state key is ``key``."""
        no_edge = {"action": "", "response": "", "valid": True, "admissible": True}
        self._add_node(episode, key, parent=-1, depth=1, edge=no_edge)

    def add_child(
        self,
        parent: int,
        path: tuple[str, ...],
        response: str,
        outcome: Outcome,
        reward: float,
        terms: RewardTerms,
    ) -> None:
        """Add a sampled transition; nodes are numbered in the order of these calls.

        Args:
            parent: number of the node where the action was sampled.
            path: state keys from the root to the new node, this one included.
            response: the sampled text.
            outcome: what it led to.
            reward: eq. 2 less the penalty for malformed responses.
            terms: the terms of eq. 2.
        """
        edge = {
            "action": outcome.action,
            "response": response,
            "valid": outcome.valid,
            "admissible": outcome.admissible,
            "reward": reward,
            **terms._asdict(),
        }
        self._add_node(outcome.episode, path[-1], parent, len(path), edge)

    def record_counts(self, node: int, counts: tuple[float, float], score: StateScore) -> None:
        """Set a node's columns from the statistics as they are now, ``counts`` being (N_total, N_success)."""
        n_total, n_success = counts
        row = self.rows[node]
        row["visits"] = n_total
        row["successes"] = n_success
        row["score"] = score.score
        row["gated"] = score.gated

    def record_expansion(self, node: int, index: int, rollouts: int) -> None:
        """Record that ``rollouts`` actions are sampled at a node, as expansion number ``index`` of the search, from 0."""
        row = self.rows[node]
        # The root is expanded in each pass with `frontier: restart`: the first index stays.
        if row["expanded"] < 0:
            row["expanded"] = index
        row["rollouts"] += rollouts

    def record_advantages(self, nodes: list[int], advantages: list[float]) -> None:
        """Set the advantages of siblings."""
        for node, advantage in zip(nodes, advantages, strict=True):
            self.rows[node]["advantage"] = advantage

    def _add_node(
        self, episode: Episode, key: str, parent: int, depth: int, edge: dict[str, Any]
    ) -> None:
        # The root has no reward, and a group that is not learned from no advantage.
        unknown = dict.fromkeys(("reward", *RewardTerms._fields, "advantage"), math.nan)
        row: dict[str, Any] = {
            "task_id": episode.task.task_id,
            "task_type": episode.task.task_type,
            "goal": episode.task.goal,
            "node": len(self.rows),
            "parent": parent,
            "depth": depth,
            "state": state_id(key),
            "observation": episode.observation,
            "end": _describe_end(episode),
            "visits": 0.0,
            "successes": 0.0,
            "score": 1.0,
            "gated": False,
            "expanded": -1,
            "rollouts": 0,
            **unknown,
            **edge,
        }
        # In the order of the table; the epoch comes first there, and is added by the run loop.
        self.rows.append({name: row[name] for name in COLUMNS[1:]})


def _describe_end(episode: Episode) -> str:
    """Return the one of ``tree_table.ENDS`` that an episode has reached."""
    if episode.won:
        return "won"
    if episode.ended:
        return "over"
    return "limit" if episode.done else ""
