"""What a chat endpoint's errors mean: wait, correct something, or take it that the prompt itself is refused."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from threespo.policy.cassette import Refusal, Reply
from threespo.terminal import escape_controls

PROXY_LOGIN = "The proxy wants a user and a password: write HTTPS_PROXY=http://USER:PASSWORD@HOST:PORT."

_MOST_WORDS = 300

_CONTEXT = re.compile(r"context[ _-]?(length|window|size)")

_LENGTH = re.compile(
    rf"{_CONTEXT.pattern}|prompt_?too_?long|tokens?_limit_(reached|exceeded)|too many (input |prompt )?tokens"
    r"|(prompt|input)s?`?\b.{0,60}\b((?<!took )too (long|large)|exceeds?\b|must be <=|must have less than)"
    r"|request_too_large|request (body |entity |payload )?(is )?too large"
)
"""How services say that a prompt is too long, in codes and in words."""

_FILTER = re.compile(
    r"content[ _-]?(filter|management|policy|moderation|safety)|moderation|flagged|usage (policy|policies|guidelines)"
    r"|inappropriate|safety[ _](check|system|polic|filter)|responsible ?ai|high risk|exists risk|data_?inspection"
    r"|prohibited[ _]content|invalid_prompt|sensitive (content|words|information)"
)
"""How they say that a filter has refused it."""

_CREDIT = re.compile(
    r"insufficient[ _](quota|balance|credit|fund)|billing[ _]|credit balance|out of credit"
)

_KEY = re.compile(
    r"(invalid|incorrect|missing|expired)[ _]api[ _]?key|api key (not|is not|expired|invalid)"
)

_UNSUPPORTED = re.compile(r"unsupported|not support|unrecognized|unknown|only the default|deprecated")

_RATE = ("rate_limit", "tokens per minute", "requests per minute")


@dataclass(frozen=True, slots=True)
class Failure:
    """An attempt without a usable reply."""

    reason: str
    retry: bool
    retry_after_s: float = 0.0
    """Seconds that the server asked to wait (``Retry-After``)."""
    remedy: str = ""
    """What to do about it; empty if nothing particular is known."""
    counts_as: Reply | None = None
    """The reply that stands if nothing better comes: the model had its turn, or the prompt is what the service refuses."""
    certain: bool = True
    """Of a refused prompt: whether the service has said why, so that to ask again is of no use."""
    tokens: tuple[int, int] = (0, 0)
    """Of prompt and response that were billed for nothing."""

    @property
    def refuses_prompt(self) -> bool:
        """Whether the service refused this prompt, if it answers others."""
        return self.counts_as is not None and not self.retry


@dataclass(frozen=True, slots=True)
class ServiceError:
    """An error as a service has put it: with its status, or within a body of status 200."""

    status: int
    message: str
    codes: tuple[str, ...] = ()
    """What it has for programs: code, type and the like, in small letters."""
    in_success_body: bool = False
    """Whether the response itself had status 200, and ``status`` is what the body says (200 if it says none)."""

    @property
    def title(self) -> str:
        if not self.in_success_body:
            return f"HTTP {self.status}"
        return "HTTP 200 with an error" + (f" {self.status}" if self.status != 200 else "")

    def matches(self, pattern: re.Pattern[str]) -> bool:
        return any(pattern.search(text) for text in (self.message.lower(), *self.codes))


def parse_error_response(status: int, body: str) -> ServiceError:
    """Return the error that a response with an error's status holds; its words are the body's if it has no known form."""
    try:
        found = error_in(json.loads(body))
    except (ValueError, RecursionError):
        found = None
    return ServiceError(status, *found) if found else ServiceError(status, body)


def find_error(value: Any) -> ServiceError | None:
    """Return the error in a body of status 200; ``None`` if there is none."""
    found = error_in(value)
    if found is None:
        return None
    words, codes = found
    stated = next((int(code) for code in codes if re.fullmatch("[45][0-9][0-9]", code)), 200)
    if stated == 200 and any(re.search("invalid_?request|bad_?request", code) for code in codes):
        stated = 400
    return ServiceError(stated, words, codes, in_success_body=True)


def error_in(value: Any) -> tuple[str, tuple[str, ...]] | None:
    """Return words and codes of an error object; ``None`` if there is none.

    It has several forms: ``{"error": {"message", "code", ...}}``, a list of that, ``{"error": "words"}``,
    ``{"object": "error", "message"}``, ``{"detail": ...}``.
    """
    if isinstance(value, list) and value:
        value = value[0]
    if not isinstance(value, dict) or value.get("choices"):
        # An error beside choices is the error of a reply that had begun.
        value = {"error": value.get("error")} if isinstance(value, dict) else {}

    error = value.get("error") or (value if {"message", "detail"} & value.keys() else None)
    if not error:
        return None
    if not isinstance(error, dict):
        return _text(error), ()

    inner = [error[name] for name in ("innererror", "metadata") if isinstance(error.get(name), dict)]
    codes = [
        part.get(name)
        for part in (error, *inner)
        for name in ("code", "type", "status", "reasons", "param")
    ]
    said = [error.get("message"), error.get("detail"), *(part.get("raw") for part in inner)]
    words = ": ".join(_text(one) for one in said if one) or _text(error)
    return words, tuple(_text(code).lower() for code in codes if code)


def classify_error(
    error: ServiceError, refused: Reply, secrets: Sequence[str], settings: str
) -> Failure:
    """Return what an error means.

    Args:
        error: what the service has said.
        refused: what is recorded of a prompt that it refuses, without the kind of refusal.
        secrets: what must get out nowhere, although services quote it.
        settings: the environment variables that say whom to ask with which key.
    """
    status = error.status
    said = redact_secrets(error.message, secrets)
    quoted = f" ({said})" if said else ""
    reason = error.title + quoted

    if status == 402 or (status != 401 and _wants_credit(error)):
        return Failure(
            reason,
            retry=False,
            remedy="Add credit at the service or raise its limit; the key itself is right.",
        )
    if status == 401 or (status in (400, 403) and error.matches(_KEY)):
        return Failure(
            f"{error.title}, the server refuses the key{quoted}",
            retry=False,
            remedy=f"Check {settings}.",
        )
    if status == 407:
        return Failure(reason, retry=False, remedy=PROXY_LOGIN)

    if kind := _refusal_of_prompt(error):
        reply = refused.model_copy(update={"refused": kind})
        coded = any(_FILTER.search(code) for code in error.codes)
        certain = kind == "prompt_too_long" or (kind == "prompt_filtered" and coded and status != 403)
        return Failure(
            reason, retry=False, remedy=_remedy(error, settings), counts_as=reply, certain=certain
        )

    if status == 403:
        remedy = f"The key may not use this model or not from here: check {settings}, and the rights of the account."
        return Failure(f"{error.title}, the server refuses access{quoted}", retry=False, remedy=remedy)
    if status == 413:
        return Failure(
            reason, retry=False, remedy="Raise the account's limit of tokens per minute at the service."
        )
    retry = status in (408, 409, 425, 429) or status >= 500 or status == 200
    return Failure(reason, retry, remedy="" if retry else _remedy(error, settings))


def _wants_credit(error: ServiceError) -> bool:
    if error.status in (429, 200):
        # The words of limits per minute are the same at some services; their codes are not.
        return any(_CREDIT.search(code) for code in error.codes)
    return error.status < 500 and error.matches(_CREDIT)


def _refusal_of_prompt(error: ServiceError) -> Refusal | None:
    """Return in which way an error can be the prompt's; ``None`` if it is something else's."""
    status, text = error.status, error.message.lower()
    if status in (404, 408, 409, 425, 429) or any(
        mark in one for mark in _RATE for one in (text, *error.codes)
    ):
        return None
    # A server that fails may speak of a prompt, too: that it took too long, for one.
    if error.matches(_LENGTH if status < 500 else _CONTEXT):
        return "prompt_too_long"
    if status < 500 and error.matches(_FILTER):
        return "prompt_filtered"
    if status == 413:
        return "prompt_too_long"
    unsupported = _parameter_remedy(error)
    return "prompt_refused" if status in (400, 422) and not unsupported else None


def _parameter_remedy(error: ServiceError) -> str:
    """Return what to set if a service does not take a parameter as it is sent; empty if it does not say so."""
    if not error.matches(_UNSUPPORTED):
        return ""
    text = error.message.lower()
    if "max_tokens" in text or "max_completion_tokens" in text:
        return "Set the endpoint's limit_parameter to the other of max_tokens and max_completion_tokens."
    return "Set the endpoint's send_temperature: false." if "temperature" in text else ""


def _remedy(error: ServiceError, settings: str) -> str:
    known = _parameter_remedy(error) if error.status in (400, 422) else ""
    return known or f"Check {settings}, and the endpoint's settings."


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def redact_secrets(words: str, secrets: Iterable[str]) -> str:
    """Return a server's words in one line of at most 300 characters, without any part of a secret.

    Servers quote keys with stars in the middle, or their first or last characters alone.
    """
    known = list(secrets)
    # By words, since no secret that can be sent has a blank: the rest of the sentence is what helps.
    kept = ["[…]" if any(_quotes(secret, word) for secret in known) else word for word in words.split()]
    line = escape_controls(" ".join(kept)[:_MOST_WORDS])
    if any(len(secret) >= 8 and shares_secret_text(secret, "".join(kept)) for secret in known):
        return "its message is left out, since it quotes the API key or a password"
    return line


def _quotes(secret: str, word: str) -> bool:
    bare = word.strip("\"'`.,:;!?()[]{}<>")
    masked = re.search(r"\*{2,}|•{2,}|x{5,}|\S(…|\.{3})\S", word, re.IGNORECASE) is not None
    end = len(bare) >= 4 and (secret.startswith(bare) or secret.endswith(bare))
    return masked or end or shares_secret_text(secret, word)


def shares_secret_text(secret: str, text: str) -> bool:
    """Return whether ``text`` contains any eight consecutive characters of a secret, or all of a shorter one."""
    length = min(8, len(secret))
    return any(secret[start : start + length] in text for start in range(len(secret) - length + 1))
