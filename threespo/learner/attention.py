"""Attention over a packed sequence of groups, as an attention implementation of the stock ``transformers`` models.

A packed sequence is a row of groups, each ``[prompt, response 1, ..., response n]``. A token attends to
the tokens before it in its own prompt and response only. Computed group by group, this costs what the
groups cost, not the square of the pack.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from threespo.errors import InputError
from threespo.policy.model import text_config

ATTENTION_NAME = "shared_prefix"
"""Name under which the implementation is registered."""

UNSUPPORTED_ARGUMENTS = ("softcap", "s_aux", "position_bias", "sliding_window")
"""Arguments of attention variants that would be ignored here."""


@dataclass(frozen=True, slots=True)
class GroupSpan:
    """A group's part of the pack: ``prompt`` tokens followed by ``responses`` tokens of all its responses together."""

    prompt: int
    responses: int
    mask: Float[Tensor, "responses total"] | None
    """Added to the scores of response tokens over the group; ``None`` if the group is one plain causal sequence."""

    @property
    def length(self) -> int:
        """Tokens of the group."""
        return self.prompt + self.responses


def install_attention(model: nn.Module) -> None:
    """Make the model use this implementation; calls without ``spans`` behave as with ``sdpa``.

    Raises:
        InputError: if the model has attention that a packed group cannot express.
    """
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    stock: Any = model
    config = text_config(stock.config)
    other_layers = set(getattr(config, "layer_types", None) or ()) - {"full_attention"}
    if other_layers:
        raise InputError(
            f"{config.model_type}: layers with {', '.join(sorted(other_layers))} cannot be "
            "trained here; choose a model with full attention in all layers (Qwen2, Qwen2.5, Qwen3, Llama 3)."
        )

    AttentionInterface.register(ATTENTION_NAME, _shared_prefix_attention)
    # Calls without ``spans`` (sampling, plain forwards) need the masks of sdpa.
    AttentionMaskInterface.register(ATTENTION_NAME, sdpa_mask)
    stock.set_attn_implementation(ATTENTION_NAME)


def _shared_prefix_attention(
    module: nn.Module,
    query: Float[Tensor, "1 heads tokens dim"],
    key: Float[Tensor, "1 kv_heads tokens dim"],
    value: Float[Tensor, "1 kv_heads tokens dim"],
    attention_mask: Tensor | None,
    spans: tuple[GroupSpan, ...] | None = None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[Float[Tensor, "1 tokens heads dim"], None]:
    if spans is None:
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        result = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs
        )
        stock_output: Tensor = result[0]
        return stock_output, None

    unsupported = sorted(name for name in UNSUPPORTED_ARGUMENTS if kwargs.get(name) is not None)
    if unsupported:
        raise InputError(
            f"this model's attention uses {', '.join(unsupported)}, which packed training does not know."
        )

    # One split per tensor: slicing each group out would make the backward pass quadratic in the number
    # of groups.
    lengths = [span.length for span in spans]
    queries = query.split(lengths, dim=2)
    keys = key.split(lengths, dim=2)
    values = value.split(lengths, dim=2)

    outputs: list[Tensor] = []
    for span, group_query, group_key, group_value in zip(spans, queries, keys, values, strict=True):
        outputs += _attend_within_group(span, group_query, group_key, group_value, scaling, dropout)
    # As transformers expects it: batch, tokens, heads, dimension.
    return torch.cat(outputs, dim=2).transpose(1, 2).contiguous(), None


def _attend_within_group(
    span: GroupSpan,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scaling: float | None,
    dropout: float,
) -> tuple[Tensor, ...]:
    """Return the outputs of a group's tokens: the prompt's, then the responses' (in one piece if the group is plain)."""
    # One response: the group is plain causal attention.
    if span.mask is None:
        return (_scaled_dot_product(query, key, value, None, scaling, dropout),)

    # The prompt attends to itself; responses to the whole group, through the mask.
    sizes = (span.prompt, span.responses)
    prompt_query, response_query = query.split(sizes, dim=2)
    prompt_key = key.split(sizes, dim=2)[0]
    prompt_value = value.split(sizes, dim=2)[0]
    return (
        _scaled_dot_product(prompt_query, prompt_key, prompt_value, None, scaling, dropout),
        _scaled_dot_product(response_query, key, value, span.mask, scaling, dropout),
    )


def _scaled_dot_product(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    scaling: float | None,
    dropout: float,
) -> Tensor:
    # Grouped-query attention: several query heads share one key head.
    grouped_queries = query.shape[1] != key.shape[1]
    if mask is not None and grouped_queries:
        # With a mask, CUDA's memory-efficient kernels need as many key as query heads; otherwise all
        # scores are kept.
        repeats = query.shape[1] // key.shape[1]
        key = key.repeat_interleave(repeats, dim=1)
        value = value.repeat_interleave(repeats, dim=1)
        grouped_queries = False
    return F.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=mask,
        dropout_p=dropout,
        is_causal=mask is None,
        scale=scaling,
        enable_gqa=grouped_queries,
    )
