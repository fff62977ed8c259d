"""What a method is to the run loop, and what all methods share."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict

from threespo.envs.episode import Episode, Outcome
from threespo.protocol import EpochResult, LossSettings, MethodSteps, Row, Sample
from threespo.rng import generator


class MethodOptions(BaseModel):
    """Base of a method's typed options: immutable, no unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


@dataclass(frozen=True, slots=True)
class CommonSettings:
    """What all methods of a study share (``TrainingSettings`` in threespo/study/config.py explains the fields)."""

    seed: int
    group_size: int
    clip: float
    kl_coef: float
    invalid_penalty: float
    inadmissible_penalty: float


class Method(Protocol):
    """A training method with whatever it remembers between epochs."""

    def epoch(self, number: int, starts: Sequence[Episode]) -> MethodSteps:
        """Yield the requests of one epoch on the given task starts and return what happened."""
        ...

    def dump(self) -> dict[str, Any]:
        """Return what is remembered, as JSON values, for a checkpoint."""
        ...

    def restore(self, memory: dict[str, Any]) -> None:
        """Take back what ``dump`` returned."""
        ...


@dataclass(frozen=True, slots=True)
class Turn:
    """One generation in context: what was asked, answered, and what it led to."""

    before: Episode
    prompt: str
    sample: Sample
    outcome: Outcome


@dataclass(slots=True)
class Tally:
    """Counts turns into an ``EpochResult``."""

    result: EpochResult = field(default_factory=EpochResult)

    def turn(self, outcome: Outcome) -> None:
        """Count one generation and its environment step."""
        self.result.env_steps += 1
        self.result.invalid_format += not outcome.valid
        self.result.inadmissible += not outcome.admissible
        self.result.nothing_happens += outcome.nothing_happens

    def path(self, success: bool) -> None:
        """Count one completed path."""
        self.result.completed_paths += 1
        self.result.successes += success


def make_row(turn: Turn, advantage: float, common: CommonSettings, weight: float = 1.0) -> Row:
    """Return the training row of a turn: one advantage for all its tokens.

    The penalty for inadmissible actions, a named option of the embedded studies, comes off the advantage here, for every
    response that a method trains on. (3SPO does not train on groups of equal rewards, nor on single samples.)
    """
    value = advantage - common.inadmissible_penalty * (not turn.outcome.admissible)
    tokens = turn.sample.tokens
    return Row(turn.prompt, tokens, turn.sample.logprobs, (value,) * len(tokens), weight)


def loss_settings(common: CommonSettings, aggregation: Any) -> LossSettings:
    """Return the loss that all methods share, with the method's aggregation."""
    return LossSettings(common.clip, common.clip, kl_coef=common.kl_coef, aggregation=aggregation)


def minibatches(rows: Sequence[Row], size: int, seed: int, epoch: int) -> list[tuple[Row, ...]]:
    """Shuffle rows and cut them into mini-batches of ``size``; a remainder below half a batch joins the last one."""
    order = list(rows)
    generator(seed, "minibatches", epoch).shuffle(order)
    count = max(1, round(len(order) / size))
    return [tuple(order[i * len(order) // count : (i + 1) * len(order) // count]) for i in range(count)]
