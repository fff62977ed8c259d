"""HGPO: a step is compared with those that share its last 1, 2, ... observations; longer matches weigh more."""

from functools import partial

from pydantic import Field

from threespo.methods.advantages import estimate_by_group, hgpo_advantages
from threespo.methods.base import CommonSettings, MethodEntry, MethodOptions
from threespo.methods.episodes import EpisodeMethod


class HgpoOptions(MethodOptions):
    """Options of HGPO; defaults are those of its script for ALFWorld.

    The study's ``statistics`` matter with ``base_group`` only.
    """

    gamma: float = Field(default=0.95, gt=0, le=1)
    """Discount of step returns."""
    history: int = Field(default=2, ge=0, le=1000)
    """Observations before the current one that levels reach back (K)."""
    alpha: float = Field(default=1.0, ge=0, le=1_000_000)
    """Level k weighs (k + 1)^alpha."""
    base_group: bool = False
    """Add the whole group as level 0."""
    normalise: bool = True
    """Divide by each cluster's standard deviation (ALFWorld), or not (WebShop)."""


def make(options: HgpoOptions, common: CommonSettings) -> EpisodeMethod:
    """Return the method: A = sum w_k a_k / sum w_k over the levels at which other steps match."""
    estimator = partial(
        hgpo_advantages,
        population=common.statistics,
        normalise=options.normalise,
        history=options.history,
        alpha=options.alpha,
        base_group=options.base_group,
    )
    return EpisodeMethod(common, estimate_by_group(estimator), options.gamma)


METHOD = MethodEntry(make, HgpoOptions)
