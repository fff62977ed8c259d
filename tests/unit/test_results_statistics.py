"""Statistics against closed forms and properties."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from threespo.results.statistics import bootstrap_interval, difference_interval, summarize, t_interval


def test_mean_and_spreads_of_a_worked_example():
    # Two training seeds, two evaluation seeds, four games: seed means 50 and 75, evaluation spreads 0 and 35.36.
    success = np.array([[[1, 1, 0, 0], [0, 0, 1, 1]], [[1, 1, 1, 1], [1, 1, 0, 0]]])
    summary = summarize(success, key=1)
    assert summary.mean == pytest.approx(62.5)
    assert summary.std == pytest.approx(25 / math.sqrt(2))
    assert summary.evaluation_std == pytest.approx((0 + 50 / math.sqrt(2)) / 2)


def test_the_t_interval_is_students():
    # Values 1, 2, 3: mean 2, standard error 1/sqrt(3), t(0.975, 2) = 4.303.
    low, high = t_interval(np.array([1.0, 2.0, 3.0]))
    assert (low, high) == (pytest.approx(2 - 4.303 / math.sqrt(3)), pytest.approx(2 + 4.303 / math.sqrt(3)))
    assert all(math.isnan(end) for end in t_interval(np.array([1.0])))


@pytest.mark.parametrize(("freedom", "quantile"), [(10, 2.2281), (11, 2.2010), (20, 2.0860), (60, 2.0003), (1000, 1.9623)])
def test_t_quantiles_are_those_of_the_printed_tables(freedom, quantile):
    values = np.array([-1.0, 1.0] + [0.0] * (freedom - 1))
    low, high = t_interval(values)
    assert (high - low) / 2 == pytest.approx(quantile * values.std(ddof=1) / math.sqrt(freedom + 1), rel=2e-4)


def test_one_seed_has_no_spread_but_an_interval():
    summary = summarize(np.array([[[1, 0] * 50]]), key=1)
    assert math.isnan(summary.std)
    assert math.isnan(summary.evaluation_std)
    # Binomial, n = 100, p = 0.5: 1.96 standard errors of 5 points.
    assert summary.low == pytest.approx(50 - 9.8, abs=1.5)
    assert summary.high == pytest.approx(50 + 9.8, abs=1.5)


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    random = np.random.default_rng(0)
    covered = 0
    for trial in range(200):
        values = 100.0 * (random.random((1, 100)) < 0.3)
        low, high = bootstrap_interval(values, key=trial, resamples=400)
        covered += low <= 30.0 <= high
    assert 180 <= covered <= 199


def test_differences_are_paired_by_game():
    # Hard and easy games for both, the first always 10 points above: pairing leaves nothing to vary.
    games = np.tile([0.0, 80.0], 50)[None]
    assert difference_interval(games + 10, games, key=1) == (pytest.approx(10), pytest.approx(10))
    low, high = difference_interval(games, games[:, ::-1], key=1)
    assert low < 0 < high


def test_seeds_that_differ_widen_the_interval():
    games = np.tile([0.0, 100.0], 50)
    equal = bootstrap_interval(np.stack([games, games, games]), key=3)
    apart = bootstrap_interval(np.stack([games * 0, games, games * 0 + 100]), key=3)
    assert apart[1] - apart[0] > 2 * (equal[1] - equal[0])


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 12), st.integers(0, 2**32), st.floats(0, 1))
def test_summaries_stay_in_range_and_repeat(seeds, evaluations, games, key, rate):
    success = np.random.default_rng(key).random((seeds, evaluations, games)) < rate
    summary = summarize(success, key)
    assert 0 <= summary.low <= summary.high <= 100
    assert summary.mean == pytest.approx(100 * success.mean())
    again = summarize(success, key)
    assert (again.low, again.high) == (summary.low, summary.high)
