"""An engine on each rank of a learner whose weights are scattered: whole weights reach it, and the ranks draw alike."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def run(stage: int, ranks: int) -> list[list[dict[str, Any]]]:
    """Return what each rank saw of two ticks of sampling and learning."""
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc-per-node={ranks}",
    ]
    done = subprocess.run(
        [*command, "-m", "tests.vllm.two_ranks", str(stage)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"rank"')]
    return [one["steps"] for one in sorted(lines, key=lambda one: one["rank"])]


def test_two_ranks_with_scattered_weights_draw_what_one_draws() -> None:
    (alone,) = run(0, 1)
    for rank in run(3, 2):
        assert [step["version"] for step in rank] == [0, 1]
        for step, expected in zip(rank, alone, strict=True):
            assert step["drawn"] == expected["drawn"]
            assert step["recomputed"] == step["tokens"]
            assert step["loss"] == pytest.approx(expected["loss"], abs=1e-3)
            # To the learner's own log-probabilities of the same tokens, the second time after a step of 1e-3.
            assert step["sampler_gap"] < 1e-5
