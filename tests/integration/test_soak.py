"""The real `ci` study, killed again and again, ends in the bytes of an undisturbed one in another folder."""

import random

import pytest

from tests.integration import soak

pytestmark = pytest.mark.slow

KILLS = 10


def test_a_study_killed_ten_times_ends_in_the_same_bytes(tmp_path):
    whole = soak.copy(tmp_path / "whole")
    seconds = soak.finish(whole)
    expected = soak.results(whole)
    assert len(expected) > 20
    rng, kills, number = random.Random(0), 0, 0
    while kills < KILLS:
        folder, number = soak.copy(tmp_path / f"killed-{number}"), number + 1
        # A start takes a few seconds, in which nothing is lost but time.
        while kills < KILLS and soak.kill(folder, rng.uniform(1, seconds / 5)):
            kills += 1
        soak.finish(folder)
        assert soak.differences(expected, soak.results(folder)) == []
