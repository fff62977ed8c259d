"""One reply from an OpenAI-compatible chat endpoint, in spite of limits, overload and broken connections.

``docs/endpoints.md`` lists what services do and what happens then: a reply, a refusal that counts, another attempt, or an
error with the server's own words. ``completions.py`` reads replies, ``failures.py`` errors. The key is in no message,
whatever the server says.
"""

import logging
import threading
import time
from collections.abc import Callable

from threespo.errors import InputError
from threespo.policy.cassette import REFUSAL_DESCRIPTIONS, Refusal, Reply
from threespo.policy.failures import Failure
from threespo.policy.service import Connection, Service
from threespo.rng import generator

_log = logging.getLogger(__name__)

_MAX_BACKOFF_S = 60.0

_MAX_SERVER_WAIT_S = 600.0
"""A server that asks for more is out of its quota; the run is better resumed later than asleep."""

_PROBE_PROMPT = "Say OK."
"""Sent to find out whether a service refuses one prompt or every prompt."""

_REFUSAL_HINTS: dict[Refusal, str] = {
    "no_text": "; if all are, the server takes answers for thoughts: correct its reasoning parser",
    "cut": "; if many are, raise max_response_tokens",
}

TokenCounts = tuple[int, int]
"""Tokens of prompt and of response."""

WaitFunction = Callable[[threading.Event, float], object]
"""Waits some seconds or until the event is set (``threading.Event.wait``)."""


class AskCancelled(Exception):
    """Another thread has set the stop event; nothing was asked."""


class RateLimiter:
    """Spaces the starts of requests evenly, at most ``per_minute`` of them in a minute, whichever thread asks."""

    def __init__(self, per_minute: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        """Let the first request start now.

        Args:
            per_minute: maximum of requests in a minute; ``None`` sets no limit.
            clock: seconds, from any origin.
        """
        self._interval = 60.0 / per_minute if per_minute else 0.0
        self._clock = clock
        self._next_start = clock()
        self._lock = threading.Lock()

    def reserve_start(self) -> float:
        """Reserve the next start and return the seconds until then."""
        with self._lock:
            now = self._clock()
            start = max(now, self._next_start)
            self._next_start = start + self._interval
            return start - now


class ChatClient:
    """Asks a model, one user message at a time; any number of threads may."""

    def __init__(
        self,
        service: Service,
        rate_limiter: RateLimiter,
        *,
        backoff_s: float = 1.0,
        wait: WaitFunction = threading.Event.wait,
    ) -> None:
        """Prepare a client; nothing is sent.

        Args:
            service: address, model, key and limits.
            rate_limiter: shared by all requests.
            backoff_s: wait after the first failure; it doubles with each further one.
            wait: how to wait.
        """
        self._service = service
        self._rate_limiter = rate_limiter
        self._backoff_s = backoff_s
        self._wait = wait
        self._has_answered = False
        self._warned_refusals: set[Refusal] = set()
        self._probe_lock = threading.Lock()
        self._connection = Connection(service)

    def ask(self, digest: str, prompt: str, temperature: float | None, stop: threading.Event) -> Reply:
        """Return the reply to one prompt, after as many attempts as it takes; a refusal of the prompt is a reply, too.

        Args:
            digest: name of the request, under which its reply is recorded.
            prompt: the user message.
            temperature: of sampling; ``None`` leaves it to the service.
            stop: set by another thread to give up.

        Raises:
            InputError: if the server refuses whatever it is asked, or every attempt failed.
            AskCancelled: if ``stop`` was set before there was a reply.
        """
        outcome = self._ask_with_retries(digest, prompt, temperature, stop)
        probe_tokens: TokenCounts = (0, 0)

        if isinstance(outcome, Failure) and outcome.refuses_prompt:
            # The same error may mean that the service refuses every request. Another prompt tells these cases apart.
            tokens = self._probe_service(temperature, stop, always=not outcome.certain)
            if tokens is None:
                raise InputError(self._describe_final_failure(outcome))
            probe_tokens = tokens
            # Where the service gives no reason, the refusal may be temporary: one more round decides.
            if not outcome.certain:
                outcome = self._ask_with_retries(digest, prompt, temperature, stop)

        if isinstance(outcome, Reply):
            self._warn_once(outcome, reason="")
            return _add_tokens(outcome, probe_tokens)

        if not outcome.refuses_prompt or outcome.counts_as is None:
            # Outside of any except clause: the client's errors contain what the server said, perhaps with the key.
            raise InputError(self._describe_final_failure(outcome))
        self._warn_once(outcome.counts_as, reason=f" ({outcome.reason})")
        return _add_tokens(outcome.counts_as, probe_tokens)

    def _warn_once(self, reply: Reply, reason: str) -> None:
        """Warn of the first refusal of each kind; the sampler says at the end how many there are."""
        kind = reply.refusal
        if kind is None or kind in self._warned_refusals:
            return
        self._warned_refusals.add(kind)
        _log.warning(
            "%s: a reply counts without a full answer: %s%s%s",
            self._service.model,
            REFUSAL_DESCRIPTIONS[kind],
            reason,
            _REFUSAL_HINTS.get(kind, ""),
        )

    # Why neither the SDK's retries nor tenacity: the SDK (3.54) retries a 429 that means "no credit", does not see errors in
    # bodies of status 200, gives up at a Retry-After of more than 120 s, cannot be stopped by another thread and announces
    # nothing. With tenacity each of these would be a callback of ours, and together they are longer than this loop.
    def _ask_with_retries(
        self, digest: str, prompt: str, temperature: float | None, stop: threading.Event
    ) -> Reply | Failure:
        """Return the reply, or the failure that more attempts would not mend."""
        service = self._service
        failures: list[Failure] = []
        for attempt in range(1, service.max_attempts + 1):
            # Retries count, too: the service's limit does not distinguish them.
            self._pause(stop, self._rate_limiter.reserve_start())
            outcome = self._connection.send_request(digest, prompt, temperature)
            if isinstance(outcome, Reply):
                self._has_answered = True
                return _add_tokens(outcome, *(failure.tokens for failure in failures))

            if not outcome.retry or outcome.retry_after_s > _MAX_SERVER_WAIT_S:
                return outcome
            failures.append(outcome)
            if attempt == service.max_attempts:
                break

            # Requests that failed together must not return together. The jitter depends on the request alone, so a rerun
            # waits alike.
            jitter = 0.5 + generator("retry", digest, attempt).random() / 2
            backoff = min(self._backoff_s * 2 ** (attempt - 1), _MAX_BACKOFF_S) * jitter
            seconds = max(backoff, outcome.retry_after_s)
            _log.warning(
                "%s: attempt %d of %d failed (%s); next in %.1f s",
                service.model,
                attempt,
                service.max_attempts,
                outcome.reason,
                seconds,
            )
            self._pause(stop, seconds)

        # A service that answers without text each time has given its answer, or the run would never get past this prompt.
        *earlier, last = failures
        if last.counts_as is not None and all(failure.counts_as is not None for failure in earlier):
            return _add_tokens(last.counts_as, *(failure.tokens for failure in earlier))
        return last

    def _probe_service(
        self, temperature: float | None, stop: threading.Event, *, always: bool
    ) -> TokenCounts | None:
        """Return the tokens that it took to see the service answer another prompt; ``None`` if it does not.

        Args:
            temperature: of sampling.
            stop: set by another thread to give up.
            always: ask also if it has answered before; it may have changed since.
        """
        with self._probe_lock:
            if self._has_answered and not always:
                return 0, 0
            outcome = self._ask_with_retries("0" * 32, _PROBE_PROMPT, temperature, stop)

        if isinstance(outcome, Reply):
            return outcome.tokens
        if outcome.retry:
            raise InputError(self._describe_final_failure(outcome))
        return None

    def _pause(self, stop: threading.Event, seconds: float) -> None:
        if seconds > 0:
            self._wait(stop, seconds)
        if stop.is_set():
            raise AskCancelled

    def _describe_final_failure(self, failure: Failure) -> str:
        model = self._service.model
        variables = self._service.variables
        resume = "What was recorded stays: run again, and the run resumes there."
        if not failure.retry:
            remedy = failure.remedy or f"Check {variables}."
            return f"{model}: {failure.reason}. {remedy} {resume}"
        if failure.retry_after_s > _MAX_SERVER_WAIT_S:
            return f"{model}: {failure.reason}, come back in {failure.retry_after_s:.0f} s. {resume}"
        return (
            f"{model}: no reply after {self._service.max_attempts} attempts, the last one failed: {failure.reason}. "
            f"{resume} If it persists, lower concurrency or requests_per_minute, raise timeout_s or max_attempts, or check "
            f"{variables}."
        )


def _add_tokens(reply: Reply, *others: TokenCounts) -> Reply:
    """Return the reply with the tokens added that other requests were billed on the way to it."""
    counts = (reply.tokens, *others)
    prompt = sum(tokens[0] for tokens in counts)
    response = sum(tokens[1] for tokens in counts)
    return reply.model_copy(update={"tokens": (prompt, response)})
