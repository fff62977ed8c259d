"""Algorithm 1 as a coroutine: the ranked backtracking search of one task.

The search knows nothing of models or batches. It yields a ``SampleRequest`` for the state that it expands, receives the
samples, and yields the training rows of that group (none where there is nothing to learn). A driver advances the
searches of all tasks in lock-step (``threespo.methods.threespo``).

Reading of the pseudocode (its own notation is inconsistent): the frontier is a stack of untried children, best sibling
on top, deepest first; a popped child goes on from exactly its own state, history and step count.
"""

from collections.abc import Generator
from dataclasses import dataclass, field, replace
from typing import Any

from threespo.envs.episode import Episode, respond
from threespo.methods.base import CommonSettings, Tally, Turn, make_row
from threespo.methods.scorer import Node, SearchSettings, StateScorer, Subtree
from threespo.methods.search_records import SearchLog, TreeRecord
from threespo.methods.state_graph import StateGraph
from threespo.protocol import Row, SampleRequest
from threespo.rng import generator
from threespo.scoring.reward import RewardTerms, group_advantages
from threespo.scoring.state import StateScore

Groups = tuple[tuple[Row, ...], ...]
"""Rows that are ripe for an update, one group for each expanded state."""

Expansion = Generator[SampleRequest | Groups, Any, None]


@dataclass(frozen=True, slots=True)
class Child:
    """One sampled transition with its reward."""

    turn: Turn
    node: Node
    terms: RewardTerms
    penalty: float
    """That of the reward, for a malformed response."""
    handicap: float
    """The same of the advantage: one of the two is 0 (option ``penalty``)."""

    @property
    def reward(self) -> float:
        """Eq. 2, less the penalty where that is part of the reward."""
        return self.terms.total - self.penalty

    @property
    def below(self) -> Subtree:
        """What the transition led to."""
        return self.node.above[-1]


@dataclass(slots=True)
class Search:
    """The search of one task in one epoch."""

    slot: int
    """Place of the task in the epoch."""
    scorer: StateScorer
    common: CommonSettings
    tally: Tally
    log: SearchLog
    max_generations: int
    graph: StateGraph
    """The transitions of this search, or of all searches of its task."""
    generations: int = 0
    paths: int = 0
    probes: int = 0
    """Draws for gated states."""
    held: list[list[Child]] = field(default_factory=list)
    """Groups that are not ripe yet."""
    record: TreeRecord | None = None
    """Takes down the tree."""
    nodes: int = 1
    """Nodes of the tree so far."""
    expansions: int = 0

    @property
    def settings(self) -> SearchSettings:
        """How the search is read."""
        return self.scorer_at_epoch.settings

    def run(self, start: Episode) -> Expansion:
        """Search from ``start`` until nothing is left to try or a cap is reached (Algorithm 1)."""
        root = Node(start, (self.scorer_at_epoch.state_key(start),))
        if self.record:
            self.record.root(start, root.path[-1])

        frontier: list[Node] = [root]
        before, deeper = 0, True
        while frontier:
            # While a path goes on, its best child is on top; after its end the option ``backtrack`` says which child is
            # next.
            node = frontier.pop(-1 if deeper else self._next_place(frontier))
            if node.episode.done:
                self._complete(node)
                deeper = False
            else:
                frontier, deeper = yield from self._expand(node, frontier)

            # A pass without a generation (the root is gated) would begin again for ever.
            restarts = (
                self.settings.frontier == "restart" and not self._capped() and self.generations > before
            )
            if restarts and not frontier:
                frontier, before = [root], self.generations

        if self.held:
            yield self._released()

        self.log.generation_caps += self.generations >= self.max_generations
        self.log.path_caps += self.paths >= self.settings.max_paths

    def _next_place(self, frontier: list[Node]) -> int:
        """Return the place of the untried child to go back to (``ThreespoOptions.backtrack``)."""
        if self.settings.backtrack == "deepest":
            return len(frontier) - 1
        return min(range(len(frontier)), key=lambda place: (len(frontier[place].path), -place))

    def _expand(
        self, node: Node, frontier: list[Node]
    ) -> Generator[SampleRequest | Groups, Any, tuple[list[Node], bool]]:
        """Sample from a state and learn from the children; return the frontier, and whether the path goes on."""
        score = self.scorer_at_epoch.score(node)
        rollouts = self._rollouts(node, score)
        if self.record:
            self.record.counts(node.number, self.scorer_at_epoch.table.get(node.path[-1]), score)

        if not rollouts:
            self.log.gated_roots += len(node.path) == 1
            if self.settings.count_gated:
                self._count(node, False)
            if self.settings.release == "path":
                # The path ends here, and what was sampled on it is learned from.
                yield self._released()
            return frontier, False

        self.log.expansion(node.path[-1], score, self.scorer_at_epoch.table.get(node.path[-1])[0])
        self.tally.states.visit(node.episode, rollouts)
        if self.record:
            self.record.expansion(node.number, self.expansions, rollouts)

        prompt = node.episode.prompt
        samples = yield SampleRequest(
            prompt, rollouts, ("search", self.scorer_at_epoch.number, self.slot, self.expansions)
        )
        self.expansions += 1
        self.generations += rollouts

        children = self._children(node, score, prompt, samples)
        going, finished = self._rank(children)
        self.held.append(children)
        ripe = self.settings.release == "state" or (self.settings.release == "path" and finished)
        yield self._released() if ripe else ()

        if self._capped():
            # The current path is finished greedily, and nothing else is tried.
            return ([], False) if finished else (going[-1:], True)
        return frontier + self._next(node, going, finished), not finished

    def _rollouts(self, node: Node, score: StateScore) -> int:
        """Return how many actions are sampled in a state."""
        rollouts = (
            self.settings.score.g_max if self.settings.uniform and score.rollouts else score.rollouts
        )
        if not rollouts and self.settings.gate_probe and self._probes():
            rollouts = 1
        if rollouts and self._capped():
            self.log.capped += 1
            return 1
        self.log.histogram[rollouts] = self.log.histogram.get(rollouts, 0) + 1
        return rollouts

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
        groups, self.held = [self._rows(children) for children in self.held], []
        return tuple(rows for rows in groups if rows)

    def _probes(self) -> bool:
        """Return whether a gated state is sampled all the same."""
        draw = generator(
            self.common.seed,
            "probe",
            self.scorer_at_epoch.number,
            self.slot,
            self.expansions,
            self.probes,
        )
        self.probes += 1
        return draw.random() < self.settings.gate_probe

    def _capped(self) -> bool:
        return self.generations >= self.max_generations or self.paths >= self.settings.max_paths

    def _children(self, node: Node, score: StateScore, prompt: str, samples: list[Any]) -> list[Child]:
        """Take every sampled action from the same state and reward the transitions (eq. 2)."""
        children = []
        below: dict[str, Subtree] = {}
        for sample in samples:
            outcome = respond(node.episode, sample.text)
            self.tally.count_turn(outcome)
            key = self.scorer_at_epoch.state_key(outcome.episode)

            # Of children in the same state only one is tried: what it leads to counts for all of them.
            above = (*node.above, below.setdefault(key, Subtree()))
            child = Node(outcome.episode, (*node.path, key), self.nodes, above)
            self.nodes += 1

            turn = Turn(node.episode, prompt, sample, outcome)
            terms = self.scorer_at_epoch.reward(node, score, child)
            penalty = self.common.invalid_penalty * (not outcome.valid)
            ranked = self.settings.penalty == "reward"
            children.append(
                Child(turn, child, terms, penalty if ranked else 0.0, 0.0 if ranked else penalty)
            )
            if self.settings.credit == "graph":
                self.graph.step(node.path[-1], key, outcome.episode.won)
            self.log.child(terms)

            if self.record:
                self.record.child(
                    node.number, child.path, sample.text, outcome, children[-1].reward, terms
                )
                self.record.counts(
                    child.number, self.scorer_at_epoch.table.get(key), self.scorer_at_epoch.score(child)
                )
        return children

    def _rows(self, children: list[Child]) -> tuple[Row, ...]:
        """The group's training rows: siblings of one state compared by reward, each weighted 1/n (eq. 5)."""
        known = (
            [child for child in children if child.below.paths]
            if self.settings.credit == "subtree"
            else children
        )
        rewards = [self._credited(child) for child in known]
        advantages = group_advantages(
            rewards, self.settings.std_floor, normalise=self.settings.normalise
        )
        self.log.group(rewards, advantages)
        if advantages is None and len({child.handicap for child in known}) > 1:
            # Equal rewards, but not all responses are well-formed: the penalty is what there is to learn.
            advantages = [0.0] * len(known)
        if advantages is None:
            return self._rows_without_signal(known)
        if self.record:
            self.record.learned([child.node.number for child in known], advantages)
        return tuple(
            make_row(child.count_turn, advantage - child.handicap, self.common, 1 / len(known))
            for child, advantage in zip(known, advantages, strict=True)
        )

    def _rows_without_signal(self, children: list[Child]) -> tuple[Row, ...]:
        """The rows of a group that teaches nothing: none, or with advantages of 0, which leave the KL penalty alone."""
        if self.settings.without_signal == "skip":
            return ()
        rows = [make_row(child.count_turn, 0.0, self.common, 1 / len(children)) for child in children]
        # Without the penalty for inadmissible actions, which groups that are skipped do not learn from either.
        return tuple(replace(row, advantages=(0.0,) * len(row.tokens)) for row in rows)

    def _credited(self, child: Child) -> float:
        """Return a child's reward, where the credit says so with the success of all paths below in the place of its own."""
        if self.settings.credit == "step":
            return child.reward
        if self.settings.credit == "graph":
            steps = self.graph.distance(child.node.path[-1])
            share = 0.0 if steps is None else self.settings.graph_decay**steps
        else:
            share = child.below.successes / child.below.paths
        return child.terms._replace(success=0.5 * share).total - child.penalty

    def _rank(self, children: list[Child]) -> tuple[list[Node], bool]:
        """Count finished paths; return the children to go on from, and whether the best child ended its path.

        The children come worst first, so that a stack pops the best. Ties are common (early on, every new observation
        earns 0.5) and broken at random. Of children with the same observation only the best-ranked is kept.
        """
        order = list(children)
        if self.settings.tie_break == "random":
            generator(
                self.common.seed, "ties", self.scorer_at_epoch.number, self.slot, self.expansions
            ).shuffle(order)
        order.sort(key=lambda child: -child.reward)

        going: dict[Any, Node] = {}
        for place, child in enumerate(order):
            if child.node.episode.done and (self.settings.count_siblings or not place):
                self._complete(child.node)
            else:
                # A finished sibling waits its turn like the others where it does not count at once.
                going.setdefault(
                    place if self.settings.keep_duplicates else child.node.path[-1], child.node
                )

        return list(going.values())[::-1], order[0].node.episode.done

    def _complete(self, node: Node) -> None:
        self.paths += 1
        self.tally.path(node.episode)
        self._count(node, node.episode.won)

    def _count(self, node: Node, won: bool) -> None:
        """Count a path that ends at ``node``."""
        gated = not node.episode.done
        self.scorer_at_epoch.table.add_path(
            node.path if gated or self.settings.count_terminal else node.path[:-1], won
        )
        if self.settings.count_at == "path":
            self.scorer_at_epoch.table.commit()
        for subtree in node.above:
            subtree.paths += 1
            subtree.successes += won
