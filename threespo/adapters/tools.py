"""What the adapters share: opening tasks by options, and the page of text that a model sees after a step."""

from typing import Any

from threespo.envs.episode import Episode, take_action
from threespo.errors import InputError
from threespo.gym.environment import render_observation
from threespo.gym.tasks import Tasks, open_tasks


class Player:
    """One episode played by commands; the environments of the frameworks wrap it."""

    def __init__(self, environment: str, **options: Any) -> None:
        """Open the tasks.

        Args:
            environment: ``alfworld`` or ``webshop``.
            options: arguments of ``threespo.gym.tasks``.
        """
        self.options = {"environment": environment, **options}
        self.tasks: Tasks = open_tasks(environment, **options)
        self.episode: Episode | None = None

    def begin(self, task: int | str) -> Episode:
        """Begin an episode of a task, given its id or index."""
        self.episode = self.tasks.begin(task)
        return self.episode

    @property
    def current(self) -> Episode:
        """The current state of the episode.

        Raises:
            InputError: before the first task.
        """
        if self.episode is None:
            raise InputError("no episode yet: begin one with reset, which takes a task")
        return self.episode

    @property
    def admissible(self) -> tuple[str, ...]:
        """The admissible commands; none where the episode is over."""
        return () if self.current.done else self.tasks.setup.env.admissible(self.current.state)

    def act(self, command: str) -> Episode:
        """Take an action.

        Raises:
            InputError: if it is no text, or the episode is over.
        """
        if not isinstance(command, str):
            raise InputError(f"action: expected a text, found {type(command).__name__}")
        if self.current.done:
            raise InputError(
                f"the episode is over ({describe_outcome(self.current)}); no further action is taken"
            )
        self.episode = take_action(self.current, command)
        return self.episode

    def render_page(self) -> str:
        """Return the current observation and the admissible actions."""
        if self.current.done:
            return f"{render_observation(self.current)}\n\nThe episode is over: {describe_outcome(self.current)}."
        # ``help`` lists commands of the text engine, for which a model that calls tools has no use.
        listed = "\n".join(action for action in self.admissible if action != "help")
        return f"{render_observation(self.current)}\n\nAdmissible actions:\n{listed}"


def describe_outcome(episode: Episode) -> str:
    """Return a sentence on how an episode ended."""
    if episode.won:
        return "the task is done"
    if episode.ended:
        return f"it ended with the score {episode.score:.2f}"
    return f"no success within {episode.steps} steps"
