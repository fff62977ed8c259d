"""What the benchmarks of sampling and update share: a random model of the tiny policies' shape, and the machine."""

import time
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.machine import machine as described
from threespo.imitation.settings import SIZES
from threespo.policy.model import Policy
from threespo.policy.random_weights import random_policy as random_weights

VOCABULARY = 512


def random_policy(size: str, seed: int, dtype: torch.dtype) -> Policy:
    """Return a random policy whose responses never end by themselves."""
    shape = SIZES[size]
    return random_weights(
        dtype,
        seed=seed,
        vocab_size=VOCABULARY,
        hidden_size=shape.hidden,
        intermediate_size=shape.mlp,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
    )


def machine() -> dict[str, Any]:
    """Return the machine as all benchmarks describe it, and the threads of torch."""
    return {**described("torch", "transformers", "deepspeed", "trl"), "threads": torch.get_num_threads()}


def fastest(rivals: dict[str, Callable[[], None]], repeats: int) -> dict[str, float]:
    """Return the shortest processor time of each, taken in turns; processor time, because others may use the machine."""
    times: dict[str, list[float]] = {name: [] for name in rivals}
    for turn in range(repeats + 1):
        for name, run in rivals.items():
            start = time.process_time()
            run()
            if turn:
                times[name].append(time.process_time() - start)
    return {name: min(measured) for name, measured in times.items()}
