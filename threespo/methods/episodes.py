"""Groups of whole episodes: how they are played, and the methods that differ only in how a step's advantage is computed."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

from threespo.envs.episode import Episode, respond
from threespo.methods.advantages import Estimator, Steps, discounted_returns
from threespo.methods.base import (
    CommonSettings,
    Tally,
    Turn,
    make_loss_settings,
    make_row,
    split_into_minibatches,
)
from threespo.methods.states import RemembersStates
from threespo.protocol import MethodSteps, Request, Row, SampleRequest, UpdateRequest


@dataclass(slots=True)
class Rollout:
    """One episode of a group in the making."""

    episode: Episode
    turns: list[Turn] = field(default_factory=list)


class EpisodeMethod(RemembersStates):
    """Plays ``group_size`` episodes of every task in lock-step, then updates on all of their steps."""

    critic_rate = None

    def __init__(self, common: CommonSettings, estimator: Estimator, gamma: float = 1.0) -> None:
        """Make a method that remembers nothing yet.

        Args:
            common: settings of the study.
            estimator: computes the advantages.
            gamma: discount of step returns, per step.
        """
        super().__init__()
        self.common, self.estimator, self.gamma = common, estimator, gamma

    def epoch(self, number: int, starts: Sequence[Episode]) -> MethodSteps:
        tally = Tally(self.states)
        groups = yield from play_episodes(number, starts, self.common.group_size, tally)
        rows = make_episode_rows(groups, self.estimator, self.common, self.gamma)
        batches = split_into_minibatches(rows, self.common.minibatch, self.common.seed, number)
        yield UpdateRequest(tuple(batches), make_loss_settings(self.common, "token-mean"))
        return tally.close()


def play_episodes(
    number: int, starts: Sequence[Episode], group_size: int, tally: Tally, stream: str = "rollout"
) -> Generator[Request, Any, list[list[Rollout]]]:
    """Play ``group_size`` episodes from every start to their ends, all in lock-step.

    Args:
        number: the epoch, from 0; part of the key of every draw.
        starts: first states; a start may lie within an episode.
        group_size: episodes of each start.
        tally: counts the turns and the completed paths.
        stream: names the random draws of this call among those of the epoch.

    Returns:
        The finished episodes of each start, in the order of ``starts``.
    """
    groups = [[Rollout(start) for _ in range(group_size)] for start in starts]
    everyone = [
        (rollout, (number, slot, member))
        for slot, group in enumerate(groups)
        for member, rollout in enumerate(group)
    ]

    while active := [(rollout, key) for rollout, key in everyone if not rollout.episode.done]:
        # One batch per step of all running episodes: a sampler is far faster on many prompts than on one.
        requests = tuple(
            SampleRequest(rollout.episode.prompt, 1, (stream, *key, rollout.episode.steps))
            for rollout, key in active
        )
        samples = yield requests
        for (rollout, _), request, (sample,) in zip(active, requests, samples, strict=True):
            tally.states.visit(rollout.episode)
            outcome = respond(rollout.episode, sample.text)
            rollout.turns.append(Turn(rollout.episode, request.prompt, sample, outcome))
            rollout.episode = outcome.episode
            tally.count_turn(outcome)
            if outcome.episode.done:
                tally.path(outcome.episode)
    return groups


def make_episode_rows(
    groups: Sequence[Sequence[Rollout]], estimator: Estimator, common: CommonSettings, gamma: float = 1.0
) -> list[Row]:
    """Return a training row for every step, with the advantage that ``estimator`` gives it.

    Args:
        groups: finished episodes, by task.
        estimator: computes the advantages of all steps.
        common: settings of the study.
        gamma: discount of step returns, per step.
    """
    estimated = estimator(
        [[describe_episode(rollout, common, gamma) for rollout in group] for group in groups]
    )
    return [
        make_row(turn, advantage, common)
        for group, advantages in zip(groups, estimated, strict=True)
        for rollout, values in zip(group, advantages, strict=True)
        for turn, advantage in zip(rollout.turns, values, strict=True)
    ]


def describe_episode(rollout: Rollout, common: CommonSettings, gamma: float = 1.0) -> Steps:
    """Return what estimators know of an episode: the reward of success at its end, penalties for malformed responses.

    Args:
        rollout: a finished episode.
        common: settings: reward of success and penalty for malformed responses.
        gamma: discount of step returns, per step.
    """
    rewards = [0.0] * (len(rollout.turns) - 1) + [common.success_reward * rollout.episode.won]
    penalties = [common.invalid_penalty * (not turn.outcome.valid) for turn in rollout.turns]
    return Steps(
        keys=[turn.before.observation for turn in rollout.turns],
        scores=[sum(rewards) - penalty for penalty in penalties],
        step_returns=[
            g - penalty for g, penalty in zip(discounted_returns(rewards, gamma), penalties, strict=True)
        ],
        episode_return=sum(rewards),
        lengths=[len(turn.sample.tokens) for turn in rollout.turns],
        penalties=penalties,
        states=[*(turn.before.state for turn in rollout.turns), rollout.episode.state],
        won=rollout.episode.won,
    )
