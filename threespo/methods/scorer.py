"""Scores states and rewards transitions by the visit statistics: eq. 1 to eq. 3 under the options of 3SPO.

The equations themselves are in ``threespo/scoring``; this module decides what the text leaves open: what a state is, what t
is, and which terms an ablation drops.
"""

from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from threespo.envs.episode import Episode
from threespo.methods.base import Method, Turn
from threespo.methods.states import normalise_observation
from threespo.methods.threespo_options import ThreespoOptions
from threespo.scoring.authors_gui import score_by_ticks, sigmoid_rollouts
from threespo.scoring.reward import RewardTerms, novelty_weight, step_reward
from threespo.scoring.state import ScoreSettings, StateScore, state_score
from threespo.scoring.table import StateTable

HISTORY_STEPS = 2
"""Steps in the key ``state_key: history``: as many as the prompts of the paper show."""

FORM_REWARD = 0.5
"""``r_success: evaluation_and_form``: what a well-formed response adds to R_success."""


@dataclass(slots=True)
class TickCounter:
    """Ticks of the run so far: the clock of the authors' own loop."""

    count: int = 0


@dataclass(slots=True)
class Subtree:
    """Counts of the completed paths of the present search that pass through one child."""

    paths: int = 0
    successes: int = 0


@dataclass(frozen=True, slots=True)
class Node:
    """A state on a path of the search."""

    episode: Episode
    path: tuple[str, ...]
    """State keys from the root to this state, this one included; its length is the 1-based depth."""
    number: int = 0
    """Index in the tree, in order of creation."""
    subtrees: tuple[Subtree, ...] = ()
    """Counts of each transition from the root to this state; the last one is this node's own."""

    @property
    def key(self) -> str:
        """State key of the node itself."""
        return self.path[-1]


@dataclass(frozen=True, slots=True)
class Child:
    """One sampled transition with its reward."""

    turn: Turn
    node: Node
    terms: RewardTerms
    reward_penalty: float
    """Comes off the reward of a malformed response."""
    advantage_penalty: float
    """Comes off its advantage instead: one of the two is 0 (option ``penalty``)."""

    @property
    def reward(self) -> float:
        """R_i: eq. 2, less the penalty where that is part of the reward."""
        return self.terms.total - self.reward_penalty

    @property
    def subtree(self) -> Subtree:
        """Counts of the completed paths that pass through this transition."""
        return self.node.subtrees[-1]


@dataclass(frozen=True, slots=True)
class StateScorer:
    """Scores states and transitions in one epoch, by the statistics as they are."""

    epoch: int
    """From 0."""
    table: StateTable
    options: ThreespoOptions
    constants: ScoreSettings
    """Those of eq. 1 and eq. 3, with the study's group size for G_max where the options have none."""
    ticks: TickCounter
    """The method's own, which goes on while the scorer is in use."""

    def state_key(self, episode: Episode) -> str:
        """Return the text by which the statistics identify the state of an episode."""
        observation = normalise_observation(episode.observation)
        # The paper's "exact-string matching", over all tasks: "Nothing happens." is one state of all goals together.
        if self.options.state_key == "obs":
            return observation
        if self.options.state_key == "task_obs":
            return f"{episode.task.goal}\n{observation}"

        recent_steps = [
            f"{normalise_observation(seen)} > {action}"
            for seen, action in episode.history[-HISTORY_STEPS:]
        ]
        return "\n".join([episode.task.goal, *recent_steps, observation])

    def score(self, node: Node, gate: bool | None = None) -> StateScore:
        """Return S(s), n(s) and the gate of a node (eq. 1, eq. 3).

        Args:
            node: the state, with the path to it.
            gate: whether the gate may close; by default as the options say.
        """
        depth = len(node.path)
        if gate is None:
            # Where the root cannot be gated, a task that has failed ten times is still tried.
            gate = self.options.gate and (self.options.gate_at_root or depth > 1)
        n_total, n_success = self.table.get(node.key)
        if self.options.clock == "ticks":
            score = score_by_ticks(n_total, n_success, self.ticks.count, self.constants, gate)
        else:
            score = state_score(n_total, n_success, self._clock(depth), self.constants, gate)
        if self.options.allocation == "sigmoid":
            return replace(score, rollouts=sigmoid_rollouts(score.score, self.constants.g_max))
        return score

    def count_known_states(self) -> dict[str, float]:
        """Return how many states the table has, and how many of them eq. 1 gates wherever they are not a root."""
        counts = self.table.counts.values()
        gated = [
            state_score(n_total, n_success, 1, self.constants, self.options.gate).gated
            for n_total, n_success in counts
        ]
        return {"gated_states": float(sum(gated)), "known_states": float(len(counts))}

    def has_succeeded(self, last: Episode) -> bool:
        """Return whether a path that ends at ``last`` counts for N_success."""
        if self.options.success_above is None:
            return last.won
        return last.score > self.options.success_above

    def compute_reward(self, node: Node, score: StateScore, child: Node, valid: bool) -> RewardTerms:
        """Return the terms of eq. 2 for one transition.

        Args:
            node: s_t.
            score: S(s_t) as it was when actions were sampled there.
            child: s_t+1.
            valid: whether the response was well-formed.
        """
        n_total, _ = self.table.get(node.key)
        # S(s_t+1) is taken at its own depth, and is 0 where it is gated, as eq. 1 and eq. 2 print it.
        next_score = self.score(child).score
        if not self.options.difference:
            # The ablation drops the term and keeps the other's weight: equal scores make the difference 0.
            next_score = score.score

        return step_reward(
            omega=novelty_weight(n_total, self.options.omega_k, self.options.omega_fixed),
            novel=self._is_novel(node, child),
            score=score.score,
            next_score=next_score,
            success=self._reward_success(child.episode, valid),
        )

    def _clock(self, depth: int) -> int:
        """Return t of lambda(t) = alpha ln t, at least 1 in each of these readings (``ticks`` has a lambda of its own)."""
        # "Time-varying annealing" (sec. 3.2), but "constant for a fixed trajectory depth t" (the proof of the regret).
        match self.options.clock:
            case "depth":
                return depth
            case "depth_plus_1":
                return depth + 1
            case "paths":
                # The released code's clock, one tick for each completed trajectory.
                return self.table.paths + 1
        return self.epoch + 1

    def _is_novel(self, node: Node, child: Node) -> bool:
        """Return R_novel(s_t+1) of eq. 2, the indicator that s_t+1 is not on the path tau^t."""
        match self.options.novelty:
            case "path":
                return child.key not in node.path
            case "observation":
                # With the history in the key even a repeated "Nothing happens." is a new state.
                seen_before = {normalise_observation(seen) for seen, _ in child.episode.history}
                return normalise_observation(child.episode.observation) not in seen_before
            case "change":
                before = normalise_observation(node.episode.observation)
                return normalise_observation(child.episode.observation) != before
        return False

    def _reward_success(self, after: Episode, valid: bool) -> float:
        """Return R_success of eq. 2 for the transition to ``after``."""
        if self.options.r_success == "won":
            return float(after.won)
        evaluation = after.score if after.done else 0.0
        return evaluation + FORM_REWARD * valid


@runtime_checkable
class SearchMethod(Method, Protocol):
    """A method that searches: its state scores can be read at any time (``threespo probe``)."""

    def scorer_at_epoch(self, epoch: int) -> StateScorer:
        """Return how states are scored in an epoch."""
        ...
