"""A closed model in a study file: which one, where, and what its replies may cost."""

import os
import urllib.parse
from typing import Annotated, Literal

from pydantic import Field

from threespo.settings import Execution, Settings

VariableName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=128)]
"""Name of an environment variable; a key or an address that was put in its place is refused."""

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
        return (os.environ.get(self.model_env, "") if self.model_env else "") or self.model

    def public_address(self) -> str | None:
        """Return where the model is asked, for records: without user, password and query, which may be secrets."""
        given = os.environ.get(self.base_url_env)
        try:
            parts = urllib.parse.urlsplit(given or "")
        except ValueError:
            return "not an address"
        return given and urllib.parse.urlunsplit(
            (parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", "")
        )
