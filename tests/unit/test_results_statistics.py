"""Statistics against scipy's own tests, printed tables, closed forms and properties."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from threespo.results.analysis.holm import adjust_by_holm
from threespo.results.analysis.statistics import (
    Interval,
    cluster_interval,
    contrast_interval,
    difference_interval,
    difference_to_policy,
    equivalence_interval,
    interval_over_policies,
    mean_interval,
    ratio_interval,
    seeds_needed,
    seeds_needed_for_contrast,
    task_error,
)
from threespo.results.analysis.summaries import (
    interval_unit,
    method_difference,
    summarize,
    task_clusters,
)

FIRST, SECOND = [61.0, 55.5, 70.0, 63.0], [50.0, 52.0, 49.5, 53.0]
ALONE = list("abcdefghij")
"""Ten tasks, each a cluster of its own."""


def test_the_mean_has_students_interval():
    # Values 1, 2, 3: mean 2, standard error 1/sqrt(3), t(0.975, 2) = 4.303.
    found = mean_interval([1.0, 2.0, 3.0])
    assert (found.low, found.high) == pytest.approx(
        (2 - 4.3027 / math.sqrt(3), 2 + 4.3027 / math.sqrt(3)), abs=1e-4
    )
    assert found.p == pytest.approx(stats.ttest_1samp([1, 2, 3], 0).pvalue)
    assert mean_interval([1.0, 2.0, 3.0], null=2.0).p == 1.0


def test_a_difference_is_welchs_with_degrees_of_freedom_rounded_down():
    welch = stats.ttest_ind(FIRST, SECOND, equal_var=False)
    freedom, found = math.floor(welch.df), difference_interval(FIRST, SECOND)
    assert found.estimate == pytest.approx(np.mean(FIRST) - np.mean(SECOND))
    assert found.p == pytest.approx(2 * stats.t.sf(welch.statistic, freedom))
    half = found.estimate / welch.statistic * stats.t.ppf(0.975, freedom)
    assert (found.low, found.high) == pytest.approx((found.estimate - half, found.estimate + half))
    exact = welch.confidence_interval()
    assert found.low < exact.low < exact.high < found.high
    back = difference_interval(SECOND, FIRST)
    assert (back.low, back.high, back.p) == pytest.approx((-found.high, -found.low, found.p))


def test_equal_spreads_have_all_degrees_of_freedom():
    """Where the two variances are equal, Welch's test is Student's."""
    shifted = [value + 4 for value in FIRST]
    assert difference_interval(shifted, FIRST).p == pytest.approx(stats.ttest_ind(shifted, FIRST).pvalue)


def test_with_unequal_numbers_the_smaller_one_decides():
    many = [*SECOND, 51.0, 50.5]
    found, welch = difference_interval(FIRST, many), stats.ttest_ind(FIRST, many, equal_var=False)
    assert found.p == pytest.approx(2 * stats.t.sf(welch.statistic, 3))


@pytest.mark.parametrize("few", [[], [50.0], [50.0, 51.0]])
def test_fewer_than_three_seeds_have_no_interval(few):
    for found in (
        difference_interval(few, FIRST),
        difference_interval(FIRST, few),
        mean_interval(few),
        equivalence_interval(FIRST, few, 5),
    ):
        assert all(math.isnan(end) for end in (found.low, found.high, found.p))
    assert mean_interval([50.0, 51.0]).estimate == 50.5


def test_arms_without_any_spread_have_that_of_their_tasks_or_decide_nothing():
    for found in (mean_interval([72.0] * 3), difference_interval([72.0] * 3, [0.0] * 3)):
        assert (found.estimate, math.isnan(found.low), math.isnan(found.p)) == (72, True, True)
    # 108 of 150: the binomial's standard error is 3.67 points, with the degrees of freedom of three seeds.
    won = np.repeat([100.0, 0.0], [108, 42])
    error = math.sqrt(72 * 28 / 149)
    assert task_error(won, range(150)) == pytest.approx(error)
    found = mean_interval([72.0] * 3, least_error=error)
    assert found.high - 72 == pytest.approx(stats.t.ppf(0.975, 2) * error)
    # All of 150: as if one more or less were, 100/150 of a point.
    assert task_error(np.full(150, 100.0), range(150)) == pytest.approx(100 / 150)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0, 100), min_size=3, max_size=6), st.integers(0, 2**32), st.floats(0, 20))
def test_tasks_and_failed_runs_never_narrow_an_interval(first, key, error):
    """Nor does the side from which arms are seen, nor p that contradicts the interval."""
    second = np.random.default_rng(key).uniform(0, 100, len(first)).tolist()
    plain = difference_interval(first, second)
    found = difference_interval(first, second, floor=0.0, least_error=error)
    assert found.low <= plain.low
    assert plain.high <= found.high
    assert found.p >= plain.p - 1e-12
    assert (found.p < 0.05) == (not found.low <= 0 <= found.high)
    back = difference_interval(second, first, floor=0.0, least_error=error)
    assert (back.low, back.high, back.p) == pytest.approx((-found.high, -found.low, found.p))
    # The better arm higher by 10 points: not less decided.
    better, worse = (first, second) if found.estimate > 0 else (second, first)
    higher = difference_interval([value + 10 for value in better], worse, floor=0.0, least_error=error)
    assert higher.p <= found.p + 1e-12


@pytest.mark.parametrize("runs", [3, 5, 8, 12])
def test_a_share_of_runs_that_never_was_seen_bounds_what_is_decided(runs):
    """Without spread all that counts is how often no failed run is seen: (1 - q)^n is 5 % where q is this share."""
    share = 1 - 0.05 ** (1 / runs)
    for margin, is_decided in ((0.01, True), (-0.01, False)):
        other = 80 * (1 - share - margin)
        found = difference_interval([80.0] * runs, [other] * runs, floor=0.0, least_error=1e-6)
        assert (found.p < 0.05) == is_decided
    # Runs that end no lower than 60 lose a quarter as much; runs that cannot fail lose nothing.
    assert difference_interval([80.0] * runs, [70.0] * runs, floor=60.0, least_error=1.0).p < (
        0.05 if runs > 3 else 0.5
    )
    certain = difference_interval([80.0] * runs, [70.0] * runs, floor=math.inf, least_error=1.0)
    assert certain == difference_interval([80.0] * runs, [70.0] * runs, least_error=1.0)


def test_seeds_that_share_a_base_are_pairs_of_one_unit():
    # Six seeds of three bases: pairs differ by 10, 12 | 20, 22 | 30, 32, so bases by 11, 21, 31.
    second = [10.0, 50.0, 90.0, 12.0, 52.0, 88.0]
    first = [value + gap for value, gap in zip(second, (10, 20, 30, 12, 22, 32), strict=True)]
    found = difference_interval(first, second, units=[0, 1, 2, 0, 1, 2])
    expected = mean_interval([11.0, 21.0, 31.0])
    assert (found.low, found.high, found.p) == pytest.approx((expected.low, expected.high, expected.p))
    paired = difference_interval(first, second, units=range(6))
    assert paired.p == pytest.approx(stats.ttest_rel(first, second).pvalue)
    assert paired.p < difference_interval(first, second).p
    assert math.isnan(difference_interval(first, second, units=[0, 1] * 3).low), "two bases"
    guarded = difference_interval(first, second, units=range(6), floor=0.0)
    assert guarded.p > paired.p
    with pytest.raises(ValueError, match="6 values of 5"):
        difference_interval(first, second, units=range(5))


@pytest.mark.parametrize("bases", [3, 6])
def test_what_failed_unseen_is_a_run_and_not_the_base_that_it_shares(bases):
    """Six runs without spread: decided from the share on that six runs would show, on three bases as on six."""
    share = 1 - 0.05 ** (1 / 6)
    for margin, is_decided in ((0.01, True), (-0.01, False)):
        other = 80 * (1 - share - margin)
        found = difference_interval(
            [80.0] * 6,
            [other] * 6,
            units=[seed % bases for seed in range(6)],
            floor=0.0,
            least_error=1e-6,
        )
        assert (found.p < 0.05) == is_decided


def test_a_contrast_of_four_is_the_difference_of_two_differences():
    terms = [(1.0, FIRST), (-1.0, SECOND), (-1.0, SECOND), (1.0, FIRST)]
    twice, once = contrast_interval(terms), difference_interval(FIRST, SECOND)
    assert twice.estimate == pytest.approx(2 * once.estimate)
    # Twice the variance of one difference is sqrt(2) times its error, at twice its degrees of freedom.
    freedom = math.floor(2 * stats.ttest_ind(FIRST, SECOND, equal_var=False).df)
    error = once.estimate / stats.ttest_ind(FIRST, SECOND, equal_var=False).statistic * math.sqrt(2)
    assert twice.high - twice.estimate == pytest.approx(stats.t.ppf(0.975, freedom) * error)


def test_a_ratio_is_a_difference_of_logarithms():
    found = ratio_interval([200.0, 220.0, 240.0], [100.0, 110.0, 120.0])
    assert found.estimate == pytest.approx(2)
    assert found.low * found.high == pytest.approx(4)
    assert ratio_interval([1.0, 2.0, 4.0], [4.0, 2.0, 1.0]) == Interval(
        1, pytest.approx(1 / 8.0, rel=1), pytest.approx(8, rel=1), 1
    )
    assert math.isnan(ratio_interval([1.0, 0.0, 2.0], [1.0, 2.0, 3.0]).estimate)


def test_equivalence_is_two_one_sided_tests():
    close, margin = [value + 0.5 for value in SECOND], 6.0
    found, welch = (
        equivalence_interval(close, SECOND, margin),
        stats.ttest_ind(close, SECOND, equal_var=False),
    )
    ninety = welch.confidence_interval(0.9)
    assert (found.low, found.high) == pytest.approx((ninety.low, ninety.high))
    sides = [stats.ttest_ind(close, np.add(SECOND, sign * margin), alternative=side).pvalue
             for sign, side in ((1, "less"), (-1, "greater"))]  # fmt: skip
    assert found.p == pytest.approx(max(sides))
    far = equivalence_interval(FIRST, SECOND, 2.0)
    assert (far.low > 2, far.p < 0.05) == (True, True)
    unsure = equivalence_interval(FIRST, SECOND, 11.0)
    assert (unsure.low < 11 < unsure.high, unsure.p > 0.05) == (True, True)


def test_holms_correction_of_a_worked_example():
    # Holm (1979): the smallest times 4, the next times 3, never falling, never above 1.
    nan = math.nan
    assert adjust_by_holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    found = adjust_by_holm([0.02, nan, 0.9, 0.8])
    assert math.isnan(found[1])
    assert [found[0], *found[2:]] == pytest.approx([0.06, 1.0, 1.0])
    assert adjust_by_holm([]) == []


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_lies_between_no_correction_and_bonferronis_in_the_same_order(p):
    adjusted = adjust_by_holm(p)
    assert all(
        one <= other <= min(1, len(p) * one) + 1e-12 for one, other in zip(p, adjusted, strict=True)
    )
    assert [adjusted[i] for i in np.argsort(p)] == sorted(adjusted)


def test_the_seeds_needed_have_the_power_that_they_promise():
    """By simulation: with the number returned 80 % of studies decide, with one less fewer do."""
    # Means 12 and spreads 8 and 4 apart, exactly.
    first, second = [12 - 8 / math.sqrt(2), 12 + 8 / math.sqrt(2)], [-4 / math.sqrt(2), 4 / math.sqrt(2)]
    needed = seeds_needed(first, second)
    random = np.random.default_rng(1)

    def power(count):
        arms = ((random.normal(12, 8, count), random.normal(0, 4, count)) for _ in range(3000))
        return np.mean([difference_interval(a, b).p < 0.05 for a, b in arms])

    assert power(needed) > 0.78
    assert power(needed - 2) < 0.78


def test_what_no_number_of_seeds_decides():
    assert seeds_needed([1.0], FIRST) is None, "one seed has no spread"
    assert seeds_needed(FIRST, FIRST) is None, "no difference"
    assert seeds_needed([0.0, 100.0], [0.01, 100.0]) is None, "more than a thousand"
    assert seeds_needed([1.0, 1.0], [2.0, 2.0]) is None, "no spread was seen"
    assert seeds_needed(FIRST, SECOND, floor=0.0) > seeds_needed(FIRST, SECOND)
    assert (
        seeds_needed(FIRST, SECOND)
        == seeds_needed_for_contrast([(1.0, FIRST), (-1.0, SECOND)])
        < seeds_needed(FIRST, SECOND, null=5.0)
    )


def test_tasks_that_stand_alone_have_the_interval_of_a_mean():
    values = np.arange(10.0)
    alone, plain = cluster_interval(values, ALONE), mean_interval(list(values))
    assert (alone.low, alone.high, alone.p) == pytest.approx((plain.low, plain.high, plain.p))


def test_clusters_of_equal_tasks_count_once():
    """Each task five times is one task: the same interval as without repetition."""
    values = np.array([0.0, 30.0, 100.0, 60.0])
    repeated = cluster_interval(np.repeat(values, 5), np.repeat(list("abcd"), 5).tolist())
    plain = mean_interval(list(values))
    assert (repeated.low, repeated.high) == pytest.approx((plain.low, plain.high))
    assert math.isnan(cluster_interval(np.arange(10.0), ["a"] * 5 + ["b"] * 5).low), (
        "two clusters are too few"
    )


def test_a_single_policys_difference_has_both_variances():
    policy, seeds = np.arange(10.0), np.array([[1.0], [2.0], [3.0]]) + np.arange(10.0)
    # The gaps are the same in each task, so only seeds vary.
    found, plain = difference_to_policy(seeds, policy, ALONE), mean_interval([1.0, 2.0, 3.0])
    assert (found.estimate, found.low, found.high) == pytest.approx((2, plain.low, plain.high))
    # All seeds alike: only tasks vary, and the degrees of freedom stay those of three seeds.
    equal = difference_to_policy(np.tile(policy * 2, (3, 1)), policy, ALONE)
    assert equal.high - equal.estimate == pytest.approx(stats.t.ppf(0.975, 2) * stats.sem(policy))
    both = difference_to_policy(seeds + policy, policy, ALONE)
    error = math.hypot(stats.sem(policy), stats.sem([1, 2, 3]))
    assert both.high - both.estimate == pytest.approx(stats.t.ppf(0.975, 2) * error)
    assert math.isnan(difference_to_policy(seeds[:2], policy, ALONE).low)


def test_bases_count_once_each():
    first, second = [[13.0, 15.0], [26.0, 26.0], [37.0, 39.0]], [[10.0], [20.0], [30.0]]
    found, expected = interval_over_policies(first, second), mean_interval([4.0, 6.0, 8.0])
    assert (found.low, found.high, found.p) == pytest.approx((expected.low, expected.high, expected.p))
    assert math.isnan(interval_over_policies(first[:2], second[:2]).low)
    # What fails is a run: the more of them were seen, on whichever policy, the less can have been missed.
    first = [[80.0], [82.0], [81.0]]
    expected = interval_over_policies(first, second[:1] * 3)
    ends = [
        interval_over_policies([seeds * many for seeds in first], second[:1] * 3, floor=0.0).low
        for many in (1, 3, 9)
    ]
    assert ends[0] < ends[1] < ends[2] <= expected.low


def test_mean_and_spreads_of_a_worked_example():
    # Two training seeds, two evaluation seeds, four games: seed means 50 and 75, evaluation spreads 0 and 35.36.
    success = np.array([[[1, 1, 0, 0], [0, 0, 1, 1]], [[1, 1, 1, 1], [1, 1, 0, 0]]])
    summary = summarize(success, list("abcd"))
    assert summary.mean == pytest.approx(62.5)
    assert summary.std == pytest.approx(25 / math.sqrt(2))
    assert summary.evaluation_std == pytest.approx((0 + 50 / math.sqrt(2)) / 2)
    assert (math.isnan(summary.low), interval_unit(2)) == (True, "")


def test_one_seed_is_a_single_policy_judged_over_clusters():
    success = np.array([[[1, 0] * 50]])
    summary = summarize(success, range(100))
    assert (math.isnan(summary.std), interval_unit(1)) == (True, "clusters of tasks")
    # Binomial, n = 100, p = 0.5: two standard errors of 5 points.
    assert (summary.low, summary.high) == pytest.approx((40, 60), abs=0.1)
    half = summarize(success, [place // 2 for place in range(100)])
    # Each cluster has one win in two, so clusters do not vary: the error is that of one task.
    assert half.high - 50 == pytest.approx(stats.t.ppf(0.975, 49))


@settings(max_examples=40, deadline=None)
@given(st.integers(3, 6), st.integers(1, 3), st.integers(1, 12), st.integers(0, 2**32), st.floats(0, 1))
def test_summaries_stay_in_range(seeds, evaluations, games, key, rate):
    success = np.random.default_rng(key).random((seeds, evaluations, games)) < rate
    summary = summarize(success, range(games))
    assert 0 <= summary.low <= summary.mean + 1e-9
    assert summary.mean - 1e-9 <= summary.high <= 100
    assert summary.mean == pytest.approx(100 * success.mean())


@pytest.mark.parametrize(("env", "tasks", "clusters"), [
    ("alfworld", ["look_at_obj_in_light-Book-None-DeskLamp-203/trial_T1", "pick_and_place_simple-Mug-None-Desk-203/trial_T2",
                  "pick_two_obj_and_place-AppleSliced-None-Desk-20/trial_T2"], ["203", "203", "20"]),
    ("webshop", ["B01ABC/0", "B01ABC/16", "B01ABC/human-1", "B01ABD/0"], ["B01ABC", "B01ABC", "B01ABC", "B01ABD"]),
])  # fmt: skip
def test_games_of_a_floor_and_goals_of_a_product_are_clusters(env, tasks, clusters):
    assert task_clusters(env, tasks) == clusters


def _played(wins):
    rows = [
        {
            "env": "alfworld",
            "method": method,
            "training_seed": seed,
            "evaluation_seed": 1,
            "task_id": task,
            "success": won,
        }
        for method, seeds in wins.items()
        for seed, of_seed in enumerate(seeds)
        for task, won in zip(TASKS, of_seed, strict=True)
    ]
    return pd.DataFrame(rows)


TASKS = [
    f"look-Book-None-DeskLamp-{floor}/trial_{number}"
    for floor in (201, 307, 316, 330)
    for number in range(2)
]
"""Two games of each of four floors."""


def test_what_is_compared_decides_the_kind_of_interval():
    base, react = [1, 1, 0, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1, 0, 0]
    ours = [[1, 1, 1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 0, 0, 0]]
    played = _played({"base": [base], "react": [react], "ours": ours, "grpo": [base, react, base]})

    def found(*pair):
        return method_difference(played, pair, "success", {"ours", "grpo"})

    gaps = np.mean(ours, axis=0) - np.mean([base, react, base], axis=0)
    assert found("ours", "grpo") == difference_interval(
        [87.5, 75.0, 62.5],
        [25.0, 75.0, 25.0],
        floor=0.0,
        least_error=task_error(100.0 * gaps, [task.split("/")[0] for task in TASKS]),
    )
    # Floors, not games: gaps of the four floors are 0, 100, 100 and 0.
    assert found("react", "base").low == pytest.approx(mean_interval([0.0, 100.0, 100.0, 0.0]).low)
    clusters = [task.split("/")[0] for task in TASKS]
    gain, loss = found("ours", "base"), found("base", "ours")
    assert gain == difference_to_policy(
        100.0 * np.array(ours), 100.0 * np.array(base), clusters, floor=0.0
    )
    assert (loss.estimate, loss.low, loss.high, loss.p) == (
        -gain.estimate,
        -gain.high,
        -gain.low,
        gain.p,
    )


def test_bases_pair_trained_seeds_with_their_own_base():
    """Four seeds on two floors' worth of chances each: the gain of a seed is on the base that it started from."""
    worse, better = [1, 0, 0, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1, 0, 0]
    middle = [1, 1, 1, 1, 0, 0, 0, 0]
    plus_one = [[1, 1, 0, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 0, 0, 0]]
    plus_two = [[1, 1, 1, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 0, 0]]
    played = _played(
        {"base": [worse, better, middle], "ours": plus_one + plus_two, "grpo": plus_one * 2}
    )
    units = {seed: seed % 3 for seed in range(6)}
    gain = method_difference(played, ("ours", "base"), "success", {"ours", "grpo"}, units=units)
    # Every base gains one game and two: 1.5 of 8. No spread between bases, so the tasks' error decides.
    clusters = [task.split("/")[0] for task in TASKS]
    rise = 100.0 * (np.mean(plus_one + plus_two, axis=0) - np.mean([worse, better, middle], axis=0))
    assert gain.estimate == pytest.approx(100 * 1.5 / 8)
    by_tasks = stats.t.ppf(0.975, 2) * task_error(rise, clusters)
    assert gain.high - gain.estimate == pytest.approx(by_tasks), "a base cannot fail"
    loss = method_difference(played, ("base", "ours"), "success", {"ours", "grpo"}, units=units)
    assert (loss.low, loss.high, loss.p) == pytest.approx((-gain.high, -gain.low, gain.p))
    apart, paired = (
        method_difference(
            played, ("ours", "grpo"), "success", {"ours", "grpo"}, units=kind, floor=math.inf
        )
        for kind in (None, units)
    )
    assert paired.estimate == pytest.approx(apart.estimate) == pytest.approx(100 * 0.5 / 8)
    assert paired.high - paired.low < apart.high - apart.low
