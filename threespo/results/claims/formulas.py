"""Claims that the paper's equations decide, at its constants (tab:hyperparams).

Each returns whether the claim holds, the number that decides, and a sentence. What the paper calls rollouts of a state are
samples in it, n(s).
"""

import itertools
import math
from collections.abc import Callable

from threespo.scoring.reward import novelty_weight
from threespo.scoring.state import ScoreSettings, state_score
from threespo.theory.bandit import VARIANTS, play

PRINTED = ScoreSettings()
OMEGA_K = 0.1
"""Decay of the novelty weight."""
EPOCHS = 400
"""Epochs of the paper's training runs."""
DEEPEST = 50
"""Steps of an episode in ALFWorld."""

Said = tuple[bool, float, str]
"""Whether the claim holds, the number that decides, and a sentence."""


def low_success_high_score() -> Said:
    """A success rate of 0.1 should leave S above 0.5; the gate is open at 9 failures."""
    score = state_score(10, 1, 2, PRINTED).score
    return score > 0.5, score, f"after 1 success in 10 S is {score:.3f} at depth 2, and less below: worth one rollout"


def score_falls_with_success() -> Said:
    """S(k successes in 20) never rises in k at any depth; the gate is left out, behind which S is 0."""
    rises = 0
    for clock in range(1, DEEPEST + 1):
        scores = [state_score(20, wins, clock, PRINTED, gate=False).score for wins in range(21)]
        rises += any(a < b for a, b in itertools.pairwise(scores))
    return rises == 0, float(rises), f"it rises at {rises} of {DEEPEST} depths; at depth 1 it is 1 for every rate"


def rollouts_of_figure_2() -> Said:
    """Counts and depths at which a state gets two samples of at most eight, as the state of figure 2 does."""
    found = [
        (total, wins, clock)
        for total in range(1, 201)
        for wins in range(total + 1)
        for clock in (1, 2, 3, 5, 10, DEEPEST)
        if state_score(total, wins, clock, PRINTED).rollouts == 2
    ]
    return bool(found), float(len(found)), f"{len(found)} counts of up to 200 visits give two rollouts at any depth tried"


def first_visit() -> Said:
    """S and n of a state without counts."""
    fresh = state_score(0, 0, 7, PRINTED)
    return (fresh.score, fresh.rollouts) == (1.0, 8), fresh.score, f"S = {fresh.score:g}, n = {fresh.rollouts}"


def tenth_visit() -> Said:
    """Whether any 2 to 9 successes in 9 or 10 visits give S in 0.25 to 0.35 at depth 7."""
    counts = [(total, wins) for total in (9, 10) for wins in range(2, total + 1)]
    largest = max(state_score(total, wins, 7, PRINTED).score for total, wins in counts)
    # The alpha at which 3 successes in 9 give S = 0.3: exp(-alpha ln 7 * 3/9) = 0.3.
    needed = -math.log(0.3) / (math.log(7) * 3 / 9)
    return largest >= 0.25, largest, f"S is at most {largest:.0e}; with α of about {needed:.1f} it would be 0.3"


def novelty_first() -> Said:
    """omega(0) > 0.25 > omega(9)."""
    first, tenth = novelty_weight(0, OMEGA_K), novelty_weight(9, OMEGA_K)
    # The weight is 0.5 exp(-omega_k N), so it is 0.25 where exp(-omega_k N) is one half.
    crossing = math.log(2) / OMEGA_K
    return first > 0.25 > tenth, crossing, f"ω is {first:.2f}, then {tenth:.2f}; 0.25, half way, after {crossing:.1f}"


def scores_tell_apart() -> Said:
    """n of two well-known states with success rates 0.2 and 0.8 should differ at some depth from 2 on."""
    apart = sum(
        state_score(1000, 200, clock, PRINTED).rollouts != state_score(1000, 800, clock, PRINTED).rollouts
        for clock in range(2, DEEPEST + 1)
    )
    return apart > 0, float(apart), f"rates of 0.2 and 0.8 differ in rollouts at {apart} of the depths from 2 to 50"


def alpha_mechanism() -> Said:
    """The share of reachable (N, successes, depth) at which n(s) differs between alpha 35, 50 and 70."""
    differ = total = 0
    for count in range(1, 101):
        for wins in range(count + 1):
            for clock in (2, 3, 5, 10, 20, 50):
                rollouts = {state_score(count, wins, clock, ScoreSettings(alpha=alpha)).rollouts for alpha in (35, 50, 70)}
                differ += len(rollouts) > 1
                total += 1
    return differ > 0, differ / total, f"n(s) differs between 35, 50 and 70 in {differ} of {total:,} cases from depth 2 on"


def gamma_schedule() -> Said:
    """gamma = gap^2 log 2 / (16 log I): the gap that omega_k = 0.1 implies must be a difference of probabilities."""
    # Solved for the gap, with the epochs as rounds I; and with I = 2, where it is smallest.
    gap = math.sqrt(16 * math.log(EPOCHS) * OMEGA_K / math.log(2))
    least = math.sqrt(16 * math.log(2) * OMEGA_K / math.log(2))
    return least <= 1, gap, f"a decay of 0.1 asks for a gap of {gap:.1f} in 400 rounds, {least:.1f} in two"


def allocation_bound() -> Said:
    """Share of the easier of two well-known actions, won in 0.9 and 0.3 of tries, at depth 3."""
    # Sec. 3.5 bounds the share by exp(-lambda(t) gap / 2) with lambda(t) = alpha ln t, which is t^(-alpha gap / 2).
    rollouts = [state_score(1000, wins, 3, PRINTED).rollouts for wins in (900, 300)]
    share, bound = rollouts[0] / sum(rollouts), 3 ** (-PRINTED.alpha * 0.6 / 2)
    return share <= bound, share, f"an action of 0.9 beside one of 0.3 gets {share:.2f}, the bound is {bound:.0e}"


def regret_is_logarithmic() -> Said:
    """R(10,000) / R(100) of the rule as printed; logarithmic growth would double it."""
    course = play(VARIANTS["as printed"], 10_000).regret.mean(axis=0)
    growth = float(course[-1] / course[99])
    return growth <= 4, growth, f"from 100 to 10,000 rounds it grows {growth:.0f}-fold; a logarithm doubles"


FORMULAS: dict[str, Callable[[], Said]] = {
    "low_success_high_score": low_success_high_score,
    "score_falls_with_success": score_falls_with_success,
    "rollouts_of_figure_2": rollouts_of_figure_2,
    "first_visit": first_visit,
    "tenth_visit": tenth_visit,
    "novelty_first": novelty_first,
    "scores_tell_apart": scores_tell_apart,
    "alpha_mechanism": alpha_mechanism,
    "gamma_schedule": gamma_schedule,
    "allocation_bound": allocation_bound,
    "regret": regret_is_logarithmic,
}
