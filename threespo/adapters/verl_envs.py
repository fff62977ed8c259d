"""What verl-agent's builders return: many episodes in one process, with the interface that its managers use."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from threespo.envs.alfworld import sources
from threespo.envs.episode import FREE_TEXT, Episode, take_action
from threespo.errors import InputError
from threespo.gym.environment import render_observation
from threespo.gym.numbers import check_seed, check_whole_number
from threespo.gym.tasks import Tasks

RELEASED = "released"
PANEL = "panel"
WIN_REWARD = 10.0
"""Reward of a win; every other step has 0."""


class _EpisodeGroups:
    """Base of both environments: ``env_num`` tasks at a time, each played by ``group_n`` episodes."""

    def __init__(self, env_num: int, group_n: int) -> None:
        self.env_num = check_whole_number(env_num, "verl-agent: env_num", 1)
        self.group_n = check_whole_number(group_n, "verl-agent: group_n", 1)
        self.num_processes = self.env_num * self.group_n
        self._episodes: list[Episode] = []

    def _act(self, actions: Sequence[str]) -> None:
        if not self._episodes:
            raise InputError("verl-agent: step before reset; call reset() first")
        if len(actions) != self.num_processes:
            raise InputError(f"verl-agent: expected {self.num_processes} actions, found {len(actions)}")
        for index, action in enumerate(actions):
            if not isinstance(action, str):
                raise InputError(
                    f"verl-agent: actions[{index}]: expected a text, found {type(action).__name__}"
                )
        # Managers keep sending actions to finished episodes and mask the results.
        self._episodes = [
            episode if episode.done else take_action(episode, action)
            for episode, action in zip(self._episodes, actions, strict=True)
        ]

    def close(self) -> None:
        """Drop the episodes."""
        self._episodes = []


class AlfworldEnvs(_EpisodeGroups):
    """ALFWorld's text games; ``multi_modal`` is false."""

    multi_modal = False

    def __init__(self, games: Tasks, seed: int, env_num: int, group_n: int, order: str) -> None:
        super().__init__(env_num, group_n)
        seed = check_seed(seed, "verl-agent: seed")
        self._games = games
        self._order = order
        self._round = 0
        # Each of the release's workers shuffles all games by a seed of its own, the same within a group.
        self._workers = [_ShuffledIndices(len(games), seed + worker) for worker in range(self.env_num)]

    def reset(
        self, tasks: Sequence[int | str] | None = None
    ) -> tuple[list[str], None, list[dict[str, Any]]]:
        """Begin new games.

        Args:
            tasks: ids or indices, (env_num,), instead of the next ones.

        Returns:
            Observations, None in the place of images, and infos; (env_num * group_n,) each.
        """
        if tasks is None:
            tasks = self._next_tasks()
        if len(tasks) != self.env_num:
            raise InputError(f"verl-agent: expected {self.env_num} tasks, found {len(tasks)}")
        self._episodes = []
        for task in tasks:
            self._episodes += [self._games.begin(task)] * self.group_n
        return self._observations(), None, self._infos()

    def _next_tasks(self) -> list[int]:
        if self._order == RELEASED:
            return [next(worker) for worker in self._workers]
        # The panel's order, in batches, from the start again after the last game.
        first = self._round
        self._round += self.env_num
        return [index % len(self._games) for index in range(first, first + self.env_num)]

    def step(
        self, actions: Sequence[str]
    ) -> tuple[list[str], None, list[float], list[bool], list[dict[str, Any]]]:
        """Take an action in each episode; return observations, images (none), rewards, dones and infos."""
        self._act(actions)
        rewards = [WIN_REWARD * episode.won for episode in self._episodes]
        dones = [episode.done for episode in self._episodes]
        return self._observations(), None, rewards, dones, self._infos()

    def _observations(self) -> list[str]:
        return [episode.observation for episode in self._episodes]

    def _infos(self) -> list[dict[str, Any]]:
        commands = self.get_admissible_commands
        return [
            {
                "won": episode.won,
                "admissible_commands": admissible,
                "extra.gamefile": f"{self._games.split}/{episode.task.task_id}/{sources.GAME_FILE}",
                "observation_text": episode.observation,
            }
            for episode, admissible in zip(self._episodes, commands, strict=True)
        ]

    @property
    def get_admissible_commands(self) -> list[list[str]]:
        """The admissible commands of all episodes; a property, as managers read it."""
        env = self._games.setup.env
        return [list(env.admissible(episode.state)) for episode in self._episodes]


class WebshopEnvs(_EpisodeGroups):
    """WebShop in mode ``text``."""

    def __init__(
        self,
        worker_goals: Sequence[Tasks],
        positions: Sequence[range],
        seed: int,
        group_n: int,
        order: str,
    ) -> None:
        super().__init__(len(worker_goals), group_n)
        self._goals = worker_goals
        self.goal_idxs = positions[0]
        self._order = order
        self._round = 0
        self._rng = np.random.RandomState(check_seed(seed, "verl-agent: seed"))

    def reset(self, tasks: Sequence[int | str] | None = None) -> tuple[list[str], list[dict[str, Any]]]:
        """Begin new episodes.

        Args:
            tasks: positions in each worker's goals, or ids, (env_num,), instead of the next ones.

        Returns:
            Observations and infos, (env_num * group_n,) each.
        """
        if tasks is None:
            tasks = self._next_tasks()
        if len(tasks) != self.env_num:
            raise InputError(f"verl-agent: expected {self.env_num} tasks, found {len(tasks)}")
        # An unknown task is an error before any episode is replaced.
        started: list[Episode] = []
        for goals, task in zip(self._goals, tasks, strict=True):
            started += [goals.begin(task)] * self.group_n
        self._episodes = started
        return [render_observation(episode) for episode in self._episodes], self._infos(at_reset=True)

    def _next_tasks(self) -> list[int]:
        if self._order == RELEASED:
            # The release's own generator and call, so that equal seeds draw equal goals.
            drawn: list[int] = self._rng.choice(
                self.goal_idxs, size=self.env_num, replace=False
            ).tolist()
            return drawn
        first = self._round
        self._round += self.env_num
        return [index % len(self._goals[0]) for index in range(first, first + self.env_num)]

    def step(
        self, actions: Sequence[str]
    ) -> tuple[list[str], list[float], list[bool], list[dict[str, Any]]]:
        """Take an action in each episode; return observations, rewards, dones and infos."""
        self._act(actions)
        rewards = [WIN_REWARD if episode.won else 0 for episode in self._episodes]
        # ``ended`` and not ``done``: WebShop has no step limit of its own, the managers count steps.
        dones = [episode.ended for episode in self._episodes]
        return [render_observation(episode) for episode in self._episodes], rewards, dones, self._infos()

    def _infos(self, at_reset: bool = False) -> list[dict[str, Any]]:
        env = self._goals[0].setup.env
        infos = []
        for episode in self._episodes:
            available = _list_available_actions(env.admissible(episode.state))
            info: dict[str, Any] = {"available_actions": available, "won": episode.won}
            # As in verl-agent, whose infos at reset have no score.
            if not at_reset:
                info["task_score"] = float(episode.score)
            infos.append(info)
        return infos


class _ShuffledIndices:
    """The indices 0 to count - 1 in TextWorld's order: shuffled by a seed, and again after each pass."""

    def __init__(self, count: int, seed: int) -> None:
        self._rng = np.random.RandomState(seed)
        self._indices = list(range(count))
        self._next = 0
        self._rng.shuffle(self._indices)

    def __next__(self) -> int:
        if self._next == len(self._indices):
            self._rng.shuffle(self._indices)
            self._next = 0
        self._next += 1
        return self._indices[self._next - 1]


def _list_available_actions(admissible: Sequence[str]) -> dict[str, Any]:
    """Return the admissible actions in the form of WebShop's own environment."""
    clicks = [
        action.removeprefix("click[").removesuffix("]")
        for action in admissible
        if action.startswith("click[")
    ]
    return {"has_search_bar": f"search[{FREE_TEXT}]" in admissible, "clickables": clicks}
