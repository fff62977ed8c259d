"""A policy: a causal language model with its tokenizer, loaded from a folder or a hub name.

The tiny policies made here and Qwen2.5-1.5B-Instruct go through the same code.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from threespo.errors import InputError

_REMEMBERED_PROMPTS = 65_536
"""Encoded prompts kept: the learner asks again for what the sampler has just encoded."""

_REQUIRED: dict[str, tuple[str, ...]] = {
    "model configuration": ("config.json",),
    "tokenizer": ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt"),
    "weights": ("*.safetensors", "pytorch_model*.bin"),
}

_GENERIC_TOKENIZERS = frozenset({"PreTrainedTokenizerFast", "TokenizersBackend"})


@dataclass(slots=True, eq=False)
class Policy:
    """A causal language model, its tokenizer, and what is needed to talk to it."""

    model: nn.Module
    """A ``transformers`` causal language model in evaluation mode (no dropout)."""
    tokenizer: Any
    source: str
    eos_ids: frozenset[int]
    """Tokens that end a response."""
    max_context: int
    """Tokens of prompt and response together that the model can read."""
    version: int = 0
    """Optimizer steps that the weights have behind them, counted by the learner that takes them."""
    _encoded: dict[str, tuple[int, ...]] = field(default_factory=dict, repr=False, compare=False)

    @property
    def device(self) -> torch.device:
        """Where the model's parameters are."""
        return next(self.model.parameters()).device

    def encode_prompt(self, prompt: str) -> list[int]:
        """Return the token ids of one user message, set into the tokenizer's chat template if it has one."""
        known = self._encoded.get(prompt)
        if known is None:
            known = tuple(self._encode(prompt))
            if len(self._encoded) >= _REMEMBERED_PROMPTS:
                self._encoded.clear()
            self._encoded[prompt] = known
        return list(known)

    def decode(self, responses: Sequence[Sequence[int]]) -> list[str]:
        """Return the text of each response, special tokens left out."""
        texts: list[str] = self.tokenizer.batch_decode([list(ids) for ids in responses], skip_special_tokens=True)
        return texts

    def _encode(self, prompt: str) -> list[int]:
        if self.tokenizer.chat_template is None:
            ids: list[int] = self.tokenizer(prompt)["input_ids"]
            return ids
        message = [{"role": "user", "content": prompt}]
        text = self.tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
        # The template has written its own special tokens.
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids


def load_policy(source: str | Path, dtype: str | torch.dtype = "float32", device: str | torch.device = "cpu") -> Policy:
    """Load a policy from a Hugging Face folder or hub name.

    Args:
        source: a local folder (with configuration, tokenizer and weights) or a hub name such as
            ``Qwen/Qwen2.5-1.5B-Instruct``.
        dtype: of the weights, ``float32`` or ``bfloat16``.
        device: where to put them.

    Raises:
        InputError: if a file is missing or cannot be read; the message names it and the remedy.
    """
    from transformers import AutoModelForCausalLM
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()

    torch_dtype = parse_dtype(dtype)
    folder = Path(source)
    is_folder = folder.is_dir()
    if is_folder:
        _check_folder(folder)
    elif folder.is_absolute() or str(source).startswith(".") or str(source).count("/") > 1:
        raise InputError(f"{source}: there is no such model folder. Give a folder or a hub name (OWNER/NAME).")

    try:
        tokenizer = _tokenizer(str(source), is_folder)
        model = AutoModelForCausalLM.from_pretrained(
            str(source),
            dtype=torch_dtype,
            attn_implementation="sdpa",
            local_files_only=is_folder,
            # Never code that comes with a model; nor a question whether to run it.
            trust_remote_code=False,
        )
    # The libraries below raise whatever a broken file happens to lead to (JSON, safetensors, key, size errors).
    except Exception as error:
        raise InputError(
            f"{source}: the model cannot be loaded ({type(error).__name__}: {_first_line(error)}). "
            + ("Restore the folder." if is_folder else "Check the name and the network, or give a local folder.")
        ) from error

    return bundle(nn.Module.to(model, device), tokenizer, str(source))


def _tokenizer(source: str, is_folder: bool) -> Any:
    from transformers import AutoTokenizer, PreTrainedTokenizerFast
    from transformers.models.auto.tokenization_auto import get_tokenizer_config

    declared = get_tokenizer_config(source, local_files_only=is_folder).get("tokenizer_class")
    if declared in _GENERIC_TOKENIZERS:
        # AutoTokenizer would take the architecture's class, which puts its own rules in place of the file's.
        return PreTrainedTokenizerFast.from_pretrained(source, local_files_only=is_folder)
    return AutoTokenizer.from_pretrained(source, local_files_only=is_folder, trust_remote_code=False)


def bundle(model: nn.Module, tokenizer: Any, source: str) -> Policy:
    """Return the policy of a model and a tokenizer that are already in memory.

    Args:
        model: a ``transformers`` causal language model; it is put into evaluation mode, without dropout.
        tokenizer: the tokenizer that it was trained with.
        source: what messages call it.

    Raises:
        InputError: if nothing says which token ends a response, or the tokenizer has tokens that the model has not.
    """
    config: Any = model.config
    if len(tokenizer) > config.vocab_size:
        raise InputError(
            f"{source}: the tokenizer has {len(tokenizer)} tokens, the model {config.vocab_size}. "
            "They do not belong together; use the tokenizer that was saved with the model."
        )

    eos_ids = _eos_ids(model, tokenizer)
    if not eos_ids:
        raise InputError(
            f"{source}: no end-of-sequence token in generation_config.json, config.json or tokenizer_config.json, "
            "so no response could end. Set eos_token_id in one of them."
        )

    _remove_dropout(model)
    return Policy(model.eval(), tokenizer, source, eos_ids, int(config.max_position_embeddings))


def parse_dtype(dtype: str | torch.dtype) -> torch.dtype:
    """Return the torch dtype of a name.

    Raises:
        InputError: if it is neither ``float32`` nor ``bfloat16`` (nor ``float64``, for tests).
    """
    if isinstance(dtype, torch.dtype):
        return dtype
    known = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}
    if dtype not in known:
        raise InputError(f"dtype: found {dtype!r}, expected one of {', '.join(sorted(known))}.")
    return known[dtype]


def _remove_dropout(model: nn.Module) -> None:
    """Make training and sampling the same function: the ratio of new to old probabilities must start at 1."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if hasattr(module, "attention_dropout"):
            module.attention_dropout = 0.0  # type: ignore[assignment]


def _eos_ids(model: nn.Module, tokenizer: Any) -> frozenset[int]:
    found: set[int] = set()
    for holder in (getattr(model, "generation_config", None), model.config, tokenizer):
        value = getattr(holder, "eos_token_id", None)
        if value is not None:
            found.update([value] if isinstance(value, int) else value)
    return frozenset(found)


def _check_folder(folder: Path) -> None:
    for what, names in _REQUIRED.items():
        if not any(next(folder.glob(name), None) for name in names):
            raise InputError(
                f"{folder}: no {what} in this model folder (looked for {', '.join(names)}). "
                "Give a complete Hugging Face folder, as save_pretrained writes it for model and tokenizer."
            )


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else "no message"
