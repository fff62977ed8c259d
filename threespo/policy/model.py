"""A policy: a causal language model with its tokenizer, loaded from a folder or a hub name.

The tiny policies made here and Qwen2.5-1.5B-Instruct go through the same code.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from threespo.envs.parsing import TAGS
from threespo.errors import InputError
from threespo.policy.folders import check_model_folder, suggest_remedy
from threespo.policy.settings import TemplateSettings
from threespo.policy.template import ChatTemplate, read_template

DEFAULT_TEMPLATE = TemplateSettings()

_REMEMBERED_PROMPTS = 65_536
"""Encoded prompts kept: the learner asks again for what the sampler has just encoded."""

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
    template: ChatTemplate | None = None
    """The tokenizer's chat template; ``None`` if it has none."""
    version: int = 0
    """Optimizer steps that the weights have behind them, counted by the learner that takes them."""
    _shown: frozenset[int] = frozenset()
    """Special tokens that are tags of an answer (``TAGS``), which a decoder would leave out."""
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

    @property
    def opening(self) -> str:
        """The thought that the chat template has opened for the model: the beginning of every response's text."""
        return self.template.opening if self.template else ""

    def decode(self, responses: Sequence[Sequence[int]]) -> list[str]:
        """Return the text of each response, special tokens left out, after the thought that the template has opened."""
        texts = self._decode([list(ids) for ids in responses])
        return [self.opening + text for text in texts] if self.opening else texts

    def _decode(self, responses: list[list[int]]) -> list[str]:
        texts: list[str]
        if not self._shown:
            texts = self.tokenizer.batch_decode(responses, skip_special_tokens=True)
            return texts
        hidden = {*_special(self.tokenizer), *self.eos_ids} - self._shown
        kept = [[token for token in ids if token not in hidden] for ids in responses]
        texts = self.tokenizer.batch_decode(kept, skip_special_tokens=False)
        return texts

    def _encode(self, prompt: str) -> list[int]:
        if self.template is None:
            ids: list[int] = self.tokenizer(prompt)["input_ids"]
            # Some tokenizers end every text, as they do in training; here the model is to go on.
            while ids and ids[-1] in self.eos_ids:
                ids = ids[:-1]
            return ids
        # The template has written its own special tokens.
        ids = self.tokenizer(self.template.render(prompt), add_special_tokens=False)["input_ids"]
        return ids


def load_policy(
    source: str | Path,
    dtype: str | torch.dtype = "float32",
    device: str | torch.device = "cpu",
    template: TemplateSettings = DEFAULT_TEMPLATE,
) -> Policy:
    """Load a policy from a Hugging Face folder or hub name.

    Args:
        source: a local folder (with configuration, tokenizer and weights) or a hub name such as
            ``Qwen/Qwen2.5-1.5B-Instruct``.
        dtype: of the weights, ``float32`` or ``bfloat16``.
        device: where to put them.
        template: what the study gives the chat template.

    Raises:
        InputError: if a file is missing or cannot be read; the message names it and the remedy.
    """
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()

    torch_dtype = parse_dtype(dtype)
    folder = Path(source)
    is_folder = folder.is_dir()
    if is_folder:
        check_model_folder(folder)
    elif folder.is_absolute() or str(source).startswith(".") or str(source).count("/") > 1:
        raise InputError(
            f"{source}: there is no such model folder. Give a folder or a hub name (OWNER/NAME)."
        )

    try:
        tokenizer = load_tokenizer(str(source), is_folder)
        model = _model(str(source), torch_dtype, is_folder)
    # The libraries below raise whatever a broken file happens to lead to (JSON, safetensors, key, size errors).
    except Exception as error:
        raise InputError(
            f"{source}: the model cannot be loaded ({type(error).__name__}: {_first_line(error)}). "
            + suggest_remedy(error, is_folder)
        ) from error

    return make_policy(nn.Module.to(model, device), tokenizer, str(source), template)


def _model(source: str, dtype: torch.dtype, is_folder: bool) -> Any:
    from transformers import AutoModelForCausalLM

    # Never code that comes with a model; nor a question whether to run it.
    options: dict[str, Any] = {"dtype": dtype, "local_files_only": is_folder, "trust_remote_code": False}
    try:
        return AutoModelForCausalLM.from_pretrained(source, attn_implementation="sdpa", **options)
    except ValueError as error:
        # Attention of some architectures (sinks, biases of positions) has one form only.
        if "scaled_dot_product_attention" not in str(error):
            raise
        return AutoModelForCausalLM.from_pretrained(source, attn_implementation="eager", **options)


def load_tokenizer(source: str, is_folder: bool) -> Any:
    """Return the tokenizer of a model in a folder, or of a hub name."""
    from transformers import AutoTokenizer, PreTrainedTokenizerFast
    from transformers.models.auto.tokenization_auto import get_tokenizer_config

    declared = get_tokenizer_config(source, local_files_only=is_folder).get("tokenizer_class")
    if declared in _GENERIC_TOKENIZERS:
        # AutoTokenizer would take the architecture's class, which puts its own rules in place of the file's.
        return PreTrainedTokenizerFast.from_pretrained(source, local_files_only=is_folder)
    return AutoTokenizer.from_pretrained(source, local_files_only=is_folder, trust_remote_code=False)


def make_policy(
    model: nn.Module, tokenizer: Any, source: str, template: TemplateSettings = DEFAULT_TEMPLATE
) -> Policy:
    """Return the policy of a model and a tokenizer that are already in memory.

    Args:
        model: a ``transformers`` causal language model; it is put into evaluation mode, without dropout.
        tokenizer: the tokenizer that it was trained with.
        source: what messages call it.
        template: what the study gives the chat template.

    Raises:
        InputError: if nothing says which token ends a response, the tokenizer has tokens that the model has not, or a user's
            message does not reach the model.
    """
    words = make_policy_without_model(
        model.config, getattr(model, "generation_config", None), tokenizer, source, template
    )
    _remove_dropout(model)
    return replace(words, model=model.eval())


def load_policy_without_model(source: str, template: TemplateSettings = DEFAULT_TEMPLATE) -> Policy:
    """Return a policy without its weights, from a folder or the hub's cache: all of it that is about texts.

    Args:
        source: a folder with configuration and tokenizer.
        template: what the study gives the chat template.

    Raises:
        InputError: as :func:`load_policy`, weights apart.
    """
    from transformers import AutoConfig, GenerationConfig

    try:
        config = AutoConfig.from_pretrained(source, local_files_only=True, trust_remote_code=False)
        tokenizer = load_tokenizer(source, is_folder=True)
        stated = (Path(source) / "generation_config.json").is_file()
        generation = GenerationConfig.from_pretrained(source, local_files_only=True) if stated else None
    # As of models.
    except Exception as error:
        raise InputError(
            f"{source}: configuration or tokenizer cannot be loaded ({type(error).__name__}: {_first_line(error)}). "
            + suggest_remedy(error, is_folder=True)
        ) from error
    return make_policy_without_model(config, generation, tokenizer, source, template)


def make_policy_without_model(
    config: Any, generation: Any, tokenizer: Any, source: str, template: TemplateSettings
) -> Policy:
    """Return the policy of a configuration and a tokenizer, with no model in it (arguments as of :func:`bundle`)."""
    known = read_vocabulary_size(config)
    if len(tokenizer) > known:
        raise InputError(
            f"{source}: the tokenizer has {len(tokenizer)} tokens, the model {known}. "
            "They do not belong together; use the tokenizer that was saved with the model."
        )

    eos_ids = _eos_ids(generation, config, text_config(config), tokenizer)
    if not eos_ids:
        raise InputError(
            f"{source}: no end-of-sequence token in generation_config.json, config.json or tokenizer_config.json, "
            "so no response could end. Set eos_token_id in one of them."
        )
    chat = read_template(tokenizer, template, source)
    shown = frozenset(token for token, word in _special(tokenizer).items() if word in TAGS)
    return Policy(
        nn.Module(),
        tokenizer,
        source,
        eos_ids,
        read_context_length(config, tokenizer),
        chat,
        _shown=shown,
    )


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
        # In some architectures it is a layer of that name, which the lines above have seen to.
        if isinstance(getattr(module, "attention_dropout", None), float):
            module.attention_dropout = 0.0  # type: ignore[assignment]


def _special(tokenizer: Any) -> dict[int, str]:
    """Return the tokens that a tokenizer leaves out of a text, by id: its named ones are only some of them."""
    added: dict[int, Any] = getattr(tokenizer, "added_tokens_decoder", {})
    return {token: str(word) for token, word in added.items() if word.special}


def _eos_ids(*holders: Any) -> frozenset[int]:
    found: set[int] = set()
    for holder in holders:
        value = getattr(holder, "eos_token_id", None)
        if value is not None:
            found.update([value] if isinstance(value, int) else value)
    return frozenset(found)


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else "no message"
