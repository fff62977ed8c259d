"""skyrl-gym's text environment: the prompt of the paper as the first message, each next prompt as the answer to a
response."""

from collections.abc import Mapping
from typing import Any

from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput, ConversationType

from threespo.adapters.tools import Player
from threespo.envs.episode import respond
from threespo.errors import InputError


class TextEnv(BaseTextEnv):  # type: ignore[misc]
    """An episode of ALFWorld or WebShop; register it with :func:`register`.

    ``env_config`` has ``environment`` and the arguments of ``threespo.gym.tasks``; with ``opening``, what the chat template
    writes of the response itself (``"<think>\\n"``; ``threespo doctor --model`` shows it). ``extras["extra_info"]["task"]``,
    or ``extras["task"]``, has the id or index of the task.
    """

    def __init__(
        self, env_config: Mapping[str, Any] | None = None, extras: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__()
        options = {str(name): value for name, value in dict(env_config or {}).items()}
        # skyrl-gym passes the dataset's further columns on in ``extras``; which of both places depends on the dataset.
        given = dict(extras or {})
        extra_info = dict(given.get("extra_info") or {})
        task = given.get("task", extra_info.get("task"))
        if task is None:
            raise InputError(
                "skyrl: the dataset's row names no task; expected extra_info.task, an id or a place"
            )
        self._opening = str(options.pop("opening", ""))
        self._player = Player(str(options.pop("environment", "alfworld")), **options)
        self._task = task
        self.max_turns = self._player.tasks.setup.max_steps

    def init(self, prompt: ConversationType) -> tuple[ConversationType, dict[str, Any]]:
        """Begin the episode; its first prompt is a message after those of ``prompt``."""
        episode = self._player.begin(self._task)
        return [*prompt, {"role": "user", "content": episode.prompt}], {"task": episode.task.task_id}

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Take the action of a response; the reward is what the score has gained.

        Raises:
            InputError: if the episode is over or has not begun.
        """
        before = self._player.current
        if before.done:
            raise InputError("skyrl: the episode is over; make another environment")
        outcome = respond(before, self._opening + action)
        after = outcome.episode
        self._player.episode = after
        self.turns += 1
        return BaseTextEnvStepOutput(
            observations=[] if after.done else [{"role": "user", "content": after.prompt}],
            reward=float(after.score - before.score),
            done=after.done,
            metadata={"valid": outcome.valid, "admissible": outcome.admissible, "won": after.won},
        )

    def get_metrics(self) -> dict[str, Any]:
        """Return success, score and length of the episode."""
        episode = self._player.current
        return {"success": float(episode.won), "score": float(episode.score), "steps": episode.steps}


def register() -> None:
    """Register ``threespo`` with skyrl-gym; once is enough."""
    import skyrl_gym

    if "threespo" not in skyrl_gym.registry:
        skyrl_gym.register(id="threespo", entry_point=f"{__name__}:TextEnv")
