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
    """One episode of a group while it is played."""

    episode: Episode
    turns: list[Turn] = field(default_factory=list)


class EpisodeMethod(RemembersStates):
    """Plays ``group_size`` episodes of every task in lock-step, then updates on all of their steps."""

    critic_rate = None

    def __init__(self, common: CommonSettings, estimator: Estimator, gamma: float = 1.0) -> None:
        """Make a method that remembers nothing yet; ``gamma`` discounts step returns, per step."""
        super().__init__()
        self.common = common
        self.estimator = estimator
        self.gamma = gamma

    def train_epoch(self, epoch: int, starts: Sequence[Episode]) -> MethodSteps:
        tally = Tally(self.states)
        groups = yield from play_episodes(epoch, starts, self.common.group_size, tally)
        rows = make_episode_rows(groups, self.estimator, self.common, self.gamma)
        yield make_episode_update(rows, self.common, epoch)
        return tally.close_epoch()


def play_episodes(
    epoch: int, starts: Sequence[Episode], group_size: int, tally: Tally, stream: str = "rollout"
) -> Generator[Request, Any, list[list[Rollout]]]:
    """Play ``group_size`` episodes from every start to their ends, all in lock-step.

    Args:
        epoch: its number, from 0; part of the key of every draw.
        starts: first states; a start may lie within an episode.
        group_size: episodes of each start.
        tally: counts the turns and the completed paths.
        stream: names the random draws of this call among those of the epoch.

    Returns:
        The finished episodes of each start, in the order of ``starts``.
    """
    groups = [[Rollout(start) for _ in range(group_size)] for start in starts]
    # The key of a draw names the episode's place and not the batch it was drawn in, so batching cannot change it.
    members = [
        (rollout, (stream, epoch, slot, member))
        for slot, group in enumerate(groups)
        for member, rollout in enumerate(group)
    ]

    while active := [(rollout, key) for rollout, key in members if not rollout.episode.done]:
        # One batch per step of all running episodes: a sampler is far faster on many prompts than on one.
        requests = tuple(
            SampleRequest(rollout.episode.prompt, 1, (*key, rollout.episode.steps))
            for rollout, key in active
        )
        samples = yield requests
        for (rollout, _), request, (sample,) in zip(active, requests, samples, strict=True):
            tally.states.add_visit(rollout.episode)
            outcome = respond(rollout.episode, sample.text)
            rollout.turns.append(Turn(rollout.episode, request.prompt, sample, outcome))
            rollout.episode = outcome.episode
            tally.count_turn(outcome)
            if outcome.episode.done:
                tally.count_path(outcome.episode)
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
    # Described all at once, since REINFORCE++ takes its statistics over the whole epoch.
    described = [[describe_episode(rollout, common, gamma) for rollout in group] for group in groups]
    advantages_by_group = estimator(described)
    rows: list[Row] = []
    for group, advantages_by_episode in zip(groups, advantages_by_group, strict=True):
        for rollout, advantages in zip(group, advantages_by_episode, strict=True):
            for turn, advantage in zip(rollout.turns, advantages, strict=True):
                rows.append(make_row(turn, advantage, common))
    return rows


def make_episode_update(
    rows: Sequence[Row], common: CommonSettings, epoch: int, clip_high: float | None = None
) -> UpdateRequest:
    """Return the one update of an epoch: all rows in mini-batches, averaged over tokens.

    Args:
        rows: all that the epoch learns from.
        common: settings of the study.
        epoch: with the run's seed it decides the order of the rows.
        clip_high: the method's own upper clip, in place of the common one.
    """
    batches = split_into_minibatches(rows, common.minibatch, common.seed, epoch)
    return UpdateRequest(tuple(batches), make_loss_settings(common, "token-mean", clip_high))


def describe_episode(rollout: Rollout, common: CommonSettings, gamma: float = 1.0) -> Steps:
    """Return what estimators read of a finished episode; ``gamma`` discounts step returns, per step."""
    # Success is the only reward, and is given at the end (10 in the released code).
    rewards = [0.0] * (len(rollout.turns) - 1)
    rewards.append(common.success_reward * rollout.episode.won)
    episode_return = sum(rewards)

    # As in the released code, a malformed response lowers the score of its own step only, not that of the episode.
    penalties = [common.invalid_penalty * (not turn.outcome.valid) for turn in rollout.turns]
    returns = discounted_returns(rewards, gamma)
    step_returns = [value - penalty for value, penalty in zip(returns, penalties, strict=True)]
    states = [turn.before.state for turn in rollout.turns]
    states.append(rollout.episode.state)

    return Steps(
        keys=[turn.before.observation for turn in rollout.turns],
        scores=[episode_return - penalty for penalty in penalties],
        step_returns=step_returns,
        episode_return=episode_return,
        lengths=[len(turn.sample.tokens) for turn in rollout.turns],
        penalties=penalties,
        states=states,
        won=rollout.episode.won,
    )
