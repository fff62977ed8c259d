"""A direct forward of Qwen2-family models on a static key-value cache, for sampling.

On a small model nearly all time of a decode step through the stock modules is Python overhead and cache copying. Here
one step is a few dozen tensor operations on the stock module's own weights. Responses to one prompt share its cached
keys and values: rows stand in a grid of *slots* (one prompt each) by *lanes* (its responses), and one product attends
all lanes of a slot. Tests compare every step with the stock forward.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from threespo.policy.linear import onednn_linear

MODEL_TYPES = frozenset({"qwen2"})
"""Architectures that this module computes; all others are sampled through their stock forward."""

_FUSE_BELOW = 50_000_000
"""Models with fewer parameters get their projections concatenated (a copy of the weights) to save operations."""


def is_supported(model: nn.Module) -> bool:
    """Return whether the model is computed exactly here: Qwen2 with plain RoPE and full attention in all layers."""
    config: Any = model.config
    return (
        config.model_type in MODEL_TYPES
        and config.rope_parameters["rope_type"] == "default"
        and set(config.layer_types) == {"full_attention"}
        and config.hidden_act == "silu"
    )


@dataclass(frozen=True, slots=True)
class _Layer:
    norm: Tensor
    qkv: tuple[tuple[Tensor, Tensor | None], ...]
    out: Tensor
    mlp_norm: Tensor
    gate_up: tuple[Tensor, ...]
    down: Tensor


class DirectModel:
    """The weights of a Qwen2 model, as they are now, and its forward on a cache of keys and values.

    Shapes: P prompts, L prompt tokens (padded at the right), G slots, W lanes, H heads, K key-value heads, D head
    size, C cache columns, V vocabulary.
    """

    def __init__(self, model: nn.Module) -> None:
        stock: Any = model
        config = stock.config
        self.heads: int = config.num_attention_heads
        self.kv_heads: int = config.num_key_value_heads
        self.head_dim: int = getattr(config, "head_dim", None) or config.hidden_size // self.heads
        self.layers_count: int = config.num_hidden_layers
        self.eps: float = config.rms_norm_eps
        self.embedding: Tensor = stock.model.embed_tokens.weight
        self.head: Tensor = stock.lm_head.weight
        self.norm: Tensor = stock.model.norm.weight
        self.rotary = stock.model.rotary_emb
        fuse = sum(parameter.numel() for parameter in stock.parameters()) < _FUSE_BELOW
        self.layers = [_layer(layer, fuse) for layer in stock.model.layers]

    def rope_tables(
        self, length: int
    ) -> tuple[Float[Tensor, "{length} D"], Float[Tensor, "{length} D"]]:
        """Return cosines and sines of positions 0 to ``length - 1``.

        The first half of the sines is negated, so that a rotation is two products and a roll (``_rotate``).
        """
        positions = torch.arange(length, device=self.embedding.device)[None]
        cos, sin = self.rotary(self.embedding[:1], positions)
        half = self.head_dim // 2
        return cos[0], torch.cat((-sin[0, :, :half], sin[0, :, half:]), dim=-1)

    def prefill(
        self,
        tokens: Int[Tensor, "P L"],
        lengths: Int[Tensor, " P"],
        keys: list[Tensor],
        values: list[Tensor],
        known: int = 0,
    ) -> Float[Tensor, "P V"]:
        """Read prompts, padded at the right; return the logits after each one's last token.

        Causality keeps the padding from being seen by real tokens. In the last layer only each prompt's last token is
        carried on.

        Args:
            tokens: token ids, (P, L).
            lengths: tokens of each prompt without padding, (P,).
            keys: cache per layer, (P, K, known + L, D) each, filled in place behind the first ``known`` columns.
            values: likewise.
            known: leading columns of the cache that hold what comes before the tokens.
        """
        count, length = tokens.shape
        total = known + length
        cos, sin = (part[known:] for part in self.rope_tables(total))

        causal = None
        if known:
            # ``is_causal`` would align the triangle with the first column; behind a prefix it begins at column
            # ``known``.
            unseen = torch.ones(length, total, dtype=torch.bool, device=tokens.device).triu(known + 1)
            causal = torch.zeros(unseen.shape, dtype=self.embedding.dtype, device=tokens.device)
            causal.masked_fill_(unseen, float("-inf"))

        hidden = F.embedding(tokens, self.embedding)
        last = (torch.arange(count, device=tokens.device), lengths - 1)
        for index, layer in enumerate(self.layers):
            query, key, value = self._project(layer, hidden, (count, length))
            query, key = (
                _rotate(query, cos[:, None], sin[:, None]),
                _rotate(key, cos[:, None], sin[:, None]),
            )
            key, value = key.transpose(1, 2), value.transpose(1, 2)
            keys[index][:, :, known:] = key
            values[index][:, :, known:] = value
            if index + 1 < self.layers_count:
                attended = F.scaled_dot_product_attention(
                    query.transpose(1, 2),
                    keys[index],
                    values[index],
                    attn_mask=causal,
                    is_causal=causal is None,
                    enable_gqa=self.heads != self.kv_heads,
                ).transpose(1, 2)
            else:
                padding = torch.arange(total, device=tokens.device) >= known + lengths[:, None]
                mask = torch.zeros_like(padding, dtype=hidden.dtype).masked_fill_(padding, float("-inf"))
                query = query[last].view(count, self.kv_heads, -1, self.head_dim)
                attended = F.scaled_dot_product_attention(
                    query, keys[index], values[index], attn_mask=mask[:, None, None]
                )
                hidden = hidden[last]
            hidden = self._finish(layer, hidden, attended.reshape(*hidden.shape[:-1], -1))

        return onednn_linear(self._normalise(hidden, self.norm), self.head)

    def step(
        self,
        tokens: Int[Tensor, "G W"],
        rope: tuple[Float[Tensor, "G D"], Float[Tensor, "G D"]],
        keys: list[Tensor],
        values: list[Tensor],
        columns: tuple[int, int],
        mask: Float[Tensor, "G 1 HW C"],
    ) -> Float[Tensor, "G W V"]:
        """Read one token in every lane and return the logits after it, (G, W, V).

        Args:
            tokens: the token of each lane.
            rope: cosine and sine of each slot's position.
            keys: cache per layer, (G, K, C', D) each; the lanes' new columns are written in place.
            values: likewise.
            columns: first and past-the-end cache column to be written (W of them).
            mask: added to the attention scores; rows are (head of the key-value group, lane).
        """
        slots, lanes = tokens.shape
        start, end = columns
        cos, sin = (part[:, None, None] for part in rope)

        hidden = F.embedding(tokens, self.embedding)
        groups = self.heads // self.kv_heads
        for index, layer in enumerate(self.layers):
            query, key, value = self._project(layer, hidden, (slots, lanes))
            query, key = _rotate(query, cos, sin), _rotate(key, cos, sin)
            keys[index][:, :, start:end] = key.transpose(1, 2)
            values[index][:, :, start:end] = value.transpose(1, 2)

            # (G, W, H, D) -> (G, K, H/K * W, D): the lanes and heads that read the same keys become one matrix.
            query = query.view(slots, lanes, self.kv_heads, groups, self.head_dim).permute(0, 2, 3, 1, 4)
            attended = F.scaled_dot_product_attention(
                query.reshape(slots, self.kv_heads, groups * lanes, self.head_dim),
                keys[index][:, :, :end],
                values[index][:, :, :end],
                attn_mask=mask,
            )

            attended = attended.view(slots, self.kv_heads, groups, lanes, self.head_dim).permute(
                0, 3, 1, 2, 4
            )
            hidden = self._finish(layer, hidden, attended.reshape(slots, lanes, -1))

        return onednn_linear(self._normalise(hidden, self.norm), self.head)

    def _project(
        self, layer: _Layer, hidden: Tensor, shape: tuple[int, int]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries (…, H, D), keys and values (…, K, D)."""
        normed = self._normalise(hidden, layer.norm)
        parts = [onednn_linear(normed, weight, bias) for weight, bias in layer.qkv]
        if len(parts) == 1:
            heads = parts[0].view(*shape, -1, self.head_dim)
            query, key, value = heads.split((self.heads, self.kv_heads, self.kv_heads), dim=2)
            return query, key, value
        query, key, value = (part.view(*shape, -1, self.head_dim) for part in parts)
        return query, key, value

    def _finish(self, layer: _Layer, hidden: Tensor, attended: Tensor) -> Tensor:
        hidden = hidden + onednn_linear(attended, layer.out)
        normed = self._normalise(hidden, layer.mlp_norm)
        if len(layer.gate_up) == 1:
            gate, up = onednn_linear(normed, layer.gate_up[0]).chunk(2, dim=-1)
        else:
            gate, up = (onednn_linear(normed, weight) for weight in layer.gate_up)
        return hidden + onednn_linear(F.silu(gate) * up, layer.down)

    def _normalise(self, hidden: Tensor, weight: Tensor) -> Tensor:
        # In float32 as in the stock module: squares of bfloat16 lose too many digits.
        wide = hidden.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return weight * (wide * scale).to(hidden.dtype)


def _layer(stock: Any, fuse: bool) -> _Layer:
    attention, mlp = stock.self_attn, stock.mlp
    projections = (attention.q_proj, attention.k_proj, attention.v_proj)
    qkv: tuple[tuple[Tensor, Tensor | None], ...] = tuple(
        (part.weight, part.bias) for part in projections
    )
    gate_up: tuple[Tensor, ...] = (mlp.gate_proj.weight, mlp.up_proj.weight)
    if fuse:
        qkv = (
            (
                torch.cat([part.weight for part in projections]),
                torch.cat([part.bias for part in projections]),
            ),
        )
        gate_up = (torch.cat(gate_up),)
    return _Layer(
        norm=stock.input_layernorm.weight,
        qkv=qkv,
        out=attention.o_proj.weight,
        mlp_norm=stock.post_attention_layernorm.weight,
        gate_up=gate_up,
        down=mlp.down_proj.weight,
    )


def _rotate(states: Tensor, cos: Tensor, signed_sin: Tensor) -> Tensor:
    """Rotate (…, heads, D) by RoPE; ``signed_sin`` carries the sign of the half that is swapped in."""
    half = states.shape[-1] // 2
    return states * cos + torch.roll(states, half, dims=-1) * signed_sin
