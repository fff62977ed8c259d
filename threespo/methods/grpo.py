"""GRPO: groups of whole episodes per task, one advantage per episode, updates after the trajectories are complete."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import Field

from threespo.envs.episode import Episode, respond
from threespo.methods.advantages import Population, grpo
from threespo.methods.base import CommonSettings, MethodOptions, Tally, Turn, loss_settings, make_row, minibatches
from threespo.protocol import MethodSteps, Row, SampleRequest, UpdateRequest


class GrpoOptions(MethodOptions):
    """Options of GRPO; defaults are those of verl-agent's scripts where the paper is silent."""

    success_reward: float = Field(default=10.0, gt=0)
    """Environment reward of a won episode."""
    statistics: Population = "trajectories"
    """Population of mean and std; ``rows`` is what the released code runs."""
    normalise: bool = True
    """Divide by the group's standard deviation."""
    minibatch: int = Field(default=256, ge=1)
    """Rows per optimizer step (verl-agent: 256 on ALFWorld)."""


@dataclass(slots=True)
class Rollout:
    """One episode of a group in the making."""

    episode: Episode
    turns: list[Turn] = field(default_factory=list)


class Grpo:
    """The method. It remembers nothing between epochs."""

    def __init__(self, options: GrpoOptions, common: CommonSettings) -> None:
        self.options, self.common = options, common

    def epoch(self, number: int, starts: Sequence[Episode]) -> MethodSteps:
        """Play ``group_size`` episodes of every task in lock-step, then update on all of their steps."""
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
        """Nothing is remembered."""

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
        options, penalty = self.options, self.common.invalid_penalty
        returns = [options.success_reward * rollout.episode.won for rollout in group]
        scores = [
            [total - penalty * (not turn.outcome.valid) for turn in rollout.turns]
            for rollout, total in zip(group, returns, strict=True)
        ]
        advantages = grpo(scores, returns=returns, population=options.statistics, normalise=options.normalise)
        return [
            make_row(turn, advantage, self.common)
            for rollout, values in zip(group, advantages, strict=True)
            for turn, advantage in zip(rollout.turns, values, strict=True)
        ]
