"""DAPO (arXiv 2503.14476): GRPO with a higher upper clip, and groups of equal returns left out of the batch."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from pydantic import Field

from threespo.envs.episode import Episode
from threespo.methods.advantages import estimate_by_group, grpo_advantages
from threespo.methods.base import CommonSettings, MethodEntry, MethodOptions, Tally
from threespo.methods.episodes import make_episode_rows, make_episode_update, play_episodes
from threespo.methods.states import StateStatistics
from threespo.protocol import MethodSteps, Row, UpdateRequest


class DapoOptions(MethodOptions):
    """Options of DAPO; defaults are its paper's."""

    clip_high: float = Field(default=0.28, gt=0, le=1_000_000)
    """The ratio may rise further (1.28) than it may fall (``training.clip``)."""
    kl: bool = True
    """Keep the study's KL penalty, for equal terms with the other methods; DAPO's paper drops it."""
    most_epochs: int = Field(default=10, ge=1, le=10_000)
    """Dynamic sampling goes on to further tasks until there are as many groups with unequal returns as an epoch has
    tasks, but not over more epochs than this."""


class Dapo:
    """DAPO. It remembers the rows that wait for their batch to be full; the policy does not change meanwhile.

    What still waits when the budget is spent is not learned from.
    """

    critic_rate = None

    def __init__(self, options: DapoOptions, common: CommonSettings) -> None:
        self.options = options
        self.common = common
        self.states = StateStatistics()
        self.waiting: list[Row] = []
        self.groups = 0
        """Groups whose rows wait."""
        self.epochs = 0
        """Epochs since the last update."""

    def train_epoch(self, epoch: int, starts: Sequence[Episode]) -> MethodSteps:
        tally = Tally(self.states)
        groups = yield from play_episodes(epoch, starts, self.common.group_size, tally)

        # Here a group with a spread is one with wins and losses, whatever the statistics are taken over.
        informative = [group for group in groups if len({rollout.episode.won for rollout in group}) > 1]
        estimator = partial(grpo_advantages, population=self.common.statistics)
        self.waiting += make_episode_rows(informative, estimate_by_group(estimator), self.common)
        self.groups += len(informative)
        self.epochs += 1

        batch_is_full = self.groups >= len(starts)
        if batch_is_full or self.epochs >= self.options.most_epochs:
            rows = self.waiting
            self.waiting = []
            self.groups = 0
            self.epochs = 0
            if rows:
                yield self._make_update(rows, epoch)

        # The columns keep their names in the metrics table.
        counts = {"telling_groups": len(informative), "waiting_groups": self.groups}
        return tally.close_epoch({name: float(count) for name, count in counts.items()})

    def _make_update(self, rows: list[Row], epoch: int) -> UpdateRequest:
        update = make_episode_update(rows, self.common, epoch, self.options.clip_high)
        if self.options.kl:
            return update
        return replace(update, loss=replace(update.loss, kl_coef=0.0))

    def dump(self) -> dict[str, Any]:
        rows = [
            [row.prompt, row.tokens, row.old_logprobs, row.advantages, row.version]
            for row in self.waiting
        ]
        return {
            "states": self.states.dump(),
            "waiting": rows,
            "groups": self.groups,
            "epochs": self.epochs,
        }

    def restore(self, memory: dict[str, Any]) -> None:
        self.states = StateStatistics.restore(memory["states"])
        self.waiting = [
            Row(prompt, tuple(tokens), tuple(logprobs), tuple(advantages), version=version)
            for prompt, tokens, logprobs, advantages, version in memory["waiting"]
        ]
        self.groups = memory["groups"]
        self.epochs = memory["epochs"]


METHOD = MethodEntry(Dapo, DapoOptions)
