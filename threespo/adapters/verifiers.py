"""verifiers' taskset and environment: each task of a panel, played host-side, the environment answering as the user.

``threespo_verifiers`` is the package that verifiers loads it by: ``vf-eval threespo-verifiers``.
"""

from collections.abc import Iterator
from typing import Any, Literal

import verifiers.v1 as vf

from threespo.envs.episode import respond
from threespo.gym.tasks import Tasks, open_tasks


class ThreespoConfig(vf.TasksetConfig):  # type: ignore[misc]
    """Which tasks."""

    environment: Literal["alfworld", "webshop"] = "alfworld"
    split: str = "train"
    path: str | None = None
    """Folder of official data; none: the panel of generated tasks."""
    max_steps: int | None = None
    """Steps per episode; none: 50 in ALFWorld, 15 in WebShop."""

    opening: str = ""
    """What the model's chat template writes of the response itself, such as ``"<think>\\n"``."""

    def open(self) -> Tasks:
        """Return the tasks."""
        limit: dict[str, Any] = {} if self.max_steps is None else {"max_steps": self.max_steps}
        return open_tasks(self.environment, split=self.split, path=self.path, **limit)


class ThreespoData(vf.TaskData):  # type: ignore[misc]
    """A task of a panel; ``id`` is its id there."""

    options: dict[str, Any]
    """Fields of the configuration, which the environment opens the task by."""
    content: str
    """Hash of the task's content (docs/panels.md)."""


class ThreespoTask(vf.Task[ThreespoData, vf.State, vf.TaskConfig]):  # type: ignore[misc]
    """A task of a panel."""

    @property
    def key(self) -> str:
        """``ENVIRONMENT/SPLIT/ID``: the panel's name of the task, the same in all runs."""
        options = self.data.options
        return f"{options['environment']}/{options['split']}/{self.data.id}"


class ThreespoTaskset(vf.Taskset[ThreespoTask, ThreespoConfig]):  # type: ignore[misc]
    """The tasks of a split, in the panel's order."""

    def load(self) -> Iterator[ThreespoTask]:
        config: ThreespoConfig = self.config
        tasks = config.open()
        options = {
            name: getattr(config, name)
            for name in ("environment", "split", "path", "max_steps", "opening")
        }
        for index, task_id in enumerate(tasks.ids):
            # The first prompt belongs to the task's data: verifiers shows it to the model by itself.
            data = ThreespoData(
                id=task_id,
                name=task_id,
                prompt=tasks.begin(index).prompt,
                options=options,
                content=tasks.content(index),
            )
            yield ThreespoTask(data, config.task)


class ThreespoEnvConfig(vf.EnvConfig):  # type: ignore[misc]
    """One agent, the player."""

    player: vf.AgentConfig = vf.AgentConfig()


class ThreespoEnv(vf.Env[ThreespoEnvConfig]):  # type: ignore[misc]
    """Plays the episode: each reply of the model is a response with an action, each next prompt a user's message."""

    async def run(self, task: ThreespoTask, agents: Any) -> None:
        """Play one episode and record success, score, steps and the shares of well-formed and admissible responses."""
        config = ThreespoConfig(**task.data.options)
        tasks = config.open()
        episode = tasks.begin(task.data.id)
        valid = 0
        admissible = 0
        async with agents.player.interaction(task) as interaction:
            # Without a message: the first prompt is in the task's data.
            segment = await interaction.turn()
            while not segment.terminated:
                outcome = respond(episode, config.opening + (segment.last_reply or ""))
                episode = outcome.episode
                valid += outcome.valid
                admissible += outcome.admissible
                if episode.done:
                    break
                segment = await interaction.turn(episode.prompt)

        trace = interaction.trace
        trace.record_reward("score", float(episode.score), 1.0)
        trace.record_metric("success", float(episode.won))
        trace.record_metric("steps", float(episode.steps))
        # An interaction that was terminated at once has no step.
        responses = max(1, episode.steps)
        trace.record_metric("valid", valid / responses)
        trace.record_metric("admissible", admissible / responses)
