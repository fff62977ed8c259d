"""Hundreds of episodes in one process, in Gymnasium's vector form."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from threespo.envs.episode import Episode, is_admissible, take_action
from threespo.errors import InputError
from threespo.gym.environment import AnyText, make_info, render_observation
from threespo.gym.numbers import check_seed, to_whole_number
from threespo.gym.snapshots import Snapshot, from_bytes, to_bytes
from threespo.gym.stream import check_order, pick_task
from threespo.gym.tasks import ALFWORLD, WEBSHOP, open_tasks

Step = tuple[tuple[str, ...], np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]


class TextVectorEnv(VectorEnv[tuple[str, ...], Sequence[str], np.ndarray]):
    """``num_envs`` episodes, stepped together.

    Environment i plays the tasks i, i + num_envs, … of the stream of ``threespo.gym.environment``, so all tasks are
    played before any is played again. An episode that is over begins anew in the next step, whose action it ignores
    (Gymnasium's
    ``NextStep``); with ``autoreset=False`` it stays over, ignores actions, and ``reset(options={"reset_mask": MASK})``
    begins the next.

    ``info`` has the keys of ``TextEnv``, each an array of objects (num_envs,), and a mask ``_KEY`` for each, as in
    Gymnasium.
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
            num_envs: how many episodes.
            order: ``shuffled`` or ``listed`` (the panel's order).
            autoreset: begin the next episode where one is over.
            options: arguments of ``threespo.gym.tasks.open_alfworld_tasks`` or ``webshop_tasks``.

        Raises:
            InputError: if an argument is out of range, or the tasks are not there.
        """
        check_order(order)
        count = to_whole_number(num_envs)
        if count is None or count < 1:
            raise InputError(f"num_envs: expected a whole number of 1 or more, found {num_envs!r}")
        num_envs = count
        self.tasks, self.order, self.num_envs = open_tasks(environment, **options), order, num_envs
        mode = AutoresetMode.NEXT_STEP if autoreset else AutoresetMode.DISABLED
        self.metadata = {"render_modes": [], "autoreset_mode": mode}
        self.single_observation_space = self.single_action_space = AnyText()
        self.observation_space = self.action_space = batch_space(AnyText(), num_envs)
        self._autoreset, self._seed = autoreset, 0
        self._episodes: list[Episode | None] = [None] * num_envs
        self._admissible: list[tuple[str, ...]] = [()] * num_envs
        self._played = [0] * num_envs

    @property
    def episodes(self) -> tuple[Episode, ...]:
        """The points that the episodes are at: immutable values.

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
            seed: begins this seed's stream of tasks, in all environments.
            options: ``reset_mask``, an array of booleans (num_envs,): which begin; ``tasks``: ids or places, one for each
                that begins, in the place of the stream's.

        Raises:
            InputError: for an unknown task or option, or a list of another length.
        """
        if self.closed:
            raise InputError("the environment is closed; make another")
        given = dict(options or {})
        mask, tasks = given.pop("reset_mask", None), given.pop("tasks", None)
        if given:
            raise InputError(f"reset: no option {min(given)!r}; there are: reset_mask, tasks")
        chosen = (
            list(range(self.num_envs))
            if mask is None
            else [int(place) for place in np.flatnonzero(mask)]
        )
        if mask is not None and len(mask) != self.num_envs:
            raise InputError(f"reset_mask: expected {self.num_envs} values, found {len(mask)}")
        if tasks is not None and len(tasks) != len(chosen):
            raise InputError(
                f"tasks: expected one for each of {len(chosen)} episodes that begin, found {len(tasks)}"
            )
        if seed is not None:
            self._seed, self._played = check_seed(seed), [0] * self.num_envs

        for position, place in enumerate(chosen):
            self._begin(place, None if tasks is None else tasks[position])
        return self._texts(), self._information()

    def step(self, actions: Sequence[str]) -> Step:
        """Take an action in each episode.

        Args:
            actions: texts, one for each; those of episodes that are over are ignored.

        Raises:
            InputError: if they are no texts, or not as many as episodes.
        """
        before = self.episodes
        if isinstance(actions, str) or len(actions) != self.num_envs:
            raise InputError(f"actions: expected {self.num_envs} texts, found {len(actions)}")
        rewards, allowed = np.zeros(self.num_envs), np.zeros(self.num_envs, dtype=object)
        for place, (episode, action) in enumerate(zip(before, actions, strict=True)):
            allowed[place] = False
            if episode.done:
                if self._autoreset:
                    self._begin(place, None)
                continue
            if not isinstance(action, str):
                raise InputError(f"actions[{place}]: expected a text, found {type(action).__name__}")
            allowed[place] = is_admissible(action, self._admissible[place])
            after = take_action(episode, action)
            rewards[place] = after.score - episode.score
            self._set(place, after)

        ended = np.array([episode.ended for episode in self.episodes])
        over = np.array([episode.done for episode in self.episodes])
        info = {
            **self._information(),
            "admissible": allowed,
            "_admissible": np.ones(self.num_envs, dtype=bool),
        }
        return self._texts(), rewards, ended, over & ~ended, info

    def fork(self, place: int | None = None, onto: Sequence[int] = ()) -> "TextVectorEnv":
        """Return an environment of its own at the same points; or, given a place, put its episode into other places of
        this one.

        Args:
            place: whose episode is put into ``onto``.
            onto: places that go on from it.

        Returns:
            The new environment, or this one.
        """
        if place is not None:
            for other in onto:
                self._set(other, self.episodes[place])
            return self
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin._episodes, twin._admissible, twin._played = (
            list(self._episodes),
            list(self._admissible),
            list(self._played),
        )
        twin._np_random = None
        return twin

    def snapshot(self) -> tuple[Snapshot, ...]:
        """Return the present points as values, (num_envs,)."""
        return tuple(
            Snapshot(e, self._seed, played)
            for e, played in zip(self._episodes, self._played, strict=True)
        )

    def restore(self, points: Sequence[Snapshot | bytes]) -> None:
        """Go to points that environments made alike were at.

        Args:
            points: of ``snapshot`` or ``dump``, one for each episode.

        Raises:
            InputError: if there are not as many as episodes, or bytes are damaged or of other tasks, data or versions.
        """
        if len(points) != self.num_envs:
            raise InputError(f"restore: expected {self.num_envs} points, found {len(points)}")
        found = [
            point if isinstance(point, Snapshot) else from_bytes(point, self.tasks) for point in points
        ]
        if any(
            point.episode is not None and point.episode.setup is not self.tasks.setup for point in found
        ):
            raise InputError(
                "a snapshot is of an environment that was made in another way; use dump() between processes"
            )
        for place, point in enumerate(found):
            self._seed, self._played[place] = point.seed, point.played
            self._set(place, point.episode)

    def dump(self) -> tuple[bytes, ...]:
        """Return the present points as bytes, one for each episode, for ``restore`` in any process."""
        return tuple(to_bytes(point, self.tasks) for point in self.snapshot())

    def close_extras(self, **kwargs: Any) -> None:
        """Nothing is held that must be closed."""

    def _begin(self, place: int, which: int | str | None) -> None:
        if which is None:
            number = self._played[place] * self.num_envs + place
            which = pick_task(self._seed, number, len(self.tasks), self.order)
            self._played[place] += 1
        self._set(place, self.tasks.begin(which))

    def _set(self, place: int, episode: Episode | None) -> None:
        self._episodes[place] = episode
        self._admissible[place] = (
            () if episode is None else self.tasks.setup.env.admissible(episode.state)
        )

    def _texts(self) -> tuple[str, ...]:
        return tuple(map(render_observation, self.episodes))

    def _information(self) -> dict[str, Any]:
        rows = [
            make_info(e, list(listed), self.tasks)
            for e, listed in zip(self.episodes, self._admissible, strict=True)
        ]
        info: dict[str, Any] = {}
        for key, values in zip(rows[0], zip(*[row.values() for row in rows], strict=True), strict=True):
            column = np.empty(self.num_envs, dtype=object)
            column[:] = values
            info[key], info[f"_{key}"] = column, np.ones(self.num_envs, dtype=bool)
        return info


class ALFWorldVectorEnv(TextVectorEnv):
    """``threespo/ALFWorld-v0``, many at once."""

    def __init__(self, num_envs: int = 1, **options: Any) -> None:
        super().__init__(ALFWORLD, num_envs, **options)


class WebShopVectorEnv(TextVectorEnv):
    """``threespo/WebShop-v0``, many at once."""

    def __init__(self, num_envs: int = 1, **options: Any) -> None:
        super().__init__(WEBSHOP, num_envs, **options)
