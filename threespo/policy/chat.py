"""One reply from an OpenAI-compatible chat endpoint, in spite of limits, overload and broken connections.

What is retried: HTTP 408, 409, 429 and 5xx, failed connections, time-outs, bodies that break off, and bodies that are no
chat completion. Any other error is one that the user must correct, and is raised at once. The key is in no message,
whatever the server says.
"""

import base64
import datetime
import email.utils
import json
import logging
import threading
import time
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from threespo.errors import InputError
from threespo.policy.cassette import Reply
from threespo.rng import generator
from threespo.terminal import printable

if TYPE_CHECKING:
    import openai

_log = logging.getLogger(__name__)

_LONGEST_BACKOFF = 60.0
_LONGEST_WAIT = 600.0
"""Seconds. A server that asks for more is out of its quota; the run is better resumed later than asleep."""

Wait = Callable[[threading.Event, float], object]
"""Waits some seconds or until the event is set (``threading.Event.wait``)."""


class Stopped(Exception):
    """The caller gave up meanwhile; nothing was asked."""


@dataclass(frozen=True, slots=True)
class Service:
    """Where a model is asked, and how."""

    model: str
    base_url: str = field(repr=False)
    """May hold a password (http://USER:PASSWORD@HOST)."""
    key: str = field(repr=False)
    variables: str
    """The environment variables that all of this was read from, for messages."""
    timeout_s: float
    max_attempts: int
    max_response_tokens: int

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must get out nowhere."""
        address = urllib.parse.urlsplit(self.base_url)
        user, password = (urllib.parse.unquote(part or "") for part in (address.username, address.password))
        # As it is sent, too: a service may repeat what it has received.
        sent = base64.b64encode(f"{user}:{password}".encode()).decode() if password else ""
        return tuple(filter(None, (self.key, password, sent)))


@dataclass(frozen=True, slots=True)
class Failure:
    """An attempt without a usable reply."""

    reason: str
    retry: bool
    wait: float = 0.0
    """Seconds that the server asked to wait (``Retry-After``)."""


class Spacing:
    """Starts requests evenly, at most ``per_minute`` of them in a minute, whichever thread asks."""

    def __init__(self, per_minute: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin with the first request now.

        Args:
            per_minute: most requests of a minute; ``None`` sets no limit.
            clock: seconds, from any origin.
        """
        self._gap = 60.0 / per_minute if per_minute else 0.0
        self._clock = clock
        self._next = clock()
        self._guard = threading.Lock()

    def delay(self) -> float:
        """Take the next start and return the seconds until then."""
        with self._guard:
            now = self._clock()
            start = max(now, self._next)
            self._next = start + self._gap
            return start - now


class Chat:
    """Asks a model, one user message at a time; any number of threads may."""

    def __init__(
        self, service: Service, spacing: Spacing, *, backoff_s: float = 1.0, wait: Wait = threading.Event.wait
    ) -> None:
        """Prepare a client; nothing is sent.

        Args:
            service: whom to ask.
            spacing: the rate limit.
            backoff_s: wait after the first failure; it doubles with each further one.
            wait: how to wait.
        """
        import openai

        self._service = service
        self._spacing = spacing
        self._backoff_s = backoff_s
        self._wait = wait
        # Retries are counted, spaced and announced here, so the client must not have its own.
        self._client = openai.OpenAI(
            api_key=service.key, base_url=service.base_url, timeout=service.timeout_s, max_retries=0
        )

    def ask(self, digest: str, prompt: str, temperature: float, stop: threading.Event) -> Reply:
        """Return the reply to one prompt, after as many attempts as it takes.

        Args:
            digest: name of the request, under which its reply is recorded.
            prompt: the user message.
            temperature: of sampling.
            stop: set by another thread to give up.

        Raises:
            InputError: if the server refuses the request, or every attempt failed.
            Stopped: if ``stop`` was set before there was a reply.
        """
        service = self._service
        for attempt in range(1, service.max_attempts + 1):
            self._pause(stop, self._spacing.delay())
            outcome = self._attempt(digest, prompt, temperature)
            if isinstance(outcome, Reply):
                return outcome
            if not outcome.retry or outcome.wait > _LONGEST_WAIT or attempt == service.max_attempts:
                # Outside of any except clause: the client's errors hold what the server said, key included.
                raise InputError(self._ending(outcome, attempt))

            # Requests that failed together must not come back together. Drawn from the request, so a rerun waits alike.
            jitter = 0.5 + generator("retry", digest, attempt).random() / 2

            backoff = min(self._backoff_s * 2 ** (attempt - 1), _LONGEST_BACKOFF) * jitter
            seconds = max(backoff, outcome.wait)
            _log.warning(
                "%s: attempt %d of %d failed (%s); next in %.1f s",
                *(service.model, attempt, service.max_attempts, outcome.reason, seconds),
            )

            self._pause(stop, seconds)
        raise AssertionError("the last attempt returns or raises")

    def _pause(self, stop: threading.Event, seconds: float) -> None:
        if seconds > 0:
            self._wait(stop, seconds)
        if stop.is_set():
            raise Stopped

    def _ending(self, failure: Failure, attempts: int) -> str:
        stays = "What was recorded stays: run again, and the run resumes there."
        if not failure.retry:
            return f"{self._service.model}: {failure.reason}. Check {self._service.variables}. {stays}"
        if failure.wait > _LONGEST_WAIT:
            return f"{self._service.model}: {failure.reason}, come back in {failure.wait:.0f} s. {stays}"
        return (
            f"{self._service.model}: no reply after {attempts} attempts, the last one failed: {failure.reason}. {stays} "
            "If it persists, lower concurrency or requests_per_minute, or raise timeout_s or max_attempts."
        )

    def _attempt(self, digest: str, prompt: str, temperature: float) -> Reply | Failure:
        import openai

        service = self._service
        try:
            # The raw body, because the client takes anything for a completion, or raises errors of its JSON parser.
            response = self._client.chat.completions.with_raw_response.create(
                model=service.model,
                messages=[{"role": "user", "content": prompt}],
                temperature=temperature,
                # Not max_completion_tokens: every compatible server knows this one. No seed either: draws are independent
                # without it, it promises no repetition (the cassette does), and some servers (Gemini's) have refused it.
                max_tokens=service.max_response_tokens,
            )
            body = response.text
        except openai.APITimeoutError:
            return Failure(f"no answer within {service.timeout_s:g} s", retry=True)
        except openai.APIConnectionError as error:
            return Failure(f"the connection failed or broke off ({type(error.__cause__).__name__})", retry=True)
        except openai.APIStatusError as error:
            return self._refusal(error)

        # Local servers take any word as a key ("none"), which a reply may well contain.
        if any(len(secret) >= 16 and secret in body for secret in service.secrets):
            return Failure("the reply contains the API key or a password; it was not recorded", retry=False)
        most = (len(prompt.encode(errors="replace")), service.max_response_tokens)
        return parse_reply(body, digest, service.model, most)

    def _refusal(self, error: "openai.APIStatusError") -> Failure:
        status = error.status_code
        said = "its message is left out, since it quotes the API key or a password"
        if not any(_shares_text(secret, error.message) for secret in self._service.secrets):
            said = printable(" ".join(error.message.removeprefix(f"Error code: {status}").strip(" -").split())[:300])
        if status in (401, 403):
            # Servers quote keys in parts and with stars here, so whatever they say is left out.
            return Failure(f"HTTP {status}, the server refuses the key", retry=False)

        reason = f"HTTP {status}" + (f" ({said})" if said else "")
        retry = status in (408, 409, 429) or status >= 500
        return Failure(reason, retry, _retry_after(error.response.headers.get("retry-after")) if retry else 0.0)


def parse_reply(body: str, digest: str, model: str, most: tuple[int, int]) -> Reply | Failure:
    """Read a chat completion.

    A reply whose content is null is an answer, not a fault: a refusal (or thinking that used up the limit: then the finish
    reason is ``length``). It is recorded as empty text, because to ask until the model complies would bias the sample. A
    message without the field counts as null only if the finish reason or a refusal explains it.

    Args:
        body: what the server sent.
        digest: name of the request.
        model: the model that was asked.
        most: tokens of prompt and response to count if the server reports no usage.
    """
    try:
        value = json.loads(body)
    except ValueError:
        return Failure("the body is not JSON", retry=True)

    choices = value.get("choices") if isinstance(value, dict) else None
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        return Failure("the body has no choices", retry=True)

    finish = choice.get("finish_reason")
    explained = finish in ("length", "content_filter") or message.get("refusal") is not None
    content = message.get("content", None if explained else False)
    if content is not None and not isinstance(content, str):
        return Failure("the message has no content", retry=True)

    tokens = _usage(value.get("usage"))
    return Reply(
        digest=digest,
        asked=model,
        served=_clean(value.get("model")) or "",
        text=_clean(content) or "",
        finish=_clean(finish),
        tokens=tokens or most,
        bound=tokens is None,
    )


def _usage(usage: Any) -> tuple[int, int] | None:
    if not isinstance(usage, dict):
        return None
    prompt, response, total = (usage.get(f"{part}_tokens") for part in ("prompt", "completion", "total"))
    if type(prompt) is not int or type(response) is not int or prompt < 0 or response < 0:
        return None
    # Some services bill thinking as output but show it in the total only.
    return prompt, max(response, total - prompt) if type(total) is int else response


def _clean(text: Any) -> str | None:
    # JSON can spell half a character (a lone surrogate), which no file can hold.
    return text.encode(errors="replace").decode() if isinstance(text, str) else None


def _shares_text(key: str, text: str) -> bool:
    """Return whether ``text`` contains any eight consecutive characters of the key, or all of a shorter one."""
    length = min(8, len(key))
    return any(key[start : start + length] in text for start in range(len(key) - length + 1))


def _retry_after(value: str | None) -> float:
    """Return the seconds that a ``Retry-After`` header asks for: a number or a date; 0 if there is none."""
    if value is None:
        return 0.0
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        date = email.utils.parsedate_to_datetime(value)
    except ValueError:
        return 0.0
    date = date if date.tzinfo else date.replace(tzinfo=datetime.UTC)
    return max(0.0, (date - datetime.datetime.now(datetime.UTC)).total_seconds())
