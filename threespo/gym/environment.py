"""ALFWorld and WebShop as Gymnasium environments whose episodes can be forked, kept and gone back to."""

from typing import Any, ClassVar, Self

import gymnasium
from gymnasium import spaces

from threespo.envs.episode import Episode, is_admissible, take_action
from threespo.errors import InputError
from threespo.gym.numbers import check_seed
from threespo.gym.snapshots import Snapshot, from_bytes, to_bytes
from threespo.gym.stream import check_order, pick_task
from threespo.gym.tasks import ALFWORLD, WEBSHOP, Tasks, open_tasks

MAX_TEXT_LENGTH = 1 << 20
"""Characters of an observation or an action, as the spaces have it. Nothing is ever cut."""


class AnyText(spaces.Text):
    """Texts of any characters; samples are of printable ASCII."""

    def __init__(self, max_length: int = MAX_TEXT_LENGTH) -> None:
        super().__init__(max_length, min_length=0, charset="".join(map(chr, range(32, 127))))

    def contains(self, x: Any) -> bool:
        return isinstance(x, str) and len(x) <= self.max_length

    def character_index(self, char: str) -> Any:
        """Refuse to be an array of fixed size, which Gymnasium asks for to share memory between processes.

        Raises:
            InputError: always.
        """
        raise InputError(
            "texts of any characters and length have no place in shared memory: AsyncVectorEnv(…, shared_memory=False), or "
            'make_vec(…, vectorization_mode="vector_entry_point"), which needs no processes'
        )

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        # By its bound a sample would have half a million characters.
        return "".join(
            map(chr, self.np_random.integers(32, 127, size=int(self.np_random.integers(0, 40))))
        )


def render_observation(episode: Episode) -> str:
    """Return what the original environment returns here: in a shop, the page with the instruction."""
    return str(getattr(episode.state, "page", None) or episode.observation)


def make_info(episode: Episode, admissible: list[str], tasks: Tasks) -> dict[str, Any]:
    """Return the ``info`` of a step or reset; every call makes its own objects."""
    task: Any = episode.task
    info = {
        "task": task.task_id,
        "task_type": task.task_type,
        "goal": task.goal,
        "content": tasks.content(task.task_id),
        "admissible_commands": admissible,
        "score": float(episode.score),
        "won": episode.won,
        "steps": episode.steps,
    }
    if tasks.expert is not None:
        info["expert_plan"] = tasks.expert.plan(task, [action for _, action in episode.history])
    return info


class TextEnv(gymnasium.Env[str, str]):
    """One episode at a time of one environment.

    ``reset(seed=S)`` begins the stream of tasks that belongs to S; each further ``reset()`` takes its next task, and no task
    comes twice before all have come. ``reset(options={"task": ID})`` takes a certain one, by id or place, and leaves the
    stream as it is. The reward of a step is what the score has gained by it: 1 for a win in ALFWorld, the purchase's reward
    in WebShop.

    ``info``: ``admissible_commands`` (list), ``score``, ``won``, ``steps``, ``task`` (id), ``content`` (the hash of what the
    task is about), ``task_type``, ``goal``; after a step also ``admissible``, whether the action was; with an expert
    ``expert_plan``, commands to go on with.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi"], "render_fps": 1}  # type: ignore[misc]

    def __init__(
        self,
        environment: str,
        *,
        order: str = "shuffled",
        render_mode: str | None = None,
        **options: Any,
    ) -> None:
        """Open the tasks; environments that are made alike share them.

        Args:
            environment: ``alfworld`` or ``webshop``.
            order: ``shuffled`` or ``listed`` (the panel's order).
            render_mode: ``ansi``, or ``None``.
            options: arguments of ``threespo.gym.tasks.open_alfworld_tasks`` or ``webshop_tasks``: ``split``, ``path``,
                ``max_steps``, …

        Raises:
            InputError: if an argument is out of range, or the tasks are not there.
        """
        check_order(order)
        if render_mode not in (None, "ansi"):
            raise InputError(f"render_mode: expected 'ansi' or None, found {render_mode!r}")
        self.tasks, self.order, self.render_mode = open_tasks(environment, **options), order, render_mode
        self.observation_space, self.action_space = AnyText(), AnyText()
        self._episode: Episode | None = None
        self._admissible: tuple[str, ...] = ()
        self._seed = self._played = 0
        self._closed = False

    @property
    def episode(self) -> Episode:
        """The point of the episode that the environment is at: an immutable value.

        Raises:
            InputError: before the first reset, and after ``close``.
        """
        if self._episode is None or self._closed:
            raise InputError(
                "the environment is closed; make another"
                if self._closed
                else "no episode yet: call reset()"
            )
        return self._episode

    @property
    def prompt(self) -> str:
        """The paper's prompt for the next action."""
        return self.episode.prompt

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Begin an episode.

        Args:
            seed: begins this seed's stream of tasks.
            options: ``{"task": id or place}``.

        Raises:
            InputError: for an unknown task or option, or after ``close``.
        """
        seed = None if seed is None else check_seed(seed)
        super().reset(seed=seed)
        if self._closed:
            raise InputError("the environment is closed; make another")
        if unknown := sorted(set(options or {}) - {"task"}):
            raise InputError(f"reset: no option {unknown[0]!r}; there is: task")
        if seed is not None:
            self._seed, self._played = seed, 0
        which = (options or {}).get("task")
        if which is None:
            which = pick_task(self._seed, self._played, len(self.tasks), self.order)
            self._played += 1
        self._set(self.tasks.begin(which))
        return render_observation(self.episode), make_info(
            self.episode, list(self._admissible), self.tasks
        )

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Take an action: any text, as in the original engines.

        Raises:
            InputError: if the action is no text, or the episode is over.
        """
        before = self.episode
        if not isinstance(action, str):
            raise InputError(f"action: expected a text, found {type(action).__name__}")
        if before.done:
            raise InputError(
                f"the episode of task {before.task.task_id!r} is over after {before.steps} steps: call reset()"
            )
        allowed = is_admissible(action, self._admissible)
        after = take_action(before, action)
        self._set(after)
        info = {**make_info(after, list(self._admissible), self.tasks), "admissible": allowed}
        return (
            render_observation(after),
            float(after.score - before.score),
            after.ended,
            after.done and not after.ended,
            info,
        )

    def render(self) -> str:
        """Return the present point as a text: goal, observation, admissible commands."""
        episode = self.episode
        commands = (f"  {command}" for command in self._admissible)
        return "\n".join([f"Task: {episode.task.goal}", render_observation(episode), *commands])

    def close(self) -> None:
        """Let the episode go; harmless when repeated."""
        self._closed = True

    def fork(self) -> Self:
        """Return an environment of its own at the same point; neither sees what the other does from here on."""
        other = object.__new__(type(self))
        # All that an episode consists of is immutable, so the values are shared. Generators are not.
        other.__dict__.update(self.__dict__)
        other._np_random = None
        return other

    def snapshot(self) -> Snapshot:
        """Return the present point as a value, for ``restore``."""
        return Snapshot(self._episode, self._seed, self._played)

    def restore(self, point: Snapshot | bytes) -> None:
        """Go to a point that this environment, or one made alike, was at; also after the end of the episode.

        Args:
            point: of ``snapshot``, or of ``dump`` in any process.

        Raises:
            InputError: if the bytes are damaged, or of other tasks, data or versions.
        """
        if self._closed:
            raise InputError("the environment is closed; make another")
        found = point if isinstance(point, Snapshot) else from_bytes(point, self.tasks)
        if found.episode is not None and found.episode.setup is not self.tasks.setup:
            raise InputError(
                "this snapshot is of an environment that was made in another way; use dump() between processes"
            )
        self._seed, self._played = found.seed, found.played
        self._set(found.episode)

    def dump(self) -> bytes:
        """Return the present point as bytes, which ``restore`` takes in any process; no pickle is involved."""
        return to_bytes(self.snapshot(), self.tasks)

    def _set(self, episode: Episode | None) -> None:
        self._episode = episode
        self._admissible = () if episode is None else self.tasks.setup.env.admissible(episode.state)


class ALFWorldEnv(TextEnv):
    """``threespo/ALFWorld-v0``."""

    def __init__(self, **options: Any) -> None:
        super().__init__(ALFWORLD, **options)


class WebShopEnv(TextEnv):
    """``threespo/WebShop-v0``."""

    def __init__(self, **options: Any) -> None:
        super().__init__(WEBSHOP, **options)
