"""How the policies of a study are loaded and sampled."""

from datetime import date
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from threespo.settings import MAX_TOKENS, Later, Settings

_COOLEST, _HOTTEST = 0.01, 2.0
"""vLLM replaces lower temperatures, except 0, by the first, and refuses those above the second."""

MAX_BATCH_ROWS = 256
"""Responses that grow side by side, in either sampler."""

_MOST_CACHE = 8 * 2**30
"""Bytes."""

VLLM_TEMPERATURES = f"vLLM draws at 0 and from {_COOLEST} to {_HOTTEST:g}"


RESERVED_TEMPLATE_VARIABLES = frozenset(
    {
        *(
            "self",
            "conversation",
            "conversations",
            "messages",
            "tools",
            "documents",
            "chat_template",
            "strftime_now",
        ),
        *(
            "add_generation_prompt",
            "continue_final_message",
            "tokenize",
            "padding",
            "truncation",
            "max_length",
        ),
        *("return_tensors", "return_dict", "return_assistant_tokens_mask", "tokenizer_kwargs"),
    }
)
"""Arguments of ``apply_chat_template`` itself, or set here; they are no variables of a template."""


def _day(value: str) -> str:
    try:
        day = date.fromisoformat(value)
    except ValueError:
        raise ValueError(
            f"expected a date such as '2024-07-26', in quotes, found {value[:40]!r}"
        ) from None
    return day.isoformat()


def _variable(name: str) -> str:
    if name in RESERVED_TEMPLATE_VARIABLES:
        raise ValueError(f"{name!r} is no variable of a template but set by the program; leave it out")
    return name


TemplateVariable = Annotated[
    str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=64), AfterValidator(_variable)
]


TemplateVariables = dict[TemplateVariable, bool | int | float | str | None]


class TemplateSettings(Settings):
    """What a policy's chat template reads besides the prompt."""

    chat_template_kwargs: Annotated[TemplateVariables, Later] = Field(default={}, max_length=32)
    """``pretrained`` only: variables of the chat template, such as ``{enable_thinking: false}``. One that the template does
    not read is refused. ``threespo doctor --model`` shows what a template writes of its own."""
    chat_template_date: Annotated[str, AfterValidator(_day), Later] = "2024-07-26"
    """``pretrained`` only: the day, in quotes, that a template with a clock takes for today; never that of the run, or its
    prompts would differ from day to day. By default the one that Llama 3's templates name where there is no clock."""


class VllmSettings(Settings):
    """Memory of the vLLM engine, which shares a device with the learner: bytes of its cache, or a share for all of it."""

    kv_cache_memory_bytes: int | None = Field(default=None, ge=2**20, le=2**43)
    """Of the key-value cache; ``null``: what 256 responses to different prompts of the greatest length need, at most 8 GiB
    (6 to 10 GB serve a model of 1.5B)."""
    memory_share: float | None = Field(default=None, gt=0, le=0.95)
    """Instead: share of the device's whole memory for the engine's weights, activations and cache together."""

    @model_validator(mode="after")
    def _one_measure(self) -> "VllmSettings":
        if self.kv_cache_memory_bytes is not None and self.memory_share is not None:
            raise ValueError(
                "expected 'kv_cache_memory_bytes' or 'memory_share', found both; leave one out"
            )
        return self


class SamplingSettings(TemplateSettings):
    """How a policy is loaded and sampled."""

    max_prompt_tokens: int = Field(default=2048, ge=1, le=MAX_TOKENS)
    """Longest prompt (tab:hyperparams: 2048). A longer one is an error, never cut. For an ``endpoint`` it also enters the
    estimate of costs."""
    max_response_tokens: int = Field(default=512, ge=1, le=MAX_TOKENS)
    """Longest response (tab:hyperparams: 512)."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    sampler: Literal["auto", "torch", "vllm"] = "auto"
    """``auto``: ``vllm`` for pretrained policies on a GPU, else ``torch``. Both draw from the same distribution, with other
    random numbers. ``vllm`` needs the extra ``gpu``."""
    vllm: VllmSettings = VllmSettings()


def default_kv_cache_bytes(token: int, length: float) -> float:
    """Return the bytes of the vLLM engine's cache where the study gives no number, at most 8 GiB.

    Args:
        token: bytes of keys and values of one token.
        length: tokens of each of ``MAX_BATCH_ROWS`` responses and its prompt.
    """
    return min(_MOST_CACHE, MAX_BATCH_ROWS * length * token)


def is_vllm_temperature(temperature: float) -> bool:
    """Return whether vLLM draws at this temperature, and not at another one in its place."""
    return temperature == 0 or _COOLEST <= temperature <= _HOTTEST
