"""Does a method's credit point towards actions that are worth more? Advantages beside action values, under a fixed policy.

A method plays tasks as in training, but no optimizer step is taken. Of the responses that it would learn from, some are
drawn at random. Episodes are immutable, so many can go on from the state after a response and from the state before it, with
the same policy. The shares of them that are won estimate Q(s, a) and V(s). They are fresh draws: an advantage may depend on
how its own episode ended, and these do not. So A (Q - V) has no bias, whatever the method did to get A.

``threespo.results.analysis.credit`` makes one number of it.
"""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch

from threespo.envs.episode import Episode, start_episode
from threespo.learner.loss import token_weights
from threespo.methods.base import CommonSettings, Method, Turn
from threespo.methods.registry import make_method, searches
from threespo.paths import credit_folder
from threespo.protocol import Counters, EpochResult, Row, UpdateRequest, UpdateStats
from threespo.rng import derive, generator
from threespo.runs.driver import Driver
from threespo.runs.probe import EpisodePlayer
from threespo.runs.settings import CreditRunSettings, CreditSettings
from threespo.runs.setup import (
    check_sampler_installed,
    episode_setup,
    initial_weights,
    iterate_samplers,
    load_tasks,
)
from threespo.runs.train import choose_pool, common_settings
from threespo.tables import write_table

PASS_COLUMNS = (
    "pass", "tasks", "epochs", "generations", "groups", "groups_with_signal", "rows_with_signal", "rows_valued",
)  # fmt: skip

ROW_COLUMNS = (
    "pass", "task_id", "task_type", "depth", "valid", "admissible", "credit", "penalised_credit", "weight",
    "ends", "wins_after", "wins_before", "continuations",
)  # fmt: skip

MAX_EPOCHS = 10
"""Epochs of a pass at most, for methods that learn from several at once (DAPO)."""

ROUNDING = 1e-9
"""A credit below this is 0: advantages are at least a thousandth where there is a signal."""


class CreditedRow(NamedTuple):
    """A response that the method would learn from."""

    turn: Turn
    epoch: int
    """In which it was sampled."""
    credit: float
    """Its advantage, the mean over its tokens, without the study's penalty for inadmissible actions."""
    penalised_credit: float
    """The same as the loss has it, with that penalty."""
    weight: float
    """The share of each of its tokens in the loss of its optimizer step."""

    @property
    def has_signal(self) -> bool:
        """Whether the loss would move the probability of the response."""
        return self.credit != 0.0 or self.penalised_credit != 0.0


class _Observation(NamedTuple):
    """What a row is made of."""

    row: Row
    """Kept, so that no other row gets its id."""
    turn: Turn
    epoch: int
    credit: float


@dataclass(slots=True)
class RecordingLearner:
    """A learner (``protocol.Learner``) that keeps the rows it is given, and takes no step."""

    epoch: int = 0
    """The epoch that is played."""
    rows: list[CreditedRow] = field(default_factory=list)
    _observed: dict[int, _Observation] = field(default_factory=dict)
    """By identity of the row."""

    def observe(self, row: Row, turn: Turn, advantages: Sequence[float]) -> None:
        """Take note of what a row is made of (``CommonSettings.observe_row``)."""
        self._observed[id(row)] = _Observation(row, turn, self.epoch, _mean_credit(advantages))

    def update(self, request: UpdateRequest) -> list[UpdateStats]:
        """Keep the rows of a request with their weights in the loss; there are no steps, and so no statistics of any."""
        for batch in request.batches:
            for row, weight in zip(batch, _loss_weights(batch, request), strict=True):
                if id(row) not in self._observed:
                    # A row of a group without a signal, kept for the KL penalty alone (``without_signal: kl``).
                    assert not any(row.advantages), "make_row makes every row that has an advantage"
                    continue
                _, turn, epoch, credit = self._observed[id(row)]
                penalised = _mean_credit(row.advantages)
                self.rows.append(CreditedRow(turn, epoch, credit, penalised, weight))
        return []


def _mean_credit(advantages: Sequence[float]) -> float:
    """Return the mean over a response's tokens, exactly 0 where only rounding has left something."""
    mean = math.fsum(advantages) / len(advantages)
    return mean if abs(mean) > ROUNDING else 0.0


def _loss_weights(batch: Sequence[Row], request: UpdateRequest) -> list[float]:
    """Return the share of a token of each row in the loss of a batch.

    All tokens of a row have the same share. So it is what the gradient of the whole response's log-probability, the sum
    over its tokens, is multiplied by.
    """
    lengths = torch.tensor([len(row.tokens) for row in batch])
    weights = torch.tensor([row.weight for row in batch], dtype=torch.float64)
    # The padded width of one aggregation is a factor common to all rows, which cancels.
    shares = token_weights(lengths, weights, request.loss.aggregation, 1)
    last_tokens = lengths.cumsum(0) - 1
    values: list[float] = shares[last_tokens].tolist()
    return values


class PlayedEpoch(NamedTuple):
    """An epoch of a pass."""

    result: EpochResult
    generations: int


class AuditedPass(NamedTuple):
    """What one pass over the tasks leaves: rows of the two tables."""

    summary: dict[str, Any]
    rows: list[dict[str, Any]]


def audit_credit(settings: CreditRunSettings) -> None:
    """Write the two tables of one audit: a row per pass, and a row per response whose action was valued."""
    torch.set_num_threads(settings.threads)
    run = settings.run
    check_sampler_installed(settings.sampling)
    source = str(settings.paths.run(run).weights)
    if settings.at == "base":
        source = initial_weights(settings)
    tasks = choose_pool(load_tasks(settings, "train"), settings.training, run.seed)
    setup = episode_setup(settings)
    starts = [start_episode(setup, task) for task in tasks]

    (sampler,) = iterate_samplers(settings, [source])
    player = EpisodePlayer(sampler, derive(run.seed, "credit"), settings.training.temperature)
    common = common_settings(settings, [])
    audit = CreditAudit(settings.method, settings.options, common, player, settings.credit)
    passes = audit.run(starts)

    folder = credit_folder(settings.paths, run, settings.at)
    write_table(folder.passes, [one.summary for one in passes], PASS_COLUMNS)
    write_table(folder.rows, [row for one in passes for row in one.rows], ROW_COLUMNS)
    for one in passes:
        print(
            f"credit {run.run_id} {settings.at} pass {one.summary['pass']}: {one.summary['groups_with_signal']} of "
            f"{one.summary['groups']} groups with a signal, {len(one.rows)} actions valued",
            file=sys.stderr,
        )


@dataclass(frozen=True, slots=True)
class CreditAudit:
    """A method, the policy that does not change, and how the method's credit is audited."""

    method: str
    options: dict[str, Any]
    common: CommonSettings
    player: EpisodePlayer
    settings: CreditSettings

    def run(self, starts: Sequence[Episode]) -> list[AuditedPass]:
        """Let the method pass over the tasks, and value actions of each pass.

        Args:
            starts: first state of an episode of every task.
        """
        learner = RecordingLearner()
        common = replace(self.common, observe_row=learner.observe)
        method = make_method(self.method, self.options, common)
        # The counts of a search change its credit from pass to pass; without them a pass would repeat the first.
        number_of_passes = self.settings.passes if searches(self.method) else 1
        passes = []
        for number in range(1, number_of_passes + 1):
            learner.rows = []
            played = self._play_pass(method, learner, starts)
            passes.append(self._value_pass(number, played, learner.rows, len(starts)))
        return passes

    def _play_pass(
        self, method: Method, learner: RecordingLearner, starts: Sequence[Episode]
    ) -> list[PlayedEpoch]:
        """Let the method play all tasks once, and a method that waits for a full batch until it has one."""
        most_epochs = 1 if searches(self.method) else MAX_EPOCHS
        played: list[PlayedEpoch] = []
        while len(played) < most_epochs and not learner.rows:
            driver = Driver(
                self.player.sampler, learner, None, self.player.seed, self.player.temperature
            )
            result = driver.run_epoch(method, learner.epoch, list(starts))
            learner.epoch += 1
            played.append(PlayedEpoch(result, driver.generations))
        return played

    def _value_pass(
        self, number: int, played: Sequence[PlayedEpoch], rows: Sequence[CreditedRow], tasks: int
    ) -> AuditedPass:
        with_signal = [row for row in rows if row.has_signal]
        if searches(self.method):
            # Each expanded state has a group of its own.
            groups = int(sum(epoch.result.details["expansions"] for epoch in played))
            informative = {(row.epoch, str(id(row.turn.before))) for row in with_signal}
        else:
            groups = tasks * len(played)
            informative = {(row.epoch, row.turn.before.task.task_id) for row in with_signal}

        chosen = with_signal
        if len(chosen) > self.settings.rows:
            # Each with the same probability, so that sums over rows, divided by it, keep their expectation.
            draw = generator(self.player.seed, "rows", number)
            numbers = sorted(draw.sample(range(len(with_signal)), self.settings.rows))
            chosen = [with_signal[index] for index in numbers]
        summary = {
            "pass": number,
            "tasks": tasks,
            "epochs": len(played),
            "generations": sum(epoch.generations for epoch in played),
            "groups": groups,
            "groups_with_signal": len(informative),
            "rows_with_signal": len(with_signal),
            "rows_valued": len(chosen),
        }
        drawn_share = len(chosen) / max(1, len(with_signal))
        return AuditedPass(summary, self._value_rows(number, chosen, drawn_share))

    def _value_rows(
        self, number: int, chosen: Sequence[CreditedRow], drawn_share: float
    ) -> list[dict[str, Any]]:
        """Return a table's row for each response, with the wins from the state after it and from the state before it.

        Args:
            number: of the pass.
            chosen: the responses.
            drawn_share: the probability with which each was drawn; weights are divided by it.
        """
        # Each state once: siblings share the one before them, equal actions and neighbouring steps the one after. No
        # advantage knows of these episodes, and the two states of a row differ, so what is shared leaves no bias.
        states = {
            _identify_state(state): state
            for row in chosen
            for state in (row.turn.before, row.turn.outcome.episode)
        }
        wins = dict(zip(states, self._count_wins(number, list(states.values())), strict=True))
        return [
            {
                "pass": number,
                "task_id": row.turn.before.task.task_id,
                "task_type": row.turn.before.task.task_type,
                "depth": row.turn.before.steps + 1,
                "valid": row.turn.outcome.valid,
                "admissible": row.turn.outcome.admissible,
                "credit": row.credit,
                "penalised_credit": row.penalised_credit,
                "weight": row.weight / drawn_share,
                "ends": row.turn.outcome.episode.done,
                "wins_after": wins[_identify_state(row.turn.outcome.episode)],
                "wins_before": wins[_identify_state(row.turn.before)],
                "continuations": self.settings.continuations,
            }
            for row in chosen
        ]

    def _count_wins(self, number: int, states: Sequence[Episode]) -> list[int]:
        """Return how many of the episodes that go on from each state are won; an end has nothing to go on to."""
        # All in one call: the sampler fills its batches.
        starts: list[Episode] = []
        keys: list[Counters] = []
        for index, state in enumerate(states):
            for continuation in range(self.settings.continuations):
                starts.append(state)
                keys.append(("credit", number, index, continuation))
        ends = self.player.play(starts, keys)
        width = self.settings.continuations
        return [
            sum(end.won for end in ends[width * index : width * (index + 1)])
            for index in range(len(states))
        ]


def _identify_state(episode: Episode) -> tuple[str, tuple[tuple[str, str], ...]]:
    return episode.task.task_id, episode.history
