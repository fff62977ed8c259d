"""VinePPO (arXiv 2410.01679): the value of every state on the way is the mean return of episodes forked from it.

Where forking is free this is what a user would take in the place of a critic, or of counted statistics.
"""

from collections.abc import Sequence
from typing import Any

from pydantic import Field

from threespo.envs.episode import Episode
from threespo.methods.base import (
    CommonSettings,
    MethodEntry,
    MethodOptions,
    Tally,
    make_loss_settings,
    make_row,
    split_into_minibatches,
)
from threespo.methods.episodes import Rollout, play_episodes
from threespo.methods.gae import whiten_advantages
from threespo.methods.states import RemembersStates
from threespo.protocol import MethodSteps, Row, UpdateRequest


class VineOptions(MethodOptions):
    """Options of VinePPO."""

    forks: int = Field(default=3, ge=1, le=1024)
    """Episodes forked from each state that was visited (K). They cost generations like all others."""
    episodes: int = Field(default=1, ge=1, le=1024)
    """Episodes of a task that are learned from; the group size of the other methods would cost this many times as much."""
    whiten: bool = True
    """Advantages of an epoch get mean 0 and variance 1, as PPO's do."""


class Vine(RemembersStates):
    """VinePPO."""

    critic_rate = None

    def __init__(self, options: VineOptions, common: CommonSettings) -> None:
        super().__init__()
        self.options, self.common = options, common

    def epoch(self, number: int, starts: Sequence[Episode]) -> MethodSteps:
        tally = Tally(self.states)
        groups = yield from play_episodes(number, starts, self.options.episodes, tally)
        rollouts = [rollout for group in groups for rollout in group]

        # Equal states of a task with equal histories ask the policy the same, so they are valued once.
        states = {
            (turn.before.task.task_id, turn.before.history): turn.before
            for r in rollouts
            for turn in r.turns
        }
        forked = yield from play_episodes(
            number, list(states.values()), self.options.forks, tally, "fork"
        )
        values = {place: self._mean_return(forks) for place, forks in zip(states, forked, strict=True)}

        advantages = [[value] for rollout in rollouts for value in self._advantages(rollout, values)]
        turns = [turn for rollout in rollouts for turn in rollout.turns]

        spread = whiten_advantages(advantages) if self.options.whiten else advantages
        rows: list[Row] = [
            make_row(turn, value - self.common.invalid_penalty * (not turn.outcome.valid), self.common)
            for turn, (value,) in zip(turns, spread, strict=True)
        ]

        batches = split_into_minibatches(rows, self.common.minibatch, self.common.seed, number)
        yield UpdateRequest(tuple(batches), make_loss_settings(self.common, "token-mean"))
        return tally.close({"valued_states": float(len(states))})

    def _mean_return(self, forks: Sequence[Rollout]) -> float:
        return self.common.success_reward * sum(fork.episode.won for fork in forks) / len(forks)

    def _advantages(self, rollout: Rollout, values: dict[Any, float]) -> list[float]:
        """Return V(s_t+1) - V(s_t) of each step, V of the end being the episode's return."""
        own = [values[turn.before.task.task_id, turn.before.history] for turn in rollout.turns]
        following = [*own[1:], self.common.success_reward * rollout.episode.won]
        return [after - before for before, after in zip(own, following, strict=True)]


METHOD = MethodEntry(Vine, VineOptions)
