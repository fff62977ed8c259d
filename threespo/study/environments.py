"""A study's environments, typed: where their tasks come from, how many take part, and how an episode runs."""

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from threespo.study.settings import Name, Settings

ALFWORLD_SPLITS = ("train", "calibration", "valid_seen", "valid_unseen")


SHOP_DOWNLOADS = Path("downloads") / "webshop"
"""Where the files of the official shop are looked for, unless ``path`` says otherwise."""


class GameCounts(Settings):
    """How many games of each split take part (``null``: all that the source has; not for ``embedded``)."""

    train: int | None = Field(default=None, ge=1)
    """Training games; base policies are cloned from all of them, RL draws from ``training.pool`` of them."""
    calibration: int | None = Field(default=None, ge=1)
    """Games for choosing base policies and settings; disjoint from training and evaluation games."""
    valid_seen: int | None = Field(default=None, ge=1)
    valid_unseen: int | None = Field(default=None, ge=1)


class GoalCounts(Settings):
    """How many goals of each split take part (``null``: all), the first of one order that every study shares."""

    train: int | None = Field(default=None, ge=1)
    """Training goals; base policies are cloned from all of them, RL draws from ``training.pool`` of them."""
    calibration: int | None = Field(default=None, ge=1)
    """Goals for choosing base policies and settings; disjoint from training and test goals."""
    test: int | None = Field(default=None, ge=1)
    """Goals of the evaluation (the paper: 500)."""


class MethodDifference(Settings):
    """What is different of a method in one environment."""

    learning_rate: float | None = Field(default=None, gt=0)
    options: dict[str, Any] = Field(default={})
    """Options beside those of the entry itself, or in their place."""


class EnvironmentSettings(Settings):
    """What every environment has."""

    source: Literal["embedded", "path", "official"] = "embedded"
    path: Path | None = None
    max_steps: int = Field(ge=1)
    history_length: int = Field(default=2, ge=0)
    """Past observation-action pairs in the prompt (verl-agent's setting; the paper does not say)."""
    training: dict[str, Any] = Field(default={})
    """Fields of the study's ``training`` that are different in this environment."""
    methods: dict[Name, MethodDifference] = Field(default={})
    """Entries of the study's ``methods`` that are different in this environment."""

    @property
    def folder(self) -> Path | None:
        """Where somebody has put the files that the source reads; ``None`` for what is made here or downloaded."""
        return self.path if self.source == "path" else None

    @model_validator(mode="after")
    def _source_has_a_folder(self) -> "EnvironmentSettings":
        if self.source == "path" and self.path is None:
            raise ValueError("source 'path' needs the field 'path': the folder of the data")
        return self


class AlfworldSettings(EnvironmentSettings):
    """ALFWorld at one scale, from one of three sources.

    ``embedded``: games generated here; ``path``: the folder ``path`` of real games; ``official``: the release, downloaded
    into ``path``.
    """

    engine: Literal["native", "textworld"] = "native"
    """``textworld`` is the stock engine (extra ``oracle``), some thousand times slower, equal in every text."""
    difficulty: Literal["small", "medium", "full"] = "small"
    """Size of the embedded rooms; ignored for real games."""
    games: GameCounts = GameCounts()
    max_steps: int = Field(default=50, ge=1)
    """Steps per episode T_max (tab:hyperparams: 50)."""

    @model_validator(mode="after")
    def _games_are_counted(self) -> "AlfworldSettings":
        if self.source == "embedded" and None in self.games.model_dump().values():
            raise ValueError("source 'embedded' needs a number for every split in 'games'")
        return self


class WebshopSettings(EnvironmentSettings):
    """WebShop at one scale, from one of three sources.

    ``embedded``: a catalogue generated here; ``path``: the folder ``path`` with the original's JSON files; ``official``: the
    same (by default ``downloads/webshop``), which says how to get them. Goals are distinct and in one order in all studies,
    whatever ``fidelity`` says of pages and rewards.
    """

    products: int = Field(default=1000, ge=500, le=1_200_000)
    """Size of the embedded catalogue; ignored for real ones."""
    goal_kind: Literal["synthetic", "human"] = "synthetic"
    """``synthetic``: one goal per combination of a product's options; ``human``: what people asked for."""
    goals: GoalCounts = GoalCounts()
    mode: Literal["text", "text_rich"] = "text"
    fidelity: Literal["original", "repaired"] = "repaired"
    """With all quirks of the original, or as it was meant (docs/webshop.md)."""
    max_steps: int = Field(default=30, ge=1)
    """Steps per episode T_max (the paper: 30; verl-agent's scripts: 15)."""

    @property
    def folder(self) -> Path | None:
        """As everywhere; the official files, too, are put there by hand."""
        return None if self.source == "embedded" else self.path or SHOP_DOWNLOADS
