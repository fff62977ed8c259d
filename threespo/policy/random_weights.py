"""Policies of any shape with random weights, for measuring: nothing is downloaded, and lengths are exact."""

from collections.abc import Sequence
from typing import Any

import torch

from threespo.policy.model import Policy, make_policy


class NumberTokenizer:
    """Takes "12 7 300" for the tokens 12, 7 and 300."""

    chat_template = None
    eos_token_id = 0

    def __init__(self, vocabulary: int) -> None:
        self._vocabulary = vocabulary

    def __len__(self) -> int:
        return self._vocabulary

    def __call__(self, text: str) -> dict[str, list[int]]:
        return {"input_ids": [int(number) for number in text.split()]}

    def batch_decode(self, responses: Sequence[Sequence[int]], skip_special_tokens: bool) -> list[str]:
        return [" ".join(map(str, response)) for response in responses]


def random_policy(
    dtype: torch.dtype,
    device: str | torch.device = "cpu",
    seed: int = 0,
    *,
    vocab_size: int,
    **shape: Any,
) -> Policy:
    """Return a Qwen2 policy whose responses never end by themselves.

    Args:
        dtype: of the weights.
        device: where they are made.
        seed: of the weights.
        vocab_size: tokens.
        shape: other fields of ``Qwen2Config``.
    """
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(seed)
    special: dict[str, Any] = {
        "bos_token_id": None,
        "eos_token_id": 0,
        "pad_token_id": 0,
        "attn_implementation": "sdpa",
    }
    config = Qwen2Config(
        vocab_size=vocab_size, **special, **{"max_position_embeddings": 32_768, **shape}
    )
    # Made where and as it is used: a model of 7B in float32 may not fit beside what is measured.
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            model: Any = Qwen2ForCausalLM(config)
    finally:
        torch.set_default_dtype(before)
    policy = make_policy(model, NumberTokenizer(vocab_size), "random weights")
    policy.eos_ids = frozenset({-1})
    return policy
