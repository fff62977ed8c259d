"""DAPO (arXiv 2503.14476): GRPO with a higher upper clip, and groups of equal returns left out of the batch."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from pydantic import Field

from threespo.envs.episode import Episode
from threespo.methods.advantages import estimate_by_group, grpo_advantages
from threespo.methods.base import (
    CommonSettings,
    MethodEntry,
    MethodOptions,
    Tally,
    make_loss_settings,
    split_into_minibatches,
)
from threespo.methods.episodes import make_episode_rows, play_episodes
from threespo.methods.states import StateStatistics
from threespo.protocol import MethodSteps, Row, UpdateRequest


class DapoOptions(MethodOptions):
    """Options of DAPO; defaults are its paper's."""

    clip_high: float = Field(default=0.28, gt=0, le=1_000_000)
    """The ratio may rise further (1.28) than it may fall (``training.clip``)."""
    kl: bool = True
    """Keep the study's KL penalty, for equal terms with the other methods; DAPO's paper drops it."""
    most_epochs: int = Field(default=10, ge=1, le=10_000)
    """Dynamic sampling goes on to further tasks until as many groups with unequal returns are there as an epoch has tasks,
    but not over more epochs than this."""


class Dapo:
    """DAPO. It remembers the rows that wait for their batch to be full; the policy does not change meanwhile.

    What still waits when the budget is spent is not learned from.
    """

    critic_rate = None

    def __init__(self, options: DapoOptions, common: CommonSettings) -> None:
        self.options, self.common = options, common
        self.states = StateStatistics()
        self.waiting: list[Row] = []
        self.groups = self.epochs = 0

    def epoch(self, number: int, starts: Sequence[Episode]) -> MethodSteps:
        tally = Tally(self.states)
        groups = yield from play_episodes(number, starts, self.common.group_size, tally)
        telling = [group for group in groups if len({rollout.episode.won for rollout in group}) > 1]

        # Here a group with a spread is one with wins and losses, whatever the statistics are taken over.
        self.waiting += make_episode_rows(
            telling,
            estimate_by_group(partial(grpo_advantages, population=self.common.statistics)),
            self.common,
        )
        self.groups, self.epochs = self.groups + len(telling), self.epochs + 1

        if self.groups >= len(starts) or self.epochs >= self.options.most_epochs:
            ripe, self.waiting, self.groups, self.epochs = self.waiting, [], 0, 0
            if ripe:
                batches = split_into_minibatches(ripe, self.common.minibatch, self.common.seed, number)
                loss = make_loss_settings(self.common, "token-mean", self.options.clip_high)
                yield UpdateRequest(
                    tuple(batches), loss if self.options.kl else replace(loss, kl_coef=0.0)
                )

        return tally.close({"telling_groups": float(len(telling)), "waiting_groups": float(self.groups)})

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
        self.groups, self.epochs = memory["groups"], memory["epochs"]


METHOD = MethodEntry(Dapo, DapoOptions)
