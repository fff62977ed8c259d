"""GRPO: groups of whole episodes per task, one advantage per episode, updates after the trajectories are complete."""

from functools import partial

from threespo.methods.advantages import grpo
from threespo.methods.base import CommonSettings
from threespo.methods.episodes import EpisodeMethod, EpisodeOptions


class GrpoOptions(EpisodeOptions):
    """Options of GRPO."""

    normalise: bool = True
    """Divide by the group's standard deviation."""


def make(options: GrpoOptions, common: CommonSettings) -> EpisodeMethod:
    """Return the method: A = (R - mean) / (std + eps) over the group's episode returns."""
    return EpisodeMethod(options, common, partial(grpo, population=options.statistics, normalise=options.normalise))
