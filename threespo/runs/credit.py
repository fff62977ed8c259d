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

from threespo.envs.base import Task
from threespo.envs.episode import Episode, EpisodeSetup
from threespo.learner.loss import token_weights
from threespo.methods.base import CommonSettings, Method
from threespo.methods.registry import make_method, searches
from threespo.paths import credit_folder
from threespo.protocol import Counters, Row, UpdateRequest, UpdateStats
from threespo.rng import derive, generator
from threespo.runs.driver import Driver
from threespo.runs.observed_states import (
    Draw,
    ObservingSampler,
    find_step,
    start_observed_episode,
    task_of,
)
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
"""A mean below this is 0: an advantage is at least a thousandth where there is a signal."""


class CreditedRow(NamedTuple):
    """A response that the method would learn from."""

    draw: Draw
    credit: float
    """Its advantage, the mean over its tokens, without the study's penalty for inadmissible actions."""
    weight: float
    """The share of each of its tokens in the loss of its optimizer step."""


@dataclass(slots=True)
class RecordingLearner:
    """A learner (``protocol.Learner``) that keeps the rows with a credit, and takes no step."""

    sampler: ObservingSampler
    rows: list[CreditedRow] = field(default_factory=list)
    updates: int = 0

    def update(self, request: UpdateRequest) -> list[UpdateStats]:
        """Keep the rows of a request with their weights in the loss; there are no steps, and so no statistics of any."""
        self.updates += 1
        for batch in request.batches:
            for row, weight in zip(batch, _loss_weights(batch, request), strict=True):
                credit = _mean_credit(row.advantages)
                if credit != 0.0:
                    self.rows.append(CreditedRow(self.sampler.find(row), credit, weight))
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
    (sampler,) = iterate_samplers(settings, [source])
    player = EpisodePlayer(sampler, derive(run.seed, "credit"), settings.training.temperature)
    common = common_settings(settings, [])
    audit = CreditAudit(settings.method, settings.options, common, player, settings.credit)
    passes = audit.run(episode_setup(settings), tasks)

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

    def run(self, setup: EpisodeSetup, tasks: Sequence[Task]) -> list[AuditedPass]:
        """Let the method pass over the tasks, and value actions of each pass."""
        sampler = ObservingSampler(self.player.sampler)
        learner = RecordingLearner(sampler)
        # The study's penalty comes off afterwards, so that rows have the method's own credit.
        common = replace(self.common, inadmissible_penalty=0.0)
        method = make_method(self.method, self.options, common)
        starts = [start_observed_episode(setup, task) for task in tasks]
        # The counts of a search change its credit from pass to pass; without them a pass would repeat the first.
        number_of_passes = self.settings.passes if searches(self.method) else 1
        passes = []
        for number in range(1, number_of_passes + 1):
            summary = self._play_pass(method, sampler, learner, starts)
            chosen = self._choose_rows(number, learner.rows)
            summary = {"pass": number, **summary, "rows_valued": len(chosen)}
            drawn_share = len(chosen) / max(1, len(learner.rows))
            passes.append(AuditedPass(summary, self._value_rows(number, setup, chosen, drawn_share)))
        return passes

    def _play_pass(
        self,
        method: Method,
        sampler: ObservingSampler,
        learner: RecordingLearner,
        starts: Sequence[Episode],
    ) -> dict[str, int]:
        """Let the method play all tasks once, and a method that waits for a full batch until it has one.

        Returns:
            Counts of the pass; the rows with a credit are left with the learner.
        """
        learner.rows = []
        updates_before = learner.updates
        requests_before = sampler.requests
        most_epochs = 1 if searches(self.method) else MAX_EPOCHS
        epochs = 0
        generations = 0
        while epochs < most_epochs and learner.updates == updates_before:
            driver = Driver(sampler, learner, None, self.player.seed, self.player.temperature)
            driver.run_epoch(method, sampler.epoch, list(starts))
            sampler.epoch += 1
            epochs += 1
            generations += driver.generations

        if searches(self.method):
            # Each expanded state has a group of its own, drawn by one request.
            groups = sampler.requests - requests_before
            with_signal = len({row.draw.request.key for row in learner.rows})
        else:
            groups = len(starts) * epochs
            tasks = {(row.draw.epoch, task_of(row.draw).task_id) for row in learner.rows}
            with_signal = len(tasks)
        return {
            "tasks": len(starts),
            "epochs": epochs,
            "generations": generations,
            "groups": groups,
            "groups_with_signal": with_signal,
            "rows_with_signal": len(learner.rows),
        }

    def _choose_rows(self, number: int, rows: Sequence[CreditedRow]) -> list[CreditedRow]:
        """Return the rows whose actions are valued, each with the same probability."""
        if len(rows) <= self.settings.rows:
            return list(rows)
        draw = generator(self.player.seed, "rows", number)
        return [rows[index] for index in sorted(draw.sample(range(len(rows)), self.settings.rows))]

    def _value_rows(
        self, number: int, setup: EpisodeSetup, chosen: Sequence[CreditedRow], drawn_share: float
    ) -> list[dict[str, Any]]:
        """Return a table's row for each response, with the wins from the state after it and from the state before it.

        Args:
            number: of the pass.
            setup: how episodes run.
            chosen: the responses.
            drawn_share: the probability with which each was drawn; weights are divided by it.
        """
        steps = [find_step(setup, row.draw) for row in chosen]
        # Each state once: siblings share the one before them, equal actions and neighbouring steps the one after. No
        # advantage knows of these episodes, and the two states of a row differ, so what is shared leaves no bias.
        states = {
            _identify_state(state): state
            for step in steps
            for state in (step.before, step.outcome.episode)
        }
        wins = dict(zip(states, self._count_wins(number, list(states.values())), strict=True))
        return [
            {
                "pass": number,
                "task_id": step.before.task.task_id,
                "task_type": step.before.task.task_type,
                "depth": step.before.steps + 1,
                "valid": step.outcome.valid,
                "admissible": step.outcome.admissible,
                "credit": row.credit,
                "penalised_credit": row.credit
                - self.common.inadmissible_penalty * (not step.outcome.admissible),
                "weight": row.weight / drawn_share,
                "ends": step.outcome.episode.done,
                "wins_after": wins[_identify_state(step.outcome.episode)],
                "wins_before": wins[_identify_state(step.before)],
                "continuations": self.settings.continuations,
            }
            for row, step in zip(chosen, steps, strict=True)
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
