"""What the tests ask the real engine, and how they judge its answers."""

from collections.abc import Callable
from pathlib import Path

import torch

import threespo
from tests.models import naive_logprobs
from threespo.policy.model import Policy
from threespo.policy.vllm_engine import VllmEngine
from threespo.protocol import Sample, SampleRequest

SHIPPED = Path(threespo.__file__).parent / "imitation" / "alfworld" / "shipped" / "small-s"
NEW, LONGEST, CACHE = 24, 300, 2**27


_KEPT: list[VllmEngine] = []


def started(source: Policy) -> VllmEngine:
    """Start one more engine, for good: an engine that goes takes the process groups of all others with it."""
    _KEPT.append(VllmEngine(source, NEW, LONGEST, kv_cache_memory_bytes=CACHE))
    return _KEPT[-1]


def asked(count: int, samples: int = 8) -> tuple[SampleRequest, ...]:
    """Prompts of different lengths with a long common beginning, which the engine reads once."""
    shelf = (
        "You are in the middle of a room. Looking around you, you see a shelf 1, a drawer 2 and a desk 1. "
        * 2
    )
    return tuple(
        SampleRequest(
            f"{shelf} Your task: put {'a clean mug ' * (1 + place % 7)} on {place}.",
            samples,
            ("test", place),
        )
        for place in range(count)
    )


def gap(source: Policy, requests: tuple[SampleRequest, ...], replies: list[list[Sample]]) -> float:
    """Return the largest difference between a sampled token's log-probability and that of a plain forward pass."""
    worst = 0.0
    for request, samples in zip(requests, replies, strict=True):
        for one in samples:
            with torch.no_grad():
                expected = naive_logprobs(source, request.prompt, one.tokens)
            worst = max(worst, float((torch.tensor(one.logprobs) - expected).abs().max()))
    return worst


def step(source: Policy, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Change every weight in place and count the version, as a learner does."""
    with torch.no_grad():
        for parameter in source.model.parameters():
            parameter.copy_(change(parameter))
    source.version += 1
