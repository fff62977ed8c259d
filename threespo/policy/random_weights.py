"""Policies of any shape with random weights, for measurements: nothing is downloaded, and lengths are exact."""

from collections.abc import Sequence
from typing import Any

import torch

from threespo.policy.model import Policy, make_policy


class NumberTokenizer:
    """Encodes the text "12 7 300" as the tokens 12, 7 and 300."""

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
    options: dict[str, Any] = {
        "bos_token_id": None,
        "eos_token_id": 0,
        "pad_token_id": 0,
        "attn_implementation": "sdpa",
        "max_position_embeddings": 32_768,
    }
    config = Qwen2Config(vocab_size=vocab_size, **(options | shape))

    # Made on its device and in its dtype: a float32 copy of a 7B model may not fit into memory.
    default_dtype = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            model: Any = Qwen2ForCausalLM(config)
    finally:
        torch.set_default_dtype(default_dtype)

    policy = make_policy(model, NumberTokenizer(vocab_size), "random weights")
    # No token has this number, so that every response has the full length.
    policy.eos_ids = frozenset({-1})
    return policy
