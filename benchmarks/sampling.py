"""Speed of the torch sampler beside ``transformers.generate``, in one run on the same model and prompts.

    python -m benchmarks.sampling [--size s] [--dtype float32] [--prompts 32] [--seed 0] [--repeats 3] [--out FILE]

Responses have exactly the given length on both sides. ``ratio`` is generate's processor time over ours, with n responses
per prompt; ``logprob_error`` says how far our log-probabilities are from a full forward.
"""

import argparse
import random
from pathlib import Path
from typing import Any

import torch

from benchmarks.models import VOCABULARY, fastest, machine, random_policy
from threespo.files import write_json
from threespo.policy.model import Policy, parse_dtype
from threespo.policy.sampler import TorchSampler
from threespo.protocol import SampleRequest

RESULTS = Path(__file__).parent / "results"
CASES = ((120, 16, 8), (120, 16, 1), (300, 32, 8))
"""Prompt tokens (mean; drawn from +-20 %), response tokens, responses per prompt."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", choices=("s", "m"), default="s")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    policy = random_policy(options.size, options.seed, parse_dtype(options.dtype))
    result: dict[str, Any] = {
        "machine": machine(),
        "seed": options.seed,
        "model": f"tiny-{options.size}",
    }
    result["dtype"] = options.dtype
    result["cases"] = [
        case(policy, options.prompts, options.seed, options.repeats, *sizes) for sizes in CASES
    ]
    out = options.out or RESULTS / f"sampling-tiny-{options.size}-{options.dtype}.json"
    write_json(out, result)
    for row in result["cases"]:
        print(row)


def case(
    policy: Policy, prompts: int, seed: int, repeats: int, length: int, new: int, n: int
) -> dict[str, Any]:
    rng = random.Random(seed)
    ids = [
        [rng.randrange(1, VOCABULARY) for _ in range(rng.randint(length * 4 // 5, length * 6 // 5))]
        for _ in range(prompts)
    ]
    requests = tuple(
        SampleRequest(" ".join(map(str, prompt)), n, ("bench", i)) for i, prompt in enumerate(ids)
    )
    sampler = TorchSampler(policy, new, 512, 4096)
    width = max(map(len, ids))
    padded = torch.tensor([[0] * (width - len(prompt)) + prompt for prompt in ids])
    model: Any = policy.model

    def ours() -> None:
        sampler.sample(requests, seed=seed, temperature=1.0)

    def generate() -> None:
        torch.manual_seed(seed)
        output = model.generate(
            padded,
            attention_mask=(padded != 0).long(),
            do_sample=True,
            top_k=0,
            num_return_sequences=n,
            max_new_tokens=new,
            min_new_tokens=new,
        )
        assert output.shape == (prompts * n, width + new)

    times = fastest({"ours": ours, "generate": generate}, repeats)
    tokens = prompts * n * new
    return {
        "prompt_tokens": length,
        "response_tokens": new,
        "responses_per_prompt": n,
        "prompts": prompts,
        "tokens_per_s": round(tokens / times["ours"]),
        "generate_tokens_per_s": round(tokens / times["generate"]),
        "ratio": round(times["generate"] / times["ours"], 2),
        "logprob_error": logprob_error(policy, sampler, requests[:4], seed),
    }


def logprob_error(
    policy: Policy, sampler: TorchSampler, requests: tuple[SampleRequest, ...], seed: int
) -> float:
    worst = 0.0
    model: Any = policy.model
    for request, samples in zip(
        requests, sampler.sample(requests, seed=seed, temperature=1.0), strict=True
    ):
        ids = policy.encode_prompt(request.prompt)
        for sample in samples:
            with torch.no_grad():
                logits = (
                    model(torch.tensor([[*ids, *sample.tokens]])).logits[0, len(ids) - 1 : -1].double()
                )
            expected = logits.log_softmax(-1).gather(1, torch.tensor(sample.tokens)[:, None])[:, 0]
            worst = max(
                worst, float((expected - torch.tensor(sample.logprobs, dtype=torch.float64)).abs().max())
            )
    return worst


if __name__ == "__main__":
    main()
