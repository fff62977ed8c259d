"""Update, sampling and copies at the paper's shapes, with random weights: what of this project's speed a GPU shows.

    python -m benchmarks.gpu --device cuda --arch qwen25-1b5 [--layers K] [--out FILE]

Needs torch, transformers and numpy, no download and no DeepSpeed: the update is the learner's own (shared prefix, loss,
reference), with ``torch.optim.AdamW``. Beside it the plain padded update, and TRL's loss step if TRL is installed, else the
same computation written out (token-level loss with entropies, as TRL's GRPO has it); ``peer`` in the result says which.
Times are CUDA events on a GPU and the clock on a CPU, the shortest of several. ``--device cpu --layers 1`` rehearses it.
"""

import argparse
import dataclasses
import importlib.util
import json
import platform
import random
import resource
import sys
import time
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

if importlib.util.find_spec("jaxtyping") is None:
    # It only annotates shapes; a machine for measuring may lack it.
    shapes: Any = types.ModuleType("jaxtyping")
    shapes.Float = shapes.Int = shapes.Bool = type("Shaped", (), {"__class_getitem__": lambda _: Tensor})
    sys.modules["jaxtyping"] = shapes

from threespo.learner.forward import ResponseScorer, cut_micro_batches, group_by_prompt, pack_groups
from threespo.learner.loss import k3, policy_losses
from threespo.policy.random_weights import random_policy
from threespo.policy.sampler import TorchSampler
from threespo.protocol import LossSettings, SampleRequest

ARCHITECTURES: dict[str, dict[str, Any]] = {
    "qwen25-1b5": {
        "vocab_size": 151_936, "hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28,
        "num_attention_heads": 12, "num_key_value_heads": 2, "tie_word_embeddings": True,
    },
    "qwen25-7b": {
        "vocab_size": 152_064, "hidden_size": 3584, "intermediate_size": 18_944, "num_hidden_layers": 28,
        "num_attention_heads": 28, "num_key_value_heads": 4, "tie_word_embeddings": False,
    },
}  # fmt: skip

Pairs = Sequence[tuple[list[int], list[int]]]


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """One size of all that is measured."""

    prompt: int
    response: int
    count: int
    """Responses of a prompt."""
    groups: int
    micro_batch: int
    """Tokens of a forward pass."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--arch", choices=tuple(ARCHITECTURES), default="qwen25-1b5")
    parser.add_argument("--layers", type=int, help="of the model (default: all)")
    parser.add_argument("--prompt", type=int, default=512, help="tokens")
    parser.add_argument("--response", type=int, default=64, help="tokens")
    parser.add_argument("--count", type=int, default=8, help="responses of a prompt")
    parser.add_argument("--groups", type=int, default=16, help="prompts of a batch")
    parser.add_argument("--micro-batch", type=int, default=8192, help="tokens of a forward pass")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: torch sees no GPU here; rehearse with --device cpu --layers 1")

    shape = dict(ARCHITECTURES[options.arch])
    shape["num_hidden_layers"] = options.layers or shape["num_hidden_layers"]
    case = Case(options.prompt, options.response, options.count, options.groups, options.micro_batch)
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    bench = Bench(shape, case, options.device, options.repeats, options.seed)
    result = {
        "machine": machine(options.device),
        "arch": options.arch,
        "layers": shape["num_hidden_layers"],
        "dtype": str(bench.dtype).rpartition(".")[2],
        "case": dataclasses.asdict(case),
        "seed": options.seed,
        **bench.run(),
    }
    text = json.dumps(result, indent=2, sort_keys=True)
    print(text)
    if options.out:
        options.out.write_text(text + "\n", encoding="utf-8")


class Bench:
    """All measurements of one model."""

    def __init__(self, shape: dict[str, Any], case: Case, device: str, repeats: int, seed: int) -> None:
        self.case, self.device, self.repeats = case, torch.device(device), repeats
        # Many processors compute bfloat16 slower than float32, and a rehearsal measures nothing.
        self.dtype = torch.bfloat16 if device == "cuda" else torch.float32
        self.policy = random_policy(self.dtype, device, seed, **shape)
        self.reference = random_policy(self.dtype, device, seed, **shape)
        self.reference.model.requires_grad_(False)
        self.model: Any = self.policy.model
        fused = device == "cuda" or None
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=1e-6, weight_decay=0.01, fused=fused
        )

        rng = random.Random(seed)
        prompts = [
            [rng.randrange(1, shape["vocab_size"]) for _ in range(case.prompt)]
            for _ in range(case.groups)
        ]
        self.pairs: Pairs = [
            (prompt, [rng.randrange(1, shape["vocab_size"]) for _ in range(case.response)])
            for prompt in prompts
            for _ in range(case.count)
        ]
        self.advantages = [rng.gauss(0, 1) for _ in self.pairs]

    def run(self) -> dict[str, Any]:
        """Return all results; stock forward passes come first, since a scorer changes its model's attention."""
        sampling = self.sampling()
        plain, plain_peak = self.timed(lambda: self.padded(whole=False))
        peer, step = self.peer()
        theirs, peer_peak = self.timed(step)

        scorer, frozen = ResponseScorer(self.model), ResponseScorer(self.reference.model)
        groups = group_by_prompt(
            [prompt for prompt, _ in self.pairs], [response for _, response in self.pairs]
        )
        ours, ours_peak = self.timed(lambda: self.shared(scorer, frozen, groups))
        packed = sum(group.tokens for group in groups)
        rows = len(self.pairs) * (self.case.prompt + self.case.response)
        matrix = self.matrix_rate()
        # Forward and backward of the policy and forward of the reference: four forward passes.
        done = 4 * self.forward_flops(packed)
        return {
            "sampling": sampling,
            "update": {
                "ours_seconds": ours,
                "plain_seconds": plain,
                "peer_seconds": theirs,
                "peer": peer,
                "ratio_to_plain": plain / ours,
                "ratio_to_peer": theirs / ours,
                "token_ratio": rows / packed,
                "share_of_token_ratio": plain / ours / (rows / packed),
                "tokens_per_s": packed / ours,
                "flops": done / ours,
                "share_of_matrix_rate": done / ours / matrix,
                "peak_bytes": {"ours": ours_peak, "plain": plain_peak, "peer": peer_peak},
            },
            "matrix_flops": matrix,
            "copy_bytes_per_s": self.bandwidth(),
            "sync_seconds": self.sync(),
        }

    def shared(self, scorer: ResponseScorer, frozen: ResponseScorer, groups: Any) -> None:
        """Take one optimizer step as the learner does: prompts once, loss of eq. 5, reference."""
        loss, total = LossSettings(), len(self.pairs) * self.case.response
        self.optimizer.zero_grad()
        for part in cut_micro_batches(groups, self.case.micro_batch):
            packed = pack_groups(part, self.device, self.dtype)
            logprobs, _ = scorer(packed, 1.0)
            with torch.no_grad():
                known = frozen(packed, 1.0)[0]
            values = torch.tensor([self.advantages[row] for row in packed.rows], device=self.device)
            advantages = values.repeat_interleave(torch.tensor(packed.lengths, device=self.device))
            losses = policy_losses(logprobs, logprobs.detach(), advantages, loss).policy
            ((losses + loss.kl_coef * k3(logprobs, known)).sum() / total).backward()
        self.step()

    def padded(self, whole: bool) -> None:
        """Take the same step on whole rows, the prompt with each; ``whole`` adds the entropies that TRL computes."""
        loss, rows = (
            LossSettings(),
            max(1, self.case.micro_batch // (self.case.prompt + self.case.response)),
        )
        total = len(self.pairs) * self.case.response
        self.optimizer.zero_grad()
        for start in range(0, len(self.pairs), rows):
            part = self.pairs[start : start + rows]
            tokens = torch.tensor(
                [[*prompt, *response] for prompt, response in part], device=self.device
            )
            with torch.no_grad():
                known = self.logprobs(self.reference.model, tokens)[0]
            logprobs, logits = self.logprobs(self.model, tokens)
            if whole:
                with torch.no_grad():
                    probabilities = logits.softmax(dim=-1)
                    (logits.logsumexp(dim=-1) - (probabilities * logits).sum(dim=-1)).mean()
            advantages = torch.tensor(self.advantages[start : start + rows], device=self.device)[
                :, None
            ].expand_as(logprobs)
            losses = policy_losses(
                logprobs.flatten(), logprobs.detach().flatten(), advantages.flatten(), loss
            ).policy
            penalty = k3(logprobs.flatten(), known.flatten())
            ((losses + loss.kl_coef * penalty).sum() / total).backward()
        self.step()

    def logprobs(self, model: Any, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Return log-probabilities (rows, response) and logits of the responses, from a stock forward pass."""
        new = self.case.response
        logits = model(tokens, use_cache=False, logits_to_keep=new + 1).logits[:, :-1].float()
        picked = logits.gather(2, tokens[:, -new:, None])[:, :, 0]
        return picked - logits.logsumexp(dim=-1), logits

    def step(self) -> None:
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()

    def peer(self) -> tuple[str, Callable[[], None]]:
        """Return TRL's loss step, or the same computation where TRL is not installed, and which it is."""
        if importlib.util.find_spec("trl") and importlib.util.find_spec("datasets"):
            from benchmarks.peer_trl import loss_step

            return "trl", loss_step(
                self.policy, self.pairs, self.advantages, self.case.count, self.case.micro_batch
            )
        return "token-level loss with entropies, written out: TRL is not installed", lambda: self.padded(
            whole=True
        )

    def sampling(self) -> dict[str, Any]:
        """Compare the torch sampler with ``transformers.generate``: the same prompts, n responses each."""
        case, prompts = self.case, [prompt for prompt, _ in self.pairs[:: self.case.count]]
        requests = tuple(
            SampleRequest(" ".join(map(str, ids)), case.count, ("bench", i))
            for i, ids in enumerate(prompts)
        )
        sampler = TorchSampler(self.policy, case.response, case.groups * case.count, case.prompt)
        whole = torch.tensor(prompts, device=self.device)

        def generate() -> None:
            self.model.generate(
                whole, attention_mask=torch.ones_like(whole), do_sample=True, top_k=0, num_return_sequences=case.count,
                max_new_tokens=case.response, min_new_tokens=case.response,
            )  # fmt: skip

        ours, peak = self.timed(lambda: sampler.sample(requests, seed=0, temperature=1.0))
        with torch.inference_mode():
            theirs, their_peak = self.timed(generate)
        drawn = len(self.pairs) * case.response
        return {
            "tokens_per_s": drawn / ours,
            "generate_tokens_per_s": drawn / theirs,
            "ratio": theirs / ours,
            "peak_bytes": {"ours": peak, "generate": their_peak},
        }

    def matrix_rate(self) -> float:
        """Return the operations per second of a large matrix product in the model's type."""
        size = 8192 if self.device.type == "cuda" else 1024
        left, right = (torch.randn(size, size, dtype=self.dtype, device=self.device) for _ in range(2))
        return 2 * size**3 / self.timed(lambda: torch.mm(left, right))[0]

    def bandwidth(self) -> float:
        """Return the bytes per second of a copy within the device, read and written."""
        numbers = 2**30 if self.device.type == "cuda" else 2**26
        source = torch.ones(numbers, dtype=self.dtype, device=self.device)
        target = torch.empty_like(source)
        return 2 * source.nbytes / self.timed(lambda: target.copy_(source))[0]

    def sync(self) -> float:
        """Return the seconds of copying all weights in place, tensor by tensor, as once per tick."""
        targets = [torch.empty_like(weight) for weight in self.model.parameters()]
        sources = [weight.detach() for weight in self.model.parameters()]
        return self.timed(lambda: torch._foreach_copy_(targets, sources))[0]

    def forward_flops(self, packed: int) -> float:
        """Return the operations of a forward pass over the packed batch: matrices, attention, the responses' logits."""
        config = self.model.config
        named = self.model.named_parameters()
        body = sum(weight.numel() for name, weight in named if weight.ndim == 2 and "embed" not in name)
        head = config.vocab_size * config.hidden_size
        body -= 0 if config.tie_word_embeddings else head
        attended = (
            4
            * config.num_hidden_layers
            * config.hidden_size
            * (self.case.prompt + self.case.response)
            / 2
        )
        return packed * (2 * body + attended) + 2 * len(self.pairs) * self.case.response * head

    def timed(self, work: Callable[[], object]) -> tuple[float, int]:
        """Return the seconds of one call, the shortest of several after one to warm up, and the most bytes in use."""
        cuda = self.device.type == "cuda"
        if cuda:
            torch.cuda.reset_peak_memory_stats()
        work()
        times = []
        for _ in range(self.repeats):
            if cuda:
                first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                first.record()
                work()
                last.record()
                torch.cuda.synchronize()
                times.append(first.elapsed_time(last) / 1000)
            else:
                start = time.perf_counter()
                work()
                times.append(time.perf_counter() - start)
        peak = (
            torch.cuda.max_memory_allocated()
            if cuda
            else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        )
        return min(times), peak


def machine(device: str) -> dict[str, Any]:
    """Return what the numbers were measured on."""
    import transformers

    name = (
        torch.cuda.get_device_name() if device == "cuda" else platform.processor() or platform.machine()
    )
    versions = {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "cuda": torch.version.cuda,
    }
    return {
        "device": name,
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        **versions,
    }


if __name__ == "__main__":
    main()
