"""Algorithm 1 as a coroutine: the ranked backtracking search of one task.

The search knows nothing of models or batches. It yields a ``SampleRequest`` for the state that it expands, receives the
samples, and yields the training rows of that group (none where there is nothing to learn). A driver advances the
searches of all tasks in lock-step (``threespo.methods.threespo``).

Reading of the pseudocode (its own notation is inconsistent): the frontier is a stack of untried children, best sibling
on top, deepest first; a popped child goes on from exactly its own state, history and step count.
"""

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

from threespo.envs.episode import Episode, respond
from threespo.methods.base import CommonSettings, Tally, Turn, make_row
from threespo.methods.states import state_key
from threespo.protocol import Row, SampleRequest
from threespo.rng import generator
from threespo.scoring.reward import group_advantages, novelty_weight, step_reward
from threespo.scoring.state import ScoreSettings, StateScore, state_score
from threespo.scoring.table import StateTable

Expansion = Generator[SampleRequest | tuple[Row, ...], Any, None]


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """What a search needs of the method's options."""

    score: ScoreSettings
    omega_k: float
    std_floor: float
    goal_in_key: bool
    gate_at_root: bool
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

    def run(self, start: Episode) -> Expansion:
        """Search from ``start`` until nothing is left to try or a cap is reached."""
        frontier: list[Node] = [Node(start, (self._key(start),))]
        expansions = 0
        while frontier:
            node = frontier.pop()
            score = self._score(node)
            rollouts = score.rollouts
            if rollouts and self._capped():
                rollouts = 1
                self.log.capped += 1
            else:
                self.log.histogram[rollouts] = self.log.histogram.get(rollouts, 0) + 1
            if not rollouts:
                self.log.gated_roots += len(node.path) == 1
                continue
            self._log_expansion(node, score)
            prompt = node.episode.prompt
            samples = yield SampleRequest(prompt, rollouts, ("search", self.number, self.slot, expansions))
            expansions += 1
            self.generations += rollouts
            children = self._children(node, score, prompt, samples)
            going, finished = self._rank(children, expansions)
            yield self._rows(children)
            if self._capped():
                # The current path is finished greedily, and nothing else is tried.
                frontier = [] if finished else going[-1:]
            else:
                frontier += going
        self.log.generation_caps += self.generations >= self.max_generations
        self.log.path_caps += self.paths >= self.settings.max_paths

    def _key(self, episode: Episode) -> str:
        observation = state_key(episode.observation)
        return f"{episode.task.goal}\n{observation}" if self.settings.goal_in_key else observation

    def _score(self, node: Node) -> StateScore:
        depth = len(node.path)
        gate = self.settings.gate_at_root or depth > 1
        return state_score(*self.table.get(node.path[-1]), depth, self.settings.score, gate)

    def _capped(self) -> bool:
        return self.generations >= self.max_generations or self.paths >= self.settings.max_paths

    def _children(self, node: Node, score: StateScore, prompt: str, samples: list[Any]) -> list[Child]:
        """Take every sampled action from the same state and reward the transitions (eq. 2)."""
        omega = novelty_weight(self.table.get(node.path[-1])[0], self.settings.omega_k)
        children = []
        for sample in samples:
            outcome = respond(node.episode, sample.text)
            self.tally.turn(outcome)
            key = self._key(outcome.episode)
            child = Node(outcome.episode, (*node.path, key))
            novel, after = key not in node.path, self._score(child).score
            reward = step_reward(
                omega=omega, novel=novel, score=score.score, next_score=after, success=outcome.episode.won
            )
            self.log.novelty_sum += omega * novel
            self.log.difference_sum += (0.5 - omega) * (score.score - after)
            reward -= self.common.invalid_penalty * (not outcome.valid)
            children.append(Child(Turn(node.episode, prompt, sample, outcome), child, reward))
        self.log.children += len(children)
        return children

    def _rows(self, children: list[Child]) -> tuple[Row, ...]:
        """The group's training rows: siblings of one state compared by reward, each weighted 1/n (eq. 5)."""
        advantages = group_advantages([child.reward for child in children], self.settings.std_floor)
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
        generator(self.common.seed, "ties", self.number, self.slot, expansion).shuffle(order)
        order.sort(key=lambda child: -child.reward)
        going: dict[str, Node] = {}
        for child in order:
            episode = child.node.episode
            if episode.done:
                self.paths += 1
                self.tally.path(episode)
                self.table.complete(child.node.path, episode.won)
            else:
                going.setdefault(child.node.path[-1], child.node)
        return list(going.values())[::-1], order[0].node.episode.done

    def _log_expansion(self, node: Node, score: StateScore) -> None:
        self.log.unvisited += self.table.get(node.path[-1])[0] == 0
        self.log.score_sum += score.score
        self.log.visited.add(node.path[-1])
        self.tally.states.visit(node.episode)
