"""The real `ci` study, killed again and again, ends in the bytes of an undisturbed one in another folder."""

import random

import pytest

from tests.integration import soak

pytestmark = pytest.mark.slow

KILLS = 10
ONE_SEED = "set={seeds: [0]}"
"""Half of the study, to save the suite minutes; `make soak` takes the whole one."""


def test_a_study_killed_ten_times_ends_in_the_same_bytes(tmp_path):
    whole = soak.copy(tmp_path / "whole")
    soak.finish(whole, ONE_SEED)
    expected = soak.results(whole)
    assert len(expected) > 15
    rng, kills, number = random.Random(0), 0, 0
    while kills < KILLS:
        folder, number = soak.copy(tmp_path / f"killed-{number}"), number + 1
        # Training begins after three or four seconds: some kills hit the start, some an epoch or a checkpoint.
        while kills < KILLS and soak.kill(folder, rng.uniform(1, 7), ONE_SEED):
            kills += 1
        soak.finish(folder, ONE_SEED)
        assert soak.differences(expected, soak.results(folder)) == []
