"""REINFORCE++ (arXiv 2501.03262): episode returns normalised over the whole epoch, without groups and without a critic."""

from functools import partial

from threespo.methods.advantages import reinforce_pp_advantages
from threespo.methods.base import CommonSettings, MethodEntry, MethodOptions
from threespo.methods.episodes import EpisodeMethod


class ReinforcePpOptions(MethodOptions):
    """REINFORCE++ has no options of its own."""


def make(options: ReinforcePpOptions, common: CommonSettings) -> EpisodeMethod:
    """Return the method: A = (R - mean) / std over all episodes of the epoch."""
    # Its paper puts the KL penalty into the reward; here it stays in the loss, as for all methods.
    return EpisodeMethod(common, partial(reinforce_pp_advantages, population=common.statistics))


METHOD = MethodEntry(make, ReinforcePpOptions)
