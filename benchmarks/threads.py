"""One thread a run: two runs side by side on two cores against one run on both, by the wall clock.

    python -m benchmarks.threads [--updates 12] [--repeats 3] [--out FILE]

A unit of work is sampling 8 responses to 16 prompts and one update on them. ``ratio`` is the work done per second by two
processes of one thread over that of one process of two. Needs two free cores.
"""

import argparse
import json
import random
import subprocess
import sys
import time
from pathlib import Path

import torch

from benchmarks.models import VOCABULARY, machine, random_policy
from threespo.files import write_json
from threespo.learner.engine import DeepSpeedLearner
from threespo.learner.optim import OptimSettings
from threespo.policy.sampler import TorchSampler
from threespo.protocol import LossSettings, Row, SampleRequest, UpdateRequest

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--updates", type=int, default=12)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULTS / "threads.json")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(work(options.worker, options.updates)))
        return
    alone = min(max(side_by_side(1, 2, options.updates)) for _ in range(options.repeats))
    together = min(max(side_by_side(2, 1, options.updates)) for _ in range(options.repeats))
    result = {
        "machine": machine(),
        "updates": options.updates,
        "one_run_of_two_threads_s": round(alone, 2),
        "two_runs_of_one_thread_s": round(together, 2),
        "ratio": round(2 * alone / together, 2),
    }
    write_json(options.out, result)
    print(result)


def side_by_side(processes: int, threads: int, updates: int) -> list[float]:
    command = [
        sys.executable,
        "-m",
        "benchmarks.threads",
        "--worker",
        str(threads),
        "--updates",
        str(updates),
    ]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    return [float(json.loads(process.communicate()[0].splitlines()[-1])) for process in running]


def work(threads: int, updates: int) -> float:
    torch.set_num_threads(threads)
    policy = random_policy("s", 0, torch.float32)
    sampler = TorchSampler(policy, 12, 256, 1024)
    learner = DeepSpeedLearner(
        policy, random_policy("s", 0, torch.float32), OptimSettings(micro_batch_tokens=8192)
    )
    rng = random.Random(0)
    start = 0.0
    for number in range(updates + 2):
        if number == 2:  # The first two warm up.
            start = time.perf_counter()
        prompts = [
            " ".join(str(rng.randrange(1, VOCABULARY)) for _ in range(rng.randint(60, 150)))
            for _ in range(16)
        ]
        asked = tuple(SampleRequest(prompt, 8, ("bench", number, i)) for i, prompt in enumerate(prompts))
        rows = tuple(
            Row(
                prompt,
                sample.tokens,
                sample.logprobs,
                (rng.gauss(0, 1),) * len(sample.tokens),
                version=sample.version,
            )
            for prompt, samples in zip(
                prompts, sampler.sample(asked, seed=0, temperature=1.0), strict=True
            )
            for sample in samples
        )
        learner.update(UpdateRequest((rows,), LossSettings()))
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
