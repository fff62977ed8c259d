"""3SPO: a search per task, all tasks in lock-step ticks, an update after every expanded state.

``literal`` is the paper as printed. ``calibrated`` is the smallest change that makes the paper's own worked example
numerically possible. ``narrow`` is calibrated with fewer samples of a state, so that a task's budget holds several paths;
``improved`` is narrow with success credited to all that led to it (docs/method.md has the evidence for both). In all of
them tasks advance in lock-step instead of one after another, so that sampling is batched, and a task's work per epoch is
capped, since the paper's is unbounded (8^50 leaves). docs/method.md lists everything that leaves the text.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from pydantic import Field, model_validator

from threespo.envs.episode import Episode
from threespo.methods.base import (
    CommonSettings,
    MethodEntry,
    Tally,
    make_loss_settings,
    split_into_minibatches,
)
from threespo.methods.scorer import SearchOptions, SearchSettings, StateScorer
from threespo.methods.search import Expansion, Search
from threespo.methods.search_records import SearchLog, TreeRecord
from threespo.methods.state_graph import StateGraph
from threespo.methods.states import StateStatistics
from threespo.protocol import MethodSteps, Row, SampleRequest, UpdateRequest
from threespo.scoring.state import ScoreSettings, state_score
from threespo.scoring.table import StateTable

_CALIBRATED: dict[str, Any] = {
    "alpha": 1.0,
    "state_key": "task_obs",
    "gate_decay": 0.9,
    "gate_at_root": False,
    "std_floor": 1e-3,
}
_NARROW: dict[str, Any] = {**_CALIBRATED, "g_max": 3}
_IMPROVED: dict[str, Any] = {**_NARROW, "credit": "subtree"}
_PRESETS = {"calibrated": _CALIBRATED, "narrow": _NARROW, "improved": _IMPROVED}


class ThreespoOptions(SearchOptions):
    """Options of 3SPO: how it searches (``SearchOptions``), and what decides scores, budgets and updates.

    Defaults are the preset ``literal``; G_max is the study's group size.
    """

    preset: Literal["literal", "calibrated", "narrow", "improved"] = "literal"
    """Fills in what is not given explicitly."""

    # Eq. 1, the score
    alpha: float = Field(default=50.0, ge=0, le=1_000_000)
    """lambda(t) = alpha ln t (tab:hyperparams: 50; calibrated: 1)."""
    xi: float = Field(default=10.0, gt=0, le=1_000_000_000)
    """Failures from which the gate can close (tab:hyperparams: 10)."""
    zeta: float = Field(default=0.1, ge=0, le=1)
    """Success rate above which it stays open (tab:hyperparams: 0.1)."""

    # The gate
    gate_decay: float = Field(default=1.0, gt=0, le=1)
    """Factor on all counts at each epoch's end; 1 keeps the gate absorbing, as eq. 1 prints it."""
    gate_reset_every: int | None = Field(default=None, ge=1, le=1_000_000)
    """Epochs after which all counts are forgotten; never by default."""

    # Eq. 3 and Algorithm 1
    g_max: int | None = Field(default=None, ge=1, le=1024)
    """G_max, the most samples of one state. Default: the study's group size (tab:hyperparams: 8 and 8)."""
    max_generations_per_task: int | None = Field(default=None, ge=1, le=1_000_000_000)
    """Cap on one task's generations per epoch (tab:efficiency: 4.5e5 / 6,400 = 70). Default: group size x longest episode,
    which is what a group of whole episodes may use and the least that lets one path be searched at full width."""
    max_paths_per_task: int = Field(default=32, ge=1, le=1_000_000)
    """Cap on one task's completed paths per epoch (the released code's ``max_samples_per_prompt``)."""

    # Eq. 5, the update
    update_unit: Literal["state", "tick", "path", "epoch"] = "state"
    """When samples are learned from: after the state (Algorithm 1), one optimizer step for each; after the tick, one step
    for all states expanded in it; after the path, one step for each of its states (the post-trajectory control: the same
    steps, later); or after the epoch, in the mini-batches of the other methods."""
    inner_epochs: int = Field(default=1, ge=1, le=100)
    """Passes over the samples of an update."""

    @model_validator(mode="before")
    @classmethod
    def _fill_in_preset(cls, values: Any) -> Any:
        # What is given explicitly stands over the preset.
        preset = values.get("preset") if isinstance(values, dict) else None
        return (
            {**_PRESETS[preset], **values} if isinstance(preset, str) and preset in _PRESETS else values
        )


class Threespo:
    """3SPO. It remembers the state table, and the statistics that all methods keep."""

    critic_rate = None

    def __init__(self, options: ThreespoOptions, common: CommonSettings) -> None:
        self.options, self.common = options, common
        self.table, self.states = StateTable(), StateStatistics()
        self.graphs: dict[str, StateGraph] = {}
        self.settings = SearchSettings(
            score=ScoreSettings(
                options.alpha, options.xi, options.zeta, g_max=options.g_max or common.group_size
            ),
            release="search"
            if options.credit != "step"
            else "path"
            if options.update_unit == "path"
            else "state",
            max_paths=options.max_paths_per_task,
            **options.model_dump(include=set(SearchOptions.model_fields)),
        )

    def epoch(self, number: int, starts: Sequence[Episode]) -> MethodSteps:
        """Search every task, tick by tick: sample for all, update state by state in task order, count, go on."""
        tally, logs = Tally(self.states), {start.task.task_type: SearchLog() for start in starts}
        searches = [
            self._search(number, slot, start, tally, logs[start.task.task_type])
            for slot, start in enumerate(starts)
        ]
        waiting, _ = _advance(
            [search.run(start) for search, start in zip(searches, starts, strict=True)]
        )

        active: list[int] = []
        kept: list[tuple[Row, ...]] = []
        while waiting:
            active.append(len(waiting))
            samples = yield tuple(request for _, request in waiting)
            groups = [search.send(drawn) for (search, _), drawn in zip(waiting, samples, strict=True)]
            # A search answers its samples with the groups that are ripe, an empty tuple if there are none.
            yield from self._learn(
                [group for ripe in groups if isinstance(ripe, tuple) for group in ripe], kept
            )
            self.table.commit()
            waiting, late = _advance([search for search, _ in waiting])
            yield from self._learn(late, kept)

        if kept:
            rows = [row for group in kept for row in group]
            yield self._request(
                split_into_minibatches(rows, self.common.minibatch, self.common.seed, number)
            )

        # What the searches came to after the last tick.
        self.table.commit()

        known = self._known()
        self._forget(number)
        g_max = self.settings.score.g_max

        details = {
            **SearchLog.merge_logs(logs.values()).details(g_max),
            **known,
            "ticks": float(len(active)),
            "active_tasks": sum(active) / max(1, len(active)),
            # With fewer tasks a tick's batches are small, and the hardware idles.
            "ticks_of_half": float(sum(count > len(starts) / 2 for count in active)),
        }

        result = tally.close(details, {kind: log.details(g_max) for kind, log in logs.items()})
        result.trees = [row for search in searches if search.record for row in search.record.rows]
        return result

    def dump(self) -> dict[str, Any]:
        graphs = {task: graph.dump() for task, graph in self.graphs.items()}
        return {"table": self.table.dump(), "states": self.states.dump(), "graphs": graphs}

    def restore(self, memory: dict[str, Any]) -> None:
        self.table = StateTable.restore(memory["table"])
        self.states = StateStatistics.restore(memory["states"])
        self.graphs = {task: StateGraph.restore(graph) for task, graph in memory["graphs"].items()}

    def _search(self, number: int, slot: int, start: Episode, tally: Tally, log: SearchLog) -> Search:
        cap = self.options.max_generations_per_task or self.common.group_size * start.setup.max_steps
        record = TreeRecord() if start.task.task_id in self.common.recorded else None
        graph = StateGraph()
        if self.options.credit == "graph" and self.options.graph_memory == "run":
            graph = self.graphs.setdefault(start.task.task_id, graph)
        return Search(
            slot, self.scorer_at_epoch(number), self.common, tally, log, cap, graph, record=record
        )

    def scorer(self, number: int) -> StateScorer:
        """Return how states are scored in epoch ``number``, by the counts as they are when it is used."""
        return StateScorer(number, self.table, self.settings)

    def _learn(
        self, groups: list[tuple[Row, ...]], kept: list[tuple[Row, ...]]
    ) -> Iterator[UpdateRequest]:
        """Ask for the update on groups that are ripe, or keep them for the epoch's end."""
        if self.options.update_unit == "epoch":
            kept += groups
        elif self.options.update_unit == "tick" and groups:
            yield self._request([tuple(row for group in groups for row in group)])
        elif groups:
            yield self._request(groups)

    def _request(self, batches: list[tuple[Row, ...]]) -> UpdateRequest:
        return UpdateRequest(
            tuple(batches) * self.options.inner_epochs,
            make_loss_settings(self.common, "seq-mean-token-mean"),
        )

    def _forget(self, number: int) -> None:
        """Let gates reopen, as far as the options have them."""
        self.table.decay(self.options.gate_decay)
        if self.options.gate_reset_every and (number + 1) % self.options.gate_reset_every == 0:
            self.table.forget()

    def _known(self) -> dict[str, float]:
        """Return how many states are known at the epoch's end, and how many of them eq. 1 gates (the root apart)."""
        counts = self.table.counts.values()
        gated = sum(
            state_score(*pair, 1, self.settings.score, self.settings.gate).gated for pair in counts
        )
        return {"gated_states": float(gated), "known_states": float(len(counts))}


def _advance(
    searches: list[Expansion],
) -> tuple[list[tuple[Expansion, SampleRequest]], list[tuple[Row, ...]]]:
    """Move each search on to its next sample request; return these, and what the searches that have ended still held."""
    waiting: list[tuple[Expansion, SampleRequest]] = []
    late: list[tuple[Row, ...]] = []
    for search in searches:
        for request in search:
            if isinstance(request, SampleRequest):
                waiting.append((search, request))
                break
            late += request
    return waiting, late


METHOD = MethodEntry(Threespo, ThreespoOptions, searches=True)
