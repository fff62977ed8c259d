"""When a grid of learning rates is extended, by which rate, and when not."""

import itertools
import math

import numpy as np
import pytest

from threespo.runs.rate_grid import TriedRates, round_to_half_decade
from threespo.settings import MAX_LEARNING_RATE

GAMES = 100


def played(wins):
    """A policy that wins the first games."""
    return np.arange(GAMES) < wins


def tried(base, **wins_by_rate):
    """Rates by names such as ``r3e_5``, each with the wins of its trials."""
    rates = {float(name[1:].replace("_", "-")): wins for name, wins in wins_by_rate.items()}
    trials = {
        rate: np.stack([played(won) for won in wins]).astype(float) for rate, wins in rates.items()
    }
    return TriedRates(played(base).astype(float), trials)


def test_a_best_rate_between_worse_ones_ends_the_search():
    found = tried(20, r3e_5=[30, 34], r1e_4=[50, 52], r3e_4=[10, 12])
    assert (found.best, found.edge, found.next_rate(3.0)) == (1e-4, None, None)
    assert found.mean(1e-4) == pytest.approx(0.51)
    assert found.by_trial(3e-5) == [0.30, 0.34]


def test_the_next_rate_lies_beyond_the_edge_that_won():
    assert tried(20, r3e_5=[60], r1e_4=[50], r3e_4=[40]).next_rate(3.0) == 1e-5
    assert tried(20, r3e_5=[40], r1e_4=[50], r3e_4=[60]).next_rate(3.0) == 1e-3
    # Of equal means the smaller rate is the best, and here it is an edge.
    assert tried(20, r3e_5=[60], r1e_4=[60]).next_rate(3.0) == 1e-5


def test_below_the_rate_whose_trials_are_the_base_there_is_nothing_to_find():
    # Worse than the base wherever it learns: the best is the rate that changes nothing.
    plateau = tried(50, r1e_6=[50, 51], r3e_6=[30, 20], r1e_5=[0, 0])
    assert (plateau.best, plateau.edge, plateau.equals_base(1e-6)) == (1e-6, None, True)
    assert not plateau.equals_base(3e-6)
    # One that is clearly worse than the base does not end the search, although it is the best of what was tried.
    worse = tried(50, r3e_5=[30, 35], r1e_4=[0, 0])
    assert (worse.edge, worse.next_rate(3.0)) == ("lower", 1e-5)
    # Nor two trials whose mean is the base's, one far above and one far below it.
    apart = tried(50, r3e_5=[80, 20], r1e_4=[0, 0])
    assert apart.mean(3e-5) == pytest.approx(0.5)
    assert (apart.equals_base(3e-5), apart.edge) == (False, "lower")


def test_rates_that_all_leave_the_base_as_it_is_are_too_small():
    flat = tried(50, r1e_6=[51], r3e_6=[50])
    assert (flat.best, flat.edge, flat.next_rate(3.0)) == (1e-6, "upper", 1e-5)


def test_what_counts_as_the_base_is_the_interval_of_the_paired_difference():
    """Of n games k are won in addition and none is lost: the mean is k/n, its variance k/n (1 - k/n) / (n - 1)."""
    for more in range(30):
        share = more / GAMES
        half_width = 1.96 * math.sqrt(share * (1 - share) / (GAMES - 1))
        assert tried(40, r1e_6=[40 + more]).equals_base(1e-6) == (share <= half_width)
    assert tried(40, r1e_6=[43]).equals_base(1e-6)
    assert not tried(40, r1e_6=[44]).equals_base(1e-6)
    single = TriedRates(np.ones(1), {1e-6: np.ones((1, 1)), 1e-5: np.zeros((1, 1))})
    assert (single.equals_base(1e-6), single.equals_base(1e-5)) == (True, False)


def test_each_trial_is_compared_with_the_base_that_it_started_from():
    bases = np.stack([played(20), played(60)]).astype(float)
    same = {1e-6: np.stack([played(20), played(61)]).astype(float)}
    exchanged = {1e-6: np.stack([played(60), played(20)]).astype(float)}
    assert TriedRates(bases, same).equals_base(1e-6)
    # Their mean is that of the bases, but neither trial is its own base.
    assert not TriedRates(bases, exchanged).equals_base(1e-6)


def test_half_decades_are_the_numbers_that_study_files_have():
    assert [round_to_half_decade(rate) for rate in (9e-5, 3.4e-5, 2.7e-6, 1e-3 / 3, 30 * 1.0)] == [
        1e-4,
        3e-5,
        3e-6,
        3e-4,
        30.0,
    ]


@pytest.mark.parametrize("factor", [2.0, 3.0, 10.0, 100.0])
def test_every_extension_leaves_what_was_tried(factor):
    for digits, exponent in itertools.product(range(10, 100), (-7, -4, 0)):
        rate = digits / 10 * 10.0**exponent
        assert round_to_half_decade(rate * factor) > rate * 1.05
        assert round_to_half_decade(rate / factor) < rate / 1.05


def test_no_rate_beyond_the_largest_that_a_study_may_have_is_tried():
    found = tried(20, r1e0=[30], r3e0=[40])
    assert found.next_rate(3.0) == MAX_LEARNING_RATE == 10.0
    assert tried(20, r1e0=[30], r1e1=[40]).next_rate(3.0) is None


def test_steps_down_from_any_edge_end_at_the_base():
    """A method that loses 1000 times its rate, in points: the search goes down until the loss is within the noise."""
    base = 60
    rates = [1e-2, 3e-2]
    found = []
    for _ in range(8):
        results = {rate: np.stack([played(base - 1000 * rate)]).astype(float) for rate in rates}
        now = TriedRates(played(base).astype(float), results)
        following = now.next_rate(3.0)
        if following is None:
            break
        found.append(following)
        rates.append(following)
    # 1e-2 loses 10 games, 3e-3 loses 3 of 100 (interval 3 ± 3.4).
    assert found == [3e-3]
