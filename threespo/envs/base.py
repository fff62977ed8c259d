"""What every environment is: pure functions on immutable, hashable states.

A state is a value. Forking an episode is keeping a reference to one; backtracking (Algorithm 1 of the paper) is going on
from an older reference. Nothing is replayed, copied or restored.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

from threespo.envs.prompts import PromptTemplate


class Task(Protocol):
    """One thing to solve: an ALFWorld game, a WebShop goal, a tree."""

    @property
    def task_id(self) -> str:
        """Unique within the environment, stable across runs."""
        ...

    @property
    def task_type(self) -> str:
        """The kind of task, as results are broken down by it."""
        ...

    @property
    def goal(self) -> str:
        """The instruction as the agent reads it."""
        ...


class State(Hashable, Protocol):
    """A point in an episode. Equal states behave alike for ever."""

    @property
    def observation(self) -> str:
        """The text that the environment returned on reaching this state."""
        ...


TaskT = TypeVar("TaskT", bound=Task, contravariant=True)
StateT = TypeVar("StateT", bound=State)


class Transition(NamedTuple, Generic[StateT]):
    """What one action led to."""

    state: StateT
    observation: str
    score: float
    """The environment's cumulative score."""
    won: bool
    ended: bool = False
    """Whether the environment itself has ended the episode, by a win or any purchase, as opposed to the step limit."""


@dataclass(frozen=True, slots=True)
class TextInterface:
    """How an environment and a language model speak to each other."""

    prompt: PromptTemplate
    persona: str
    """Who the template says that the model is."""
    fallback_length: int
    """Characters at the end of a response without action tags that are taken for its action."""
    idle: str | None = None
    """The observation that says that an action did nothing; ``None``: it did nothing if the state is what it was."""


class Environment(Protocol[TaskT, StateT]):
    """An environment. Methods are pure: no hidden state, no randomness."""

    name: str
    """Its name in ``threespo.envs.registry``."""
    text: TextInterface

    def initial(self, task: TaskT) -> StateT:
        """Return the first state of the task."""
        ...

    def step(self, state: StateT, action: str) -> Transition[StateT]:
        """Return what an action leads to; any text is accepted, as in the original engines.

        Args:
            state: from where; it is not changed.
            action: the command as the agent gave it.
        """
        ...

    def admissible(self, state: StateT) -> tuple[str, ...]:
        """Return the admissible actions in the order in which the original lists them."""
        ...

    def won(self, state: StateT) -> bool:
        """Return whether the goal is reached."""
        ...
