"""What all methods that play groups of whole episodes share; they differ in how a step's advantage is computed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import Field

from threespo.envs.episode import Episode, respond
from threespo.methods.advantages import Population, Steps, discounted
from threespo.methods.base import CommonSettings, MethodOptions, Tally, Turn, loss_settings, make_row, minibatches
from threespo.protocol import MethodSteps, Row, SampleRequest, UpdateRequest


class EpisodeOptions(MethodOptions):
    """Options of all group methods; defaults are those of verl-agent's scripts where the papers are silent."""

    success_reward: float = Field(default=10.0, gt=0)
    """Environment reward of a won episode."""
    statistics: Population = "trajectories"
    """Population of mean and std of episode returns; ``rows`` is what the released code runs."""
    minibatch: int = Field(default=256, ge=1)
    """Rows per optimizer step (verl-agent: 256 on ALFWorld)."""


@dataclass(slots=True)
class Rollout:
    """One episode of a group in the making."""

    episode: Episode
    turns: list[Turn] = field(default_factory=list)


Estimator = Callable[[list[Steps]], list[list[float]]]
"""From the episodes of one group to one advantage per step."""


class EpisodeMethod:
    """Plays ``group_size`` episodes of every task in lock-step, then updates on all of their steps."""

    def __init__(
        self, options: EpisodeOptions, common: CommonSettings, estimator: Estimator, gamma: float = 1.0
    ) -> None:
        self.options, self.common, self.estimator, self.gamma = options, common, estimator, gamma

    def epoch(self, number: int, starts: Sequence[Episode]) -> MethodSteps:
        tally = Tally()
        groups = [[Rollout(start) for _ in range(self.common.group_size)] for start in starts]
        yield from self._play(number, groups, tally)
        rows = [row for group in groups for row in self._rows(group)]
        batches = minibatches(rows, self.options.minibatch, self.common.seed, number)
        yield UpdateRequest(tuple(batches), loss_settings(self.common, "token-mean"))
        return tally.result

    def dump(self) -> dict[str, Any]:
        return {}

    def restore(self, memory: dict[str, Any]) -> None:
        """Nothing is remembered between epochs."""

    def _play(self, number: int, groups: list[list[Rollout]], tally: Tally) -> Any:
        everyone = [
            (rollout, (number, slot, member))
            for slot, group in enumerate(groups)
            for member, rollout in enumerate(group)
        ]
        while active := [(rollout, key) for rollout, key in everyone if not rollout.episode.done]:
            requests = tuple(
                SampleRequest(rollout.episode.prompt, 1, ("rollout", *key, rollout.episode.steps))
                for rollout, key in active
            )
            samples = yield requests
            for (rollout, _), request, (sample,) in zip(active, requests, samples, strict=True):
                outcome = respond(rollout.episode, sample.text)
                rollout.turns.append(Turn(rollout.episode, request.prompt, sample, outcome))
                rollout.episode = outcome.episode
                tally.turn(outcome)
                if outcome.episode.done:
                    tally.path(outcome.episode.won)

    def _rows(self, group: list[Rollout]) -> list[Row]:
        advantages = self.estimator([self._steps(rollout) for rollout in group])
        return [
            make_row(turn, advantage, self.common)
            for rollout, values in zip(group, advantages, strict=True)
            for turn, advantage in zip(rollout.turns, values, strict=True)
        ]

    def _steps(self, rollout: Rollout) -> Steps:
        rewards = [0.0] * (len(rollout.turns) - 1) + [self.options.success_reward * rollout.episode.won]
        penalties = [self.common.invalid_penalty * (not turn.outcome.valid) for turn in rollout.turns]
        return Steps(
            keys=[turn.before.observation for turn in rollout.turns],
            scores=[sum(rewards) - penalty for penalty in penalties],
            step_returns=[g - penalty for g, penalty in zip(discounted(rewards, self.gamma), penalties, strict=True)],
            episode_return=sum(rewards),
        )
