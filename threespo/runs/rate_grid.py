"""The rule by which a grid of learning rates is extended: nobody can say what lies beyond an edge that won.

It looks at the calibration games alone, which the base and every trial have played once with the same random numbers, so
that differences are taken game by game.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

import numpy as np
import numpy.typing as npt

from threespo.settings import MAX_LEARNING_RATE

Edge = Literal["lower", "upper"]

Games = npt.NDArray[np.float64]
"""Success in 0 or 1 by game, in one order for all; of several trials trials x games."""

NORMAL_95 = 1.96
"""Half the width of a 95 % interval in standard errors."""

HALF_DECADES = (1, 3)
"""Leading digits of the rates that a grid is extended by."""


@dataclass(frozen=True, slots=True)
class TriedRates:
    """What the rates that a method has tried won, and what the untrained base did."""

    base: Games
    """One number a game; with several bases trials x games, the base that each trial has started from."""
    trials: Mapping[float, Games]
    """By rate: trials x games, a trial for each training seed."""

    def mean(self, rate: float) -> float:
        """Return the mean success of a rate's trials, in 0 to 1."""
        return fmean(self.by_trial(rate))

    def by_trial(self, rate: float) -> list[float]:
        """Return the success of each of a rate's trials, in 0 to 1."""
        return [float(games.mean()) for games in self.trials[rate]]

    @property
    def best(self) -> float:
        """The rate of the largest mean; of equals the smallest, the more cautious one."""
        return max(sorted(self.trials), key=self.mean)

    def equals_base(self, rate: float) -> bool:
        """Return whether a rate's trials are no different from the base: neither any of them nor their mean.

        Each differs if the 95 % interval of its mean difference over the games leaves 0 out. One trial above the base and
        one below it are no plateau, although their mean may be the base's.
        """
        differences = self.trials[rate] - self.base
        return all(_is_no_difference(games) for games in (*differences, differences.mean(axis=0)))

    @property
    def edge(self) -> Edge | None:
        """The end of what was tried, if a rate beyond it may be better than the best.

        ``upper``: the largest rate is the best, or the best and the largest both equal the base, so that no rate has been
        large enough to matter. ``lower``: the smallest is the best and does not equal the base; where it does, smaller steps
        lead nowhere but to the base. ``None``: there are worse rates on both sides, or the base on the lower one.
        """
        best = self.best
        lowest = min(self.trials)
        highest = max(self.trials)
        if best == highest or (self.equals_base(best) and self.equals_base(highest)):
            return "upper"
        if best == lowest and not self.equals_base(lowest):
            return "lower"
        return None

    def next_rate(self, factor: float) -> float | None:
        """Return the rate to try next; ``None`` where the best is inside, or no learning rate is as large."""
        edge = self.edge
        if edge is None:
            return None
        target = max(self.trials) * factor if edge == "upper" else min(self.trials) / factor
        rate = round_to_half_decade(target)
        return rate if rate <= MAX_LEARNING_RATE else None


def round_to_half_decade(rate: float) -> float:
    """Return the number of 1, 3, 10, 30, ... that is nearest to a rate by their ratio.

    A factor of 2 or more from any rate leads beyond it: rounding changes a rate by at most the square root of 10/3.
    """
    exponent = math.floor(math.log10(rate))
    # Written as text: 3 * 10**-5 is not the number that a study file calls 3e-5.
    nearby = [float(f"{digit}e{exponent + shift}") for shift in (-1, 0, 1) for digit in HALF_DECADES]
    return min(nearby, key=lambda other: abs(math.log(other / rate)))


def _is_no_difference(differences: Games) -> bool:
    mean = abs(float(differences.mean()))
    if len(differences) < 2:
        return mean == 0.0
    return mean <= NORMAL_95 * float(differences.std(ddof=1)) / math.sqrt(len(differences))
