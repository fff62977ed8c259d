"""What is kept of 3SPO's searches: counts over an epoch, and the nodes of chosen trees."""

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
    """n(s_t) -> expansions and gated pops, capped ones left out."""
    capped: int = 0
    """Expansions with one sample because a cap was reached."""
    gated_roots: int = 0
    unvisited: int = 0
    """Expansions of states with N_total = 0, where omega = 0.5 removes the score difference from eq. 2."""
    score_sum: float = 0.0
    """Visit-weighted sum of S over expansions."""
    high_scores: int = 0
    """Expansions of states with S above ``HIGH_SCORE``."""
    novelty_sum: float = 0.0
    """Sum of the novelty term of eq. 2 over children; likewise below."""
    difference_sum: float = 0.0
    success_sum: float = 0.0
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
        whole = cls()
        for log in logs:
            for one in fields(cls):
                merged, other = getattr(whole, one.name), getattr(log, one.name)
                if isinstance(merged, dict):
                    merged.update({key: merged.get(key, 0) + count for key, count in other.items()})
                elif isinstance(merged, set):
                    merged |= other
                else:
                    setattr(whole, one.name, merged + other)
        return whole

    def expansion(self, key: str, score: StateScore, total: float) -> None:
        """Note a state in which actions are sampled.

        Args:
            key: its state key.
            score: S and n there.
            total: N_total of the state before these samples.
        """
        self.unvisited += total == 0
        self.score_sum += score.score
        self.high_scores += score.score > HIGH_SCORE
        self.visited.add(key)

    def child(self, terms: RewardTerms) -> None:
        """Note the reward of a child."""
        self.children += 1
        self.novelty_sum += terms.novelty
        self.difference_sum += terms.difference
        self.success_sum += terms.success

    def group(self, rewards: list[float], advantages: list[float] | None) -> None:
        """Note the rewards of siblings and what is learned from them.

        Args:
            rewards: reward of each child, (siblings,).
            advantages: advantage of each child, or ``None`` if the group is skipped.
        """
        if advantages is None:
            self.skipped_groups += len(rewards) > 1
            return
        mean = math.fsum(rewards) / len(rewards)
        self.learned_groups += 1
        self.spread_sum += math.sqrt(
            math.fsum((reward - mean) ** 2 for reward in rewards) / (len(rewards) - 1)
        )
        self.advantage_sum += math.fsum(abs(advantage) for advantage in advantages)
        self.advantage_rows += len(advantages)

    def details(self, g_max: int) -> dict[str, float]:
        """Return the columns of the metrics table, with a histogram of n(s) from 0 to ``g_max``."""
        expansions = self.capped + sum(count for rollouts, count in self.histogram.items() if rollouts)
        each, born = max(1, expansions), max(1, self.children)

        return {
            **{f"n_{rollouts}": float(self.histogram.get(rollouts, 0)) for rollouts in range(g_max + 1)},
            "expansions": float(expansions),
            "capped_expansions": float(self.capped),
            "gated_roots": float(self.gated_roots),
            "visited_states": float(len(self.visited)),
            "unvisited_share": self.unvisited / each,
            "mean_score_visit": self.score_sum / each,
            "high_score_share": self.high_scores / each,
            "novelty_term": self.novelty_sum / born,
            "difference_term": self.difference_sum / born,
            "success_term": self.success_sum / born,
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

    def root(self, episode: Episode, key: str) -> None:
        """Begin the tree with its first state, whose state key is ``key``."""
        self._add(episode, key, -1, 1, {"action": "", "response": "", "valid": True, "admissible": True})

    def child(
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
        }
        self._add(
            outcome.episode, path[-1], parent, len(path), {**edge, "reward": reward, **terms._asdict()}
        )

    def counts(self, node: int, counts: tuple[float, float], score: StateScore) -> None:
        """Put down what the statistics say of a node now.

        Args:
            node: its number.
            counts: (N_total, N_success).
            score: eq. 1 and eq. 3.
        """
        total, won = counts
        self.rows[node] |= {
            "visits": total,
            "successes": won,
            "score": score.score,
            "gated": score.gated,
        }

    def expansion(self, node: int, place: int, rollouts: int) -> None:
        """Note that actions are sampled at a node.

        Args:
            node: its number.
            place: place in the order of expansions, from 0; the first one is kept.
            rollouts: actions sampled now.
        """
        row = self.rows[node]
        row["expanded"] = place if row["expanded"] < 0 else row["expanded"]
        row["rollouts"] += rollouts

    def learned(self, nodes: list[int], advantages: list[float]) -> None:
        """Note the advantages of siblings."""
        for node, advantage in zip(nodes, advantages, strict=True):
            self.rows[node]["advantage"] = advantage

    def _add(self, episode: Episode, key: str, parent: int, depth: int, edge: dict[str, Any]) -> None:
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
            "end": "won"
            if episode.won
            else "over"
            if episode.ended
            else "limit"
            if episode.done
            else "",
            **{
                "visits": 0.0,
                "successes": 0.0,
                "score": 1.0,
                "gated": False,
                "expanded": -1,
                "rollouts": 0,
            },
            **unknown,
            **edge,
        }

        self.rows.append({name: row[name] for name in COLUMNS[1:]})
