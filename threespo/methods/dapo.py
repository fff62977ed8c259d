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
    """Dynamic sampling plays further tasks until as many groups have unequal returns as an epoch has tasks, over at most
    this many epochs."""


class Dapo:
    """DAPO. It remembers the rows of a batch that is not full yet; the policy does not change until it is.

    Rows that still wait when the budget is spent are not learned from.
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

        # A group has a spread where it has wins and losses, whatever the statistics are taken over: penalties alone, which
        # differ in most groups, would let almost all of them pass.
        informative = [group for group in groups if len({rollout.episode.won for rollout in group}) > 1]
        estimator = partial(grpo_advantages, population=self.common.statistics)
        self.waiting += make_episode_rows(informative, estimate_by_group(estimator), self.common)
        self.groups += len(informative)
        self.epochs += 1

        batch_is_full = self.groups >= len(starts)
        # The second bound is for a policy that wins or loses everything: it would never be updated again.
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
        # Its paper drops the KL term: long reasoning is meant to move far from the base model.
        return replace(update, loss=replace(update.loss, kl_coef=0.0))

    def dump(self) -> dict[str, Any]:
        # Rows have the default weight, so it is not stored.
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
