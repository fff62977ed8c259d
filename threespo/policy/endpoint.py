"""The sampler of closed models: any OpenAI-compatible chat endpoint behind ``protocol.Sampler``, with a limit of cost.

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
from threespo.policy.cassette import (
    Cassette,
    Reply,
    describe_refusals,
    read_replies,
    request_digest,
)
from threespo.policy.chat import AskCancelled, ChatClient, RateLimiter, WaitFunction
from threespo.policy.service import read_api_key, read_service
from threespo.policy.settings import EndpointSettings
from threespo.protocol import Sample, SampleRequest

ReplySource = Literal["key", "cassette", "none"]
"""Where replies come from: a service that a key opens, else recorded replies, else nowhere."""

NOT_RUN = "not run (no API key)"
"""The entry of tables for a closed model without results."""


class NotRun(InputError):
    """There is neither a key nor a recorded reply, so there is no number to report: "not run (no API key)"."""


def find_reply_source(settings: EndpointSettings, cassette_path: Path) -> ReplySource:
    """Return where replies can come from.

    A compressed cassette cannot be added to, so it counts as recorded replies whether or not there is a key.

    Raises:
        InputError: if the key is not one, or the cassette cannot be read.
    """
    if _can_ask(settings, cassette_path):
        return "key"
    replies, _ = read_replies(cassette_path)
    return "cassette" if replies else "none"


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
    return episodes * max_steps * _price(settings, prompt_tokens, response_tokens)


def _price(settings: EndpointSettings, prompt_tokens: int, response_tokens: int) -> float:
    return (prompt_tokens * settings.input_price + response_tokens * settings.output_price) / 1e6


@dataclass(slots=True)
class _Bill:
    """What this process has used, in US dollars and tokens."""

    recorded_cost: float
    """Of all replies of this model in the cassette."""
    asked: int = 0
    cached: int = 0
    prompt_tokens: int = 0
    response_tokens: int = 0
    cost: float = 0.0


class EndpointSampler:
    """Samples from a model behind a chat endpoint (``protocol.Sampler``); close it, or use it as a context manager.

    Samples have text but neither tokens nor log-probabilities, so they serve evaluation, not training. The seed decides
    which recorded reply is meant; it is not sent (see ``policy/service.py``).
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
        """Read the cassette and, if there is a key to add replies with, lock it; nothing is sent yet.

        ``offline`` leaves the key unused: the first reply that is not recorded raises ``NotRun``.

        Raises:
            InputError: if another process adds to the cassette, or it cannot be read or written.
        """
        self.settings = settings
        self.model = settings.resolve_model()
        can_ask = not offline and _can_ask(settings, cassette_path)
        self._cassette = Cassette(cassette_path, append=can_ask)

        recorded_source: ReplySource = "cassette" if self._cassette.initial_replies else "none"
        self.reply_source: ReplySource = "key" if can_ask else recorded_source

        # Replies of earlier runs count, too: the limit is that of the cassette, not of a process.
        paid = [reply for reply in self._cassette.initial_replies if reply.asked == self.model]
        self._bill = _Bill(recorded_cost=sum(_price(settings, *reply.tokens) for reply in paid))
        self._bill_lock = threading.Lock()
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
        bill = self._bill
        self._bill = _Bill(recorded_cost=bill.recorded_cost)
        if not bill.asked and not bill.cached:
            return

        line = (
            f"{self.model}: {bill.asked:,} replies asked for, {bill.cached:,} from {self._cassette.path}; "
            f"{bill.prompt_tokens:,} prompt and {bill.response_tokens:,} response tokens, ${bill.cost:.2f} now, "
            f"${bill.recorded_cost:.2f} with all that is recorded (max_cost ${self.settings.max_cost:.2f})."
        )
        refusals = describe_refusals(self._cassette.recorded.values())
        if refusals:
            line += f" In all, {refusals}."
        print(line, file=sys.stderr)

    def announce_cost(self, *, episodes: int, max_steps: int, prompt_tokens: int) -> float:
        """Print to stderr what is about to be asked and what it costs at most; return the dollars.

        Raises:
            InputError: if that is more than ``max_cost``.
        """
        settings = self.settings
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
        requests = episodes * max_steps
        all_prompt_tokens = requests * prompt_tokens
        all_response_tokens = requests * settings.max_response_tokens
        print(
            f"{self.model}: {episodes:,} episodes, at most {requests:,} requests, {all_prompt_tokens:,} prompt and "
            f"{all_response_tokens:,} response tokens, ${cost:.2f} (max_cost ${settings.max_cost:.2f}).",
            file=sys.stderr,
        )
        # Printed before the refusal, so that its reader sees what the estimate is made of.
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
        sent_temperature = temperature if self.settings.send_temperature else None
        digests = [
            [
                request_digest(
                    model=self.model,
                    prompt=request.prompt,
                    temperature=sent_temperature,
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
        # By digest, so that requests for the same reply are sent once.
        missing_prompts = {
            digest: request.prompt
            for request, row in zip(requests, digests, strict=True)
            for digest in row
            if digest not in recorded
        }
        self._bill.cached += sum(len(row) for row in digests) - len(missing_prompts)
        if missing_prompts:
            self._fetch_replies(missing_prompts, sent_temperature)
        return [[_make_sample(recorded[digest]) for digest in row] for row in digests]

    def _fetch_replies(self, prompts: dict[str, str], temperature: float | None) -> None:
        """Ask for the reply to each prompt (by digest) and record it."""
        if self.reply_source != "key":
            raise self._missing_replies_error(len(prompts))
        if self._chat is None:
            rate_limiter = RateLimiter(self.settings.requests_per_minute)
            service = read_service(self.settings, self.model)
            self._chat = ChatClient(service, rate_limiter, **self._chat_options)

        chat = self._chat
        stop = threading.Event()

        def fetch_or_stop(digest: str, prompt: str) -> None:
            try:
                self._fetch_reply(chat, digest, prompt, temperature, stop)
            except BaseException:
                # Set here and not where the error arrives: until then this thread would begin another request.
                stop.set()
                raise

        with ThreadPoolExecutor(self.settings.concurrency) as pool:
            futures = [pool.submit(fetch_or_stop, *item) for item in prompts.items()]
            try:
                wait(futures)
            except BaseException:
                # An interrupt. Requests under way are paid for, so the pool's end waits for them and they are recorded.
                stop.set()
                raise

        for future in futures:
            error = future.exception()
            if error is not None and not isinstance(error, AskCancelled):
                raise error

    def _fetch_reply(
        self,
        chat: ChatClient,
        digest: str,
        prompt: str,
        temperature: float | None,
        stop: threading.Event,
    ) -> None:
        # Requests in flight are not counted, so the limit is exceeded by their cost at most.
        with self._bill_lock:
            if self._bill.recorded_cost > self.settings.max_cost:
                raise InputError(
                    f"max_cost: {self._bill.recorded_cost:.2f} US dollars are spent on {self.model}, more than the "
                    f"{self.settings.max_cost:g} that are allowed. What was recorded stays in {self._cassette.path}; raise "
                    "max_cost and run again, and the run resumes there."
                )

        reply = chat.ask(digest, prompt, temperature, stop)
        self._cassette.record(reply)

        prompt_tokens, response_tokens = reply.tokens
        cost = _price(self.settings, prompt_tokens, response_tokens)
        with self._bill_lock:
            self._bill.asked += 1
            self._bill.prompt_tokens += prompt_tokens
            self._bill.response_tokens += response_tokens
            self._bill.cost += cost
            self._bill.recorded_cost += cost

    def _missing_replies_error(self, count: int) -> InputError:
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


def _make_sample(reply: Reply) -> Sample:
    return Sample((), (), reply.text, finished=reply.finish != "length", thought=reply.thought)


def _can_ask(settings: EndpointSettings, cassette_path: Path) -> bool:
    return cassette_path.suffix != ".xz" and bool(read_api_key(settings))
