"""Draws depend on their counters and on nothing else."""

import os
import subprocess
import sys

import numpy as np
import pytest

from threespo.rng import derive, generator, uniforms


def test_counters_are_told_apart():
    keys = [("a",), ("a", 1), ("a", "1"), ("a1",), (1, "a"), ("a", ""), ("", "a"), ("a\x1f", "")]
    assert len({derive(*key) for key in keys}) == len(keys)


def test_same_counters_same_draws_in_another_process():
    code = (
        "from threespo.rng import derive, generator; print(derive(1, 'x'), generator(1, 'x').random())"
    )
    runs = set()
    for hash_seed in ("1", "2"):
        env = os.environ | {"PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env
        )
        runs.add(done.stdout)
    assert runs == {f"{derive(1, 'x')} {generator(1, 'x').random()}\n"}


def test_a_longer_stream_begins_like_a_shorter_one():
    assert np.array_equal(uniforms(derive("k"), 64)[:7], uniforms(derive("k"), 7))


def test_uniforms_are_uniform():
    """Kolmogorov-Smirnov distance of first draws over many keys: below the 0.1 % critical value 1.95 / sqrt(n)."""
    draws = np.sort([uniforms(derive("ks", i), 1)[0] for i in range(4000)])
    grid = np.arange(1, 4001) / 4000
    assert np.max(np.abs(draws - grid)) < 1.95 / np.sqrt(4000)
    assert draws.mean() == pytest.approx(0.5, abs=0.02)
