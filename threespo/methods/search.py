"""Algorithm 1 as a coroutine: the ranked backtracking search of one task.

The search knows nothing of models or batches. It yields a ``SampleRequest`` for the state that it expands, receives the
samples, and yields the training rows of that group (none where there is nothing to learn). A driver advances the
searches of all tasks in lock-step (``threespo.methods.threespo``).

Reading of the pseudocode (its own notation is inconsistent): the frontier is a stack of untried children, best sibling
on top, deepest first; a popped child goes on from exactly its own state, history and step count.
"""

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, Literal

from threespo.envs.episode import Episode, respond
from threespo.methods.base import CommonSettings, Tally, Turn, make_row
from threespo.methods.states import state_key
from threespo.protocol import Row, SampleRequest
from threespo.rng import generator
from threespo.scoring.reward import group_advantages, novelty_weight, step_reward
from threespo.scoring.state import ScoreSettings, StateScore, state_score
from threespo.scoring.table import StateTable

Groups = tuple[tuple[Row, ...], ...]
"""Rows that are ripe for an update, one group for each expanded state."""

Expansion = Generator[SampleRequest | Groups, Any, None]


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
    hold: bool
    """Hand groups over when a path is complete, not at once."""
    std_floor: float
    normalise: bool
    max_paths: int


@dataclass(frozen=True, slots=True)
class Node:
    """A state on a path of the search."""

    episode: Episode
    path: tuple[str, ...]
    """State keys from the root to this state, this one included; its length is the 1-based depth."""


@dataclass(slots=True)
class SearchLog:
    """Counts over all searches of an epoch."""

    histogram: dict[int, int] = field(default_factory=dict)
    """n(s_t) -> expansions and gated pops, capped ones left out."""
    capped: int = 0
    """Expansions with one sample because a cap was reached."""
    gated_roots: int = 0
    unvisited: int = 0
    """Expansions of states with N_total = 0, where omega = 0.5 removes the score difference from eq. 2."""
    score_sum: float = 0.0
    """Visit-weighted sum of S over expansions."""
    novelty_sum: float = 0.0
    """Sum of the novelty term of eq. 2 over children; likewise below."""
    difference_sum: float = 0.0
    children: int = 0
    skipped_groups: int = 0
    """Groups of two or more without a usable spread of rewards."""
    generation_caps: int = 0
    path_caps: int = 0
    visited: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Child:
    """One sampled transition with its reward."""

    turn: Turn
    node: Node
    reward: float


@dataclass(slots=True)
class Search:
    """The search of one task in one epoch."""

    number: int
    """Epoch, for the keys of random draws."""
    slot: int
    """Place of the task in the epoch."""
    table: StateTable
    settings: SearchSettings
    common: CommonSettings
    tally: Tally
    log: SearchLog
    max_generations: int
    generations: int = 0
    paths: int = 0
    probes: int = 0
    """Draws for gated states."""
    held: list[tuple[Row, ...]] = field(default_factory=list)
    """Groups that wait for their path to end."""

    def run(self, start: Episode) -> Expansion:
        """Search from ``start`` until nothing is left to try or a cap is reached."""
        root = Node(start, (self._key(start),))
        frontier: list[Node] = [root]
        expansions = before = 0
        while frontier:
            node = frontier.pop()
            if node.episode.done:
                self._complete(node)
            else:
                expansions, frontier = yield from self._expand(node, frontier, expansions)
            if not frontier and self.settings.frontier == "restart" and not self._capped() and self.generations > before:
                frontier, before = [root], self.generations
        if self.held:
            yield self._released()
        self.log.generation_caps += self.generations >= self.max_generations
        self.log.path_caps += self.paths >= self.settings.max_paths

    def _expand(
        self, node: Node, frontier: list[Node], expansions: int
    ) -> Generator[SampleRequest | Groups, Any, tuple[int, list[Node]]]:
        """Sample from a state and learn from the children; return how many expansions there were, and the frontier."""
        score = self._score(node)
        rollouts = self.settings.score.g_max if self.settings.uniform and score.rollouts else score.rollouts
        if not rollouts and self.settings.gate_probe and self._probes(expansions):
            rollouts = 1
        if rollouts and self._capped():
            rollouts = 1
            self.log.capped += 1
        else:
            self.log.histogram[rollouts] = self.log.histogram.get(rollouts, 0) + 1
        if not rollouts:
            self.log.gated_roots += len(node.path) == 1
            if self.settings.count_gated:
                self.table.complete(node.path, False)
            return expansions, frontier
        self._log_expansion(node, score, rollouts)
        prompt = node.episode.prompt
        samples = yield SampleRequest(prompt, rollouts, ("search", self.number, self.slot, expansions))
        expansions += 1
        self.generations += rollouts
        children = self._children(node, score, prompt, samples)
        going, finished = self._rank(children, expansions)
        rows = self._rows(children)
        self.held += [rows] if rows else []
        yield self._released() if finished or not self.settings.hold else ()
        if self._capped():
            # The current path is finished greedily, and nothing else is tried.
            return expansions, [] if finished else going[-1:]
        return expansions, frontier + self._next(node, going, finished)

    def _next(self, node: Node, going: list[Node], finished: bool) -> list[Node]:
        """Return what the frontier gets of the children to go on from, which come worst first."""
        match self.settings.frontier:
            case "children":
                return going
            case "resample":
                best = [] if finished else going[-1:]
                return [node] * (len(going) - len(best)) + best
        return [] if finished else going[-1:]

    def _released(self) -> Groups:
        groups, self.held = tuple(self.held), []
        return groups

    def _key(self, episode: Episode) -> str:
        observation = state_key(episode.observation)
        match self.settings.state_key:
            case "task_obs":
                return f"{episode.task.goal}\n{observation}"
            case "history":
                recent = episode.history[-self.settings.key_history :]
                return "\n".join([episode.task.goal, *(f"{state_key(seen)} > {act}" for seen, act in recent), observation])
        return observation

    def _score(self, node: Node, clock: int | None = None, gate: bool | None = None) -> StateScore:
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
        score = self._score(child, clock)
        if not score.gated or self.settings.gate_in_reward == "zero":
            return score.score
        return 1.0 if self.settings.gate_in_reward == "one" else self._score(child, clock, gate=False).score

    def _probes(self, expansions: int) -> bool:
        """Return whether a gated state is sampled all the same."""
        draw = generator(self.common.seed, "probe", self.number, self.slot, expansions, self.probes)
        self.probes += 1
        return draw.random() < self.settings.gate_probe

    def _capped(self) -> bool:
        return self.generations >= self.max_generations or self.paths >= self.settings.max_paths

    def _children(self, node: Node, score: StateScore, prompt: str, samples: list[Any]) -> list[Child]:
        """Take every sampled action from the same state and reward the transitions (eq. 2)."""
        children = []
        for sample in samples:
            outcome = respond(node.episode, sample.text)
            self.tally.turn(outcome)
            child = Node(outcome.episode, (*node.path, self._key(outcome.episode)))
            reward = self._reward(node, score, child) - self.common.invalid_penalty * (not outcome.valid)
            children.append(Child(Turn(node.episode, prompt, sample, outcome), child, reward))
        self.log.children += len(children)
        return children

    def _reward(self, node: Node, score: StateScore, child: Node) -> float:
        settings, after = self.settings, self._next_score(child)
        if settings.omega_fixed is None:
            omega = novelty_weight(self.table.get(node.path[-1])[0], settings.omega_k)
        else:
            omega = settings.omega_fixed
        novel = self._novel(node, child)
        # Without its difference the equation keeps omega on novelty, and the other way round.
        next_score = after if settings.difference else score.score
        self.log.novelty_sum += omega * novel
        self.log.difference_sum += (0.5 - omega) * (score.score - next_score)
        episode = child.episode
        success = float(episode.won) if settings.success == "won" else float(episode.score) * episode.done
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

    def _rows(self, children: list[Child]) -> tuple[Row, ...]:
        """The group's training rows: siblings of one state compared by reward, each weighted 1/n (eq. 5)."""
        rewards = [child.reward for child in children]
        advantages = group_advantages(rewards, self.settings.std_floor, normalise=self.settings.normalise)
        if advantages is None:
            self.log.skipped_groups += len(children) > 1
            return ()
        return tuple(
            make_row(child.turn, advantage, self.common, 1 / len(children))
            for child, advantage in zip(children, advantages, strict=True)
        )

    def _rank(self, children: list[Child], expansion: int) -> tuple[list[Node], bool]:
        """Count finished paths; return the children to go on from, and whether the best child ended its path.

        The children come worst first, so that a stack pops the best.

        Ties are common (early on, every new observation earns 0.5) and broken at random. Of children with the same
        observation only the best-ranked is kept.
        """
        order = list(children)
        if self.settings.tie_break == "random":
            generator(self.common.seed, "ties", self.number, self.slot, expansion).shuffle(order)
        order.sort(key=lambda child: -child.reward)
        going: dict[Any, Node] = {}
        for place, child in enumerate(order):
            if child.node.episode.done and (self.settings.count_siblings or not place):
                self._complete(child.node)
            else:
                # A finished sibling waits its turn like the others where it does not count at once.
                going.setdefault(place if self.settings.keep_duplicates else child.node.path[-1], child.node)
        return list(going.values())[::-1], order[0].node.episode.done

    def _complete(self, node: Node) -> None:
        self.paths += 1
        self.tally.path(node.episode)
        self.table.complete(node.path if self.settings.count_terminal else node.path[:-1], node.episode.won)

    def _log_expansion(self, node: Node, score: StateScore, rollouts: int) -> None:
        self.log.unvisited += self.table.get(node.path[-1])[0] == 0
        self.log.score_sum += score.score
        self.log.visited.add(node.path[-1])
        self.tally.states.visit(node.episode, rollouts)
