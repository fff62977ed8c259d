"""PPO: a critic says what return to expect at each token, and the advantage is how much better it went.

As in the released code a *row* is one step: every step's last token earns the whole episode's return, minus the step's own
penalty, and estimates do not reach from one step to the next.
"""

import math
from collections.abc import Sequence
from itertools import chain

from pydantic import Field

from threespo.envs.episode import Episode
from threespo.methods.base import (
    CommonSettings,
    MethodEntry,
    MethodOptions,
    Tally,
    Turn,
    make_loss_settings,
    make_row,
    split_into_minibatches,
)
from threespo.methods.episodes import describe_episode, play_episodes
from threespo.methods.gae import explained_variance, generalised_advantages, whiten_advantages
from threespo.methods.states import RemembersStates
from threespo.protocol import (
    MethodSteps,
    UpdateRequest,
    ValueRequest,
    ValueRow,
    ValueStats,
    ValueUpdateRequest,
)


class PpoOptions(MethodOptions):
    """Options of PPO; defaults are those of the released script, which leaves gamma and lambda at 1."""

    gamma: float = Field(default=1.0, gt=0, le=1)
    """Discount from token to token."""
    lam: float = Field(default=1.0, ge=0, le=1)
    """lambda of generalised advantage estimation."""
    tail_value: bool = False
    """Keep the critic's value after the last token, as the released code does; textbooks set it to 0. The same at
    ``lam: 1``."""
    value_clip: float = Field(default=0.5, gt=0, le=1_000_000)
    """A value's loss stops falling this far from its old one, in units of return."""
    critic_rate: float = Field(default=10.0, gt=0, le=1_000_000)
    """The critic's learning rate as a multiple of the policy's (script: 1e-5 beside 1e-6)."""
    critic_minibatch: int | None = Field(default=None, ge=1, le=1_000_000)
    """Rows per optimizer step of the critic (``null``: ``training.minibatch``)."""


class Ppo(RemembersStates):
    """PPO with a critic and generalised advantage estimation."""

    def __init__(self, options: PpoOptions, common: CommonSettings) -> None:
        super().__init__()
        self.options, self.common = options, common
        self.critic_rate = options.critic_rate

    def epoch(self, number: int, starts: Sequence[Episode]) -> MethodSteps:
        tally = Tally(self.states)
        groups = yield from play_episodes(number, starts, self.common.group_size, tally)
        rollouts = [rollout for group in groups for rollout in group]
        turns = [turn for rollout in rollouts for turn in rollout.turns]
        scores = [
            score for rollout in rollouts for score in describe_episode(rollout, self.common).scores
        ]

        values = yield ValueRequest(tuple((turn.prompt, turn.sample.tokens) for turn in turns))
        estimates = [
            generalised_advantages(
                # Only the last token is rewarded; ``known`` has one value more than there are tokens.
                [*[0.0] * (len(known) - 2), score],
                known[:-1],
                gamma=self.options.gamma,
                lam=self.options.lam,
                tail=known[-1] if self.options.tail_value else 0.0,
            )
            for known, score in zip(values, scores, strict=True)
        ]

        learned = yield self._critic_update(number, turns, values, [returns for _, returns in estimates])
        advantages = whiten_advantages([row for row, _ in estimates])

        rows = [make_row(turn, row, self.common) for turn, row in zip(turns, advantages, strict=True)]
        batches = split_into_minibatches(rows, self.common.minibatch, self.common.seed, number)
        yield UpdateRequest(tuple(batches), make_loss_settings(self.common, "token-mean"))

        before = list(chain.from_iterable(known[:-1] for known in values))
        targets = list(chain.from_iterable(returns for _, returns in estimates))
        return tally.close(
            {"explained_variance": explained_variance(before, targets), **_means(learned)}
        )

    def _critic_update(
        self,
        number: int,
        turns: Sequence[Turn],
        values: Sequence[Sequence[float]],
        returns: Sequence[Sequence[float]],
    ) -> ValueUpdateRequest:
        rows = [
            ValueRow(turn.prompt, turn.sample.tokens, tuple(known[:-1]), tuple(targets))
            for turn, known, targets in zip(turns, values, returns, strict=True)
        ]
        size = self.options.critic_minibatch or self.common.minibatch
        return ValueUpdateRequest(
            tuple(split_into_minibatches(rows, size, self.common.seed, number)), self.options.value_clip
        )


def _means(learned: Sequence[ValueStats]) -> dict[str, float]:
    tokens = math.fsum(stats.tokens for stats in learned)
    return {
        f"critic_{name}": math.fsum(getattr(stats, name) * stats.tokens for stats in learned) / tokens
        for name in ("loss", "clip_fraction", "grad_norm")
    }


METHOD = MethodEntry(Ppo, PpoOptions)
