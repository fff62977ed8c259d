"""Sizes of language models: parameters, operations and cached bytes of a Qwen2-family model, without loading it."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from threespo.errors import InputError
from threespo.files import read_json
from threespo.imitation.settings import SIZES
from threespo.policy.named.catalogue import read_named_models
from threespo.policy.packaged_model import model_folder
from threespo.study.config import PolicySettings

TINY_VOCABULARY = {"alfworld": 690, "webshop": 2494}
"""About the number of tokens in a tiny policy's tokenizer, by environment; its head is part of the work."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A causal language model with grouped-query attention and gated feed-forward layers (Qwen2, Llama)."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    mlp: int
    vocabulary: int
    head_dim: int
    tied: bool
    """Whether the head is the embedding."""
    biased: bool = True
    """Whether queries, keys and values have biases (Qwen2)."""

    @property
    def body(self) -> int:
        """Weights of all matrices that every token is multiplied with: all but embedding and head."""
        # Projections of queries and of the output, of keys and of values.
        query_width = self.heads * self.head_dim
        key_width = self.kv_heads * self.head_dim
        attention = self.hidden * (2 * query_width + 2 * key_width)
        feed_forward = 3 * self.hidden * self.mlp
        return self.layers * (attention + feed_forward)

    @property
    def head(self) -> int:
        """Weights of the head, which only tokens that are scored or drawn are multiplied with."""
        return self.vocabulary * self.hidden

    @property
    def parameters(self) -> int:
        """All parameters: matrices, embedding, head if it is another, norms and biases."""
        biases = 0
        if self.biased:
            biases = self.layers * (self.heads + 2 * self.kv_heads) * self.head_dim
        # Two norms in every layer and one at the end.
        norms = (2 * self.layers + 1) * self.hidden
        embeddings = self.head if self.tied else 2 * self.head
        return self.body + embeddings + norms + biases

    def forward_flops(self, tokens: float, scored: float, context: float) -> float:
        """Return the floating-point operations of a forward pass; a backward pass takes twice as many.

        Args:
            tokens: tokens that are read.
            scored: those whose logits are computed.
            context: tokens that each of them attends to, on average.
        """
        # Scores and weighted values: a multiplication and an addition for each number of both.
        attention = 4 * self.layers * self.heads * self.head_dim * context
        return tokens * (2 * self.body + attention) + 2 * scored * self.head

    def cache_bytes(self, size: int = 2) -> int:
        """Return the bytes of keys and values of one token, at ``size`` bytes a number."""
        # A key and a value in every layer.
        return 2 * self.layers * self.kv_heads * self.head_dim * size


KNOWN_SHAPES = {
    model.hub: ModelShape(**model.shape.model_dump()) for model in read_named_models().values()
}
"""Models that can be estimated before they are fetched, by their configurations (checked by their numbers of parameters)."""


def shape_of(policy: PolicySettings, env: str) -> ModelShape:
    """Return the shape of a policy; a tiny one's vocabulary has the words of its environment.

    Raises:
        InputError: if the shape of a pretrained model is not known here.
    """
    if policy.kind == "tiny":
        size = SIZES[policy.size]
        words = TINY_VOCABULARY.get(env, max(TINY_VOCABULARY.values()))
        return ModelShape(
            layers=size.layers,
            hidden=size.hidden,
            heads=size.heads,
            kv_heads=size.heads,
            mlp=size.mlp,
            vocabulary=words,
            head_dim=size.hidden // size.heads,
            tied=True,
        )

    source = str(policy.source)
    file = find_model_config(source)
    if file is not None:
        return _read_config(file)
    named = read_named_models().get(source)
    source = named.hub if named else source
    if source in KNOWN_SHAPES:
        return KNOWN_SHAPES[source]
    known = ", ".join(KNOWN_SHAPES)
    raise InputError(
        f"{source}: neither its config.json is here nor its shape known ({known}). Fetch the model once (the "
        "policy stage of the study does), or give a folder that holds it."
    )


def find_model_config(source: str) -> Path | None:
    """Return the configuration of a model in a folder, the hub's cache or a package; ``None`` if it is in none of them."""
    named = read_named_models().get(source)
    if named and named.package:
        packaged = model_folder(source, named.package) / "config.json"
        return packaged if packaged.is_file() else None
    source = named.hub if named else source

    # Where huggingface_hub caches, without importing it.
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    hub = Path(os.environ.get("HF_HUB_CACHE") or home / "hub")
    cached_model = hub / f"models--{source.replace('/', '--')}"
    snapshots = sorted(cached_model.glob("snapshots/*/config.json"))
    candidates = [Path(source) / "config.json", *snapshots]
    return next((file for file in candidates if file.is_file()), None)


def _read_config(file: Path) -> ModelShape:
    whole: Any = read_json(file, "Restore the model's folder.")
    try:
        # Models with images have a section for text; ``tie_word_embeddings`` may be outside of it.
        config = {**whole, **(whole.get("text_config") or {})}
        heads = int(config["num_attention_heads"])
        return ModelShape(
            layers=int(config["num_hidden_layers"]),
            hidden=int(config["hidden_size"]),
            heads=heads,
            kv_heads=int(config.get("num_key_value_heads", heads)),
            mlp=int(config["intermediate_size"]),
            vocabulary=int(config["vocab_size"]),
            head_dim=int(config.get("head_dim") or config["hidden_size"] // heads),
            tied=bool(config.get("tie_word_embeddings", False)),
            # Qwen2 alone has biases, and does not say so in its configuration.
            biased=config.get("model_type") == "qwen2",
        )
    except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError) as error:
        raise InputError(
            f"{file}: not the configuration of a decoder model ({json.dumps(str(error))})"
        ) from error
