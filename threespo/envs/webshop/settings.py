"""WebShop's section of a study file."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from threespo.envs.optional_splits import OPTIONAL_SPLITS, requested_splits
from threespo.envs.settings import MAX_EPISODE_STEPS, EnvironmentSettings, EpisodeSettings, TaskSettings
from threespo.settings import HUB_REPOSITORY_PATTERN, HUB_REVISION_PATTERN, Execution, Settings

SPLITS = ("train", "calibration", "test", *OPTIONAL_SPLITS)

DOWNLOADS = Path("downloads") / "webshop"
"""Where the files of the official shop are, and are fetched to, unless ``path`` says otherwise."""


MAX_GOALS = 10_000_000
"""Of a split: more than a goal for every combination of options in the real catalogue of 1.2 million products."""

GoalCount = Annotated[int, Field(ge=1, le=MAX_GOALS)]


class GoalCounts(Settings):
    """How many goals of each split take part (``null``: all), the first in order."""

    train: GoalCount | None = None
    """Training goals; base policies are cloned from all of them, RL draws from ``training.pool`` of them."""
    calibration: GoalCount | None = None
    """Goals for choosing base policies and settings; disjoint from test goals, and from training goals unless
    ``goals_order`` is ``original``."""
    test: GoalCount | None = None
    """Goals of the evaluation (the paper: 500)."""
    development: GoalCount | None = None
    """Goals for choosing between variants, of the second half of those that ``test`` may have (``null``: none)."""
    confirmation: GoalCount | None = None
    """Goals that nothing is chosen on, of the second half of those that ``calibration`` may have (``null``: none)."""


class WebshopTasks(TaskSettings):
    """Which shop: an ``embedded`` catalogue is generated here, ``path`` is the folder of the original's JSON files,
    ``official`` the release, fetched from a mirror into ``path`` (by default ``downloads/webshop``) unless it is there.

    Goals are distinct and in one order in all studies, unless ``goals_order`` says otherwise.
    """

    products: int = Field(default=1000, ge=500, le=1_200_000)
    """Size of the embedded catalogue; ignored for real ones."""
    goal_kind: Literal["synthetic", "human"] = "synthetic"
    """``synthetic``: one goal per combination of a product's options; ``human``: what people asked for."""
    goals: GoalCounts = GoalCounts()
    goals_order: Literal["fixed", "original"] = "fixed"
    """``fixed``: one order for all, with disjoint splits. ``original``: the orders and price bounds of the released code's
    first training worker and first validation worker (docs/webshop.md). Its test goals are the first 500, as published, and
    nearly all of them are training goals as well; the data's manifest says how many. Needs ``fidelity: original``."""

    mirror: Annotated[str, Field(pattern=HUB_REPOSITORY_PATTERN), Execution] = "YWZBrandon/webshop-data"
    """``official`` only: a data set at the model hub with the release's three files. Their content is pinned, so it does not
    matter which."""
    mirror_revision: Annotated[str, Field(pattern=HUB_REVISION_PATTERN), Execution] = (
        "ce990fff5aee388db2706f07820c578ab68e0453"
    )
    """Its commit, tag or branch."""

    @property
    def most_training_tasks(self) -> tuple[str, int] | None:
        """More goals than the shop has are refused when it is prepared."""
        return None if self.goals.train is None else ("goals.train", self.goals.train)

    def tasks_in(self, split: str) -> tuple[str, int] | None:
        """More goals than the shop has are refused when it is prepared."""
        count: int | None = getattr(self.goals, split)
        return None if count is None else (f"goals.{split}", count)

    @property
    def splits(self) -> tuple[str, ...]:
        return requested_splits(SPLITS, self.goals)

    @model_validator(mode="after")
    def _optional_splits_need_fixed_order(self) -> "WebshopTasks":
        given = [split for split in self.splits if split in OPTIONAL_SPLITS]
        if given and self.goals_order == "original":
            raise ValueError(
                f"goals.{given[0]}: this split is cut from the fixed order; remove it, or goals_order: original"
            )
        return self


class WebshopEpisode(EpisodeSettings):
    """How an episode in the shop runs."""

    mode: Literal["text", "text_rich", "url"] = "text"
    """What is observed: the page in plain or marked text, or its address."""
    fidelity: Literal["original", "repaired"] = "repaired"
    """With all quirks of the original, or as it was meant (docs/webshop.md)."""
    max_steps: int = Field(default=30, ge=1, le=MAX_EPISODE_STEPS)
    """Steps per episode T_max (the paper: 30; verl-agent's scripts: 15)."""


class WebshopSettings(WebshopTasks, WebshopEpisode, EnvironmentSettings):
    """WebShop at one scale."""

    @model_validator(mode="after")
    def _bounds_fit_prices(self) -> "WebshopSettings":
        # A bound lies above the random price that its worker drew, which may be below the repaired shop's price.
        if self.goals_order == "original" and self.fidelity != "original":
            raise ValueError(
                f"goals_order 'original' needs fidelity 'original', found {self.fidelity!r}: with other prices some goals "
                "could not be met; change one of the two"
            )
        return self
