"""Attention over a packed sequence of groups, as an attention implementation of the stock ``transformers`` models.

A packed sequence is a row of groups, each ``[prompt, response 1, ..., response n]``. A token sees the tokens before
it in its own prompt and response only. Computing this group by group costs what the groups cost, not the square of
the pack.
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

_REFUSED = ("softcap", "s_aux", "position_bias", "sliding_window")
"""Arguments of attention variants that would be ignored here."""


@dataclass(frozen=True, slots=True)
class GroupSpan:
    """A group's place in the pack: ``prompt`` tokens followed by ``responses`` tokens of all its responses together."""

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
    other = set(getattr(config, "layer_types", None) or ()) - {"full_attention"}
    if other:
        raise InputError(
            f"{config.model_type}: layers with {', '.join(sorted(other))} cannot be "
            "trained here; choose a model with full attention in all layers (Qwen2, Qwen2.5, Qwen3, Llama 3)."
        )

    AttentionInterface.register(ATTENTION_NAME, _attend)
    # The masks of calls without ``spans``, which are sdpa's.
    AttentionMaskInterface.register(ATTENTION_NAME, sdpa_mask)
    stock.set_attn_implementation(ATTENTION_NAME)


def _attend(
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

        output: Tensor = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs
        )[0]
        return output, None
    unknown = sorted(name for name in _REFUSED if kwargs.get(name) is not None)
    if unknown:
        raise InputError(
            f"this model's attention uses {', '.join(unknown)}, which packed training does not know."
        )

    gqa = query.shape[1] != key.shape[1]
    # One split per tensor: slicing each group out would make the backward pass quadratic in the number of groups.
    lengths = [span.length for span in spans]
    parts = [
        _attend_group(span, group_query, group_key, group_value, scaling, dropout, gqa)
        for span, group_query, group_key, group_value in zip(
            spans,
            query.split(lengths, dim=2),
            key.split(lengths, dim=2),
            value.split(lengths, dim=2),
            strict=True,
        )
    ]
    return torch.cat([piece for part in parts for piece in part], dim=2).transpose(
        1, 2
    ).contiguous(), None


def _attend_group(
    span: GroupSpan,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scaling: float | None,
    dropout: float,
    gqa: bool,
) -> tuple[Tensor, ...]:
    if span.mask is None:
        return (_sdpa(query, key, value, None, scaling, dropout, gqa),)
    sizes = (span.prompt, span.responses)
    prompt_query, response_query = query.split(sizes, dim=2)
    prompt_key, prompt_value = key.split(sizes, dim=2)[0], value.split(sizes, dim=2)[0]
    return (
        _sdpa(prompt_query, prompt_key, prompt_value, None, scaling, dropout, gqa),
        _sdpa(response_query, key, value, span.mask, scaling, dropout, gqa),
    )


def _sdpa(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    scaling: float | None,
    dropout: float,
    gqa: bool,
) -> Tensor:
    if mask is not None and gqa:
        # With a mask, CUDA's frugal kernels want as many key as query heads; without, they would keep all scores.
        repeats = query.shape[1] // key.shape[1]
        key, value, gqa = (
            key.repeat_interleave(repeats, dim=1),
            value.repeat_interleave(repeats, dim=1),
            False,
        )
    return F.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=mask,
        dropout_p=dropout,
        is_causal=mask is None,
        scale=scaling,
        enable_gqa=gqa,
    )
