"""A direct forward of Qwen2-family models on a static key-value cache, for sampling.

On a small model nearly all time of a decode step through the stock modules is Python overhead and cache copying. Here
one step is a few dozen tensor operations on the stock module's own weights. Responses to one prompt share its cached
keys and values: rows are arranged in a grid of *slots* (one prompt each) by *lanes* (its responses), and one product
attends all lanes of a slot. Tests compare every step with the stock forward.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from threespo.policy.linear import onednn_linear

_MAX_FUSED_PARAMETERS = 50_000_000
"""Smaller models get their projections concatenated (a copy of the weights) to save operations."""


def is_supported(model: nn.Module) -> bool:
    """Return whether the model is computed exactly here: Qwen2 with plain RoPE and full attention in all layers."""
    config: Any = model.config
    return (
        config.model_type == "qwen2"
        and config.rope_parameters["rope_type"] == "default"
        and set(config.layer_types) == {"full_attention"}
        and config.hidden_act == "silu"
    )


@dataclass(frozen=True, slots=True)
class _Layer:
    input_norm: Tensor
    qkv: tuple[tuple[Tensor, Tensor | None], ...]
    """Weight and bias of queries, keys and values: three pairs, or one if they are fused."""
    attention_output: Tensor
    mlp_norm: Tensor
    gate_up: tuple[Tensor, ...]
    """Weights of gate and up projection: two, or one if they are fused."""
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
        self.eps: float = config.rms_norm_eps
        self.embedding: Tensor = stock.model.embed_tokens.weight
        self.lm_head: Tensor = stock.lm_head.weight
        self.final_norm: Tensor = stock.model.norm.weight
        self.rotary = stock.model.rotary_emb
        # A large model's time is in the products themselves, so a copy of its weights would buy nothing.
        parameter_count = sum(parameter.numel() for parameter in stock.parameters())
        fuse = parameter_count < _MAX_FUSED_PARAMETERS
        self.layers = [_extract_layer(layer, fuse) for layer in stock.model.layers]

    def rope_tables(
        self, length: int
    ) -> tuple[Float[Tensor, "{length} D"], Float[Tensor, "{length} D"]]:
        """Return cosines and sines of positions 0 to ``length - 1``.

        The first half of the sines is negated, so that a rotation is two products and a roll (``_rotate``).
        """
        positions = torch.arange(length, device=self.embedding.device)[None]
        # Of the embedding's row the module takes dtype and device only.
        cos, sin = self.rotary(self.embedding[:1], positions)
        first_half, second_half = sin[0].chunk(2, dim=-1)
        return cos[0], torch.cat((-first_half, second_half), dim=-1)

    def prefill(
        self,
        tokens: Int[Tensor, "P L"],
        lengths: Int[Tensor, " P"],
        keys: list[Tensor],
        values: list[Tensor],
        prefix_length: int = 0,
    ) -> Float[Tensor, "P V"]:
        """Read prompts, padded at the right; return the logits after each one's last token.

        Causality keeps the padding from being seen by real tokens.

        Args:
            tokens: token ids, (P, L).
            lengths: tokens of each prompt without padding, (P,).
            keys: cache per layer, (P, K, prefix + L, D) each, filled in place behind the prefix.
            values: likewise.
            prefix_length: first columns of the cache, filled with what precedes the tokens.
        """
        count, length = tokens.shape
        total = prefix_length + length
        cos, sin = self.rope_tables(total)
        cos = cos[prefix_length:, None]
        sin = sin[prefix_length:, None]

        causal_mask = None
        if prefix_length:
            # ``is_causal`` would align the triangle with the first column; behind a prefix it begins later.
            unseen = torch.ones(length, total, dtype=torch.bool, device=tokens.device)
            unseen = unseen.triu(prefix_length + 1)
            causal_mask = _make_mask(unseen, self.embedding.dtype)

        hidden = F.embedding(tokens, self.embedding)
        last_tokens = (torch.arange(count, device=tokens.device), lengths - 1)
        for index, layer in enumerate(self.layers):
            query, key, value = self._project(layer, hidden)
            query = _rotate(query, cos, sin)
            keys[index][:, :, prefix_length:] = _rotate(key, cos, sin).transpose(1, 2)
            values[index][:, :, prefix_length:] = value.transpose(1, 2)

            # In the last layer only the prompts' last tokens attend and pass the MLP: no other logits are needed.
            if index + 1 < len(self.layers):
                attended = F.scaled_dot_product_attention(
                    query.transpose(1, 2),
                    keys[index],
                    values[index],
                    attn_mask=causal_mask,
                    is_causal=causal_mask is None,
                    enable_gqa=self.heads != self.kv_heads,
                ).transpose(1, 2)
            else:
                columns = torch.arange(total, device=tokens.device)
                padding_mask = _make_mask(columns >= prefix_length + lengths[:, None], hidden.dtype)
                query = query[last_tokens].view(count, self.kv_heads, -1, self.head_dim)
                attended = F.scaled_dot_product_attention(
                    query, keys[index], values[index], attn_mask=padding_mask[:, None, None]
                )
                hidden = hidden[last_tokens]
            hidden = self._add_outputs(layer, hidden, attended.reshape(*hidden.shape[:-1], -1))

        return onednn_linear(self._normalise(hidden, self.final_norm), self.lm_head)

    def decode_step(
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
        cos, sin = (table[:, None, None] for table in rope)

        hidden = F.embedding(tokens, self.embedding)
        groups = self.heads // self.kv_heads
        for index, layer in enumerate(self.layers):
            query, key, value = self._project(layer, hidden)
            query = _rotate(query, cos, sin)
            # In place: the stock cache is copied to grow by a token.
            keys[index][:, :, start:end] = _rotate(key, cos, sin).transpose(1, 2)
            values[index][:, :, start:end] = value.transpose(1, 2)

            # (G, W, H, D) -> (G, K, H/K * W, D): the lanes and heads that read the same keys become one matrix.
            query = query.view(slots, lanes, self.kv_heads, groups, self.head_dim)
            query = query.permute(0, 2, 3, 1, 4)
            attended = F.scaled_dot_product_attention(
                query.reshape(slots, self.kv_heads, groups * lanes, self.head_dim),
                keys[index][:, :, :end],
                values[index][:, :, :end],
                attn_mask=mask,
            )

            # And back: (G, K, H/K * W, D) -> (G, W, H * D).
            attended = attended.view(slots, self.kv_heads, groups, lanes, self.head_dim)
            attended = attended.permute(0, 3, 1, 2, 4).reshape(slots, lanes, -1)
            hidden = self._add_outputs(layer, hidden, attended)

        return onednn_linear(self._normalise(hidden, self.final_norm), self.lm_head)

    def _project(self, layer: _Layer, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries (…, H, D), keys and values (…, K, D)."""
        normed = self._normalise(hidden, layer.input_norm)
        shape = (*hidden.shape[:-1], -1, self.head_dim)
        projections = [onednn_linear(normed, weight, bias).view(shape) for weight, bias in layer.qkv]
        if len(projections) == 1:
            sizes = (self.heads, self.kv_heads, self.kv_heads)
            query, key, value = projections[0].split(sizes, dim=2)
        else:
            query, key, value = projections
        return query, key, value

    def _add_outputs(self, layer: _Layer, hidden: Tensor, attended: Tensor) -> Tensor:
        """Return the residual stream after the attention's output and the MLP."""
        hidden = hidden + onednn_linear(attended, layer.attention_output)
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


def _extract_layer(stock: Any, fuse: bool) -> _Layer:
    attention = stock.self_attn
    mlp = stock.mlp
    projections = (attention.q_proj, attention.k_proj, attention.v_proj)
    qkv: tuple[tuple[Tensor, Tensor | None], ...] = tuple(
        (projection.weight, projection.bias) for projection in projections
    )
    gate_up: tuple[Tensor, ...] = (mlp.gate_proj.weight, mlp.up_proj.weight)
    # One product in place of three or two: a small model's cost is the number of operations, not their size.
    if fuse:
        weight = torch.cat([projection.weight for projection in projections])
        bias = torch.cat([projection.bias for projection in projections])
        qkv = ((weight, bias),)
        gate_up = (torch.cat(gate_up),)
    return _Layer(
        input_norm=stock.input_layernorm.weight,
        qkv=qkv,
        attention_output=attention.o_proj.weight,
        mlp_norm=stock.post_attention_layernorm.weight,
        gate_up=gate_up,
        down=mlp.down_proj.weight,
    )


def _make_mask(hidden_cells: Tensor, dtype: torch.dtype) -> Tensor:
    """Return what is added to attention scores: minus infinity where ``hidden_cells`` is true, else 0."""
    mask = torch.zeros(hidden_cells.shape, dtype=dtype, device=hidden_cells.device)
    return mask.masked_fill_(hidden_cells, float("-inf"))


def _rotate(states: Tensor, cos: Tensor, signed_sin: Tensor) -> Tensor:
    """Rotate (…, heads, D) by RoPE; ``signed_sin`` carries the sign of the half that is swapped in."""
    # The stock ``rotate_half`` slices, negates and concatenates: more operations for the same bits.
    half = states.shape[-1] // 2
    return states * cos + torch.roll(states, half, dims=-1) * signed_sin
