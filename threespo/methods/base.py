"""What a method is to the run loop, and what all methods share."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from threespo.envs.episode import Episode, Outcome
from threespo.methods.advantages import Population
from threespo.methods.states import StateStatistics
from threespo.protocol import Aggregation, EpochResult, LossSettings, MethodSteps, Row, Sample
from threespo.rng import generator
from threespo.settings import Settings

T = TypeVar("T")

_COUNTS = (
    "env_steps",
    "completed_paths",
    "successes",
    "invalid_format",
    "inadmissible",
    "nothing_happens",
)


class MethodOptions(Settings):
    """Base of a method's typed options. Upper bounds are far above all use: a number beyond them is a slip of the hand."""


@dataclass(frozen=True, slots=True)
class CommonSettings:
    """What all methods of a study share (``TrainingSettings`` in threespo/runs/training_settings.py explains the fields)."""

    seed: int
    group_size: int
    clip: float
    kl_coef: float
    invalid_penalty: float
    inadmissible_penalty: float
    success_reward: float
    minibatch: int
    statistics: Population
    """What means and spreads of episode returns are taken over: ``rows`` where the study runs ``as_released``."""
    recorded: frozenset[str] = frozenset()
    """Ids of the tasks whose search trees are kept; without influence on training."""
    entropy_coef: float = 0.0


class Method(Protocol):
    """A training method with whatever it remembers between epochs."""

    @property
    def critic_rate(self) -> float | None:
        """Learning rate of the method's critic, as a multiple of the policy's; ``None`` if it has no critic."""
        ...

    def train_epoch(self, number: int, starts: Sequence[Episode]) -> MethodSteps:
        """Yield the requests of one epoch and return what happened.

        Args:
            number: the epoch, from 0.
            starts: first state of an episode of every task of the epoch.
        """
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
    """Counts turns into an ``EpochResult``, and states into the method's statistics, for each task type apart."""

    states: StateStatistics
    counts: dict[str, dict[str, int]] = field(default_factory=dict)

    def count_turn(self, outcome: Outcome) -> None:
        """Count one generation and its environment step."""
        counts = self._of(outcome.episode)
        counts["env_steps"] += 1
        self.states.meet(outcome.episode)
        counts["invalid_format"] += not outcome.valid
        counts["inadmissible"] += not outcome.admissible
        counts["nothing_happens"] += outcome.nothing_happens

    def count_path(self, last: Episode) -> None:
        """Count one completed path, given its end."""
        counts = self._of(last)
        counts["completed_paths"] += 1
        counts["successes"] += last.won
        self.states.count_path(last)

    def close(
        self,
        details: Mapping[str, float] | None = None,
        by_type: Mapping[str, Mapping[str, float]] | None = None,
    ) -> EpochResult:
        """Return the epoch's result, for all tasks and for each task type.

        Args:
            details: the method's own numbers over all tasks.
            by_type: the method's own numbers by task type.
        """
        everything, states = self.states.close()

        own = by_type or {}
        counts: dict[str, Any] = {
            name: sum(one[name] for one in self.counts.values()) for name in _COUNTS
        }

        # A type whose roots are all gated has counted nothing here, but has numbers of the method's own.
        kinds = sorted(self.counts.keys() | own.keys())
        none = dict.fromkeys(_COUNTS, 0)
        apart = {
            kind: {**self.counts.get(kind, none), **states.get(kind, {}), **own.get(kind, {})}
            for kind in kinds
        }
        return EpochResult(**counts, details={**everything, **(details or {})}, by_type=apart)

    def _of(self, episode: Episode) -> dict[str, int]:
        return self.counts.setdefault(episode.task.task_type, dict.fromkeys(_COUNTS, 0))


def make_row(
    turn: Turn, advantage: float | Sequence[float], common: CommonSettings, weight: float = 1.0
) -> Row:
    """Return the training row of a turn.

    The penalty for inadmissible actions, a named option of the embedded studies, comes off the advantage here, for every
    response that a method trains on. (3SPO does not train on groups of equal rewards, nor on single samples.)

    Args:
        turn: the response and what it led to.
        advantage: one value for all tokens of the response, or one for each, (tokens,).
        common: settings, of which the penalty is read.
        weight: relative weight of the row in aggregations over rows (eq. 5).
    """
    tokens = turn.sample.tokens
    values = advantage if isinstance(advantage, Sequence) else [advantage] * len(tokens)
    penalty = common.inadmissible_penalty * (not turn.outcome.admissible)
    ours = tuple(value - penalty for value in values)
    return Row(turn.prompt, tokens, turn.sample.logprobs, ours, weight, turn.sample.version)


def make_loss_settings(
    common: CommonSettings, aggregation: Aggregation, clip_high: float | None = None
) -> LossSettings:
    """Return the loss that all methods share.

    Args:
        common: settings of the study: clip range, weights of the KL penalty and of the entropy bonus.
        aggregation: how the method averages over tokens and rows.
        clip_high: the method's own upper clip, in place of the common one.
    """
    high, bonus = clip_high or common.clip, common.entropy_coef
    return LossSettings(
        common.clip, high, kl_coef=common.kl_coef, aggregation=aggregation, entropy_coef=bonus
    )


def split_into_minibatches(rows: Sequence[T], size: int, seed: int, epoch: int) -> list[tuple[T, ...]]:
    """Shuffle rows and cut them into mini-batches of about ``size``, as equal as possible.

    Args:
        rows: the rows of an epoch.
        size: rows of a mini-batch; there is at least one mini-batch, and none is empty unless ``rows`` is.
        seed: seed of the run.
        epoch: with the seed it decides the order.
    """
    order = list(rows)
    generator(seed, "minibatches", epoch).shuffle(order)
    count = max(1, round(len(order) / size))
    return [tuple(order[i * len(order) // count : (i + 1) * len(order) // count]) for i in range(count)]


@dataclass(frozen=True, slots=True)
class MethodEntry:
    """What a method's file offers under the name ``METHOD``; the study's name of the method is that of the file."""

    make: Callable[[Any, CommonSettings], Method]
    """(options, what all methods share) -> a fresh method for a run, which remembers nothing yet."""
    options: type[MethodOptions]
    searches: bool = False
    """It searches trees of states, and so leaves trees, state scores and probes: it is a ``SearchMethod``, and its options
    are 3SPO's, a subclass's, or have the same fields."""
