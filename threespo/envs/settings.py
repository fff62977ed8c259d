"""What every environment's section of a study file has.

A section is flat in the file, and two parts here: ``TaskSettings`` decide which tasks are prepared, ``EpisodeSettings`` how
an episode runs. A training run receives the second part alone, so of the first it depends on nothing but the prepared tasks.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from threespo.settings import Execution, LearningRate, Name, Settings

MAX_EPISODE_STEPS = 1000
"""Of an episode; the paper's longest have 50, and every step is a generation."""


class TaskSettings(Settings):
    """Where an environment's tasks come from."""

    source: Literal["embedded", "path", "official"] = "embedded"
    path: Annotated[Path | None, Field(strict=False), Execution] = None
    """Folder of real data. What lies in it counts, and not where it is."""

    @property
    def folder(self) -> Path | None:
        """Where somebody has put the files that the source reads; ``None`` for what is made here or downloaded."""
        return self.path if self.source == "path" else None

    @property
    def most_training_tasks(self) -> tuple[str, int] | None:
        """The field that says how many tasks there are to train on, and the number; ``None`` where the data decide."""
        return None

    @property
    def splits(self) -> tuple[str, ...] | None:
        """The splits that these tasks have; ``None``: all of the environment's."""
        return None

    def tasks_in(self, split: str) -> tuple[str, int] | None:
        """Return the field that says how many tasks a split has, and the number; ``None`` where the data decide."""
        return None

    @model_validator(mode="after")
    def _source_has_a_folder(self) -> "TaskSettings":
        if self.source == "path" and self.path is None:
            raise ValueError("source 'path' needs the field 'path': the folder of the data")
        return self


DEFAULT_HISTORY_LENGTH = 2
"""verl-agent's setting; the paper does not say."""


class EpisodeSettings(Settings):
    """How an episode runs."""

    max_steps: int = Field(ge=1, le=MAX_EPISODE_STEPS)
    """Steps per episode T_max."""
    history_length: int = Field(default=DEFAULT_HISTORY_LENGTH, ge=0, le=MAX_EPISODE_STEPS)
    """Past observation-action pairs in the prompt."""


class MethodDifference(Settings):
    """What is different of a method in one environment."""

    learning_rate: LearningRate | None = None
    options: dict[str, Any] = Field(default={})
    """Options that are added to those of the entry itself, or replace them."""


class EnvironmentSettings(TaskSettings, EpisodeSettings):
    """An environment's section of a study."""

    training: dict[str, Any] = Field(default={})
    """Fields of the study's ``training`` that are different in this environment."""
    methods: dict[Name, MethodDifference] = Field(default={})
    """Entries of the study's ``methods`` that are different in this environment."""
