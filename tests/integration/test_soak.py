"""The real `ci` study, killed again and again, ends in the bytes of an undisturbed one in another folder."""

import random

import pytest

from tests.integration import soak

pytestmark = [pytest.mark.slow, pytest.mark.soak]

KILLS = ((4, 7), (8, 13), (12, 24))
"""Seconds between which the study is killed, each time: at its start, while it trains, while it evaluates or draws."""
PART = "set={seeds: [0], probe: null, evaluation: {seeds: [123], splits: [valid_unseen]}}"
"""A part of the study, three kills and no drawn notebooks, to save minutes; `make soak` takes all of it, thirty times."""


def test_a_study_killed_three_times_ends_in_the_same_bytes(tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_NOTEBOOKS", "all")
    whole = soak.copy(tmp_path / "whole")
    soak.finish(whole, PART)
    expected = soak.results(whole)
    assert len(expected) > 15
    folder, rng = soak.copy(tmp_path / "killed"), random.Random(0)
    killed = [soak.kill(folder, rng.uniform(*instants), PART) for instants in KILLS]
    assert killed[:2] == [True, True], "the kills must hit a study that is under way"
    soak.finish(folder, PART)
    assert soak.differences(expected, soak.results(folder)) == []
