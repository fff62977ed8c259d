"""What verl-agent's builders return: many episodes in one process, with the methods and values that its managers read."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from threespo.envs.alfworld import sources
from threespo.envs.episode import FREE_TEXT, Episode, take_action
from threespo.errors import InputError
from threespo.gym.environment import render_observation
from threespo.gym.numbers import check_seed, to_whole_number
from threespo.gym.tasks import Tasks

RELEASED, PANEL = "released", "panel"
WON = 10.0
"""The reward of a win; everything else has 0."""


def counted(value: Any, where: str) -> int:
    """Return a number of tasks or episodes as Python's.

    Args:
        value: what was given.
        where: what messages call it.

    Raises:
        InputError: if it is no whole number of 1 or more.
    """
    found = to_whole_number(value)
    if found is None or found < 1:
        raise InputError(f"verl-agent: {where}: expected a whole number of 1 or more, found {value!r}")
    return found


class _Envs:
    """What both environments share: env_num tasks at a time, each played by group_n episodes."""

    def __init__(self, env_num: int, group_n: int) -> None:
        self.env_num, self.group_n = counted(env_num, "env_num"), counted(group_n, "group_n")
        self.num_processes = self.env_num * self.group_n
        self._episodes: list[Episode] = []

    def _act(self, actions: Sequence[str]) -> None:
        if not self._episodes:
            raise InputError("verl-agent: step before reset; call reset() first")
        if len(actions) != self.num_processes:
            raise InputError(f"verl-agent: expected {self.num_processes} actions, found {len(actions)}")
        for place, action in enumerate(actions):
            if not isinstance(action, str):
                raise InputError(
                    f"verl-agent: actions[{place}]: expected a text, found {type(action).__name__}"
                )
        # Managers go on sending actions to episodes that are over and mask what comes of them.
        self._episodes = [
            e if e.done else take_action(e, a) for e, a in zip(self._episodes, actions, strict=True)
        ]

    def close(self) -> None:
        """Let the episodes go."""
        self._episodes = []


class AlfworldEnvs(_Envs):
    """ALFWorld's text games; ``multi_modal`` is false."""

    multi_modal = False

    def __init__(self, games: Tasks, seed: int, env_num: int, group_n: int, order: str) -> None:
        super().__init__(env_num, group_n)
        seed = check_seed(seed, "verl-agent: seed")
        self._games, self._order, self._round = games, order, 0
        # Each of the release's workers shuffles all games by a seed of its own, the same within a group.
        self._workers = [_Shuffled(len(games), seed + place) for place in range(self.env_num)]

    def reset(
        self, tasks: Sequence[int | str] | None = None
    ) -> tuple[list[str], None, list[dict[str, Any]]]:
        """Begin new games.

        Args:
            tasks: ids or places, (env_num,), in the place of the next ones.

        Returns:
            Observations and infos, (env_num * group_n,) each; between them the images, which there are none of.
        """
        if tasks is None:
            tasks = self._next()
        if len(tasks) != self.env_num:
            raise InputError(f"verl-agent: expected {self.env_num} tasks, found {len(tasks)}")
        self._episodes = [e for which in tasks for e in [self._games.begin(which)] * self.group_n]
        return self._observations(), None, self._infos()

    def _next(self) -> list[int]:
        if self._order == RELEASED:
            return [next(worker) for worker in self._workers]
        first, self._round = self._round, self._round + self.env_num
        return [place % len(self._games) for place in range(first, first + self.env_num)]

    def step(
        self, actions: Sequence[str]
    ) -> tuple[list[str], None, list[float], list[bool], list[dict[str, Any]]]:
        """Take an action in each episode; return observations, images (none), rewards, dones and infos."""
        self._act(actions)
        rewards = [WON * episode.won for episode in self._episodes]
        return (
            self._observations(),
            None,
            rewards,
            [episode.done for episode in self._episodes],
            self._infos(),
        )

    def _observations(self) -> list[str]:
        return [episode.observation for episode in self._episodes]

    def _infos(self) -> list[dict[str, Any]]:
        commands = self.get_admissible_commands
        return [
            {
                "won": episode.won,
                "admissible_commands": listed,
                "extra.gamefile": f"{self._games.split}/{episode.task.task_id}/{sources.GAME_FILE}",
                "observation_text": episode.observation,
            }
            for episode, listed in zip(self._episodes, commands, strict=True)
        ]

    @property
    def get_admissible_commands(self) -> list[list[str]]:
        """The admissible commands of all episodes; a property, as managers read it."""
        env = self._games.setup.env
        return [list(env.admissible(episode.state)) for episode in self._episodes]


class WebshopEnvs(_Envs):
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
        self._goals, self.goal_idxs, self._order, self._round = worker_goals, positions[0], order, 0
        self._rng = np.random.RandomState(check_seed(seed, "verl-agent: seed"))

    def reset(self, tasks: Sequence[int | str] | None = None) -> tuple[list[str], list[dict[str, Any]]]:
        """Begin new episodes.

        Args:
            tasks: positions in each worker's goals, or ids, (env_num,), in the place of the next ones.

        Returns:
            Observations and infos, (env_num * group_n,) each.
        """
        if tasks is None:
            tasks = self._next()
        if len(tasks) != self.env_num:
            raise InputError(f"verl-agent: expected {self.env_num} tasks, found {len(tasks)}")
        started = [goals.begin(which) for goals, which in zip(self._goals, tasks, strict=True)]
        self._episodes = [episode for episode in started for _ in range(self.group_n)]
        return [render_observation(episode) for episode in self._episodes], self._infos(at_reset=True)

    def _next(self) -> list[int]:
        if self._order == RELEASED:
            drawn: list[int] = self._rng.choice(
                self.goal_idxs, size=self.env_num, replace=False
            ).tolist()
            return drawn
        first, self._round = self._round, self._round + self.env_num
        return [place % len(self._goals[0]) for place in range(first, first + self.env_num)]

    def step(
        self, actions: Sequence[str]
    ) -> tuple[list[str], list[float], list[bool], list[dict[str, Any]]]:
        """Take an action in each episode; return observations, rewards, dones and infos."""
        self._act(actions)
        rewards = [WON if episode.won else 0 for episode in self._episodes]
        dones = [episode.ended for episode in self._episodes]
        return [render_observation(episode) for episode in self._episodes], rewards, dones, self._infos()

    def _infos(self, at_reset: bool = False) -> list[dict[str, Any]]:
        infos = []
        for episode in self._episodes:
            info = {
                "available_actions": _available(self._goals[0].setup.env.admissible(episode.state)),
                "won": episode.won,
            }
            infos.append(info if at_reset else {**info, "task_score": float(episode.score)})
        return infos


class _Shuffled:
    """The places 0 to count - 1 in TextWorld's order: shuffled by a seed, and again after each pass."""

    def __init__(self, count: int, seed: int) -> None:
        self._rng, self._places, self._next = np.random.RandomState(seed), list(range(count)), 0
        self._rng.shuffle(self._places)

    def __next__(self) -> int:
        if self._next == len(self._places):
            self._rng.shuffle(self._places)
            self._next = 0
        self._next += 1
        return self._places[self._next - 1]


def _available(admissible: Sequence[str]) -> dict[str, Any]:
    """Return the admissible actions as WebShop's own environment tells them."""
    clicks = [
        action.removeprefix("click[").removesuffix("]")
        for action in admissible
        if action.startswith("click[")
    ]
    return {"has_search_bar": f"search[{FREE_TEXT}]" in admissible, "clickables": clicks}
