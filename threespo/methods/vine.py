"""VinePPO (arXiv 2410.01679): the value of every state on the way is the mean return of episodes forked from it.

Where forking is free this is the plain alternative to a critic, or to counted statistics.
"""

from collections.abc import Mapping, Sequence

from pydantic import Field

from threespo.envs.episode import Episode
from threespo.methods.base import CommonSettings, MethodEntry, MethodOptions, Tally, make_row
from threespo.methods.episodes import Rollout, make_episode_update, play_episodes
from threespo.methods.gae import whiten_advantages
from threespo.methods.states import RemembersStates
from threespo.protocol import MethodSteps, Row

History = tuple[tuple[str, str], ...]
"""(observation, action) of each step so far."""


class VineOptions(MethodOptions):
    """Options of VinePPO."""

    forks: int = Field(default=3, ge=1, le=1024)
    """Episodes forked from each visited state (K). They cost generations like all others."""
    episodes: int = Field(default=1, ge=1, le=1024)
    """Episodes of a task that are learned from; the group size of the other methods would cost this many times as much."""
    whiten: bool = True
    """Advantages of an epoch get mean 0 and variance 1, as PPO's do."""


class Vine(RemembersStates):
    """VinePPO."""

    critic_rate = None

    def __init__(self, options: VineOptions, common: CommonSettings) -> None:
        super().__init__()
        self.options = options
        self.common = common

    def train_epoch(self, epoch: int, starts: Sequence[Episode]) -> MethodSteps:
        tally = Tally(self.states)
        groups = yield from play_episodes(epoch, starts, self.options.episodes, tally)
        rollouts = [rollout for group in groups for rollout in group]
        turns = [turn for rollout in rollouts for turn in rollout.turns]

        # Equal states of a task with equal histories ask the policy the same, so they are valued once.
        states = {_identify_state(turn.before): turn.before for turn in turns}
        forks = yield from play_episodes(epoch, list(states.values()), self.options.forks, tally, "fork")
        values = {
            state: self._mean_return(episodes) for state, episodes in zip(states, forks, strict=True)
        }

        advantages: list[float] = []
        for rollout in rollouts:
            advantages += self._step_advantages(rollout, values)
        if self.options.whiten:
            (advantages,) = whiten_advantages([advantages])

        # The penalty comes off after whitening: it is not part of the return that the forks estimate.
        rows: list[Row] = []
        for turn, advantage in zip(turns, advantages, strict=True):
            penalty = self.common.invalid_penalty * (not turn.outcome.valid)
            rows.append(make_row(turn, advantage - penalty, self.common))
        yield make_episode_update(rows, self.common, epoch)
        return tally.close_epoch({"valued_states": float(len(states))})

    def _mean_return(self, episodes: Sequence[Rollout]) -> float:
        # Monte Carlo, the method's point: unbiased, unlike a critic's value.
        wins = sum(rollout.episode.won for rollout in episodes)
        return self.common.success_reward * wins / len(episodes)

    def _step_advantages(
        self, rollout: Rollout, values: Mapping[tuple[str, History], float]
    ) -> list[float]:
        """Return V(s_t+1) - V(s_t) of each step, V of the end being the episode's return."""
        own_values = [values[_identify_state(turn.before)] for turn in rollout.turns]
        next_values = [*own_values[1:], self.common.success_reward * rollout.episode.won]
        return [after - before for before, after in zip(own_values, next_values, strict=True)]


def _identify_state(episode: Episode) -> tuple[str, History]:
    return episode.task.task_id, episode.history


METHOD = MethodEntry(Vine, VineOptions)
