"""The sampler of closed models: any OpenAI-compatible chat endpoint behind ``protocol.Sampler``, with a bill and a memory.

Every reply goes to a cassette (``policy/cassette.py``) and is never paid twice. Without a key the recorded replies are
served, and the first one that is missing raises ``NotRun``.
"""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from threespo.errors import InputError
from threespo.policy.cassette import Cassette, Reply, describe_refusals, read_replies, request_digest
from threespo.policy.chat import AskCancelled, ChatClient, RateLimiter, WaitFunction
from threespo.policy.service import read_api_key, read_service
from threespo.policy.settings import EndpointSettings
from threespo.protocol import Sample, SampleRequest

ReplySource = Literal["key", "cassette", "none"]

NOT_RUN = "not run (no API key)"
"""What is said of a closed model that has no numbers."""


class NotRun(InputError):
    """There is neither a key nor a recorded reply, so there is no number to report: "not run (no API key)"."""


def find_reply_source(settings: EndpointSettings, cassette_path: Path) -> ReplySource:
    """Return where replies can come from: a service that a key opens, else recorded replies, else nowhere.

    A compressed cassette cannot be added to, so it counts as recorded replies whether or not there is a key.

    Raises:
        InputError: if the key is not one, or the cassette cannot be read.
    """
    if _can_ask(settings, cassette_path):
        return "key"
    return "cassette" if read_replies(cassette_path)[0] else "none"


def estimate_cost(
    settings: EndpointSettings,
    *,
    episodes: int,
    max_steps: int,
    prompt_tokens: int,
    response_tokens: int,
) -> float:
    """Return an upper bound, in US dollars, on what episodes cost if none of their replies is recorded.

    Args:
        settings: prices.
        episodes, max_steps: number of episodes, and of requests in each.
        prompt_tokens, response_tokens: of the longest prompt and of the longest response.
    """
    return episodes * max_steps * _dollars(settings, prompt_tokens, response_tokens)


def _dollars(settings: EndpointSettings, prompt_tokens: int, response_tokens: int) -> float:
    return (prompt_tokens * settings.input_price + response_tokens * settings.output_price) / 1e6


@dataclass(slots=True)
class _Bill:
    """What this process used; ``spent`` is what all replies of this model in the cassette cost."""

    spent: float
    asked: int = 0
    cached: int = 0
    prompt_tokens: int = 0
    response_tokens: int = 0
    cost: float = 0.0


class EndpointSampler:
    """Samples from a model behind a chat endpoint (``protocol.Sampler``); close it, or use it as a context manager.

    Samples have text but neither tokens nor log-probabilities, so they serve evaluation, not training. The seed decides
    which recorded reply is meant; it is not sent (see ``policy/chat.py``).
    """

    def __init__(
        self,
        settings: EndpointSettings,
        cassette_path: Path,
        *,
        offline: bool = False,
        _backoff_s: float = 1.0,
        _wait: WaitFunction = threading.Event.wait,
    ) -> None:
        """Read the cassette and, if there is a key to add replies with, hold its lock; nothing is sent yet.

        ``offline`` leaves the key unused: the first reply that is not recorded raises ``NotRun``.

        Raises:
            InputError: if another process adds to the cassette, or it cannot be read or written.
        """
        self.settings = settings
        self.model = settings.resolve_model()
        can_ask = not offline and _can_ask(settings, cassette_path)
        self._cassette = Cassette(cassette_path, append=can_ask)
        self.reply_source: ReplySource = (
            "key" if can_ask else "cassette" if self._cassette.initial_replies else "none"
        )
        paid = (reply for reply in self._cassette.initial_replies if reply.asked == self.model)
        self._bill = _Bill(spent=sum(_dollars(settings, *reply.tokens) for reply in paid))
        self._guard = threading.Lock()
        self._offline = offline
        self._chat: ChatClient | None = None
        self._chat_options: dict[str, Any] = {"backoff_s": _backoff_s, "wait": _wait}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the cassette and print to stderr what was used, once."""
        self._cassette.close()
        bill, self._bill = self._bill, _Bill(spent=self._bill.spent)
        if bill.asked or bill.cached:
            line = (
                f"{self.model}: {bill.asked:,} replies asked for, {bill.cached:,} from {self._cassette.path}; "
                f"{bill.prompt_tokens:,} prompt and {bill.response_tokens:,} response tokens, ${bill.cost:.2f} now, "
                f"${bill.spent:.2f} with all that is recorded (max_cost ${self.settings.max_cost:.2f})."
            )
            refused = describe_refusals(self._cassette.recorded.values())
            print(line + (f" In all, {refused}." if refused else ""), file=sys.stderr)

    def announce_cost(self, *, episodes: int, max_steps: int, prompt_tokens: int) -> float:
        """Print to stderr what is about to be asked and what it costs at most; return the dollars.

        Raises:
            InputError: if that is more than ``max_cost``.
        """
        settings = self.settings
        requests = episodes * max_steps
        if self.reply_source != "key":
            print(
                f"{self.model}: no requests; replies come from {self._cassette.path}, free of charge.",
                file=sys.stderr,
            )
            return 0.0
        cost = estimate_cost(
            settings,
            episodes=episodes,
            max_steps=max_steps,
            prompt_tokens=prompt_tokens,
            response_tokens=settings.max_response_tokens,
        )
        print(
            f"{self.model}: {episodes:,} episodes, at most {requests:,} requests, {requests * prompt_tokens:,} prompt and "
            f"{requests * settings.max_response_tokens:,} response tokens, ${cost:.2f} (max_cost ${settings.max_cost:.2f}).",
            file=sys.stderr,
        )
        if cost > settings.max_cost:
            raise InputError(
                f"max_cost: found {settings.max_cost:g}, but {self.model} may cost {cost:.2f} US dollars: {episodes} "
                f"episodes of {max_steps} steps. Raise max_cost, or play fewer or shorter episodes. Nothing was asked."
            )
        return cost

    def sample(
        self, requests: tuple[SampleRequest, ...], *, seed: int, temperature: float
    ) -> list[list[Sample]]:
        """Return ``count`` samples for each request, in order; what is recorded is not asked again.

        Raises:
            NotRun: if a reply is neither recorded nor can be asked for, because there is no key.
            InputError: if the service refuses or fails, or ``max_cost`` is spent. Replies that arrived are recorded.
        """
        if not temperature >= 0:
            raise InputError(
                f"temperature: found {temperature}, expected 0 (most probable token) or more."
            )
        sent = temperature if self.settings.send_temperature else None
        digests = [
            [
                request_digest(
                    model=self.model,
                    prompt=request.prompt,
                    temperature=sent,
                    seed=seed,
                    key=request.key,
                    index=index,
                    max_response_tokens=self.settings.max_response_tokens,
                    limit_parameter=self.settings.limit_parameter,
                )
                for index in range(request.count)
            ]
            for request in requests
        ]

        recorded = self._cassette.recorded
        missing = {
            digest: request.prompt
            for request, row in zip(requests, digests, strict=True)
            for digest in row
            if digest not in recorded
        }
        self._bill.cached += sum(map(len, digests)) - len(missing)
        if missing:
            self._fetch(missing, sent)
        return [[_sample(recorded[digest]) for digest in row] for row in digests]

    def _fetch(self, prompts: dict[str, str], temperature: float | None) -> None:
        """Ask for the reply to each prompt (by digest) and record it."""
        if self.reply_source != "key":
            raise self._missing(len(prompts))
        if self._chat is None:
            spacing = RateLimiter(self.settings.requests_per_minute)
            self._chat = ChatClient(
                read_service(self.settings, self.model), spacing, **self._chat_options
            )

        chat, stop = self._chat, threading.Event()
        with ThreadPoolExecutor(self.settings.concurrency) as pool:
            futures = [
                pool.submit(self._fetch_one, chat, digest, prompt, temperature, stop)
                for digest, prompt in prompts.items()
            ]
            try:
                wait(futures)
            except BaseException:
                # An interrupt. Requests under way are paid for, so the pool's end waits for them and they are recorded.
                stop.set()
                raise
        for error in (future.exception() for future in futures):
            if error is not None and not isinstance(error, AskCancelled):
                raise error

    def _fetch_one(
        self,
        chat: ChatClient,
        digest: str,
        prompt: str,
        temperature: float | None,
        stop: threading.Event,
    ) -> None:
        try:
            self._fetch_or_fail(chat, digest, prompt, temperature, stop)
        except BaseException:
            # Set here and not where the error arrives: until then this thread would begin another request.
            stop.set()
            raise

    def _fetch_or_fail(
        self,
        chat: ChatClient,
        digest: str,
        prompt: str,
        temperature: float | None,
        stop: threading.Event,
    ) -> None:
        with self._guard:
            if self._bill.spent > self.settings.max_cost:
                raise InputError(
                    f"max_cost: {self._bill.spent:.2f} US dollars are spent on {self.model}, more than the "
                    f"{self.settings.max_cost:g} that are allowed. What was recorded stays in {self._cassette.path}; raise "
                    "max_cost and run again, and the run resumes there."
                )
        reply = chat.ask(digest, prompt, temperature, stop)
        self._cassette.record(reply)
        with self._guard:
            cost = _dollars(self.settings, *reply.tokens)
            self._bill.asked += 1
            self._bill.prompt_tokens += reply.tokens[0]
            self._bill.response_tokens += reply.tokens[1]
            self._bill.cost += cost
            self._bill.spent += cost

    def _missing(self, count: int) -> InputError:
        path = self._cassette.path
        if read_api_key(self.settings) and path.suffix == ".xz" and not self._offline:
            return InputError(
                f"{path}: {count} replies are not recorded, and a compressed cassette is read-only; decompress it (xz -dk) "
                "and name the result."
            )
        return NotRun(
            f"{self.model}: {NOT_RUN}: {count} replies are not recorded in {path}. Set {self.settings.key_env}, "
            "or name a cassette that has them: same model, tasks, seed, temperature and limit of the response."
        )


def _sample(reply: Reply) -> Sample:
    return Sample((), (), reply.text, finished=reply.finish != "length", thought=reply.thought)


def _can_ask(settings: EndpointSettings, cassette_path: Path) -> bool:
    return cassette_path.suffix != ".xz" and bool(read_api_key(settings))
