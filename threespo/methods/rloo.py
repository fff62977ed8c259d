"""RLOO: GRPO's groups with the mean return of the *other* episodes as the baseline, undivided."""

from functools import partial

from threespo.methods.advantages import estimate_by_group, rloo_advantages
from threespo.methods.base import CommonSettings, MethodEntry, MethodOptions
from threespo.methods.episodes import EpisodeMethod


class RlooOptions(MethodOptions):
    """RLOO has no options of its own."""


def make(options: RlooOptions, common: CommonSettings) -> EpisodeMethod:
    """Return the method: A = R - mean of the other episodes' returns."""
    estimator = partial(rloo_advantages, population=common.statistics)
    return EpisodeMethod(common, estimate_by_group(estimator))


METHOD = MethodEntry(make, RlooOptions)
