"""An episode as an immutable value: where the agent is, what it has seen and done, and the prompt that follows.

Going on from an older ``Episode`` is all that backtracking takes: state, history and step count come with the reference.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from threespo.envs.base import Environment, Task
from threespo.envs.parsing import parse_response

FREE_TEXT = "<your query>"
"""The placeholder in WebShop's list of actions for the agent's own words."""


@dataclass(frozen=True, slots=True)
class EpisodeSetup:
    """What all episodes of a run share: the environment, the step limit T_max, and how much history a prompt shows."""

    env: Environment[Any, Any]
    max_steps: int
    history_length: int


@dataclass(frozen=True, slots=True)
class Episode:
    """One point of one episode."""

    setup: EpisodeSetup
    task: Task
    state: Any
    history: tuple[tuple[str, str], ...] = ()
    """All (observation, action) pairs so far, oldest first."""
    won: bool = False
    score: float = 0.0
    ended: bool = False
    """Over by itself, won or not."""

    @property
    def observation(self) -> str:
        """The text of the present state."""
        return str(self.state.observation)

    @property
    def steps(self) -> int:
        """Actions taken so far."""
        return len(self.history)

    @property
    def done(self) -> bool:
        """Over by itself, or at the step limit T_max."""
        return self.ended or len(self.history) >= self.setup.max_steps

    @property
    def prompt(self) -> str:
        """The prompt for the next action."""
        return self.ask()

    def ask(
        self, lines: Sequence[str] | None = None, instruction: str | None = None, preface: str = ""
    ) -> str:
        """Return the prompt of the environment's template, changed where an argument says so.

        Args:
            lines: a line for each pair of the history, in place of the template's own.
            instruction: what to do now, in place of the template's request for reasoning and an action.
            preface: a text before the instruction.
        """
        return self.setup.env.text.prompt(
            self.task.goal,
            self.observation,
            self.setup.env.admissible(self.state),
            self.history,
            self.setup.history_length,
            lines=lines,
            instruction=instruction,
            preface=preface,
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one response led to."""

    episode: Episode
    action: str
    valid: bool
    """Well-formed response (format validity)."""
    admissible: bool
    """The parsed action was in the admissible list."""
    nothing_happens: bool
    """ALFWorld says so; elsewhere the state is what it was before."""


def start_episode(setup: EpisodeSetup, task: Task) -> Episode:
    """Return the start of an episode of ``task``."""
    return Episode(setup, task, setup.env.initial(task))


def respond(episode: Episode, response: str) -> Outcome:
    """Parse a response, take the action, and return what it led to: one environment step.

    Args:
        episode: where the agent is; it is not changed.
        response: the whole text of the model.
    """
    env = episode.setup.env
    parsed = parse_response(response, env.text.fallback_length)
    allowed = is_admissible(parsed.action, env.admissible(episode.state))

    # A command that is not admissible is taken all the same: the environment's answer to it is the next observation.
    after = take_action(episode, parsed.action)
    idle = after.state == episode.state if env.text.idle is None else after.observation == env.text.idle
    return Outcome(after, parsed.action, parsed.valid, allowed, idle)


def is_admissible(action: str, admissible: Sequence[str]) -> bool:
    """Return whether an action is in the list.

    Args:
        action: the command.
        admissible: the list; an entry with ``<your query>`` stands for any text in its place, of one line and without
            brackets.
    """
    if action in admissible:
        return True
    for entry in admissible:
        if FREE_TEXT not in entry:
            continue
        before, after = entry.split(FREE_TEXT)
        # Brackets would end WebShop's action early, and a line break is never part of one.
        if re.fullmatch(rf"{re.escape(before)}[^\[\]\n]+{re.escape(after)}", action):
            return True
    return False


def take_action(episode: Episode, action: str) -> Episode:
    """Take an action and return the episode after it.

    Args:
        episode: where the agent is; it is not changed.
        action: the command, which the environment interprets.
    """
    transition = episode.setup.env.step(episode.state, action)
    # Not ``replace``, which takes a tenth of a step in ALFWorld.
    return Episode(
        episode.setup,
        episode.task,
        transition.state,
        (*episode.history, (episode.observation, action)),
        transition.won,
        transition.score,
        transition.won or transition.ended,
    )
