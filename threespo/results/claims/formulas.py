"""Claims that the paper's equations decide, at its constants (tab:hyperparams).

Each returns a verdict, the number that decides, and a sentence. What the paper calls rollouts of a state are samples in it,
n(s).
"""

import functools
import itertools
import math
from collections.abc import Callable
from typing import Literal

from threespo.scoring.reward import group_advantages, novelty_weight
from threespo.scoring.state import ScoreSettings, state_score
from threespo.theory.bandit import PROBABILITIES, VARIANTS, simulate_bandit
from threespo.theory.bounds import (
    EPOCHS,
    OMEGA_K,
    allocation_share_bound,
    bad_event_probability,
    min_alpha,
    score_separation_bound,
)

PRINTED = ScoreSettings()
"""The paper's constants."""

MAX_DEPTH = 50
"""Steps of an episode in ALFWorld."""

Answer = tuple[Literal["holds", "fails", "vacuous"], float, str]
"""The verdict, the number that decides, and a sentence."""


def _decide(holds: bool, number: float, sentence: str) -> Answer:
    return "holds" if holds else "fails", number, sentence


def score_falls_with_success() -> Answer:
    """S(k successes in 20) never rises in k at any depth; the gate is left out, behind which S is 0."""
    rises = 0
    for clock in range(1, MAX_DEPTH + 1):
        scores = [state_score(20, wins, clock, PRINTED, gate=False).score for wins in range(21)]
        rises += _rises(scores)
    return _decide(
        rises == 0,
        float(rises),
        f"it rises at {rises} of {MAX_DEPTH} depths; at depth 1 it is 1 for every rate",
    )


def _rises(numbers: list[float] | list[int]) -> bool:
    """Return whether any number is greater than the one before it."""
    return any(before < after for before, after in itertools.pairwise(numbers))


def rollouts_of_figure_2() -> Answer:
    """Counts and depths at which a state gets two samples of at most eight, as the state of figure 2 does."""
    # n = 2 needs S in (1/8, 1/4], which at depth 2 is a rate of 4 to 6 %. Behind ten failures the gate closes on
    # such rates, and with fewer visits one success is a higher rate.
    found = [
        (total, wins, clock)
        for total in range(1, 201)
        for wins in range(total + 1)
        for clock in (1, 2, 3, 5, 10, MAX_DEPTH)
        if state_score(total, wins, clock, PRINTED).rollouts == 2
    ]
    sentence = f"{len(found)} counts of up to 200 visits give two rollouts at any depth tried"
    return _decide(bool(found), float(len(found)), sentence)


def single_sample() -> Answer:
    """A group of one has no advantage, and a closed gate no sample."""
    # Siblings are compared within their group, and one sample has no sibling.
    alone = group_advantages([1.0])
    gated = state_score(10, 0, 2, PRINTED)
    sentence = f"a group of one has no advantage to learn from; after ten failures and no success n = {gated.rollouts}"
    return _decide(alone is None and gated.rollouts == 0, float(gated.rollouts), sentence)


def first_visit() -> Answer:
    """S and n of a state without counts."""
    fresh = state_score(0, 0, 7, PRINTED)
    sentence = f"S = {fresh.score:g}, n = {fresh.rollouts} for a state without counts"
    return _decide((fresh.score, fresh.rollouts) == (1.0, 8), fresh.score, sentence)


def tenth_visit() -> Answer:
    """Whether any 2 to 9 successes in 9 or 10 visits give S in 0.25 to 0.35 at depth 7."""
    counts = [(total, wins) for total in (9, 10) for wins in range(2, total + 1)]
    largest = max(state_score(total, wins, 7, PRINTED).score for total, wins in counts)
    # The alpha at which 3 successes in 9 give S = 0.3: exp(-alpha ln 7 * 3/9) = 0.3.
    needed = -math.log(0.3) / (math.log(7) * 3 / 9)
    return _decide(
        largest >= 0.25,
        largest,
        f"S is at most {largest:.0e}; with α of about {needed:.1f} it would be 0.3",
    )


def omega_schedule() -> Answer:
    """omega is above 0.25, half of the weight that it shares, for few visits and below it for many."""
    # The weight is 0.5 exp(-omega_k N), so it is 0.25 where exp(-omega_k N) is one half.
    crossing = math.log(2) / OMEGA_K
    before = novelty_weight(math.floor(crossing), OMEGA_K)
    after = novelty_weight(math.ceil(crossing), OMEGA_K)
    return _decide(before > 0.25 > after, crossing, f"ω falls through 0.25 after {crossing:.1f} visits")


def novelty_first() -> Answer:
    """omega(0) and omega(1) are above 0.25."""
    # A state that is visited rarely has been passed by no path or by one.
    first = novelty_weight(0, OMEGA_K)
    second = novelty_weight(1, OMEGA_K)
    sentence = (
        f"ω is {first:.2f} for a state without counts and {second:.2f} after one path; ΔS has 0.5 less ω"
    )
    return _decide(min(first, second) > 0.25, second, sentence)


def difference_later() -> Answer:
    """0.5 - omega(9) is above omega(9): nine paths have passed when a state is visited for the tenth time."""
    omega = novelty_weight(9, OMEGA_K)
    return _decide(
        0.5 - omega > omega, 0.5 - omega, f"ΔS has a weight of {0.5 - omega:.2f}, novelty {omega:.2f}"
    )


def scores_tell_apart() -> Answer:
    """The greatest difference of S between rates of 0.2 and 0.8, over the depths from 2 on."""
    # At depth 1 ln t is 0, so S is 1 for every rate.
    gaps = {}
    for clock in range(2, MAX_DEPTH + 1):
        gaps[clock] = abs(_score(0.2, clock) - _score(0.8, clock))
    apart = sum(gap > 0 for gap in gaps.values())
    greatest = max(gaps.values())
    sentence = (
        f"S of rates 0.2 and 0.8 differs at {apart} of {len(gaps)} depths from 2 on, by {greatest:.0e} at most and "
        f"{gaps[7]:.0e} at depth 7; at depth 1 it is 1 for both. So both get one rollout, and no reward changes by more "
        "than half of that"
    )
    # A difference that changes neither a number of samples nor a reward is true and without consequence.
    if apart and greatest < 0.01:
        return "vacuous", greatest, sentence
    return _decide(apart > 0, greatest, sentence)


def _score(rate: float, clock: int) -> float:
    """Return S of a state that is known well enough for the guard of eq. 1 not to matter."""
    return state_score(1_000_000, 1_000_000 * rate, clock, PRINTED).score


def alpha_mechanism() -> Answer:
    """The share of reachable (N, successes, depth) at which n(s) differs between alpha 35, 50 and 70."""
    # The values of the paper's sensitivity study. Depth 1 is left out, since alpha ln 1 is 0.
    differ = total = 0
    for count in range(1, 101):
        for wins in range(count + 1):
            for clock in (2, 3, 5, 10, 20, 50):
                rollouts = {
                    state_score(count, wins, clock, ScoreSettings(alpha=alpha)).rollouts
                    for alpha in (35, 50, 70)
                }
                differ += len(rollouts) > 1
                total += 1
    sentence = f"n(s) differs between 35, 50 and 70 in {differ} of {total:,} cases from depth 2 on"
    return _decide(differ > 0, differ / total, sentence)


def harder_first() -> Answer:
    """n(s) never rises with the success rate, for 5, 20 and 100 visits, from depth 2 on."""
    rises = {}
    for visits in (5, 20, 100):
        by_depth = [
            [state_score(visits, wins, clock, PRINTED).rollouts for wins in range(visits + 1)]
            for clock in (2, 7, 50)
        ]
        rises[visits] = any(_rises(rollouts) for rollouts in by_depth)
    sentence = (
        "n is 8 without a success in fewer than ten failures, and 1 with any. After that the gate gives the hardest states "
        "0 and every other state 1"
    )
    return _decide(not any(rises.values()), float(sum(rises.values())), sentence)


def allocation_bound() -> Answer:
    """How many pairs of well-known actions break the bound t^(-alpha gap / 2) on the easier one's share, by eq. 1 and 3."""
    broken = total = 0
    for hard, easy in itertools.combinations(range(1, 11), 2):
        for clock in (2, 3, 7, 20, MAX_DEPTH):
            # A million visits: counted rates are the true ones, so no chance can be the cause.
            easy_rollouts = state_score(1_000_000, 100_000 * easy, clock, PRINTED).rollouts
            hard_rollouts = state_score(1_000_000, 100_000 * hard, clock, PRINTED).rollouts
            share = easy_rollouts / (easy_rollouts + hard_rollouts)
            broken += share > allocation_share_bound(PRINTED.alpha, clock, (easy - hard) / 10)
            total += 1
    sentence = (
        f"{broken} of {total} pairs of actions break it: the ceiling gives each open action a rollout, so the easier of two "
        "gets half, or all where the gate has closed on the harder one"
    )
    return _decide(not broken, broken / total, sentence)


# Ten thousand rounds of many runs, for a claim and for a lemma.
@functools.cache
def regret_is_logarithmic() -> Answer:
    """R(10,000) / R(100) of the rule as printed; logarithmic growth would double it."""
    course = simulate_bandit(VARIANTS["as printed"], 10_000).regret.mean(axis=0)
    growth = float(course[-1] / course[99])
    # log 10,000 / log 100 is 2; the factor of two over it leaves room for lower terms.
    return _decide(
        growth <= 4, growth, f"from 100 to 10,000 rounds it grows {growth:.0f}-fold; a logarithm doubles"
    )


def good_event() -> Answer:
    """P(bad event) after 100 and 10,000 draws of each action with the radius of the text; i^-2 would fall 10,000-fold."""
    after_100, after_10_000 = (
        bad_event_probability(PROBABILITIES, draws, math.log(len(PROBABILITIES)))
        for draws in (100, 10_000)
    )
    sentence = (
        f"with the text's radius sqrt(log A / N) the bad event has probability {after_100:.3f} after 100 draws "
        f"of each of four actions and {after_10_000:.3f} after 10,000: Hoeffding's bound is 2/A and does not "
        "shrink. The proof has log i in place of log A, and loses a factor of 2"
    )
    # A hundredth of the fall that i^-2 gives: what fails this does not fall at all.
    return _decide(after_10_000 <= after_100 / 100, after_10_000, sentence)


def finitely_often() -> Answer:
    """With the radius of the text the bad event keeps its probability, so it happens infinitely often with at least that."""
    probability = bad_event_probability(PROBABILITIES, 10_000, math.log(len(PROBABILITIES)))
    sentence = (
        f"with the text's radius the bad event keeps a probability of {probability:.3f} however many draws there "
        "are, so with at least that probability it never stops happening. With the proof's radius the sum is finite "
        "for a fixed N only; over the N that i rounds can bring it is a harmonic series"
    )
    return _decide(probability < 1e-4, probability, sentence)


def separation() -> Answer:
    """The greatest bound lambda exp(-lambda) gap / 2 over the depths, for the greatest gap, 1."""
    bounds = {
        clock: score_separation_bound(PRINTED.alpha, clock, 1.0) for clock in range(1, MAX_DEPTH + 1)
    }
    greatest = max(bounds.values())
    sentence = (
        f"with α = 50 the bound is {bounds[1]:g} at depth 1, {bounds[2]:.1e} at depth 2, {bounds[7]:.1e} at depth 7, for "
        "the greatest gap: nothing follows. The proof sets S(a) − S(b) to f′(r) times the gap, where f′(r) is negative; it "
        "is −f′(r)"
    )
    # No difference of S as small as this changes a number of samples or, visibly, a reward.
    return ("vacuous" if greatest < 1e-6 else "holds"), greatest, sentence


def alpha_condition() -> Answer:
    """t^(-alpha gap / 2) is at most 1 / I at the alpha that the theorem asks for, for all depths from 2 on."""
    gaps = (0.05, 0.1, 0.2, 0.5, 1.0)
    cases = list(itertools.product((10, EPOCHS, 450_000), gaps, range(2, MAX_DEPTH + 1)))
    met = 0
    for rounds, gap, clock in cases:
        bound = allocation_share_bound(min_alpha(rounds, gap), clock, gap)
        # At depth 2 both are equal but for rounding.
        met += bound <= 1 / rounds * (1 + 1e-9)
    # From alpha = 2 log I / (gap log 2), solved for the gap: what the printed alpha is enough for.
    enough = 2 * math.log(EPOCHS) / (PRINTED.alpha * math.log(2))
    sentence = (
        f"true in {met} of {len(cases)} cases. α must grow with the rounds: the printed 50 is enough in 400 rounds for gaps "
        f"of {enough:.2f} and more; a gap of 0.1 asks for {min_alpha(EPOCHS, 0.1):.0f}"
    )
    return _decide(met == len(cases), min_alpha(EPOCHS, 0.1), sentence)


def gamma_algebra() -> Answer:
    """omega at T_a = 16 log I / gap^2 is 0.25 for gamma = log 2 / T_a."""
    # 0.5 exp(-gamma T_a) is 0.5 / 2 whatever the gap and the rounds are, so one case is all.
    threshold = 16 * math.log(EPOCHS) / 0.5**2
    weight = novelty_weight(threshold, math.log(2) / threshold)
    return _decide(
        math.isclose(weight, 0.25),
        weight,
        f"ω({threshold:.0f}) = {weight:.2f} for a gap of 0.5 and 400 rounds",
    )


def gamma_used() -> Answer:
    """gamma = gap^2 log 2 / (16 log I): the gap that omega_k = 0.1 implies must be a difference of probabilities."""
    # Solved for the gap, with the epochs as rounds I; and with I = 2, where it is smallest.
    gap = math.sqrt(16 * math.log(EPOCHS) * OMEGA_K / math.log(2))
    least = math.sqrt(16 * math.log(2) * OMEGA_K / math.log(2))
    sentence = (
        f"the decay of 0.1 that is used asks for a gap of {gap:.1f} in 400 rounds, {least:.1f} in two; "
        "gaps are at most 1"
    )
    return _decide(least <= 1, gap, sentence)


def counts_alone() -> Answer:
    """S is exp(-alpha ln(t) N_success / N_total) behind an open gate: counts and depth decide it, which are observed."""
    cases = [
        (total, wins, clock)
        for total in (1, 5, 9, 20)
        for wins in range(1, total + 1)
        for clock in (1, 2, 7, MAX_DEPTH)
    ]
    other = 0
    for total, wins, clock in cases:
        # The guard of eq. 1 against a division by zero is 1e-6 visits.
        expected = math.exp(-PRINTED.alpha * math.log(clock) * wins / (total + PRINTED.eps))
        score = state_score(total, wins, clock, PRINTED, gate=False).score
        other += not math.isclose(score, expected, rel_tol=1e-9)
    shallow = state_score(10, 1, 2, PRINTED).score
    deep = state_score(10, 1, 7, PRINTED).score
    sentence = (
        f"eq. 1 has counts and depth in it, and no network; {other} of {len(cases)} scores are another number. Depth is "
        f"observed as counts are, and matters as much: after 1 success in 10 S is {shallow:.3f} at depth 2 and {deep:.0e} "
        "at depth 7. The counts come from sampled responses"
    )
    return _decide(other == 0, float(other), sentence)


FORMULAS: dict[str, Callable[[], Answer]] = {
    "score_falls_with_success": score_falls_with_success,
    "rollouts_of_figure_2": rollouts_of_figure_2,
    "single_sample": single_sample,
    "first_visit": first_visit,
    "tenth_visit": tenth_visit,
    "omega_schedule": omega_schedule,
    "novelty_first": novelty_first,
    "difference_later": difference_later,
    "scores_tell_apart": scores_tell_apart,
    "alpha_mechanism": alpha_mechanism,
    "harder_first": harder_first,
    "allocation_bound": allocation_bound,
    "regret": regret_is_logarithmic,
    "good_event": good_event,
    "finitely_often": finitely_often,
    "separation": separation,
    "alpha_condition": alpha_condition,
    "gamma_algebra": gamma_algebra,
    "gamma_used": gamma_used,
    "counts_alone": counts_alone,
}
