"""Speed of the shared-prefix update beside a plain padded one and TRL's, in one run on the same model and rows.

    python -m benchmarks.update [--size s] [--groups 8] [--seed 0] [--repeats 3] [--out FILE]

The plain update pads prompt plus response of every row to the longest of its micro-batch and takes the mean log-probability
of response tokens as its loss: what any trainer computes at least. ``ratio`` is its processor time over ours;
``token_ratio`` is what sharing prompts saves in tokens; ``engine`` is a whole update (reference forward, loss, AdamW on
DeepSpeed included), and ``trl_ratio`` the time of the same by TRL's GRPO trainer over it. Needs ``pip install -e .[bench]``.
"""

import argparse
import random
from pathlib import Path
from typing import Any

import torch

from benchmarks.models import VOCABULARY, fastest, machine, random_policy
from benchmarks.peer_trl import loss_step
from threespo.files import write_json
from threespo.learner.engine import DeepSpeedLearner
from threespo.learner.forward import ResponseScorer, cut_micro_batches, group_by_prompt, pack_groups
from threespo.learner.optim import OptimSettings
from threespo.policy.model import Policy
from threespo.protocol import LossSettings, Row, UpdateRequest

RESULTS = Path(__file__).parent / "results"
CASES = ((90, 16, 8), (150, 16, 8), (300, 16, 8), (300, 32, 8), (120, 16, 1))
"""Prompt tokens, response tokens, responses per prompt."""
MICRO_BATCH = 4096


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", choices=("s", "m"), default="s")
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    result: dict[str, Any] = {
        "machine": machine(),
        "seed": options.seed,
        "model": f"tiny-{options.size}",
    }
    result["dtype"] = "float32"
    result["micro_batch_tokens"] = MICRO_BATCH
    result["cases"] = [case(options, *sizes) for sizes in CASES]
    write_json(options.out or RESULTS / f"update-tiny-{options.size}-float32.json", result)
    for row in result["cases"]:
        print(row)


def case(options: argparse.Namespace, length: int, new: int, n: int) -> dict[str, Any]:
    rng = random.Random(options.seed)
    prompts = [[rng.randrange(1, VOCABULARY) for _ in range(length)] for _ in range(options.groups)]
    pairs = [
        (prompt, [rng.randrange(1, VOCABULARY) for _ in range(new)])
        for prompt in prompts
        for _ in range(n)
    ]
    plain, shared = (random_policy(options.size, options.seed, torch.float32) for _ in range(2))
    scorer = ResponseScorer(shared.model)
    groups = group_by_prompt([prompt for prompt, _ in pairs], [response for _, response in pairs])

    def ours() -> None:
        for part in cut_micro_batches(groups, MICRO_BATCH):
            packed = pack_groups(part, torch.device("cpu"), torch.float32)
            (scorer(packed, 1.0)[0].sum() / (len(pairs) * new)).backward()

    learner = DeepSpeedLearner(
        random_policy(options.size, options.seed, torch.float32),
        random_policy(options.size, options.seed, torch.float32),
        OptimSettings(micro_batch_tokens=MICRO_BATCH),
    )
    advantages = [rng.gauss(0, 1) for _ in pairs]
    batch = tuple(
        Row(" ".join(map(str, prompt)), tuple(response), (-6.2,) * new, (advantage,) * new, version=0)
        for (prompt, response), advantage in zip(pairs, advantages, strict=True)
    )
    request = UpdateRequest((batch,), LossSettings())
    rivals = {
        "plain": lambda: padded(plain, pairs),
        "ours": ours,
        "engine": lambda: learner.update(request),
    }
    if n > 1:  # TRL refuses groups of one.
        rival = random_policy(options.size, options.seed, torch.float32)
        rivals["trl"] = loss_step(rival, pairs, advantages, n, MICRO_BATCH)
    times = fastest(rivals, options.repeats)
    gradients = zip(plain.model.parameters(), shared.model.parameters(), strict=True)
    plain_tokens = len(pairs) * (length + new)
    packed_tokens = sum(group.tokens for group in groups)
    return {
        "prompt_tokens": length,
        "response_tokens": new,
        "responses_per_prompt": n,
        "rows": len(pairs),
        "ratio": round(times["plain"] / times["ours"], 2),
        "token_ratio": round(plain_tokens / packed_tokens, 2),
        "share_of_token_ratio": round(
            times["plain"] / times["ours"] / (plain_tokens / packed_tokens), 2
        ),
        "packed_tokens_per_s": round(packed_tokens / times["ours"]),
        "plain_tokens_per_s": round(plain_tokens / times["plain"]),
        "trl_ratio": round(times["trl"] / times["engine"], 2) if n > 1 else None,
        "engine_rows_per_s": round(len(pairs) / times["engine"]),
        "gradient_error": max(float((a.grad - b.grad).norm() / a.grad.norm()) for a, b in gradients),  # type: ignore[operator,union-attr]
    }


def padded(policy: Policy, pairs: list[tuple[list[int], list[int]]]) -> None:
    """Accumulate the gradient of the mean log-probability of response tokens, rows padded at the right."""
    model: Any = policy.model
    total = sum(len(response) for _, response in pairs)
    rows = max(1, MICRO_BATCH // len(pairs[0][0] + pairs[0][1]))
    for start in range(0, len(pairs), rows):
        part = pairs[start : start + rows]
        width = max(len(prompt) + len(response) for prompt, response in part)
        tokens = torch.tensor([[*p, *r, *[0] * (width - len(p) - len(r))] for p, r in part])
        longest = max(len(response) for _, response in part)
        logits = model(tokens, use_cache=False, logits_to_keep=longest + 1).logits[:, :-1]
        logprobs = logits.log_softmax(-1).gather(2, tokens[:, -longest:, None])
        (logprobs.sum() / total).backward()


if __name__ == "__main__":
    main()
