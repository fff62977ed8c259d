"""GiGPO: GRPO's episode advantage, plus one among the steps of a group that start from the same observation."""

from functools import partial

from pydantic import Field

from threespo.methods.advantages import estimate_by_group, gigpo_advantages
from threespo.methods.base import CommonSettings, MethodEntry, MethodOptions
from threespo.methods.episodes import EpisodeMethod


class GigpoOptions(MethodOptions):
    """Options of GiGPO; defaults are those of its script for ALFWorld."""

    gamma: float = Field(default=0.95, gt=0, le=1)
    """Discount of step returns."""
    step_weight: float = Field(default=1.0, ge=0, le=1_000_000)
    """Weight of the step-level advantage (omega in its paper)."""
    normalise: bool = True
    """Divide both parts by their standard deviation (ALFWorld), or not (WebShop)."""


def make(options: GigpoOptions, common: CommonSettings) -> EpisodeMethod:
    """Return the method: A = A_E + step_weight * A_S."""
    estimator = partial(
        gigpo_advantages,
        population=common.statistics,
        normalise=options.normalise,
        step_weight=options.step_weight,
    )
    return EpisodeMethod(common, estimate_by_group(estimator), options.gamma)


METHOD = MethodEntry(make, GigpoOptions)
