"""ALFWorld and WebShop as Gymnasium environments whose episodes can be forked, saved and restored."""

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
"""Characters of an observation or action that the spaces declare. No text is ever truncated."""


class AnyText(spaces.Text):
    """Space of texts of any characters; samples are printable ASCII."""

    def __init__(self, max_length: int = MAX_TEXT_LENGTH) -> None:
        printable_ascii = "".join(map(chr, range(32, 127)))
        super().__init__(max_length, min_length=0, charset=printable_ascii)

    # Gymnasium's own check is by the character set, and product titles have any character of Unicode.
    def contains(self, x: Any) -> bool:
        return isinstance(x, str) and len(x) <= self.max_length

    def character_index(self, char: str) -> Any:
        """Refuse Gymnasium's request for a fixed-size array, which shared memory between processes needs.

        Raises:
            InputError: always.
        """
        raise InputError(
            "texts of any characters and length have no place in shared memory: AsyncVectorEnv(…, shared_memory=False), or "
            'make_vec(…, vectorization_mode="vector_entry_point"), which needs no processes'
        )

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        # Short ones: the declared maximum would give half a million characters on average.
        length = int(self.np_random.integers(0, 40))
        return "".join(map(chr, self.np_random.integers(32, 127, size=length)))


def render_observation(episode: Episode) -> str:
    """Return the text that the original environment returns: in WebShop, the page with the instruction."""
    # WebShop's ``observation`` is without the instruction, which prompts state elsewhere; ALFWorld's states have no page.
    return str(getattr(episode.state, "page", None) or episode.observation)


def make_info(episode: Episode, admissible: list[str], tasks: Tasks) -> dict[str, Any]:
    """Return the ``info`` of a step or reset, in new objects that a caller may change."""
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

    ``reset(seed=S)`` starts the task stream of seed S; each further ``reset()`` takes its next task, and no task repeats
    before all have been played. ``reset(options={"task": ID})`` plays a given task, by id or index, and leaves the stream
    as it is. The reward of a step is the increase of the score: 1 for a win in ALFWorld, the purchase's reward in WebShop.

    ``info``: ``admissible_commands`` (list), ``score``, ``won``, ``steps``, ``task`` (id), ``content`` (hash of the
    task), ``task_type``, ``goal``; after a step also ``admissible``, whether the action was; with an expert
    ``expert_plan``, the commands that it would take next.
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
        """Open the tasks; environments with equal arguments share them.

        Args:
            environment: ``alfworld`` or ``webshop``.
            order: ``shuffled`` or ``listed`` (the panel's order).
            render_mode: ``ansi``, or ``None``.
            options: arguments of ``threespo.gym.tasks.open_alfworld_tasks`` or ``open_webshop_tasks``: ``split``, ``path``,
                ``max_steps``, …

        Raises:
            InputError: if an argument is out of range, or the tasks are missing.
        """
        check_order(order)
        if render_mode not in (None, "ansi"):
            raise InputError(f"render_mode: expected 'ansi' or None, found {render_mode!r}")
        self.tasks = open_tasks(environment, **options)
        self.order = order
        self.render_mode = render_mode
        self.observation_space = AnyText()
        self.action_space = AnyText()
        self._episode: Episode | None = None
        self._admissible: tuple[str, ...] = ()
        self._seed = 0
        self._played = 0
        self._closed = False

    @property
    def episode(self) -> Episode:
        """The current episode, an immutable value.

        Raises:
            InputError: before the first reset, and after ``close``.
        """
        if self._closed:
            raise InputError("the environment is closed; make another")
        if self._episode is None:
            raise InputError("no episode yet: call reset()")
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
            seed: starts this seed's stream of tasks.
            options: ``{"task": id or index}``.

        Raises:
            InputError: for an unknown task or option, or after ``close``.
        """
        # Before Gymnasium sees it: it refuses the integers of numpy.
        if seed is not None:
            seed = check_seed(seed)
        super().reset(seed=seed)
        if self._closed:
            raise InputError("the environment is closed; make another")
        unknown = sorted(set(options or {}) - {"task"})
        if unknown:
            raise InputError(f"reset: no option {unknown[0]!r}; there is: task")
        if seed is not None:
            self._seed = seed
            self._played = 0

        task = (options or {}).get("task")
        if task is None:
            task = pick_task(self._seed, self._played, len(self.tasks), self.order)
            self._played += 1
        self._set(self.tasks.begin(task))
        info = make_info(self.episode, list(self._admissible), self.tasks)
        return render_observation(self.episode), info

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
        # By the list before the step, which is the one that the agent chose from.
        admissible = is_admissible(action, self._admissible)
        after = take_action(before, action)
        self._set(after)

        info = make_info(after, list(self._admissible), self.tasks)
        info["admissible"] = admissible
        reward = float(after.score - before.score)
        # ``done`` includes the step limit, ``ended`` is the environment's own end.
        truncated = after.done and not after.ended
        return render_observation(after), reward, after.ended, truncated, info

    def render(self) -> str:
        """Return goal, observation and admissible commands as text."""
        episode = self.episode
        commands = (f"  {command}" for command in self._admissible)
        return "\n".join([f"Task: {episode.task.goal}", render_observation(episode), *commands])

    def close(self) -> None:
        """Drop the episode; may be called again."""
        self._closed = True

    def fork(self) -> Self:
        """Return an independent environment at the same point of the episode."""
        other = object.__new__(type(self))
        # Episodes are immutable values and can be shared; the random generator cannot.
        other.__dict__.update(self.__dict__)
        other._np_random = None
        return other

    def snapshot(self) -> Snapshot:
        """Return the present state as a value, for ``restore``."""
        return Snapshot(self._episode, self._seed, self._played)

    def restore(self, point: Snapshot | bytes) -> None:
        """Return to a state that this environment, or one with equal arguments, was in; also after the episode's end.

        Args:
            point: from ``snapshot``, or from ``dump`` in any process.

        Raises:
            InputError: if the bytes are damaged, or of other tasks, data or versions.
        """
        if self._closed:
            raise InputError("the environment is closed; make another")
        snapshot = point if isinstance(point, Snapshot) else from_bytes(point, self.tasks)
        # Environments with equal arguments share one setup, so identity says that they play the same tasks alike.
        if snapshot.episode is not None and snapshot.episode.setup is not self.tasks.setup:
            raise InputError(
                "this snapshot is of an environment that was made in another way; use dump() between processes"
            )
        self._seed = snapshot.seed
        self._played = snapshot.played
        self._set(snapshot.episode)

    def dump(self) -> bytes:
        """Return the present state as bytes for ``restore`` in any process; no pickle is involved."""
        return to_bytes(self.snapshot(), self.tasks)

    def _set(self, episode: Episode | None) -> None:
        self._episode = episode
        # Computed once per state: ``step``, ``info`` and ``render`` all need the list.
        self._admissible = () if episode is None else self.tasks.setup.env.admissible(episode.state)


class ALFWorldEnv(TextEnv):
    """``threespo/ALFWorld-v0``."""

    def __init__(self, **options: Any) -> None:
        super().__init__(ALFWORLD, **options)


class WebShopEnv(TextEnv):
    """``threespo/WebShop-v0``."""

    def __init__(self, **options: Any) -> None:
        super().__init__(WEBSHOP, **options)
