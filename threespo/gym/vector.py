"""Many episodes in one process, as a Gymnasium vector environment."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from threespo.envs.episode import Episode, is_admissible, take_action
from threespo.errors import InputError
from threespo.gym.environment import AnyText, make_info, render_observation
from threespo.gym.numbers import check_seed, check_whole_number
from threespo.gym.snapshots import Snapshot, from_bytes, to_bytes
from threespo.gym.stream import check_order, pick_task
from threespo.gym.tasks import ALFWORLD, WEBSHOP, open_tasks

Step = tuple[tuple[str, ...], np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]


class TextVectorEnv(VectorEnv[tuple[str, ...], Sequence[str], np.ndarray]):
    """``num_envs`` episodes that are stepped together.

    Environment i plays the tasks i, i + num_envs, … of the stream of ``threespo.gym.environment``, so no task repeats
    before all have been played. A finished episode is replaced by a new one in the next step, which ignores its action
    (Gymnasium's ``NextStep``); with ``autoreset=False`` it ignores all actions until
    ``reset(options={"reset_mask": MASK})``.

    ``info`` has the keys of ``TextEnv``, each an array of objects (num_envs,), and a mask ``_KEY`` for each, as in
    Gymnasium: it is false where an environment has no such value. Only ``admissible`` is missing anywhere, where the
    action was ignored.
    """

    def __init__(
        self,
        environment: str,
        num_envs: int = 1,
        *,
        order: str = "shuffled",
        autoreset: bool = True,
        **options: Any,
    ) -> None:
        """Open the tasks.

        Args:
            environment: ``alfworld`` or ``webshop``.
            num_envs: number of episodes.
            order: ``shuffled`` or ``listed`` (the panel's order).
            autoreset: replace finished episodes.
            options: arguments of ``threespo.gym.tasks.open_alfworld_tasks`` or ``open_webshop_tasks``.

        Raises:
            InputError: if an argument is out of range, or the tasks are missing.
        """
        check_order(order)
        num_envs = check_whole_number(num_envs, "num_envs", 1)
        self.tasks = open_tasks(environment, **options)
        self.order = order
        self.num_envs = num_envs
        mode = AutoresetMode.NEXT_STEP if autoreset else AutoresetMode.DISABLED
        self.metadata = {"render_modes": [], "autoreset_mode": mode}
        # Observations and actions are texts alike.
        self.single_observation_space = self.single_action_space = AnyText()
        self.observation_space = self.action_space = batch_space(AnyText(), num_envs)
        self._autoreset = autoreset
        self._seed = 0
        self._episodes: list[Episode | None] = [None] * num_envs
        self._admissible: list[tuple[str, ...]] = [()] * num_envs
        self._played = [0] * num_envs

    @property
    def episodes(self) -> tuple[Episode, ...]:
        """The current episodes, immutable values.

        Raises:
            InputError: before the first reset, and after ``close``.
        """
        if self.closed:
            raise InputError("the environment is closed; make another")
        found = tuple(episode for episode in self._episodes if episode is not None)
        if len(found) < self.num_envs:
            raise InputError("no episodes yet: call reset()")
        return found

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[tuple[str, ...], dict[str, Any]]:
        """Begin episodes.

        Args:
            seed: starts this seed's stream of tasks, in all environments.
            options: ``reset_mask``, Booleans (num_envs,): the environments to reset; ``tasks``: ids or indices, one for
                each of them, instead of the stream's.

        Raises:
            InputError: for an unknown task or option, or a list of another length.
        """
        if self.closed:
            raise InputError("the environment is closed; make another")
        given = dict(options or {})
        mask = given.pop("reset_mask", None)
        tasks = given.pop("tasks", None)
        if given:
            raise InputError(f"reset: no option {min(given)!r}; there are: reset_mask, tasks")

        # All arguments are checked before any episode is replaced.
        chosen = list(range(self.num_envs)) if mask is None else np.flatnonzero(mask).tolist()
        if mask is not None and len(mask) != self.num_envs:
            raise InputError(f"reset_mask: expected {self.num_envs} values, found {len(mask)}")
        if tasks is not None and len(tasks) != len(chosen):
            raise InputError(
                f"tasks: expected one for each of {len(chosen)} episodes that begin, found {len(tasks)}"
            )
        for task in tasks if tasks is not None else ():
            self.tasks.find_index(task)
        if seed is not None:
            self._seed = check_seed(seed)
            self._played = [0] * self.num_envs

        for position, index in enumerate(chosen):
            self._begin(index, None if tasks is None else tasks[position])
        return self._texts(), self._information()

    def step(self, actions: Sequence[str]) -> Step:
        """Take an action in each episode.

        Args:
            actions: one text per episode; those of finished episodes are ignored.

        Raises:
            InputError: if they are not one text per episode.
        """
        before = self.episodes
        if isinstance(actions, str) or len(actions) != self.num_envs:
            raise InputError(f"actions: expected {self.num_envs} texts, found {len(actions)}")
        # Before any episode goes on, so that a refused call changes nothing.
        for index, (episode, action) in enumerate(zip(before, actions, strict=True)):
            if not episode.done and not isinstance(action, str):
                raise InputError(f"actions[{index}]: expected a text, found {type(action).__name__}")

        rewards = np.zeros(self.num_envs)
        # Of objects, like all values of ``info`` here.
        admissible = np.full(self.num_envs, False, dtype=object)
        was_taken = np.array([not episode.done for episode in before])
        for index, (episode, action) in enumerate(zip(before, actions, strict=True)):
            if episode.done:
                # NextStep: the step after the end returns the first observation of the next episode, with reward 0.
                if self._autoreset:
                    self._begin(index, None)
                continue
            admissible[index] = is_admissible(action, self._admissible[index])
            after = take_action(episode, action)
            rewards[index] = after.score - episode.score
            self._set(index, after)

        ended = np.array([episode.ended for episode in self.episodes])
        done = np.array([episode.done for episode in self.episodes])
        truncated = done & ~ended
        info = {
            **self._information(),
            "admissible": admissible,
            "_admissible": was_taken,
        }
        return self._texts(), rewards, ended, truncated, info

    def fork(self, place: int | None = None, onto: Sequence[int] = ()) -> "TextVectorEnv":
        """Return an independent copy of all episodes; or, given ``place``, copy its episode onto others of this one.

        Args:
            place: index of the episode to copy.
            onto: indices of the episodes that it replaces.

        Returns:
            The new environment, or this one.
        """
        if place is not None:
            for other in onto:
                self._set(other, self.episodes[place])
            return self

        # Not ``copy.copy`` of the lists' contents: episodes are immutable values and can be shared.
        copied = object.__new__(type(self))
        copied.__dict__.update(self.__dict__)
        copied._episodes = list(self._episodes)
        copied._admissible = list(self._admissible)
        copied._played = list(self._played)
        copied._np_random = None
        return copied

    def snapshot(self) -> tuple[Snapshot, ...]:
        """Return the present states as values, (num_envs,)."""
        return tuple(
            Snapshot(episode, self._seed, played)
            for episode, played in zip(self._episodes, self._played, strict=True)
        )

    def restore(self, points: Sequence[Snapshot | bytes]) -> None:
        """Return to states that environments with equal arguments were in.

        Args:
            points: from ``snapshot`` or ``dump``, one per episode.

        Raises:
            InputError: if there are not as many as episodes, or bytes are damaged or of other tasks, data or versions.
        """
        if len(points) != self.num_envs:
            raise InputError(f"restore: expected {self.num_envs} points, found {len(points)}")
        snapshots = [
            point if isinstance(point, Snapshot) else from_bytes(point, self.tasks) for point in points
        ]
        # All are checked before one is restored, so that a bad one changes nothing.
        for snapshot in snapshots:
            if snapshot.episode is not None and snapshot.episode.setup is not self.tasks.setup:
                raise InputError(
                    "a snapshot is of an environment that was made in another way; use dump() between processes"
                )
        for index, snapshot in enumerate(snapshots):
            self._seed = snapshot.seed
            self._played[index] = snapshot.played
            self._set(index, snapshot.episode)

    def dump(self) -> tuple[bytes, ...]:
        """Return the present states as bytes, one per episode, for ``restore`` in any process."""
        return tuple(to_bytes(point, self.tasks) for point in self.snapshot())

    def close_extras(self, **kwargs: Any) -> None:
        """Do nothing: there are no processes or files to close."""

    def _begin(self, index: int, task: int | str | None) -> None:
        if task is None:
            position = self._played[index] * self.num_envs + index
            task = pick_task(self._seed, position, len(self.tasks), self.order)
            self._played[index] += 1
        self._set(index, self.tasks.begin(task))

    def _set(self, index: int, episode: Episode | None) -> None:
        self._episodes[index] = episode
        self._admissible[index] = ()
        if episode is not None:
            self._admissible[index] = self.tasks.setup.env.admissible(episode.state)

    def _texts(self) -> tuple[str, ...]:
        return tuple(map(render_observation, self.episodes))

    def _information(self) -> dict[str, Any]:
        rows = [
            make_info(episode, list(admissible), self.tasks)
            for episode, admissible in zip(self.episodes, self._admissible, strict=True)
        ]
        info: dict[str, Any] = {}
        for key in rows[0]:
            # Filled rather than converted: ``np.array`` would make a second axis of lists of equal lengths.
            column = np.empty(self.num_envs, dtype=object)
            column[:] = [row[key] for row in rows]
            info[key] = column
            info[f"_{key}"] = np.ones(self.num_envs, dtype=bool)
        return info


class ALFWorldVectorEnv(TextVectorEnv):
    """``threespo/ALFWorld-v0``, many at once."""

    def __init__(self, num_envs: int = 1, **options: Any) -> None:
        super().__init__(ALFWORLD, num_envs, **options)


class WebShopVectorEnv(TextVectorEnv):
    """``threespo/WebShop-v0``, many at once."""

    def __init__(self, num_envs: int = 1, **options: Any) -> None:
        super().__init__(WEBSHOP, num_envs, **options)
