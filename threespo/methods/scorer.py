"""The state scorer: a state's key, score and number of samples, and a transition's reward, from the visit statistics."""

from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from pydantic import Field

from threespo.envs.episode import Episode
from threespo.methods.base import Method, MethodOptions
from threespo.methods.states import normalise_observation
from threespo.scoring.reward import RewardTerms, novelty_weight, step_reward
from threespo.scoring.state import ScoreSettings, StateScore, state_score
from threespo.scoring.table import StateTable


class SearchOptions(MethodOptions):
    """How states are scored, searched and counted: the options of 3SPO that a search reads as they are."""

    # Eq. 1, the score
    clock: Literal["depth", "depth_plus_1", "paths", "epoch"] = "depth"
    """t: 1-based depth in the path (appendix, depth-dependent factor), that plus 1, completed paths of the run plus 1 (the
    released code), or the epoch's number."""
    next_clock: Literal["t", "t_plus_1"] = "t_plus_1"
    """Whether S(s_t+1) in eq. 2 is taken at its own t, or at that of s_t (sec. 3.3 writes lambda(t))."""
    normalise_observation: Literal["obs", "task_obs", "history"] = "obs"
    """What a state is: the observation alone, shared by all tasks (sec. 3.1, sec. 4.4); goal and observation; or goal,
    observation and the last ``key_history`` steps."""
    key_history: int = Field(default=2, ge=1, le=1000)
    """Steps in the key ``history``."""

    # The gate
    gate: bool = True
    """The indicator of eq. 1; false leaves it out."""
    gate_at_root: bool = True
    """Whether a task whose first state is gated is given up (as printed), or always tried."""
    gate_probe: float = Field(default=0.0, ge=0, le=1)
    """Chance that a gated state is sampled once all the same."""
    gate_in_reward: Literal["zero", "ungated", "one"] = "zero"
    """S of a gated s_t+1 in eq. 2: 0 as printed, its exponential, or 1 (as difficult as can be)."""

    # Counting
    count_terminal: bool = True
    """A path's last observation counts as a state of it (rows of the pipeline figure; the released code leaves it out)."""
    count_siblings: bool = True
    """Children that end their path count when they are sampled; otherwise when the search comes to them."""
    count_at: Literal["tick", "path"] = "tick"
    """When a completed path counts: when all tasks have made their step, or at once, also for the tasks after it."""
    count_gated: bool = False
    """A path that ends at a gated state counts as failed."""

    # Eq. 2, the reward
    omega_k: float = Field(default=0.1, ge=0, le=1_000_000)
    """Decay of the novelty weight (tab:hyperparams: 0.1)."""
    omega_fixed: float | None = Field(default=None, ge=0, le=0.5)
    """Ablation w/o adaptive omega: 0.25 weighs both terms alike; the printed 0.5 removes the difference."""
    novelty: Literal["path", "observation", "changed", "global", "none"] = "path"
    """Novel is a state that is not on the path (tau^t), an observation that is not, whatever ``state_key`` is, a state that
    differs from the last, or one that no path has completed through; ``none`` is the ablation w/o R_novel."""
    difference: bool = True
    """False is the ablation w/o Delta S."""
    success: Literal["won", "score"] = "won"
    """R_success: 1 on winning, or the environment's score at the end (graded in WebShop)."""

    # Eq. 3 and Algorithm 1
    uniform: bool = False
    """Ablation w/o adaptive n: G_max samples wherever the gate is open; with ``gate: false`` everywhere."""
    frontier: Literal["children", "resample", "restart", "none"] = "children"
    """On backtracking go on from an untried child, or sample its parent anew (the released code); ``none`` takes one path a
    task, ``restart`` begins again at the root until a cap is reached (ablation w/o backtracking)."""
    backtrack: Literal["deepest", "oldest"] = "deepest"
    """Which untried child comes next when a path has ended: of the deepest (Algorithm 1), or of those nearest to the root;
    the best of the siblings that were sampled last."""
    tie_break: Literal["random", "first"] = "random"
    """Order of children with equal rewards."""
    keep_duplicates: bool = False
    """Try children with the same observation each for itself."""

    # Eq. 5, the update
    credit: Literal["step", "subtree", "graph"] = "step"
    """What R_success of a child is when its group is learned from: that of the transition (eq. 2); ``subtree``: the success
    rate of all completed paths of the search that go on from it, children without one left out; ``graph``: ``graph_decay``
    to the power of its distance from success in the graph of visited states. The last two are known when the search has
    ended, so no update comes before (``state`` and ``path`` then mean one step for each state). Ranks are always by the
    transition's own reward."""
    graph_memory: Literal["search", "run"] = "run"
    """``credit: graph``: the transitions of this search, or of all searches of the task so far. Nodes are ``state_key``s."""
    graph_decay: float = Field(default=0.8, gt=0, le=1)
    """``credit: graph``: what a step further from success is worth, as a factor."""
    penalty: Literal["reward", "advantage"] = "reward"
    """Where the penalty for malformed responses comes off: the reward, and so ranks and the group's mean and spread (eq. 2
    has no such term; the text only calls it a penalty), or the advantage of the response."""
    without_signal: Literal["skip", "kl"] = "skip"
    """Groups with equal rewards and single samples: no optimizer step, or one on the KL penalty alone (eq. 5 with A = 0)."""
    normalise: bool = True
    """Divide a group's rewards by their standard deviation."""
    std_floor: float = Field(default=0.0, ge=0, le=1_000_000)
    """Groups whose rewards spread less are not learned from."""


class SearchSettings(SearchOptions):
    """The options of a search with what is derived from the method's other options."""

    score: ScoreSettings
    """alpha, xi, zeta and G_max (eq. 1, eq. 3)."""
    release: Literal["state", "path", "search"]
    """When groups are handed over: at once, when a path is complete, or when the search has ended."""
    max_paths: int
    """Cap on the task's completed paths."""


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
class StateScorer:
    """Scores states and transitions in one epoch, by the statistics as they are."""

    number: int
    """Epoch, from 0."""
    table: StateTable
    settings: SearchSettings

    def state_key(self, episode: Episode) -> str:
        """Return what the statistics know a state by."""
        observation = normalise_observation(episode.observation)
        match self.settings.state_key:
            case "task_obs":
                return f"{episode.task.goal}\n{observation}"
            case "history":
                recent = episode.history[-self.settings.key_history :]
                return "\n".join(
                    [
                        episode.task.goal,
                        *(f"{normalise_observation(seen)} > {act}" for seen, act in recent),
                        observation,
                    ]
                )
        return observation

    def score(self, node: Node, clock: int | None = None, gate: bool | None = None) -> StateScore:
        """Return S(s), n(s) and the gate of a node (eq. 1, eq. 3).

        Args:
            node: the state, with the path to it.
            clock: t of eq. 1; by default that of the node's own depth.
            gate: whether the gate may close; by default as the study's options say.
        """
        depth = len(node.path)
        if gate is None:
            gate = self.settings.gate and (self.settings.gate_at_root or depth > 1)
        return state_score(
            *self.table.get(node.path[-1]), clock or self._clock(depth), self.settings.score, gate
        )

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
        return (
            1.0 if self.settings.gate_in_reward == "one" else self.score(child, clock, gate=False).score
        )

    def reward(self, node: Node, score: StateScore, child: Node) -> RewardTerms:
        """Return the terms of eq. 2 for one transition.

        Args:
            node: s_t.
            score: S(s_t) as it was when actions were sampled there.
            child: s_t+1.
        """
        settings, after = self.settings, self._next_score(child)
        omega = novelty_weight(self.table.get(node.path[-1])[0], settings.omega_k, settings.omega_fixed)

        # The ablations drop one term and leave the weight of the other as it is; equal scores make the difference 0.
        next_score = after if settings.difference else score.score

        episode = child.episode
        success = (
            float(episode.won) if settings.success == "won" else float(episode.score) * episode.done
        )
        novel = self._novel(node, child)
        return step_reward(
            omega=omega, novel=novel, score=score.score, next_score=next_score, success=success
        )

    def _novel(self, node: Node, child: Node) -> bool:
        match self.settings.novelty:
            case "path":
                return child.path[-1] not in node.path
            case "observation":
                return normalise_observation(child.episode.observation) not in {
                    normalise_observation(seen) for seen, _ in child.episode.history
                }
            case "changed":
                return child.path[-1] != node.path[-1]
            case "global":
                return self.table.get(child.path[-1])[0] == 0
        return False


@runtime_checkable
class SearchMethod(Method, Protocol):
    """A method that searches: its state scores can be read at any time (``threespo probe``)."""

    def scorer_at_epoch(self, number: int) -> StateScorer:
        """Return how states are scored in an epoch."""
        ...
