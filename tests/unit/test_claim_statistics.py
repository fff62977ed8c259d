"""Verdicts on claims: corrected within a table, over base policies, and with the seeds that they lack."""

import math

import numpy as np
import pytest
from scipy import stats

from tests.claims_evidence import judge, played
from tests.unit.test_claims import PLACE, SEEN, paper, study
from threespo.results.analysis.caveats import list_caveats, warn_of_few_seeds
from threespo.results.analysis.statistics import difference_interval, seeds_needed
from threespo.results.claims.finding import Finding, apply_holm, combine
from threespo.study.parts import Scope

__all__ = ["paper", "study"]
"""Fixtures."""

ABOVE = {"kind": "above", "upper": ["3spo"], "lower": ["grpo"], **SEEN}


def test_a_claim_is_decided_by_welchs_t_over_seeds(study, paper):
    episodes = played(study, {"threespo-literal": (38, 30, 34), "grpo": (2, 4, 3)})
    found = judge(study, paper, ABOVE, episodes=episodes).loc[PLACE]
    # Of three runs a share of 63 % that failed would not be seen once in twenty times.
    expected = difference_interval([95.0, 75.0, 85.0], [5.0, 10.0, 7.5], floor=0.0)
    assert (found["measured"], found["low"], found["high"], found["p"]) == pytest.approx(
        (expected.estimate, expected.low, expected.high, expected.p)
    )
    assert (found["verdict"], found["p_adjusted"]) == ("holds", found["p"])
    assert math.isnan(found["seeds_needed"]), "it is decided"


def test_an_undecided_claim_says_how_many_seeds_it_needs(study, paper):
    episodes = played(study, {"threespo-literal": (30, 20, 26), "grpo": (20, 22, 15)})
    found = judge(study, paper, ABOVE, episodes=episodes).loc[PLACE]
    assert found["verdict"] == "undecided"
    assert found["seeds_needed"] == seeds_needed([75.0, 50.0, 65.0], [50.0, 55.0, 37.5], floor=0.0)
    two = judge(study, paper, ABOVE, episodes=episodes[episodes["training_seed"] < 2]).loc[PLACE]
    assert two["verdict"] == "undecided"
    assert two["detail"] == "threespo-literal and grpo; needs at least 3 training seeds, has 2"
    assert (math.isnan(two["low"]), math.isnan(two["p"])) == (True, True)


def _row(verdict, p, **other):
    place = {"env": "e", "split": "s", "measure": "success", "policy": "a"}
    return {
        **place,
        **Finding(verdict, measured=p, low=1.0, high=2.0, p=p, seeds_needed=10.0).as_row(),
        **other,
    }


def test_holms_correction_takes_back_verdicts():
    rows = [_row("holds", 0.03), _row("fails", 0.01), _row("undecided", 0.4)]
    found = apply_holm(rows)
    assert [row["p_adjusted"] for row in found] == pytest.approx([0.06, 0.03, 0.4])
    assert [row["verdict"] for row in found] == ["undecided", "fails", "undecided"]
    assert found[0]["detail"] == "p is 0.03, and 0.06 by Holm's correction for 3 tests"
    # The level of the smallest p is a third of 5 %.
    scale = (stats.norm.isf(0.05 / 6) + stats.norm.isf(0.2)) / (
        stats.norm.isf(0.025) + stats.norm.isf(0.2)
    )
    assert found[0]["seeds_needed"] == found[2]["seeds_needed"] == math.ceil(10 * scale**2)
    assert math.isnan(found[1]["seeds_needed"])


def test_families_are_apart_and_one_test_counts_once():
    apart = [_row("holds", 0.03), _row("holds", 0.03, split="t"), _row("holds", 0.03, env="f")]
    apart += [_row("holds", 0.03, measure="training"), _row("holds", 0.03, method_of_paper=False)]
    assert [row["verdict"] for row in apply_holm([*apart, _row("holds", 0.03)])] == ["holds"] * 6
    measures = apply_holm([_row("holds", 0.03), _row("holds", 0.03, measure="score")])
    assert [row["verdict"] for row in measures] == ["undecided"] * 2, "one table has both"
    assert apply_holm([{"verdict": "open"}])[0]["verdict"] == "open"


def test_of_several_pairs_all_must_hold_and_any_may_fail():
    """An intersection needs no correction; a union needs one for its number."""
    pairs = {
        name: Finding("holds", 5, 1, 9, p=p) for name, p in (("a", 0.01), ("b", 0.04), ("c", 0.001))
    }
    assert (combine(pairs).verdict, combine(pairs).p) == ("holds", 0.04)
    pairs["d"] = Finding("fails", -5, -9, -1, p=0.02)
    assert (combine(pairs).verdict, combine(pairs).p) == ("fails", pytest.approx(0.08))


def test_three_base_policies_are_judged_together_too(study, paper):
    """By the spread between bases: 3SPO is 85, 75 and 100 points above GRPO on them, with no spread between seeds."""
    small = study.policies["tiny-s"]
    three = study.model_copy(update={"policies": dict.fromkeys(("one", "two", "three"), small)})
    ours = {"one": 40, "two": 40, "three": 40}
    wins = {("threespo-literal", name): (count,) * 3 for name, count in ours.items()}
    wins |= {("grpo", "one"): (6,) * 3, ("grpo", "two"): (10,) * 3, ("grpo", "three"): (0,) * 3}
    found = judge(three, paper, ABOVE, episodes=played(three, wins))
    assert [found.loc[(name, *PLACE[1:]), "verdict"] for name in ours] == ["holds"] * 3
    whole = found.loc[("one, two, three", *PLACE[1:])]
    # Student's t of 85, 75, 100 has two degrees of freedom. Of nine runs less than that may have failed unseen.
    half = 4.3027 * np.std([85, 75, 100], ddof=1) / math.sqrt(3)
    assert (whole["measured"], whole["high"]) == pytest.approx((260 / 3, 260 / 3 + half), abs=1e-3)
    assert whole["low"] == pytest.approx(260 / 3 - half, abs=1e-3)
    assert whole["verdict"] == "holds"
    # 100, 25 and 100 points are decided on each base by sixteen seeds, and vary too much between bases.
    wins = {
        ("threespo-literal", name): (count,) * 16 for name, count in zip(ours, (40, 10, 40), strict=True)
    }
    wins |= {("grpo", name): (0,) * 16 for name in ours}
    uneven = judge(three, paper, ABOVE, episodes=played(three, wins))
    assert [uneven.loc[(name, *PLACE[1:]), "verdict"] for name in ours] == ["holds"] * 3
    whole = uneven.loc[("one, two, three", *PLACE[1:])]
    half = 4.3027 * np.std([100, 25, 100], ddof=1) / math.sqrt(3)
    assert (whole["measured"], whole["high"]) == pytest.approx((75, 75 + half), abs=1e-2)
    assert (whole["low"] < 0, whole["verdict"]) == (True, "undecided")
    two = three.model_copy(update={"policies": dict.fromkeys(("one", "two"), small)})
    apart = judge(two, paper, ABOVE, episodes=played(two, wins))
    assert set(apart.index.get_level_values("policy")) == {"one", "two"}


def test_another_method_may_stand_for_a_row_on_one_base(study, paper):
    """GRPO is run on the third base under another name, with settings of its own: the same numbers, the same verdict."""
    small, grpo = study.policies["tiny-s"], study.methods["grpo"]
    three = study.model_copy(update={"policies": dict.fromkeys(("one", "two", "three"), small)})
    wins = {("threespo-literal", name): (40,) * 3 for name in three.policies}
    wins |= {("grpo", "one"): (20,) * 3, ("grpo", "two"): (25,) * 3, ("grpo", "three"): (30,) * 3}
    whole = judge(three, paper, ABOVE, episodes=played(three, wins)).loc[("one, two, three", *PLACE[1:])]

    methods = {**three.methods, "grpo": grpo.model_copy(update={"parts": ("main",)})}
    methods |= {"grpo-three": grpo.model_copy(update={"parts": ("sensitivity",)})}
    parts = {"main": Scope(policies=("one", "two")), "sensitivity": Scope(policies=("three",))}
    split = three.model_copy(update={"methods": methods, "parts": {**three.parts, **parts}})
    wins["grpo-three", "three"] = wins.pop(("grpo", "three"))
    apart = judge(split, paper, ABOVE, episodes=played(split, wins)).loc[("one, two, three", *PLACE[1:])]
    assert whole["measured"] == pytest.approx(37.5)
    assert (
        apart[["measured", "low", "high", "verdict"]].tolist()
        == whole[["measured", "low", "high", "verdict"]].tolist()
    )


def test_a_study_of_two_seeds_is_told_what_it_lacks(study):
    two = study.model_copy(update={"seeds": (0, 1)})
    line = "2 training seeds: intervals and verdicts need at least 3, so no method is said to be above another."
    assert warn_of_few_seeds(two).startswith(line)
    assert warn_of_few_seeds(two) in list_caveats(two)
    three = study.model_copy(update={"seeds": (0, 1, 2)})
    assert warn_of_few_seeds(three) is None
    assert not any("training seeds:" in sentence for sentence in list_caveats(three))
