"""3SPO: a search per task, all tasks in lock-step ticks, an update after every expanded state.

``literal`` is the paper as printed. ``calibrated`` is the smallest change that makes the paper's own worked example
numerically possible. Where the two leave the pseudocode: tasks advance in lock-step instead of one after another, so
that sampling is batched, and a task's work per epoch is capped, since the paper's is unbounded (its upper bound is
8^50 leaves).
"""

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field, model_validator

from threespo.envs.episode import Episode
from threespo.methods.base import CommonSettings, MethodOptions, Tally, loss_settings
from threespo.methods.search import Expansion, Search, SearchLog, SearchSettings
from threespo.methods.states import StateStatistics
from threespo.protocol import MethodSteps, Row, SampleRequest, UpdateRequest
from threespo.scoring.state import ScoreSettings
from threespo.scoring.table import StateTable

_CALIBRATED: dict[str, Any] = {
    "alpha": 1.0,
    "state_key": "task_obs",
    "gate_decay": 0.9,
    "gate_at_root": False,
    "std_floor": 1e-3,
}


class ThreespoOptions(MethodOptions):
    """Options of 3SPO. Defaults are the preset ``literal``; G_max is the study's group size."""

    preset: Literal["literal", "calibrated"] = "literal"
    """Fills in what is not given explicitly."""
    alpha: float = Field(default=50.0, ge=0)
    """lambda(t) = alpha ln t, t the 1-based depth in the path (tab:hyperparams: 50; calibrated: 1)."""
    xi: float = Field(default=10.0, gt=0)
    """Failures from which the gate can close (tab:hyperparams: 10)."""
    zeta: float = Field(default=0.1, ge=0)
    """Success rate above which it stays open (tab:hyperparams: 0.1)."""
    omega_k: float = Field(default=0.1, ge=0)
    """Decay of the novelty weight (tab:hyperparams: 0.1)."""
    state_key: Literal["obs", "task_obs"] = "obs"
    """What a state is: the observation alone, shared by all tasks (sec. 3.1, sec. 4.4), or goal and observation."""
    gate_decay: float = Field(default=1.0, gt=0, le=1)
    """Factor on all counts at each epoch's end; 1 keeps the gate absorbing, as eq. 1 prints it."""
    gate_at_root: bool = True
    """Whether a task whose first state is gated is given up (as printed), or always tried."""
    std_floor: float = Field(default=0.0, ge=0)
    """Groups whose rewards spread less are not learned from."""
    update_unit: Literal["state", "tick"] = "state"
    """One optimizer step per expanded state (Algorithm 1), or one per tick over all states expanded in it."""
    max_generations_per_task: int | None = Field(default=None, ge=1)
    """Cap on one task's generations per epoch (tab:efficiency: 4.5e5 / 6,400 = 70). Default: group size x longest episode,
    which is what a group of whole episodes may use and the least that lets one path be searched at full width."""
    max_paths_per_task: int = Field(default=32, ge=1)
    """Cap on one task's completed paths per epoch (the released code's ``max_samples_per_prompt``)."""

    @model_validator(mode="before")
    @classmethod
    def _fill_in_preset(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("preset") == "calibrated":
            return {**_CALIBRATED, **values}
        return values


class Threespo:
    """The method. It remembers the state table."""

    critic_rate = None

    def __init__(self, options: ThreespoOptions, common: CommonSettings) -> None:
        self.options, self.common = options, common
        self.table, self.states = StateTable(), StateStatistics()
        self.settings = SearchSettings(
            score=ScoreSettings(options.alpha, options.xi, options.zeta, g_max=common.group_size),
            omega_k=options.omega_k,
            std_floor=options.std_floor,
            goal_in_key=options.state_key == "task_obs",
            gate_at_root=options.gate_at_root,
            max_paths=options.max_paths_per_task,
        )

    def epoch(self, number: int, starts: Sequence[Episode]) -> MethodSteps:
        """Search every task, tick by tick: sample for all, update state by state in task order, count, go on."""
        tally, log = Tally(self.states), SearchLog()
        searches = [
            Search(number, slot, self.table, self.settings, self.common, tally, log, self._cap(start)).run(start)
            for slot, start in enumerate(starts)
        ]
        waiting = _advance(searches)
        ticks = 0
        while waiting:
            ticks += 1
            samples = yield tuple(request for _, request in waiting)
            answers = [search.send(drawn) for (search, _), drawn in zip(waiting, samples, strict=True)]
            groups = [group for group in answers if isinstance(group, tuple) and group]
            if groups:
                yield self._update(groups)
            self.table.commit()
            waiting = _advance([search for search, _ in waiting])
        self.table.decay(self.options.gate_decay)
        return tally.close(**self._details(log, ticks))

    def dump(self) -> dict[str, Any]:
        return {"table": self.table.dump(), "states": self.states.dump()}

    def restore(self, memory: dict[str, Any]) -> None:
        self.table = StateTable.restore(memory["table"])
        self.states = StateStatistics.restore(memory["states"])

    def _cap(self, start: Episode) -> int:
        return self.options.max_generations_per_task or self.common.group_size * start.world.max_steps

    def _update(self, groups: list[tuple[Row, ...]]) -> UpdateRequest:
        if self.options.update_unit == "tick":
            groups = [tuple(row for group in groups for row in group)]
        return UpdateRequest(tuple(groups), loss_settings(self.common, "seq-mean-token-mean"))

    def _details(self, log: SearchLog, ticks: int) -> dict[str, float]:
        expansions = log.capped + sum(count for rollouts, count in log.histogram.items() if rollouts)
        settings = self.settings.score
        gated = sum(
            total - won >= settings.xi and not won / (total + settings.eps) > settings.zeta
            for total, won in self.table.counts.values()
        )
        return {
            **{f"n_{rollouts}": float(log.histogram.get(rollouts, 0)) for rollouts in range(settings.g_max + 1)},
            "expansions": float(expansions),
            "capped_expansions": float(log.capped),
            "ticks": float(ticks),
            "gated_roots": float(log.gated_roots),
            "gated_states": float(gated),
            "known_states": float(len(self.table.counts)),
            "visited_states": float(len(log.visited)),
            "unvisited_share": log.unvisited / max(1, expansions),
            "mean_score_visit": log.score_sum / max(1, expansions),
            "novelty_term": log.novelty_sum / max(1, log.children),
            "difference_term": log.difference_sum / max(1, log.children),
            "skipped_groups": float(log.skipped_groups),
            "generation_caps": float(log.generation_caps),
            "path_caps": float(log.path_caps),
        }


def _advance(searches: list[Expansion]) -> list[tuple[Expansion, SampleRequest]]:
    """Move each search on to its next sample request; searches that have ended drop out."""
    waiting: list[tuple[Expansion, SampleRequest]] = []
    for search in searches:
        request = next(search, None)
        if isinstance(request, SampleRequest):
            waiting.append((search, request))
    return waiting
