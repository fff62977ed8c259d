"""What a model of any architecture says of itself: configurations nest, and name the same number in several ways."""

import sys
from typing import Any

from threespo.errors import InputError

_LENGTHS = ("max_position_embeddings", "max_seq_len", "max_target_positions", "seq_length")
"""What architectures call the length of their context."""

_NO_LIMIT = 10**9
"""Tokenizers state numbers above it where they know of no limit."""


def text_config(config: Any) -> Any:
    """Return the part of a configuration that is about text, of models with images a part of the whole."""
    return config.get_text_config(decoder=True)


def read_vocabulary_size(config: Any) -> int:
    """Return the number of tokens that a model of a configuration has.

    Raises:
        InputError: if it has none of its own.
    """
    config = text_config(config)
    if not isinstance(getattr(config, "vocab_size", None), int):
        raise InputError(
            f"{config.model_type}: not a language model of its own: its configuration has no vocabulary"
        )
    return int(config.vocab_size)


def read_context_length(config: Any, tokenizer: Any) -> int:
    """Return the tokens of prompt and response together that a model can read; models that recur have no limit."""
    stated = [getattr(text_config(config), name, None) for name in _LENGTHS]
    stated.append(getattr(tokenizer, "model_max_length", None))
    lengths = [
        int(value) for value in stated if isinstance(value, int | float) and 0 < value < _NO_LIMIT
    ]
    return lengths[0] if lengths else sys.maxsize
