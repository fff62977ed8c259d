"""Time of the group estimators, and how it grows with the number of steps.

    python -m benchmarks.advantages [--seed 0] [--repeats 3] [--out FILE]

Groups of 8 episodes of 50 steps, one step in two on an observation that others share. ``slope`` is that of time over steps
in log-log from 1,000 to 1,000,000 steps: 1 is linear.
"""

import argparse
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.models import fastest, machine
from threespo.files import write_json
from threespo.methods.advantages import (
    Steps,
    discounted_returns,
    gigpo_advantages,
    grpo_advantages,
    hgpo_advantages,
    rloo_advantages,
)

ESTIMATORS: dict[str, Callable[..., list[list[float]]]] = {
    "grpo": grpo_advantages,
    "rloo": rloo_advantages,
    "gigpo": gigpo_advantages,
    "hgpo": hgpo_advantages,
}
LENGTH, GROUP = 50, 8
SIZES = (1_000, 6_400, 10_000, 100_000, 1_000_000)
"""Steps; 6,400 are 128 episodes of 50."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parent / "results" / "advantages.json"
    )
    options = parser.parse_args()
    rng = random.Random(options.seed)
    seconds: dict[str, list[float]] = {name: [] for name in ESTIMATORS}
    for size in SIZES:
        groups = [group(rng) for _ in range(max(1, size // (LENGTH * GROUP)))]
        rivals = {name: partial(over_all, estimator, groups) for name, estimator in ESTIMATORS.items()}
        for name, took in fastest(rivals, options.repeats).items():
            # The smallest size is not a whole number of groups: seconds of exactly ``size`` steps.
            seconds[name].append(took * size / (len(groups) * LENGTH * GROUP))
    result: dict[str, Any] = {
        "machine": machine(),
        "seed": options.seed,
        "steps": list(SIZES),
        "estimators": {},
    }
    for name, took in seconds.items():
        slope = float(np.polyfit(np.log(SIZES), np.log(took), 1)[0])
        result["estimators"][name] = {
            "seconds": [round(one, 6) for one in took],
            "slope": round(slope, 3),
        }
        print(name, result["estimators"][name])
    write_json(options.out, result)


def over_all(estimator: Callable[..., list[list[float]]], groups: list[list[Steps]]) -> None:
    for one in groups:
        estimator(one)


def group(rng: random.Random) -> list[Steps]:
    episodes = []
    for _ in range(GROUP):
        won = 10.0 * (rng.random() < 0.5)
        rewards = [0.0] * (LENGTH - 1) + [won]
        keys = [
            f"shared {rng.randrange(20)}" if rng.random() < 0.5 else f"own {rng.random()}"
            for _ in range(LENGTH)
        ]
        episodes.append(Steps(keys, [won] * LENGTH, discounted_returns(rewards, 0.95), won))
    return episodes


if __name__ == "__main__":
    main()
