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

ItemT = TypeVar("ItemT")

_COUNTS = (
    "env_steps", "completed_paths", "successes", "invalid_format", "inadmissible", "nothing_happens",
)  # fmt: skip


class MethodOptions(Settings):
    """Base of a method's typed options. Upper bounds are far above all use: they catch typos."""


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
    """A training method with what it remembers between epochs."""

    @property
    def critic_rate(self) -> float | None:
        """Learning rate of the method's critic, as a multiple of the policy's; ``None`` if it has no critic."""
        ...

    def train_epoch(self, epoch: int, starts: Sequence[Episode]) -> MethodSteps:
        """Yield the requests of one epoch and return what happened.

        Args:
            epoch: its number, from 0.
            starts: first state of an episode of every task of the epoch.
        """
        ...

    def dump(self) -> dict[str, Any]:
        """Return what is remembered, as JSON values, for a checkpoint."""
        ...

    def restore(self, memory: dict[str, Any]) -> None:
        """Continue from what ``dump`` returned."""
        ...


@dataclass(frozen=True, slots=True)
class Turn:
    """One generation: the prompt, the response, and what it led to."""

    before: Episode
    prompt: str
    sample: Sample
    outcome: Outcome


@dataclass(slots=True)
class Tally:
    """Counts turns and paths of an epoch by task type, and their states in the method's statistics."""

    states: StateStatistics
    counts: dict[str, dict[str, int]] = field(default_factory=dict)

    def count_turn(self, outcome: Outcome) -> None:
        """Count one generation and its environment step."""
        self.states.add_shown_state(outcome.episode)
        counts = self._counts_of_type(outcome.episode)
        counts["env_steps"] += 1
        counts["invalid_format"] += not outcome.valid
        counts["inadmissible"] += not outcome.admissible
        counts["nothing_happens"] += outcome.nothing_happens

    def count_path(self, last: Episode) -> None:
        """Count one completed path, given its end."""
        self.states.add_path(last)
        counts = self._counts_of_type(last)
        counts["completed_paths"] += 1
        counts["successes"] += last.won

    def close_epoch(
        self,
        details: Mapping[str, float] | None = None,
        by_type: Mapping[str, Mapping[str, float]] | None = None,
    ) -> EpochResult:
        """Return the epoch's result, for all tasks and for each task type.

        Args:
            details: the method's own numbers over all tasks.
            by_type: the method's own numbers by task type.
        """
        state_numbers, states_by_type = self.states.close_epoch()
        totals: dict[str, Any] = {
            name: sum(counts[name] for counts in self.counts.values()) for name in _COUNTS
        }

        # A type whose roots are all gated has counted nothing here, but has numbers of the method's own.
        own_by_type = by_type or {}
        no_counts = dict.fromkeys(_COUNTS, 0)
        numbers_by_type = {
            task_type: {
                **self.counts.get(task_type, no_counts),
                **states_by_type.get(task_type, {}),
                **own_by_type.get(task_type, {}),
            }
            for task_type in sorted(self.counts.keys() | own_by_type.keys())
        }
        return EpochResult(
            **totals, details={**state_numbers, **(details or {})}, by_type=numbers_by_type
        )

    def _counts_of_type(self, episode: Episode) -> dict[str, int]:
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
    sample = turn.sample
    # PPO estimates an advantage for each token; all other methods share one among the tokens of a response.
    advantages = advantage if isinstance(advantage, Sequence) else [advantage] * len(sample.tokens)
    penalty = common.inadmissible_penalty * (not turn.outcome.admissible)
    penalised = tuple(value - penalty for value in advantages)
    return Row(turn.prompt, sample.tokens, sample.logprobs, penalised, weight, sample.version)


def make_loss_settings(
    common: CommonSettings, aggregation: Aggregation, clip_high: float | None = None
) -> LossSettings:
    """Return the loss that all methods share.

    Args:
        common: settings of the study: clip range, weights of the KL penalty and of the entropy bonus.
        aggregation: how the method averages over tokens and rows.
        clip_high: the method's own upper clip, in place of the common one.
    """
    return LossSettings(
        clip_low=common.clip,
        clip_high=clip_high or common.clip,
        kl_coef=common.kl_coef,
        aggregation=aggregation,
        entropy_coef=common.entropy_coef,
    )


def split_into_minibatches(
    rows: Sequence[ItemT], size: int, seed: int, epoch: int
) -> list[tuple[ItemT, ...]]:
    """Shuffle rows and cut them into mini-batches of about ``size``, as equal as possible.

    Args:
        rows: the rows of an epoch.
        size: rows of a mini-batch; there is at least one mini-batch, and none is empty unless ``rows`` is.
        seed: seed of the run.
        epoch: with the seed it decides the order.
    """
    # Shuffled, since neighbouring rows are steps of one episode: a mini-batch of them would be one task's.
    order = list(rows)
    generator(seed, "minibatches", epoch).shuffle(order)
    count = max(1, round(len(order) / size))
    # Equal parts and not a short last one, whose few rows would weigh as much as a whole mini-batch.
    bounds = [number * len(order) // count for number in range(count + 1)]
    return [tuple(order[bounds[number] : bounds[number + 1]]) for number in range(count)]


@dataclass(frozen=True, slots=True)
class MethodEntry:
    """What a method's file offers under the name ``METHOD``; the study's name of the method is that of the file."""

    make: Callable[[Any, CommonSettings], Method]
    """(options, what all methods share) -> a fresh method for a run, which remembers nothing yet."""
    options: type[MethodOptions]
    searches: bool = False
    """It searches trees of states, and so leaves trees, state scores and probes: it is a ``SearchMethod``, and its options
    are 3SPO's, a subclass's, or have the same fields."""
