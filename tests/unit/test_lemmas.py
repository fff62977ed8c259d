"""The lemmas of the paper's theory: verdicts that agree with the claims, and bounds against closed forms."""

import math

import numpy as np
import pytest
from scipy import stats

from threespo.results.claims.formulas import FORMULAS
from threespo.results.claims.lemmas import LEMMAS, lemma_table
from threespo.theory.bandit import PROBABILITIES
from threespo.theory.bounds import (
    REPAIRED_RADIUS,
    bad_event_probability,
    bound_curves,
    weight_schedule_gamma,
)


@pytest.fixture(scope="module")
def judged():
    return lemma_table().set_index("lemma")


def test_what_holds_as_printed_is_what_the_claims_say(judged):
    for lemma in LEMMAS:
        holds = FORMULAS[lemma.formula]()[0] == "holds"
        assert (judged.loc[lemma.statement, "verdict"] == "holds") == holds
        assert not (holds and lemma.repair), "what holds needs no repair"


def test_each_kind_of_verdict_occurs_and_a_repair_has_its_numbers(judged):
    assert judged["verdict"].value_counts().to_dict() == {
        "holds with a repair": 5,
        "holds": 2,
        "fails": 1,
    }
    repaired = judged["verdict"] == "holds with a repair"
    assert (judged.loc[repaired, ["repair", "with_repair"]] != "").all(axis=None)
    assert (judged.loc[~repaired, ["repair", "with_repair"]] == "").all(axis=None)


@pytest.mark.parametrize("draws", [10, 100, 2000])
def test_the_bad_event_is_the_binomials(draws):
    radius = math.sqrt(REPAIRED_RADIUS * math.log(draws) / draws)
    wins = np.arange(draws + 1)
    inside = 1.0
    for truth in PROBABILITIES:
        near = np.abs(wins / draws - truth) <= radius
        inside *= stats.binom.pmf(wins[near], draws, truth).sum()
    assert bad_event_probability(
        PROBABILITIES, draws, REPAIRED_RADIUS * math.log(draws)
    ) == pytest.approx(1 - inside, abs=1e-9)


def test_the_texts_radius_keeps_its_probability_and_the_repaired_one_falls_faster_than_claimed():
    coverage = bound_curves().query("panel == 'coverage'").pivot(index="x", columns="series", values="y")
    late = coverage[coverage.index >= 100]
    # The four actions' rates are normal then: P(|z| > sqrt(log 4 / (p (1 - p)))) for each.
    kept = [2 * stats.norm.sf(math.sqrt(math.log(4) / (p * (1 - p)))) for p in PROBABILITIES]
    assert late["radius of the text"].iloc[-1] == pytest.approx(
        1 - np.prod(1 - np.array(kept)), rel=0.05
    )
    assert (late["repaired"] < late["claimed, 1/i²"]).all()


def test_omega_crosses_at_ln_2_over_its_decay_and_the_theorems_much_later():
    omega = bound_curves().query("panel == 'omega'").pivot(index="x", columns="series", values="y")
    assert (omega["ω"] > 0.25).sum() == math.floor(math.log(2) / 0.1) + 1
    assert omega["ω"].to_numpy() == pytest.approx(0.5 - omega["0.5 − ω"].to_numpy())
    # T_a = 16 log I / gap^2: 96 visits for the greatest gap in 400 rounds.
    assert math.log(2) / weight_schedule_gamma(400, 1.0) == pytest.approx(16 * math.log(400))


def test_the_score_is_never_nearer_than_its_bound_and_the_ceiling_breaks_the_share():
    found = bound_curves()
    separation = found[found["panel"] == "separation"].pivot(index="x", columns="series", values="y")
    for alpha in ("50", "1"):
        assert (separation[f"S, α = {alpha}"] >= separation[f"bound, α = {alpha}"]).all()
    share = found[found["panel"] == "allocation"].pivot(index="x", columns="series", values="y")
    assert (share["without the ceiling"] <= share["bound"]).all()
    assert (share["as printed"] == 0.5).all(), "each open action has one rollout"
