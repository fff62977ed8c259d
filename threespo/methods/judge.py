"""What 3SPO thinks of a state and of a transition: its key, score, number of samples and reward, from the statistics."""

from dataclasses import dataclass
from typing import Literal

from threespo.envs.episode import Episode
from threespo.methods.states import state_key
from threespo.scoring.reward import RewardTerms, novelty_weight, step_reward
from threespo.scoring.state import ScoreSettings, StateScore, state_score
from threespo.scoring.table import StateTable


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """What a search needs of the method's options (``ThreespoOptions`` explains them)."""

    score: ScoreSettings
    clock: Literal["depth", "depth_plus_1", "paths", "epoch"]
    next_clock: Literal["t", "t_plus_1"]
    state_key: Literal["obs", "task_obs", "history"]
    key_history: int
    omega_k: float
    omega_fixed: float | None
    novelty: Literal["path", "changed", "global", "none"]
    difference: bool
    success: Literal["won", "score"]
    gate: bool
    gate_at_root: bool
    gate_in_reward: Literal["zero", "ungated", "one"]
    gate_probe: float
    uniform: bool
    frontier: Literal["children", "resample", "restart", "none"]
    tie_break: Literal["random", "first"]
    keep_duplicates: bool
    count_terminal: bool
    count_gated: bool
    count_siblings: bool
    release: Literal["state", "path", "search"]
    """When groups are handed over: at once, when a path is complete, or when the search has ended."""
    credit: Literal["step", "subtree"]
    backtrack: Literal["deepest", "oldest"]
    std_floor: float
    normalise: bool
    max_paths: int


@dataclass(frozen=True, slots=True)
class Node:
    """A state on a path of the search."""

    episode: Episode
    path: tuple[str, ...]
    """State keys from the root to this state, this one included; its length is the 1-based depth."""
    number: int = 0
    """Place in the tree, in order of creation."""
    above: tuple["Subtree", ...] = ()
    """What the transitions from the root to this state have led to."""


@dataclass(slots=True)
class Subtree:
    """The completed paths of the present search that go on from one child."""

    paths: int = 0
    successes: int = 0


@dataclass(frozen=True, slots=True)
class Judge:
    """The statistics and how they are read, in one epoch."""

    number: int
    """Epoch, from 0."""
    table: StateTable
    settings: SearchSettings

    def key(self, episode: Episode) -> str:
        """Return what the statistics know a state by."""
        observation = state_key(episode.observation)
        match self.settings.state_key:
            case "task_obs":
                return f"{episode.task.goal}\n{observation}"
            case "history":
                recent = episode.history[-self.settings.key_history :]
                return "\n".join([episode.task.goal, *(f"{state_key(seen)} > {act}" for seen, act in recent), observation])
        return observation

    def score(self, node: Node, clock: int | None = None, gate: bool | None = None) -> StateScore:
        """Return S, n(s) and the gate (eq. 1, eq. 3), at the node's own clock and with the study's gate if none is given."""
        depth = len(node.path)
        if gate is None:
            gate = self.settings.gate and (self.settings.gate_at_root or depth > 1)
        return state_score(*self.table.get(node.path[-1]), clock or self._clock(depth), self.settings.score, gate)

    def _clock(self, depth: int) -> int:
        """Return t of eq. 1."""
        match self.settings.clock:
            case "depth":
                return depth
            case "depth_plus_1":
                return depth + 1
            case "paths":
                return self.table.paths + 1
        return self.number + 1

    def _next_score(self, child: Node) -> float:
        """Return S(s_t+1) as eq. 2 uses it."""
        clock = self._clock(len(child.path) - (self.settings.next_clock == "t"))
        score = self.score(child, clock)
        if not score.gated or self.settings.gate_in_reward == "zero":
            return score.score
        return 1.0 if self.settings.gate_in_reward == "one" else self.score(child, clock, gate=False).score

    def reward(self, node: Node, score: StateScore, child: Node) -> RewardTerms:
        """Return the terms of eq. 2 for the transition from ``node``, whose score is given, to ``child``."""
        settings, after = self.settings, self._next_score(child)
        omega = novelty_weight(self.table.get(node.path[-1])[0], settings.omega_k, settings.omega_fixed)
        # Without its difference the equation keeps omega on novelty, and the other way round.
        next_score = after if settings.difference else score.score
        episode = child.episode
        success = float(episode.won) if settings.success == "won" else float(episode.score) * episode.done
        novel = self._novel(node, child)
        return step_reward(omega=omega, novel=novel, score=score.score, next_score=next_score, success=success)

    def _novel(self, node: Node, child: Node) -> bool:
        match self.settings.novelty:
            case "path":
                return child.path[-1] not in node.path
            case "changed":
                return child.path[-1] != node.path[-1]
            case "global":
                return self.table.get(child.path[-1])[0] == 0
        return False
