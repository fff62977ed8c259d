"""A method in one file: REINFORCE with a constant baseline. Tests add its name to the list of methods (CONTRIBUTING.md)."""

from pydantic import Field

from threespo.methods.base import CommonSettings, MethodEntry, MethodOptions
from threespo.methods.episodes import EpisodeMethod


class ReinforceOptions(MethodOptions):
    """Options of REINFORCE."""

    baseline: float = Field(default=0.5, ge=0, le=1)
    """Return, as a share of the reward of success, that no step is credited with."""


def make(options: ReinforceOptions, common: CommonSettings) -> EpisodeMethod:
    """Return the method: A = R - baseline, the same for every step of an episode."""
    baseline = options.baseline * common.success_reward

    def estimate(groups):
        return [
            [[steps.episode_return - baseline] * len(steps.keys) for steps in group] for group in groups
        ]

    return EpisodeMethod(common, estimate)


METHOD = MethodEntry(make, ReinforceOptions)
