"""RLOO: GRPO's groups with the mean return of the *other* episodes as the baseline, undivided."""

from functools import partial

from threespo.methods.advantages import rloo
from threespo.methods.base import CommonSettings
from threespo.methods.episodes import EpisodeMethod, EpisodeOptions


class RlooOptions(EpisodeOptions):
    """Options of RLOO."""


def make(options: RlooOptions, common: CommonSettings) -> EpisodeMethod:
    """Return the method: A = R - mean of the other episodes' returns."""
    return EpisodeMethod(options, common, partial(rloo, population=options.statistics))
