"""ALFWorld's section of a study file."""

from typing import Literal

from pydantic import Field, model_validator

from threespo.envs.settings import EnvironmentSettings, EpisodeSettings, TaskSettings
from threespo.settings import Settings

SPLITS = ("train", "calibration", "valid_seen", "valid_unseen")


class GameCounts(Settings):
    """How many games of each split take part (``null``: all that the source has; not for ``embedded``)."""

    train: int | None = Field(default=None, ge=1)
    """Training games; base policies are cloned from all of them, RL draws from ``training.pool`` of them."""
    calibration: int | None = Field(default=None, ge=1)
    """Games for choosing base policies and settings; disjoint from training and evaluation games."""
    valid_seen: int | None = Field(default=None, ge=1)
    valid_unseen: int | None = Field(default=None, ge=1)


class AlfworldTasks(TaskSettings):
    """Which games: ``embedded`` ones are generated here, ``path`` is the folder of real games, ``official`` the release,
    downloaded into ``path``."""

    difficulty: Literal["small", "medium", "full"] = "small"
    """Size of the embedded rooms; ignored for real games."""
    games: GameCounts = GameCounts()

    @model_validator(mode="after")
    def _games_are_counted(self) -> "AlfworldTasks":
        if self.source == "embedded" and None in self.games.model_dump().values():
            raise ValueError("source 'embedded' needs a number for every split in 'games'")
        return self


class AlfworldEpisode(EpisodeSettings):
    """How a game is played."""

    engine: Literal["native", "textworld"] = "native"
    """``textworld`` is the stock engine (extra ``oracle``), some thousand times slower, equal in every text."""
    max_steps: int = Field(default=50, ge=1)
    """Steps per episode T_max (tab:hyperparams: 50)."""


class AlfworldSettings(AlfworldTasks, AlfworldEpisode, EnvironmentSettings):
    """ALFWorld at one scale."""
