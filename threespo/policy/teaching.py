"""What a tiny policy is taught: a recipe, its tasks, and how to tell whether it has understood.

Each environment has a *lesson* and a scripted *teacher* (``explorer`` for ALFWorld, ``shopper`` for WebShop), which decides
from text alone and says why in a short thought.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from threespo.envs.base import Task
from threespo.envs.episode import Episode, World

if TYPE_CHECKING:
    from threespo.policy.cloning import Stage
    from threespo.study.config import Study

TaskStream = Callable[[int, float], Iterator[Task]]
"""(stream number, share of generated tasks) -> endless training tasks; the number keeps stages apart."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What a teacher thinks and does."""

    thought: str
    action: str


class Teach(Protocol):
    """A teacher: ``rng`` decides the faults only, with what probability is in ``faults``, of the teacher's own class."""

    def __call__(self, episode: Episode, rng: random.Random, faults: Any = ...) -> Decision: ...


def teacher_of(env: str) -> Teach:
    """Return the teacher of an environment."""
    if env == "webshop":
        from threespo.policy import shopper

        return shopper.decide
    from threespo.policy import explorer

    return explorer.decide


@dataclass(frozen=True, slots=True)
class Shape:
    """Size of a Qwen2 model."""

    hidden: int
    layers: int
    heads: int
    mlp: int


SHAPES = {"s": Shape(128, 3, 4, 384), "m": Shape(256, 3, 8, 768)}


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that decides a base policy, besides the tasks."""

    shape: Shape
    stages: tuple["Stage", ...]
    weakening: "Stage"
    """One step of weakening; repeated until the base is weak enough."""
    target: float = 0.22
    """Weakening stops at this success rate on calibration tasks at temperature 1.0 (the goal is 10-30 %), once responses are
    well-formed."""
    most_weakening_steps: int = 12
    seed: int = 20260101


@dataclass(frozen=True, slots=True)
class Turn:
    """A state of the careful teacher, what it did there, and what the policy would do."""

    episode: Episode
    wanted: str
    taken: str


@dataclass(frozen=True, slots=True)
class Lesson:
    """All that :func:`threespo.policy.tiny.build` needs to know of an environment."""

    name: str
    """Of the shipped policies made by it, with the size after it."""
    plan: Recipe
    world: World
    tasks: TaskStream
    vocabulary: Callable[[list[str], list[Task]], list[str]]
    """Texts of demonstrations, and the tasks that they are of -> the tokens of the tokenizer."""
    lowercase: bool
    """Whether letters are the same in both cases."""
    decides: Literal["thought", "response"]
    """Where the deciding tokens end: with the thought, or with the action, in which a shop's agent writes a query."""
    response_tokens: int
    """The longest response that is sampled when the policy is measured."""
    telling: Callable[[Decision], bool]
    """Whether a decision of the careful teacher tells something about understanding."""
    understanding: Callable[[list[Turn]], dict[str, float]]
    """What was understood, from the telling states of whole episodes."""


def lesson_of(study: "Study", env: str, size: str, data: Path) -> Lesson:
    """Return the lesson of a study's environment for a policy of ``size`` (``s`` or ``m``)."""
    if env == "webshop":
        from threespo.policy import webshop_lesson

        return webshop_lesson.lesson(study, size, data)
    from threespo.policy import alfworld_lesson

    return alfworld_lesson.lesson(study, size, data)
