"""3SPO: Algorithm 1 of the paper (appendix C), to be read from top to bottom.

Comments quote the algorithm's lines. ``Threespo.train_epoch`` has the two outer loops, over epochs and tasks;
``Search.run`` and ``Search._expand`` have the body of "while true", and the methods below them its lines in their order:
score and number of samples (eq. 1, eq. 3), reward (eq. 2), ranking, update (eq. 5), counting. The equations with their
readings are in ``scorer.py``, all options in ``threespo_options.py``.

Two things differ throughout: tasks advance in lock-step, one expanded state of each a tick, so that sampling is batched,
and a task's work per epoch is capped, since the paper's is unbounded (8^50 leaves). docs/method.md has all deviations.

A search knows nothing of models or batches. It is a coroutine that yields a ``SampleRequest`` for the state that it
expands, receives the samples, and yields the training rows of the groups that are ready to be learned from.
"""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from threespo.envs.episode import Episode, respond
from threespo.methods.base import (
    CommonSettings,
    MethodEntry,
    Tally,
    Turn,
    make_loss_settings,
    make_row,
    split_into_minibatches,
)
from threespo.methods.scorer import Child, Node, StateScorer, Subtree, TickCounter
from threespo.methods.search_records import SearchLog, TreeRecord
from threespo.methods.state_graph import StateGraph
from threespo.methods.states import StateStatistics
from threespo.methods.threespo_options import ThreespoOptions
from threespo.protocol import MethodSteps, Row, Sample, SampleRequest, UpdateRequest
from threespo.rng import generator
from threespo.scoring.authors_gui import VisitTable
from threespo.scoring.reward import group_advantages
from threespo.scoring.state import ScoreSettings, StateScore
from threespo.scoring.table import StateTable

GRAPH_DECAY = 0.8
"""``credit: graph``: what a step further from success is worth, as a factor."""

RowGroups = tuple[tuple[Row, ...], ...]
"""Rows that are ready for an update, one group for each expanded state."""

SearchSteps = Generator[SampleRequest | RowGroups, Any, None]


class WaitingSearch(NamedTuple):
    """A search that waits for its samples."""

    steps: SearchSteps
    request: SampleRequest


class Threespo:
    """3SPO. It remembers the state table, the graphs of ``credit: graph``, and the statistics that all methods keep."""

    critic_rate = None

    def __init__(self, options: ThreespoOptions, common: CommonSettings) -> None:
        self.options = options
        self.common = common
        g_max = options.g_max or common.group_size
        self.constants = ScoreSettings(options.alpha, options.xi, options.zeta, g_max=g_max)

        # "Initialize N_total(s), N_success(s) <- 0, S(s) <- 1 for all s": a state that is not in the table has counts of 0.
        self.table = VisitTable() if options.count_repeats else StateTable()
        self.states = StateStatistics()
        self.graphs: dict[str, StateGraph] = {}
        self.ticks = TickCounter()

    def train_epoch(self, epoch: int, starts: Sequence[Episode]) -> MethodSteps:
        """Search every task, tick by tick: sample for all, update state by state in task order, count, go on."""
        # "foreach epoch e": the run loop calls this method. "foreach task x in D": all searches advance in lock-step.
        tally = Tally(self.states)
        logs = {start.task.task_type: SearchLog() for start in starts}
        searches = [
            self._make_search(epoch, index, start, tally, logs[start.task.task_type])
            for index, start in enumerate(starts)
        ]
        coroutines = [search.run(start) for search, start in zip(searches, starts, strict=True)]
        # A search that ends before its first samples has nothing to learn from: its root is gated.
        waiting, _ = _advance(coroutines)

        active_tasks: list[int] = []
        kept_groups: list[tuple[Row, ...]] = []
        while waiting:
            active_tasks.append(len(waiting))

            # "Generate n rollouts from s_cur", of all tasks in one batch.
            samples = yield tuple(search.request for search in waiting)
            answers = [search.steps.send(drawn) for search, drawn in zip(waiting, samples, strict=True)]

            # "Update theta via Eq. 5". A search answers its samples with groups, with none if none is ready, and never
            # with a request: ``isinstance`` tells the type checker so.
            ready = [group for groups in answers if isinstance(groups, tuple) for group in groups]
            yield from self._update(ready, kept_groups)

            # "Update N_total, N_success": what this tick's paths add counts for all tasks from the next tick on.
            self.table.commit()
            self.ticks.count += 1
            waiting, last_groups = _advance([search.steps for search in waiting])
            yield from self._update(last_groups, kept_groups)

        if kept_groups:
            rows = [row for group in kept_groups for row in group]
            batches = split_into_minibatches(rows, self.common.minibatch, self.common.seed, epoch)
            yield self._make_update(batches)

        # Paths that searches have completed after the last tick.
        self.table.commit()

        details = {
            **SearchLog.merge_logs(logs.values()).to_metrics(self.constants.g_max),
            **self.scorer_at_epoch(epoch).count_known_states(),
            "ticks": float(len(active_tasks)),
            "active_tasks": sum(active_tasks) / max(1, len(active_tasks)),
            # With fewer tasks a tick's batches are small, and the hardware idles.
            "ticks_of_half": float(sum(count > len(starts) / 2 for count in active_tasks)),
        }
        self._reopen_gates(epoch)

        by_type = {kind: log.to_metrics(self.constants.g_max) for kind, log in logs.items()}
        result = tally.close_epoch(details, by_type)
        result.trees = [row for search in searches if search.record for row in search.record.rows]
        return result

    def _make_search(
        self, epoch: int, index: int, start: Episode, tally: Tally, log: SearchLog
    ) -> "Search":
        # What a group of whole episodes may use: the other methods' budget for a task.
        default_cap = self.common.group_size * start.setup.max_steps
        task_id = start.task.task_id
        graph = StateGraph()
        if self.options.credit == "graph":
            graph = self.graphs.setdefault(task_id, graph)
        return Search(
            task_index=index,
            scorer=self.scorer_at_epoch(epoch),
            common=self.common,
            tally=tally,
            log=log,
            max_generations=self.options.max_generations_per_task or default_cap,
            graph=graph,
            record=TreeRecord() if task_id in self.common.recorded else None,
        )

    def scorer_at_epoch(self, epoch: int) -> StateScorer:
        """Return how states are scored in an epoch, by the counts as they are when it is used."""
        return StateScorer(epoch, self.table, self.options, self.constants, self.ticks)

    def _update(
        self, groups: list[tuple[Row, ...]], kept_groups: list[tuple[Row, ...]]
    ) -> Iterator[UpdateRequest]:
        """Ask for one optimizer step on each group, or on all of a tick; keep them for the epoch's end (``update_unit``)."""
        if self.options.update_unit == "epoch":
            kept_groups += groups
        elif self.options.update_unit == "tick" and groups:
            yield self._make_update([tuple(row for group in groups for row in group)])
        elif groups:
            yield self._make_update(groups)

    def _make_update(self, batches: list[tuple[Row, ...]]) -> UpdateRequest:
        # Eq. 5 averages over the tokens of a response, then over the responses of a state.
        loss = make_loss_settings(self.common, "seq-mean-token-mean", self.options.clip_high)
        if not self.options.kl:
            loss = replace(loss, kl_coef=0.0)
        return UpdateRequest(tuple(batches), loss)

    def _reopen_gates(self, epoch: int) -> None:
        """Let counts fade (``gate_decay``) or forget them (``gate_reset_every``), so that gates can open again."""
        # As printed a closed gate stays closed: a gated state is not expanded, so hardly any path adds to its counts.
        self.table.decay(self.options.gate_decay)
        reset_every = self.options.gate_reset_every
        if reset_every and (epoch + 1) % reset_every == 0:
            self.table.forget()

    def dump(self) -> dict[str, Any]:
        graphs = {task: graph.dump() for task, graph in self.graphs.items()}
        # Only where a score depends on it: memories of other runs are what they were before there was this clock.
        ticks = {"ticks": self.ticks.count} if self.options.clock == "ticks" else {}
        return {"table": self.table.dump(), "states": self.states.dump(), "graphs": graphs, **ticks}

    def restore(self, memory: dict[str, Any]) -> None:
        self.table = type(self.table).restore(memory["table"])
        self.states = StateStatistics.restore(memory["states"])
        self.graphs = {task: StateGraph.restore(graph) for task, graph in memory["graphs"].items()}
        if self.options.clock == "ticks":
            self.ticks.count = memory["ticks"]


def _advance(searches: Sequence[SearchSteps]) -> tuple[list[WaitingSearch], list[tuple[Row, ...]]]:
    """Advance each search to its next sample request.

    Returns:
        The searches that wait for samples, and the groups that the others had pending when they ended.
    """
    waiting: list[WaitingSearch] = []
    last_groups: list[tuple[Row, ...]] = []
    for search in searches:
        for request in search:
            if isinstance(request, SampleRequest):
                waiting.append(WaitingSearch(search, request))
                break
            last_groups += request
    return waiting, last_groups


@dataclass(slots=True)
class Search:
    """The search of one task in one epoch."""

    task_index: int
    """Index of the task in the epoch, part of the key of every draw."""
    scorer: StateScorer
    common: CommonSettings
    tally: Tally
    log: SearchLog
    max_generations: int
    graph: StateGraph
    """The transitions of all searches of the task; filled with ``credit: graph`` only."""
    record: TreeRecord | None = None
    """The tree's nodes, for a task whose trees are kept."""
    generations: int = 0
    paths: int = 0
    expansions: int = 0
    nodes: int = 1
    """Nodes of the tree so far."""
    restarted_at: int = 0
    """Generations at the beginning of the present pass from the root (``frontier: restart``)."""
    pending: list[list[Child]] = field(default_factory=list)
    """Siblings of expanded states that have not been learned from yet."""

    @property
    def options(self) -> ThreespoOptions:
        """The options of 3SPO."""
        return self.scorer.options

    def run(self, start: Episode) -> SearchSteps:
        """Search from ``start`` until nothing is left to try or a cap is reached."""
        # "Observe s_0, frontier <- [], cur <- 0". The frontier is a stack of untried children, best sibling on top. Each has
        # its own state, history and step count, so "s_cur <- ..." needs no environment to be reset.
        root = Node(start, (self.scorer.state_key(start),))
        if self.record:
            self.record.add_root(start, root.key)
        frontier = [root]

        # "while true": the algorithm breaks in three places, each time where "frontier = []".
        while frontier:
            # While a path goes on, this is its best child, "s_cur <- s_next,i*"; after its end, "cur <- frontier.pop()".
            node = frontier.pop()
            if node.episode.done:
                # With `count_siblings: false` a finished sibling waits on the frontier like the others.
                self._count_path(node)
            else:
                frontier = yield from self._expand(node, frontier)
            if not frontier:
                frontier = self._restart(root)

        if self.pending:
            yield self._release_groups()

        self.log.generation_caps += self.generations >= self.max_generations
        self.log.path_caps += self.paths >= self.options.max_paths_per_task

    def _expand(
        self, node: Node, frontier: list[Node]
    ) -> Generator[SampleRequest | RowGroups, Any, list[Node]]:
        """Do one pass of "while true" for s_cur = ``node``; return the frontier after it."""
        # "Update N_total(s_cur), N_success(s_cur)": not at each visit, when the outcome is unknown, but when a path ends
        # (`_count_path`), as the text of sec. 3.2 and the pipeline figure say.

        # "Update S(s_cur) via Eq. 1", and n = ceil(G_max S(s_cur)), eq. 3.
        score = self.scorer.score(node)
        rollouts = self._allocate_rollouts(score)
        if self.record:
            self.record.record_counts(node.number, self.scorer.table.get(node.key), score)

        # "if I_cur = {} or S(s_cur) = 0 then ... cur <- frontier.pop()": the path is given up, without being counted.
        if not rollouts:
            self.log.gated_roots += len(node.path) == 1
            if self.options.release == "path":
                # The path ends here, and what was sampled on it is learned from.
                yield self._release_groups()
            return frontier

        # "Generate n rollouts from s_cur".
        self._log_expansion(node, score, rollouts)
        prompt = node.episode.prompt
        key = ("search", self.scorer.epoch, self.task_index, self.expansions)
        samples = yield SampleRequest(prompt, rollouts, key)
        self.expansions += 1
        self.generations += rollouts

        # "Compute R_i = R_3SPO(s_cur, s_next,i) for each rollout i in I_cur".
        children = self._take_actions(node, score, prompt, samples)

        # "Rank: I_cur <- argsort(R) descending".
        ranked = self._rank_children(children)
        open_children = self._count_finished(ranked)

        # "Update theta via Eq. 5".
        path_ended = ranked[0].node.episode.done
        self.pending.append(children)
        yield self._release_groups() if self._is_ready(path_ended) else ()

        # "if cur >= T_max or s_next,i* is terminal": then no child goes on from here, and the next pop is of an older one.
        best_child = [] if path_ended else open_children[-1:]
        if self._is_capped():
            # The current path is finished with one sample a step, and nothing else is tried.
            return best_child
        if self.options.frontier != "children":
            # Ablation w/o backtracking: siblings are not tried.
            return frontier + best_child
        # "i* <- I_cur.pop()", "if |I_cur| > 0 then frontier.push(I_cur)": worst first, so i* is the next to be popped.
        return frontier + open_children

    # Eq. 3, the number of samples

    def _allocate_rollouts(self, score: StateScore) -> int:
        """Return n(s_cur): eq. 3, unless a cap or an option says otherwise; 0 where the gate is closed."""
        rollouts = score.rollouts
        if self.options.uniform and rollouts:
            # Ablation w/o adaptive n.
            rollouts = self.scorer.constants.g_max
        if rollouts and self._is_capped():
            # Not in the histogram: this n is the cap's and not that of eq. 3.
            self.log.capped += 1
            return 1
        self.log.histogram[rollouts] = self.log.histogram.get(rollouts, 0) + 1
        return rollouts

    def _is_capped(self) -> bool:
        """Return whether the task's budget of generations or paths is spent."""
        return self.generations >= self.max_generations or self.paths >= self.options.max_paths_per_task

    def _log_expansion(self, node: Node, score: StateScore, rollouts: int) -> None:
        n_total, _ = self.scorer.table.get(node.key)
        self.log.add_expansion(node.key, score, n_total)
        self.tally.states.add_visit(node.episode, rollouts)
        if self.record:
            self.record.record_expansion(node.number, self.expansions, rollouts)

    # Eq. 2, the reward

    def _take_actions(
        self, node: Node, score: StateScore, prompt: str, samples: Sequence[Sample]
    ) -> list[Child]:
        """Take every sampled action from the same state and reward the transitions."""
        children = []
        subtrees: dict[str, Subtree] = {}
        for sample in samples:
            outcome = respond(node.episode, sample.text)
            self.tally.count_turn(outcome)
            key = self.scorer.state_key(outcome.episode)

            # Of children in the same state only one is tried: what it leads to counts for all of them.
            subtree = subtrees.setdefault(key, Subtree())
            child_node = Node(outcome.episode, (*node.path, key), self.nodes, (*node.subtrees, subtree))
            self.nodes += 1

            terms = self.scorer.compute_reward(node, score, child_node, outcome.valid)
            self.log.add_child(terms)
            if self.options.credit == "graph":
                self.graph.add_step(node.key, key, outcome.episode.won)

            # The penalty coefficient of tab:hyperparams (0.1). Eq. 2 has no such term, so where it comes off is an option.
            penalty = self.common.invalid_penalty * (not outcome.valid)
            child = Child(
                Turn(node.episode, prompt, sample, outcome),
                child_node,
                terms,
                reward_penalty=penalty * (self.options.penalty == "reward"),
                advantage_penalty=penalty * (self.options.penalty == "advantage"),
            )
            children.append(child)
            if self.record:
                self._record_child(node, child)
        return children

    def _record_child(self, node: Node, child: Child) -> None:
        assert self.record
        turn = child.turn
        self.record.add_child(
            node.number, child.node.path, turn.sample.text, turn.outcome, child.reward, child.terms
        )
        counts = self.scorer.table.get(child.node.key)
        self.record.record_counts(child.node.number, counts, self.scorer.score(child.node))

    # Ranking

    def _rank_children(self, children: list[Child]) -> list[Child]:
        """Return the children, best reward first."""
        # Sorting is stable, so equal rewards keep the order that they have before it.
        order = list(children)
        if self.options.tie_break == "random":
            # Ties are common: early on, every new observation earns 0.5.
            key = ("ties", self.scorer.epoch, self.task_index, self.expansions)
            generator(self.common.seed, *key).shuffle(order)
        return sorted(order, key=lambda child: child.reward, reverse=True)

    def _count_finished(self, ranked: list[Child]) -> list[Node]:
        """Count the paths that end with these children; return the nodes that can be tried, worst first."""
        open_children: dict[Any, Node] = {}
        for rank, child in enumerate(ranked):
            counts_now = self.options.count_siblings or rank == 0
            if child.node.episode.done and counts_now:
                self._count_path(child.node)
                continue
            # Of children in the same state only the best-ranked is tried.
            identity = rank if self.options.keep_duplicates else child.node.key
            open_children.setdefault(identity, child.node)
        return list(open_children.values())[::-1]

    def _restart(self, root: Node) -> list[Node]:
        """Return the frontier of another pass from the root (``frontier: restart``), empty if there is none."""
        # A pass without a generation (the root is gated) would begin again for ever.
        has_progressed = self.generations > self.restarted_at
        if self.options.frontier != "restart" or self._is_capped() or not has_progressed:
            return []
        self.restarted_at = self.generations
        return [root]

    # Eq. 5, the update

    def _is_ready(self, path_ended: bool) -> bool:
        """Return whether pending groups are learned from now, as in Algorithm 1 (later by ``update_unit``, ``credit``)."""
        if self.options.release == "path":
            return path_ended
        return self.options.release == "state"

    def _release_groups(self) -> RowGroups:
        """Return the rows of all pending groups that carry a signal; none is pending afterwards."""
        groups = [self._make_group(children) for children in self.pending]
        self.pending = []
        return tuple(rows for rows in groups if rows)

    def _make_group(self, children: list[Child]) -> tuple[Row, ...]:
        """Return the rows of one state: siblings compared by reward (sec. 3.4), each with the weight 1/n (eq. 5)."""
        if self.options.credit == "subtree":
            # The success rate of a child that no completed path goes through is unknown.
            children = [child for child in children if child.subtree.paths]
        rewards = [self._credit_reward(child) for child in children]
        advantages = group_advantages(rewards, self.options.std_floor, normalise=self.options.normalise)
        self.log.add_group(rewards, advantages)

        if advantages is None and len({child.advantage_penalty for child in children}) > 1:
            # Equal rewards, but not all responses are well-formed: the penalty is what there is to learn.
            advantages = [0.0] * len(children)
        if advantages is None:
            return self._make_group_without_signal(children)

        if self.record:
            self.record.record_advantages([child.node.number for child in children], advantages)
        return tuple(
            make_row(child.turn, advantage - child.advantage_penalty, self.common, 1 / len(children))
            for child, advantage in zip(children, advantages, strict=True)
        )

    def _make_group_without_signal(self, children: list[Child]) -> tuple[Row, ...]:
        """Return no rows, or with ``without_signal: kl`` rows with advantages of 0, which leave the KL penalty alone."""
        if self.options.without_signal == "skip":
            return ()
        rows = [make_row(child.turn, 0.0, self.common, 1 / len(children)) for child in children]
        # Without the penalty for inadmissible actions, which groups that are skipped do not learn from either.
        return tuple(replace(row, advantages=(0.0,) * len(row.tokens)) for row in rows)

    def _credit_reward(self, child: Child) -> float:
        """Return a child's reward, with what ``credit`` takes for R_success in the place of its own."""
        if self.options.credit == "step":
            return child.reward
        if self.options.credit == "graph":
            steps = self.graph.distance(child.node.key)
            success = 0.0 if steps is None else GRAPH_DECAY**steps
        else:
            success = child.subtree.successes / child.subtree.paths
        # With the weight that R_success has in eq. 2.
        return child.terms._replace(success=0.5 * success).total - child.reward_penalty

    # Counting: N_total and N_success

    def _count_path(self, node: Node) -> None:
        """Count a completed path that ends at ``node``, for every state on it, its end included."""
        success = self.scorer.has_succeeded(node.episode)
        self.paths += 1
        self.tally.count_path(node.episode)
        # Every leaf counts for its ancestors again, as in the rows of the pipeline figure.
        if node.episode.ended or self.options.count_cut_paths:
            self.scorer.table.add_path(node.path, success)
        if self.options.count_at == "path":
            # At once, and not for all tasks alike at the end of the tick.
            self.scorer.table.commit()
        for subtree in node.subtrees:
            subtree.paths += 1
            subtree.successes += success


METHOD = MethodEntry(Threespo, ThreespoOptions, searches=True)
