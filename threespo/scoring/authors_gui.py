"""Eq. 1, eq. 3 and the counts as the authors' own loop has them, which differ from the paper's in every term.

The loop is in their second repository, github.com/genalyu/3SPO_GUI (commit 280761d), for desktop tasks; docs/method.md has
all of its differences.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from threespo.scoring.state import ScoreSettings, StateScore, printed_rollouts, state_score
from threespo.scoring.table import StateTable

LAMBDA_BASE = 1.0
"""lambda_base, the limit of lambda(t) after many ticks."""

ANNEALING_TICKS = 1000
"""T_max of lambda(t); not the step limit, which has the same name in the paper."""

ALLOCATION_SLOPE = 1.0
"""lambda_r, the factor of S in n(s)."""


def annealing_by_ticks(ticks: int, alpha: float) -> float:
    """Return lambda(t) = lambda_base (1 - exp(-alpha t / T_max)), t the ticks of the run so far; 0 in the first one."""
    return -LAMBDA_BASE * math.expm1(-alpha * ticks / ANNEALING_TICKS)


def score_by_ticks(
    n_total: float, n_success: float, ticks: int, settings: ScoreSettings, gate: bool = True
) -> StateScore:
    """Return S(s_t) by eq. 1 with ``annealing_by_ticks``, and n(s_t) by eq. 3.

    Args:
        n_total: N_total of the state.
        n_success: N_success of the state.
        ticks: ticks of the run so far.
        settings: the constants.
        gate: False leaves out the indicator of eq. 1.
    """
    # At t = 1 the printed lambda is 0: what is left of eq. 1 are its success rate and its gate.
    printed = state_score(n_total, n_success, 1, settings, gate)
    if printed.gated:
        return printed
    score = math.exp(-annealing_by_ticks(ticks, settings.alpha) * printed.success_rate)
    return replace(printed, score=score, rollouts=printed_rollouts(score, settings.g_max))


def sigmoid_rollouts(score: float, g_max: int) -> int:
    """Return n(s) = max(1, floor(G sigmoid(lambda_r S))); with G = 8 it is 4 for S below ln(5/3) = 0.51, and 5 above."""
    return max(1, math.floor(g_max / (1 + math.exp(-ALLOCATION_SLOPE * score))))


@dataclass(slots=True)
class VisitTable(StateTable):
    """Visit statistics in which a path counts a state as often as it has visited it."""

    def counted_states(self, path: Sequence[str]) -> Iterable[str]:
        """Return every visit of a path by itself."""
        return path
