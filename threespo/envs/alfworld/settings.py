"""ALFWorld's section of a study file."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from threespo.envs.optional_splits import OPTIONAL_SPLITS, requested_splits
from threespo.envs.settings import MAX_EPISODE_STEPS, EnvironmentSettings, EpisodeSettings, TaskSettings
from threespo.settings import Settings

# Splits of all sources; panels are generated games only.
BASE_SPLITS = ("train", "calibration", "valid_seen", "valid_unseen")

SPLITS = (*BASE_SPLITS, *OPTIONAL_SPLITS)

# Per split: the release has 3,553 games, and generating a hundred thousand embedded ones takes hours.
MAX_GAMES = 100_000

GameCount = Annotated[int, Field(ge=1, le=MAX_GAMES)]


class GameCounts(Settings):
    """How many games of each split take part (``null``: all that the source has; not for ``embedded``)."""

    train: GameCount | None = None
    """Training games; base policies are cloned from all of them, RL draws from ``training.pool`` of them."""
    calibration: GameCount | None = None
    """Games for choosing base policies and settings; disjoint from training and evaluation games."""
    valid_seen: GameCount | None = None
    valid_unseen: GameCount | None = None
    development: GameCount | None = None
    """``embedded`` only: unseen games for choosing between variants, in layouts of their own (``null``: none)."""
    confirmation: GameCount | None = None
    """``embedded`` only: unseen games that no choice is based on, of another data seed and in layouts of their own
    (``null``: none)."""


class AlfworldTasks(TaskSettings):
    """Which games: ``embedded`` ones are generated here, ``path`` is the folder of real games, ``official`` the release,
    downloaded into ``path``."""

    difficulty: Literal["small", "medium", "full"] = "small"
    """Size of the embedded rooms; ignored for real games."""
    games: GameCounts = GameCounts()

    @property
    def most_training_tasks(self) -> tuple[str, int] | None:
        """Embedded games are counted in ``games``; of real ones there may be fewer than that."""
        return None if self.games.train is None else ("games.train", self.games.train)

    def tasks_in(self, split: str) -> tuple[str, int] | None:
        """Embedded games are counted in ``games``; of real ones there may be fewer than that."""
        count: int | None = getattr(self.games, split)
        return None if count is None else (f"games.{split}", count)

    @model_validator(mode="after")
    def _games_are_counted(self) -> "AlfworldTasks":
        if self.source == "embedded" and any(
            getattr(self.games, split) is None for split in BASE_SPLITS
        ):
            raise ValueError(
                f"source 'embedded' needs a number for every split in 'games' ({', '.join(BASE_SPLITS)})"
            )
        panels = self.splits[len(BASE_SPLITS) :]
        if self.source != "embedded" and panels:
            raise ValueError(
                f"games.{panels[0]}: this panel is generated; remove it where games come from {self.source!r}"
            )
        return self

    @property
    def splits(self) -> tuple[str, ...]:
        return requested_splits(SPLITS, self.games)


class AlfworldEpisode(EpisodeSettings):
    """How a game is played."""

    engine: Literal["native", "textworld"] = "native"
    """``textworld`` is the stock engine (extra ``oracle``), some thousand times slower, equal in every text."""
    max_steps: int = Field(default=50, ge=1, le=MAX_EPISODE_STEPS)
    """Steps per episode T_max (tab:hyperparams: 50)."""


class AlfworldSettings(AlfworldTasks, AlfworldEpisode, EnvironmentSettings):
    """ALFWorld at one scale."""
