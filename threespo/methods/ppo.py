"""PPO: a critic predicts the return at each token, and the advantage is how much better the outcome was.

As in the released code a *row* is one step: every step's last token gets the whole episode's return, minus the step's own
penalty, and estimates do not reach from one step to the next.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from pydantic import Field

from threespo.envs.episode import Episode
from threespo.methods.base import (
    CommonSettings,
    MethodEntry,
    MethodOptions,
    Tally,
    Turn,
    make_row,
    split_into_minibatches,
)
from threespo.methods.episodes import describe_episode, make_episode_update, play_episodes
from threespo.methods.gae import explained_variance, generalised_advantages, whiten_advantages
from threespo.methods.states import RemembersStates
from threespo.protocol import MethodSteps, ValueRequest, ValueRow, ValueStats, ValueUpdateRequest


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
    """The critic's learning rate as a multiple of the policy's (script: 1e-5 and 1e-6)."""
    critic_minibatch: int | None = Field(default=None, ge=1, le=1_000_000)
    """Rows per optimizer step of the critic (``null``: ``training.minibatch``)."""


class Estimate(NamedTuple):
    """Of one response, each (tokens,)."""

    advantages: list[float]
    returns: list[float]


class Ppo(RemembersStates):
    """PPO with a critic and generalised advantage estimation."""

    def __init__(self, options: PpoOptions, common: CommonSettings) -> None:
        super().__init__()
        self.options = options
        self.common = common
        self.critic_rate = options.critic_rate

    def train_epoch(self, epoch: int, starts: Sequence[Episode]) -> MethodSteps:
        tally = Tally(self.states)
        groups = yield from play_episodes(epoch, starts, self.common.group_size, tally)
        rollouts = [rollout for group in groups for rollout in group]
        turns = [turn for rollout in rollouts for turn in rollout.turns]
        scores = [
            score for rollout in rollouts for score in describe_episode(rollout, self.common).scores
        ]

        # Each response has one value more than tokens: that after the last one.
        values = yield ValueRequest(tuple((turn.prompt, turn.sample.tokens) for turn in turns))
        values_before = [response_values[:-1] for response_values in values]
        estimates = [
            self._estimate(response_values, score)
            for response_values, score in zip(values, scores, strict=True)
        ]

        # The critic learns first, as in the released code.
        critic_stats = yield self._critic_update(epoch, turns, values_before, estimates)

        # Whitened over all tokens of the epoch, as in the released code.
        advantages = whiten_advantages([estimate.advantages for estimate in estimates])
        rows = [make_row(turn, row, self.common) for turn, row in zip(turns, advantages, strict=True)]
        yield make_episode_update(rows, self.common, epoch)

        # Against the values before the critic's own update: afterwards it has seen these returns.
        predicted = [value for response_values in values_before for value in response_values]
        observed = [value for estimate in estimates for value in estimate.returns]
        details = {"explained_variance": explained_variance(predicted, observed)}
        return tally.close_epoch({**details, **_average_stats(critic_stats)})

    def _estimate(self, values: Sequence[float], score: float) -> Estimate:
        """Return the advantages and returns of one response, of which only the last token is rewarded."""
        rewards = [0.0] * (len(values) - 1)
        rewards[-1] = score
        advantages, returns = generalised_advantages(
            rewards,
            values[:-1],
            gamma=self.options.gamma,
            lam=self.options.lam,
            tail=values[-1] if self.options.tail_value else 0.0,
        )
        return Estimate(advantages, returns)

    def _critic_update(
        self,
        epoch: int,
        turns: Sequence[Turn],
        values_before: Sequence[Sequence[float]],
        estimates: Sequence[Estimate],
    ) -> ValueUpdateRequest:
        rows = [
            ValueRow(turn.prompt, turn.sample.tokens, tuple(values), tuple(estimate.returns))
            for turn, values, estimate in zip(turns, values_before, estimates, strict=True)
        ]
        size = self.options.critic_minibatch or self.common.minibatch
        batches = split_into_minibatches(rows, size, self.common.seed, epoch)
        return ValueUpdateRequest(tuple(batches), self.options.value_clip)


def _average_stats(critic_stats: Sequence[ValueStats]) -> dict[str, float]:
    """Return the means over tokens of the critic's numbers, as columns of the metrics table."""
    tokens = math.fsum(stats.tokens for stats in critic_stats)
    means: dict[str, float] = {}
    for name in ("loss", "clip_fraction", "grad_norm"):
        # Weighted, since the last mini-batch of an epoch may have fewer tokens.
        total = math.fsum(getattr(stats, name) * stats.tokens for stats in critic_stats)
        means[f"critic_{name}"] = total / tokens
    return means


METHOD = MethodEntry(Ppo, PpoOptions)
