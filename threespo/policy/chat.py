"""One reply from an OpenAI-compatible chat endpoint, in spite of limits, overload and broken connections.

``docs/endpoints.md`` lists what services do and what happens then: a reply, a refusal that counts, another attempt, or the
end with the server's own words. ``completions.py`` reads replies, ``failures.py`` errors. The key is in no message,
whatever the server says.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable

from threespo.errors import InputError
from threespo.policy.cassette import REFUSAL_DESCRIPTIONS, Refusal, Reply
from threespo.policy.failures import Failure
from threespo.policy.service import Connection, Service
from threespo.rng import generator

_log = logging.getLogger(__name__)

_LONGEST_BACKOFF = 60.0
_LONGEST_WAIT = 600.0
"""Seconds. A server that asks for more is out of its quota; the run is better resumed later than asleep."""

_PROBE = "Say OK."
"""What a service is asked to find out whether it is one prompt that it refuses, or every one."""

_HINTS: dict[Refusal, str] = {
    "no_text": "; if all are, the server takes answers for thoughts: correct its reasoning parser",
    "cut": "; if many are, raise max_response_tokens",
}

WaitFunction = Callable[[threading.Event, float], object]
"""Waits some seconds or until the event is set (``threading.Event.wait``)."""


class AskCancelled(Exception):
    """The caller gave up meanwhile; nothing was asked."""


class RateLimiter:
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


class ChatClient:
    """Asks a model, one user message at a time; any number of threads may."""

    def __init__(
        self,
        service: Service,
        spacing: RateLimiter,
        *,
        backoff_s: float = 1.0,
        wait: WaitFunction = threading.Event.retry_after_s,
    ) -> None:
        """Prepare a client; nothing is sent.

        Args:
            service: whom to ask.
            spacing: the rate limit.
            backoff_s: wait after the first failure; it doubles with each further one.
            wait: how to wait.
        """
        self._service = service
        self._spacing = spacing
        self._backoff_s = backoff_s
        self._wait = wait
        self._answers = False
        self._told: set[Refusal] = set()
        self._guard = threading.Lock()
        self._connection = Connection(service)

    def ask(self, digest: str, prompt: str, temperature: float | None, stop: threading.Event) -> Reply:
        """Return the reply to one prompt, after as many attempts as it takes; if the service refuses the prompt, that.

        Args:
            digest: name of the request, under which its reply is recorded.
            prompt: the user message.
            temperature: of sampling; ``None`` leaves it to the service.
            stop: set by another thread to give up.

        Raises:
            InputError: if the server refuses whatever it is asked, or every attempt failed.
            Stopped: if ``stop`` was set before there was a reply.
        """
        outcome = self._insist(digest, prompt, temperature, stop)
        probed = (0, 0)
        if isinstance(outcome, Failure) and outcome.refuses_prompt:
            # The same error may mean that every request is wrong. What tells them apart is another prompt.
            sure = outcome.certain
            answered = self._answers_another(temperature, stop, anew=not sure)
            if answered is None:
                raise InputError(self._ending(outcome))
            probed = answered
            # Where the service does not say why, the error may pass.
            outcome = outcome if sure else self._insist(digest, prompt, temperature, stop)

        said = ""
        if isinstance(outcome, Failure):
            if not outcome.refuses_prompt or outcome.counts_as is None:
                # Outside of any except clause: the client's errors hold what the server said, key included.
                raise InputError(self._ending(outcome))
            said, outcome = f" ({outcome.reason})", outcome.counts_as
        self._tell(outcome, said)
        return _paying(outcome, probed)

    def _tell(self, reply: Reply, said: str) -> None:
        """Warn of the first reply of each kind that is no full answer; how many there are is said at the end."""
        kind = reply.refusal
        if kind is None or kind in self._told:
            return
        self._told.add(kind)
        hint = _HINTS.get(kind, "")
        _log.warning(
            "%s: a reply counts without a full answer: %s%s%s",
            self._service.model,
            REFUSAL_DESCRIPTIONS[kind],
            said,
            hint,
        )

    def _insist(
        self, digest: str, prompt: str, temperature: float | None, stop: threading.Event
    ) -> Reply | Failure:
        """Return the reply, or the failure that more attempts would not mend."""
        service = self._service
        failures: list[Failure] = []
        for attempt in range(1, service.max_attempts + 1):
            self._pause(stop, self._spacing.reserve_start())
            outcome = self._connection.send_request(digest, prompt, temperature)
            wasted = _sum(failure.tokens for failure in failures)
            if isinstance(outcome, Reply):
                self._answers = True
                return _paying(outcome, wasted)

            failures.append(outcome)
            if not outcome.retry or outcome.retry_after_s > _LONGEST_WAIT:
                return outcome
            if attempt == service.max_attempts:
                break

            # Requests that failed together must not come back together. Drawn from the request, so a rerun waits alike.
            jitter = 0.5 + generator("retry", digest, attempt).random() / 2

            backoff = min(self._backoff_s * 2 ** (attempt - 1), _LONGEST_BACKOFF) * jitter
            seconds = max(backoff, outcome.retry_after_s)
            _log.warning(
                "%s: attempt %d of %d failed (%s); next in %.1f s",
                *(service.model, attempt, service.max_attempts, outcome.reason, seconds),
            )

            self._pause(stop, seconds)

        # The service was there each time and had nothing to say: that is its answer, or the run would never get past it.
        last = failures[-1].counts_as
        if last is not None and all(failure.counts_as is not None for failure in failures):
            return _paying(last, wasted)
        return failures[-1]

    def _answers_another(
        self, temperature: float | None, stop: threading.Event, *, anew: bool
    ) -> tuple[int, int] | None:
        """Return what it has cost to find out that the service answers another prompt; ``None`` if it does not.

        Args:
            temperature: of sampling.
            stop: set by another thread to give up.
            anew: ask also if it has answered before; it may have changed since.
        """
        with self._guard:
            if self._answers and not anew:
                return 0, 0
            outcome = self._insist("0" * 32, _PROBE, temperature, stop)
        if isinstance(outcome, Reply):
            return outcome.tokens
        if outcome.retry:
            raise InputError(self._ending(outcome))
        return None

    def _pause(self, stop: threading.Event, seconds: float) -> None:
        if seconds > 0:
            self._wait(stop, seconds)
        if stop.is_set():
            raise AskCancelled

    def _ending(self, failure: Failure) -> str:
        model = self._service.model
        stays = "What was recorded stays: run again, and the run resumes there."
        if not failure.retry:
            return f"{model}: {failure.reason}. {failure.remedy or f'Check {self._service.variables}.'} {stays}"
        if failure.retry_after_s > _LONGEST_WAIT:
            return f"{model}: {failure.reason}, come back in {failure.retry_after_s:.0f} s. {stays}"
        return (
            f"{model}: no reply after {self._service.max_attempts} attempts, the last one failed: {failure.reason}. {stays} "
            f"If it persists, lower concurrency or requests_per_minute, raise timeout_s or max_attempts, or check "
            f"{self._service.variables}."
        )


def _sum(tokens: Iterable[tuple[int, int]]) -> tuple[int, int]:
    prompt, response = 0, 0
    for one in tokens:
        prompt += one[0]
        response += one[1]
    return prompt, response


def _paying(reply: Reply, besides: tuple[int, int]) -> Reply:
    """Return the reply with the tokens added that were billed on the way to it."""
    return reply.model_copy(update={"tokens": _sum((reply.tokens, besides))}) if any(besides) else reply
