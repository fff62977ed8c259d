"""What the benchmarks of sampling and update share: a random model of the tiny policies' shape, and the machine."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from benchmarks.machine import machine as described
from threespo.policy.model import Policy, bundle
from threespo.study.sizes import SIZES

VOCABULARY = 512


class NumberTokenizer:
    """Takes "12 7 300" for the tokens 12, 7 and 300, so that lengths are exact."""

    chat_template = None
    eos_token_id = 0

    def __len__(self) -> int:
        return VOCABULARY

    def __call__(self, text: str) -> dict[str, list[int]]:
        return {"input_ids": [int(number) for number in text.split()]}

    def batch_decode(self, responses: Sequence[Sequence[int]], skip_special_tokens: bool) -> list[str]:
        return [" ".join(map(str, response)) for response in responses]


def random_policy(size: str, seed: int, dtype: torch.dtype) -> Policy:
    """Return a random policy whose responses never end by themselves."""
    shape = SIZES[size]
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=shape.hidden,
        intermediate_size=shape.mlp,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=0,
        pad_token_id=0,
        attn_implementation="sdpa",
    )
    policy = bundle(Qwen2ForCausalLM(config).to(dtype), NumberTokenizer(), f"random tiny-{size}")
    return dataclasses.replace(policy, eos_ids=frozenset({-1}))


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
