"""A policy: a causal language model with its tokenizer, loaded from a folder or a hub name.

The tiny policies made here and Qwen2.5-1.5B-Instruct go through the same code. Configurations of other architectures nest,
and name the same number in several ways.
"""

import sys
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

_MAX_CACHED_PROMPTS = 65_536
"""Encoded prompts in memory: the learner asks again for what the sampler has just encoded."""

_GENERIC_TOKENIZERS = frozenset({"PreTrainedTokenizerFast", "TokenizersBackend"})

_CONTEXT_NAMES = ("max_position_embeddings", "max_seq_len", "max_target_positions", "seq_length")
"""How architectures name the length of their context."""

_NO_CONTEXT_LIMIT = 10**9
"""Tokenizers state larger numbers where they know of no limit."""


@dataclass(slots=True, eq=False)
class Policy:
    """A causal language model, its tokenizer, and what is needed to encode prompts and decode responses."""

    model: nn.Module
    """A ``transformers`` causal language model in evaluation mode (no dropout)."""
    tokenizer: Any
    source: str
    """Folder or hub name, also its name in messages."""
    eos_ids: frozenset[int]
    """Tokens that end a response."""
    max_context: int
    """Tokens of prompt and response together that the model can read."""
    template: ChatTemplate | None = None
    """The tokenizer's chat template; ``None`` if it has none."""
    version: int = 0
    """Optimizer steps that the weights have behind them, counted by the learner."""
    _tag_ids: frozenset[int] = frozenset()
    """Special tokens that are tags of an answer (``TAGS``), which a decoder would leave out."""
    _encoded: dict[str, tuple[int, ...]] = field(default_factory=dict, repr=False, compare=False)

    @property
    def device(self) -> torch.device:
        """Device of the model's parameters."""
        return next(self.model.parameters()).device

    @property
    def opening(self) -> str:
        """The thought that the chat template has opened for the model: the beginning of every response's text."""
        return self.template.opening if self.template else ""

    def encode_prompt(self, prompt: str) -> list[int]:
        """Return the token ids of one user message, set into the tokenizer's chat template if it has one."""
        token_ids = self._encoded.get(prompt)
        if token_ids is None:
            token_ids = tuple(self._encode(prompt))
            if len(self._encoded) >= _MAX_CACHED_PROMPTS:
                self._encoded.clear()
            self._encoded[prompt] = token_ids
        return list(token_ids)

    def _encode(self, prompt: str) -> list[int]:
        token_ids: list[int]
        if self.template is not None:
            # The template has written its own special tokens.
            text = self.template.render(prompt)
            token_ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
            return token_ids

        token_ids = self.tokenizer(prompt)["input_ids"]
        # Some tokenizers end every text, as they do in training; here the model is to continue it.
        while token_ids and token_ids[-1] in self.eos_ids:
            token_ids = token_ids[:-1]
        return token_ids

    def decode(self, responses: Sequence[Sequence[int]]) -> list[str]:
        """Return the text of each response without special tokens, after the thought that the template has opened."""
        token_ids = [list(response) for response in responses]
        skip_special_tokens = not self._tag_ids
        if self._tag_ids:
            hidden = {*_read_special_tokens(self.tokenizer), *self.eos_ids} - self._tag_ids
            token_ids = [[token for token in row if token not in hidden] for row in token_ids]
        texts = self.tokenizer.batch_decode(token_ids, skip_special_tokens=skip_special_tokens)
        return [self.opening + text for text in texts]


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

    # Jobs run side by side, and their output is a log.
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
        model = _load_model(str(source), torch_dtype, is_folder)
    # Any exception: a broken file leads the libraries to JSON, safetensors, key and size errors.
    except Exception as error:
        raise InputError(
            f"{source}: the model cannot be loaded ({type(error).__name__}: {_first_line(error)}). "
            + suggest_remedy(error, is_folder)
        ) from error

    return make_policy(nn.Module.to(model, device), tokenizer, str(source), template)


def _load_model(source: str, dtype: torch.dtype, is_folder: bool) -> Any:
    from transformers import AutoModelForCausalLM

    # Never code that comes with a model; nor a question whether to run it.
    options: dict[str, Any] = {"dtype": dtype, "local_files_only": is_folder, "trust_remote_code": False}
    try:
        return AutoModelForCausalLM.from_pretrained(source, attn_implementation="sdpa", **options)
    except ValueError as error:
        # The attention of some architectures (sinks, biases of positions) has one implementation only.
        if "scaled_dot_product_attention" not in str(error):
            raise
        return AutoModelForCausalLM.from_pretrained(source, attn_implementation="eager", **options)


def load_tokenizer(source: str, is_folder: bool) -> Any:
    """Return the tokenizer of a model in a folder, or of a hub name."""
    from transformers import AutoTokenizer, PreTrainedTokenizerFast
    from transformers.models.auto.tokenization_auto import get_tokenizer_config

    declared_class = get_tokenizer_config(source, local_files_only=is_folder).get("tokenizer_class")
    if declared_class in _GENERIC_TOKENIZERS:
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
        source: the policy's name in messages.
        template: what the study gives the chat template.

    Raises:
        InputError: if nothing says which token ends a response, the tokenizer has tokens that the model has not, or a user's
            message does not reach the model.
    """
    generation_config = getattr(model, "generation_config", None)
    policy = make_policy_without_model(model.config, generation_config, tokenizer, source, template)
    _remove_dropout(model)
    return replace(policy, model=model.eval())


def load_policy_without_model(source: str, template: TemplateSettings = DEFAULT_TEMPLATE) -> Policy:
    """Return a policy without its weights from a folder with configuration and tokenizer, for encoding and decoding.

    Raises:
        InputError: as :func:`load_policy`, weights apart.
    """
    from transformers import AutoConfig, GenerationConfig

    generation_config = None
    try:
        config = AutoConfig.from_pretrained(source, local_files_only=True, trust_remote_code=False)
        tokenizer = load_tokenizer(source, is_folder=True)
        if (Path(source) / "generation_config.json").is_file():
            generation_config = GenerationConfig.from_pretrained(source, local_files_only=True)
    # Any exception, as in ``load_policy``.
    except Exception as error:
        raise InputError(
            f"{source}: configuration or tokenizer cannot be loaded ({type(error).__name__}: {_first_line(error)}). "
            + suggest_remedy(error, is_folder=True)
        ) from error
    return make_policy_without_model(config, generation_config, tokenizer, source, template)


def make_policy_without_model(
    config: Any, generation_config: Any, tokenizer: Any, source: str, template: TemplateSettings
) -> Policy:
    """Return the policy of a configuration and a tokenizer, with an empty model (arguments as of :func:`make_policy`)."""
    vocabulary_size = read_vocabulary_size(config)
    if len(tokenizer) > vocabulary_size:
        raise InputError(
            f"{source}: the tokenizer has {len(tokenizer)} tokens, the model {vocabulary_size}. "
            "They do not belong together; use the tokenizer that was saved with the model."
        )

    # Any of them may end a response; models with images state theirs in the part about text or in the whole.
    eos_ids = _read_eos_ids(generation_config, config, text_config(config), tokenizer)
    if not eos_ids:
        raise InputError(
            f"{source}: no end-of-sequence token in generation_config.json, config.json or tokenizer_config.json, "
            "so no response could end. Set eos_token_id in one of them."
        )

    special_tokens = _read_special_tokens(tokenizer)
    return Policy(
        nn.Module(),
        tokenizer,
        source,
        eos_ids,
        max_context=read_context_length(config, tokenizer),
        template=read_template(tokenizer, template, source),
        _tag_ids=frozenset(token for token, text in special_tokens.items() if text in TAGS),
    )


def text_config(config: Any) -> Any:
    """Return the part of a configuration that is about text: of a model with images a part of the whole."""
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
    """Return the tokens of prompt and response together that a model can read; recurrent models have no limit."""
    stated = [getattr(text_config(config), name, None) for name in _CONTEXT_NAMES]
    stated.append(getattr(tokenizer, "model_max_length", None))
    for value in stated:
        if isinstance(value, int | float) and 0 < value < _NO_CONTEXT_LIMIT:
            return int(value)
    return sys.maxsize


def parse_dtype(dtype: str | torch.dtype) -> torch.dtype:
    """Return the torch dtype of a name.

    Raises:
        InputError: if it is neither ``float32`` nor ``bfloat16`` (nor ``float64``, for tests).
    """
    if isinstance(dtype, torch.dtype):
        return dtype
    dtypes = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}
    if dtype not in dtypes:
        raise InputError(f"dtype: found {dtype!r}, expected one of {', '.join(sorted(dtypes))}.")
    return dtypes[dtype]


def _remove_dropout(model: nn.Module) -> None:
    """Make training and sampling the same function: the ratio of new to old probabilities must start at 1."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        # In some architectures ``attention_dropout`` is a layer, which the lines above have dealt with.
        if isinstance(getattr(module, "attention_dropout", None), float):
            module.attention_dropout = 0.0  # type: ignore[assignment]


def _read_special_tokens(tokenizer: Any) -> dict[int, str]:
    """Return the tokens that a tokenizer leaves out of a text, by id; its named ones are only some of them."""
    added_tokens: dict[int, Any] = getattr(tokenizer, "added_tokens_decoder", {})
    return {token: str(added) for token, added in added_tokens.items() if added.special}


def _read_eos_ids(*sources: Any) -> frozenset[int]:
    eos_ids: set[int] = set()
    for source in sources:
        value = getattr(source, "eos_token_id", None)
        if value is not None:
            eos_ids.update([value] if isinstance(value, int) else value)
    return frozenset(eos_ids)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or "no message"
