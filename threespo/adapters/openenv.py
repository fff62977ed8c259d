"""OpenEnv's environment: a server with an episode for each session.

    python -m threespo.adapters.openenv --environment webshop --port 8000

``threespo/adapters/openenv.yaml`` is its manifest. Splits and tasks are listed through OpenEnv's task interface;
``reset(task=ID)`` or ``reset(split=SPLIT, index=PLACE)`` begins one, ``reset(seed=S)`` the first of the stream of S.
"""

import argparse
import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

from fastapi import FastAPI
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, EnvironmentMetadata, Observation, State
from pydantic import Field

from threespo import __version__
from threespo.adapters.tools import Player
from threespo.errors import InputError
from threespo.gym.environment import render_observation
from threespo.gym.numbers import check_seed
from threespo.gym.stream import pick_task
from threespo.panels.panel import load_panel

MAX_SESSIONS = 256


class TextAction(Action):  # type: ignore[misc]
    """A command, such as ``go to desk 1`` or ``search[red shoes]``."""

    command: str = Field(
        max_length=1 << 20, description="The command; any text is taken, as in the original"
    )


class TextObservation(Observation):  # type: ignore[misc]
    """The observation and the admissible actions. ``reward`` is the increase of the score; ``done``: the episode is over."""

    text: str = Field(description="The environment's text")
    goal: str = Field(description="The instruction")
    admissible_commands: list[str] = Field(description="What can be done")
    task: str = Field(description="Id of the task")
    won: bool = Field(description="Whether the task is done")
    score: float = Field(description="The environment's score, in [0, 1]")


class TextEnvironment(Environment[TextAction, TextObservation, State]):  # type: ignore[misc]
    """One session; all sessions of a process share the games or the shop, which never change."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, environment: str = "alfworld", split: str = "train", **options: Any) -> None:
        """Open the tasks.

        Args:
            environment: ``alfworld`` or ``webshop``.
            split: that tasks are from unless ``reset`` names another.
            options: arguments of ``threespo.gym.tasks``.
        """
        super().__init__()
        self._name = environment
        self._split = split
        self._options = options
        self._player = self._open_player(split)
        self._episode_id: str | None = None

    def _open_player(self, split: str) -> Player:
        return Player(self._name, split=split, **self._options)

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        task: int | str | None = None,
        split: str | None = None,
        index: int | None = None,
        **kwargs: Any,
    ) -> TextObservation:
        """Begin an episode.

        Args:
            seed: of the stream whose first task is played, where neither task nor index is given.
            episode_id: returned by ``state`` for this episode.
            task: id or index of the task.
            split: split of the task.
            index: index of the task in its split.
            kwargs: refused.

        Raises:
            InputError: for an unknown argument, split or task.
        """
        if kwargs:
            raise InputError(
                f"reset: no argument {min(kwargs)!r}; there are: seed, episode_id, task, split, index"
            )
        player = self._open_player(split) if split is not None else self._player
        chosen = index if task is None else task
        if chosen is None:
            chosen = pick_task(check_seed(seed or 0), 0, len(player.tasks), "shuffled")
        # A task that does not exist leaves the session's episode as it was.
        player.begin(chosen)
        self._player = player
        self._episode_id = episode_id
        return self._observation(None)

    def step(self, action: TextAction, timeout_s: float | None = None, **kwargs: Any) -> TextObservation:
        """Take an action.

        Raises:
            InputError: before the first reset, or if the episode is over.
        """
        before = float(self._player.current.score)
        after = float(self._player.act(action.command).score)
        return self._observation(after - before)

    def _observation(self, reward: float | None) -> TextObservation:
        episode = self._player.current
        return TextObservation(
            text=render_observation(episode),
            goal=episode.task.goal,
            admissible_commands=list(self._player.admissible),
            task=episode.task.task_id,
            won=episode.won,
            score=float(episode.score),
            done=episode.done,
            reward=reward,
        )

    @property
    def state(self) -> State:
        """Episode id, number of steps, and which task of which split is played."""
        episode = self._player.episode
        if episode is None:
            return State(episode_id=None, step_count=0)
        return State(
            episode_id=self._episode_id,
            step_count=episode.steps,
            task=episode.task.task_id,
            split=self._player.tasks.split,
        )

    def get_metadata(self) -> EnvironmentMetadata:
        about = f"{self._name}: text equal to the original environment, in one process (3SPO)"
        return EnvironmentMetadata(name=f"threespo-{self._name}", description=about, version=__version__)

    def list_splits(self) -> list[str]:
        """Return the splits of the canonical panel of this environment's generated tasks."""
        return list(load_panel(f"{self._name}-generated").splits)

    def num_tasks(self, split: str) -> int:
        return len(self._open_player(split).tasks)

    def get_task(self, split: str, index: int) -> dict[str, Any]:
        return self.get_task_range(split, index, index + 1)[0]

    def list_tasks(self, split: str) -> list[dict[str, Any]]:
        return self.get_task_range(split)

    def get_task_range(
        self, split: str, start: int | None = None, stop: int | None = None
    ) -> list[dict[str, Any]]:
        ids = self._open_player(split).tasks.ids
        tasks = [{"id": task_id, "index": index} for index, task_id in enumerate(ids)]
        return tasks[start:stop]


def make_app(
    environment: str = "alfworld", split: str = "train", sessions: int = MAX_SESSIONS, **options: Any
) -> FastAPI:
    """Return the server's application.

    Args:
        environment: ``alfworld`` or ``webshop``.
        split: of the tasks.
        sessions: at most so many at a time.
        options: arguments of ``threespo.gym.tasks``.
    """
    # OpenEnv calls it once for each session; the tasks behind all of them are cached and shared.
    make: Callable[[], TextEnvironment] = functools.partial(
        TextEnvironment, environment, split, **options
    )
    # Opened before the first session, so that a wrong argument ends the start and not a session.
    make()
    return create_app(
        make,
        TextAction,
        TextObservation,
        env_name=f"threespo-{environment}",
        max_concurrent_envs=sessions,
    )


def app() -> FastAPI:
    """Return the application that ``openenv.yaml`` names, of the environment in ``THREESPO_ENVIRONMENT``."""
    return make_app(os.environ.get("THREESPO_ENVIRONMENT", "alfworld"))


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until interrupted."""
    import uvicorn

    parser = argparse.ArgumentParser(
        prog="python -m threespo.adapters.openenv", description="Serve OpenEnv clients."
    )
    parser.add_argument("--environment", choices=("alfworld", "webshop"), default="alfworld")
    parser.add_argument("--split", default="train", help="of the tasks (default: train)")
    parser.add_argument(
        "--path",
        metavar="DIR",
        help="folder of official games or of the original's shop (none: generated)",
    )
    parser.add_argument(
        "--sessions",
        type=int,
        default=MAX_SESSIONS,
        help=f"at most so many at a time (default: {MAX_SESSIONS})",
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    given = parser.parse_args(arguments)
    application = make_app(given.environment, given.split, given.sessions, path=given.path)
    uvicorn.run(application, host=given.host, port=given.port, log_level="warning")


if __name__ == "__main__":
    main()
