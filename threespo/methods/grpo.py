"""GRPO: groups of whole episodes per task, one advantage per episode, updates after the trajectories are complete."""

from functools import partial

from threespo.methods.advantages import estimate_by_group, grpo_advantages
from threespo.methods.base import CommonSettings, MethodEntry, MethodOptions
from threespo.methods.episodes import EpisodeMethod


class GrpoOptions(MethodOptions):
    """Options of GRPO."""

    normalise: bool = True
    """Divide by the group's standard deviation."""


def make(options: GrpoOptions, common: CommonSettings) -> EpisodeMethod:
    """Return the method: A = (R - mean) / (std + eps) over the group's episode returns."""
    estimator = partial(grpo_advantages, population=common.statistics, normalise=options.normalise)
    return EpisodeMethod(common, estimate_by_group(estimator))


METHOD = MethodEntry(make, GrpoOptions)
