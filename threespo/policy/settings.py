"""Settings of a study's policies: how they are loaded and sampled, and closed models behind an endpoint."""

import os
import urllib.parse
from datetime import date
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from threespo.settings import MAX_TOKENS, Execution, Later, Settings

MAX_BATCH_ROWS = 256
"""Responses that are generated at a time, in either sampler."""

_MAX_KV_CACHE_BYTES = 8 * 2**30

# vLLM replaces lower temperatures, except 0, by the minimum, and refuses those above the maximum.
_MIN_VLLM_TEMPERATURE = 0.01
_MAX_VLLM_TEMPERATURE = 2.0

VLLM_TEMPERATURES = f"vLLM draws at 0 and from {_MIN_VLLM_TEMPERATURE} to {_MAX_VLLM_TEMPERATURE:g}"

# fmt: off
RESERVED_TEMPLATE_VARIABLES = frozenset({
    "self", "conversation", "conversations", "messages", "tools", "documents", "chat_template", "strftime_now",
    "add_generation_prompt", "continue_final_message", "tokenize", "padding", "truncation", "max_length",
    "return_tensors", "return_dict", "return_assistant_tokens_mask", "tokenizer_kwargs",
})
# fmt: on
"""Arguments of ``apply_chat_template`` itself, or set by the program; a study cannot set them."""


def _check_date(value: str) -> str:
    try:
        return date.fromisoformat(value).isoformat()
    except ValueError:
        raise ValueError(
            f"expected a date such as '2024-07-26', in quotes, found {value[:40]!r}"
        ) from None


def _check_template_variable(name: str) -> str:
    if name in RESERVED_TEMPLATE_VARIABLES:
        raise ValueError(f"{name!r} is no variable of a template but set by the program; leave it out")
    return name


TemplateVariable = Annotated[
    str,
    Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=64),
    AfterValidator(_check_template_variable),
]

TemplateVariables = dict[TemplateVariable, bool | int | float | str | None]


class TemplateSettings(Settings):
    """What a policy's chat template reads besides the prompt."""

    chat_template_kwargs: Annotated[TemplateVariables, Later] = Field(default={}, max_length=32)
    """``pretrained`` only: variables of the chat template, such as ``{enable_thinking: false}``. One that the template does
    not read is refused. ``threespo doctor --model`` shows what a template writes of its own."""
    chat_template_date: Annotated[str, AfterValidator(_check_date), Later] = "2024-07-26"
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
    def _check_one_limit(self) -> "VllmSettings":
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


def default_kv_cache_bytes(token_bytes: int, length: float) -> float:
    """Return the bytes of the vLLM engine's cache where the study gives no number, at most 8 GiB.

    Args:
        token_bytes: bytes of keys and values of one token.
        length: tokens of each of ``MAX_BATCH_ROWS`` responses and its prompt.
    """
    return min(_MAX_KV_CACHE_BYTES, MAX_BATCH_ROWS * length * token_bytes)


def is_vllm_temperature(temperature: float) -> bool:
    """Return whether vLLM draws at this temperature, and not at another one in its place."""
    return temperature == 0 or _MIN_VLLM_TEMPERATURE <= temperature <= _MAX_VLLM_TEMPERATURE


VariableName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=128)]
"""Name of an environment variable; the pattern refuses a key or an address that was put in its place."""

Price = Annotated[float, Field(ge=0, le=1_000_000)]
"""US dollars; far above what any model costs, so that sums stay numbers."""


class EndpointSettings(Settings):
    """A model behind an OpenAI-compatible chat endpoint."""

    model: str = Field(min_length=1, max_length=200)
    """The service's name of the model, best with a date, e.g. gpt-4o-2024-08-06."""
    model_env: Annotated[VariableName | None, Execution] = None
    """Environment variable that, if set, names the model instead of ``model``."""
    base_url_env: VariableName = "OPENAI_BASE_URL"
    """Environment variable with the address of the service, up to and without ``/chat/completions``. Only the default
    variable may be unset, which means OpenAI's own address: another service's key is never sent there."""
    key_env: VariableName = "OPENAI_API_KEY"
    """Environment variable with the API key. The key itself stands in no file."""
    concurrency: Annotated[int, Execution] = Field(default=8, ge=1, le=256)
    """Requests in flight at a time; each is a thread."""
    requests_per_minute: Annotated[int | None, Execution] = Field(default=None, ge=1, le=1_000_000)
    """Most requests, retries included, that are started in a minute, evenly spaced (``null``: no limit)."""
    timeout_s: Annotated[float, Execution] = Field(default=60, gt=0, le=86_400)
    """Seconds of silence from the server after which an attempt has failed; replies come whole, so generation counts."""
    max_attempts: Annotated[int, Execution] = Field(default=6, ge=1, le=100)
    """Attempts per reply, with exponential backoff in between, before the run stops (it can be resumed)."""
    max_response_tokens: int = Field(default=512, ge=1, le=1_000_000)
    """Longest response (tab:hyperparams: 512). Models that think before they answer (Gemini 2.5) take their thinking from
    it too, so give them several thousand, or their answers are cut or empty."""
    limit_parameter: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """Name under which ``max_response_tokens`` is sent. Every compatible server knows ``max_tokens``; OpenAI's reasoning
    models refuse it and ask for the other."""
    send_temperature: bool = True
    """Whether the evaluation's temperature is sent. Reasoning models refuse any but their own; left out, they sample with
    that, and the rows of the evaluation have no temperature."""
    input_price: Annotated[Price, Execution]
    """US dollars per million tokens of prompt."""
    output_price: Annotated[Price, Execution]
    """US dollars per million tokens of response, thinking included."""
    max_cost: Annotated[Price, Execution] = 50.0
    """US dollars that this model's replies in one cassette may cost, over all runs that wrote it. A run whose estimate is
    higher is refused before its first request; one that spends more stops. Attempts that broke off are not counted, since
    the server reported no usage for them."""

    def resolve_model(self) -> str:
        """Return the name of the model that is asked."""
        named = os.environ.get(self.model_env) if self.model_env else None
        return named or self.model

    def public_address(self) -> str | None:
        """Return where the model is asked, for records: without user, password and query, which may be secrets."""
        url = os.environ.get(self.base_url_env)
        if not url:
            return url
        try:
            parts = urllib.parse.urlsplit(url)
        except ValueError:
            return "not an address"
        host = parts.netloc.rpartition("@")[2]
        return parts._replace(netloc=host, query="", fragment="").geturl()
