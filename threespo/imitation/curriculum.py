"""What a tiny policy is trained on by cloning: a recipe, its tasks, and a test of what it has learned.

Each environment has a *curriculum* and a scripted *expert*, which decides from text alone and says why
in a short thought.
"""

import importlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from threespo.envs.base import Task
from threespo.envs.episode import Episode, EpisodeSetup
from threespo.imitation.settings import BasePolicySettings, PolicySize

TaskStream = Callable[[int, float], Iterator[Task]]
"""(stream number, share of generated tasks) -> endless training tasks; the number keeps stages apart."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What an expert thinks and does."""

    thought: str
    """A few words. The first is a noun of the goal, the same throughout an episode and a token of the
    vocabulary; the decision comes second: a small network learns to attend to the word after the
    noun."""
    action: str


class Expert(Protocol):
    """A scripted expert. ``rng`` decides its faults only; how probable they are is in ``noise``, of a class of its own."""

    def __call__(self, episode: Episode, rng: random.Random, noise: Any = ...) -> Decision: ...


@dataclass(frozen=True, slots=True)
class TinyModelShape:
    """Shape of a Qwen2 model."""

    hidden: int
    layers: int
    heads: int
    mlp: int

    @classmethod
    def from_size(cls, size: PolicySize) -> "TinyModelShape":
        """Return the shape of a size."""
        return cls(size.hidden, size.layers, size.heads, size.mlp)


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of cloning."""

    tokens: int
    """Length of the stage in training tokens."""
    learning_rate: float
    """Peak; warm-up over 60 steps, cosine decay to a twentieth over the stage."""
    prompt_weight: float
    """Loss weight of prompt tokens; response tokens weigh 1."""
    decision_weight: float
    """Loss weight of the deciding tokens: those of the thought, or of the response, after the first word."""
    executed: Any
    """Noise of the expert that plays."""
    labels: Any
    """Noise of the expert that is imitated; ``None`` imitates the one that plays, faults included."""
    take_weight: float = 1.0
    """Factor on ``decision_weight`` where an object is taken: that is one state in ten, and learned last."""
    generated_share: float = 0.0
    """Share of generated full-size games among real ones. The release has 108 training rooms: a policy
    cloned on these alone wins in them and fails in others."""
    batch: int = 16
    """Sequences per optimizer step. Small batches matter: copying is learned in many steps, not in large ones."""


@dataclass(frozen=True, slots=True)
class EarlyStop:
    """The base is the clone as it was on its way to the strong policy, without injected faults."""

    first: int
    """Training tokens, of all stages, before which no clone is measured: it cannot answer yet, and binds no objects."""
    every: int
    """Training tokens of a stage from one measurement to the next; the first that is above the recipe's
    target, with well-formed responses, is the base."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that decides a base policy, besides the tasks. Its fields are part of ``policy.json``."""

    shape: TinyModelShape
    stages: tuple[Stage, ...]
    weakening: Stage | EarlyStop
    """What makes the base weak. A stage is one step of fine-tuning the strong policy on a careless
    expert; it is repeated until the success rate is low enough."""
    target: float = 0.22
    """Success rate on calibration tasks at temperature 1.0 (the goal is 10-30 %): weakening stops once
    it is no higher, early cloning once it is higher; and responses must be well-formed."""
    most_weakening_steps: int = 12
    seed: int = 20260101


@dataclass(frozen=True, slots=True)
class Turn:
    """A state of the careful expert, what it did there, and what the policy would do."""

    episode: Episode
    wanted: str
    taken: str


@dataclass(frozen=True, slots=True)
class Curriculum:
    """All that :func:`threespo.imitation.base_policy.build_policy` needs to know of an environment."""

    # What is learned, and where a result of it may lie.
    shipped: Path
    """Folder of the policy that comes with the repository for these tasks and this size; it need not exist."""
    recipe: Recipe
    setup: EpisodeSetup
    expert: Expert
    tasks: TaskStream
    # How texts become tokens, and tokens weights.
    vocabulary: Callable[[list[str], list[Task]], list[str]]
    """Texts of demonstrations, and the tasks that they are of -> the tokens of the tokenizer."""
    lowercase: bool
    """Whether letters are the same in both cases."""
    decides: Literal["thought", "response"]
    """Where the deciding tokens end: with the thought, or with the action, in which a shop's agent writes a query."""
    response_tokens: int
    """The longest response that is sampled when the policy is measured."""
    # How the result is measured.
    is_diagnostic: Callable[[Decision], bool]
    """Whether a decision of the careful expert is one by which ``understanding`` is measured."""
    grounding_metrics: Callable[[list[Turn]], dict[str, float]]
    """Measures of whether the policy acts on what the prompt shows, from such states of whole episodes."""


def shipped_name(tasks: str, settings: BasePolicySettings) -> str:
    """Return the name of a shipped policy's folder, e.g. ``small-s`` or ``small-s-early``.

    Args:
        tasks: names the tasks that the policy learns.
        settings: size and weakness of the policy.
    """
    return f"{tasks}-{settings.size_name}" + ("-early" if settings.weakness == "early" else "")


def curriculum_of(settings: BasePolicySettings) -> Curriculum:
    """Return the curriculum of a policy's environment, for its size.

    Raises:
        InputError: if what the policy is to learn from is missing or too large for it.
    """
    # By name: environments are found by their folders (``EnvironmentSpec``), not imported here.
    found: Curriculum = importlib.import_module(curriculum_module(settings.env)).curriculum(settings)
    return found


def curriculum_module(env: str) -> str:
    """Return the module with an environment's curriculum, where it has one (``EnvironmentSpec.has_curriculum``)."""
    return f"threespo.imitation.{env}.curriculum"
