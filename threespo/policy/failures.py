"""What a chat endpoint's errors mean: wait, correct something, or count the prompt as refused."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from threespo.policy.cassette import Refusal, Reply
from threespo.terminal import escape_controls

PROXY_LOGIN = "The proxy wants a user and a password: write HTTPS_PROXY=http://USER:PASSWORD@HOST:PORT."

_MAX_MESSAGE_CHARACTERS = 300

_CONTEXT_LENGTH = re.compile(r"context[ _-]?(length|window|size)")

_PROMPT_TOO_LONG = re.compile(
    rf"{_CONTEXT_LENGTH.pattern}|prompt_?too_?long|tokens?_limit_(reached|exceeded)|too many (input |prompt )?tokens"
    r"|(prompt|input)s?`?\b.{0,60}\b((?<!took )too (long|large)|exceeds?\b|must be <=|must have less than)"
    r"|request_too_large|request (body |entity |payload )?(is )?too large"
)
"""How services say that a prompt is too long, in codes and in words."""

_CONTENT_FILTER = re.compile(
    r"content[ _-]?(filter|management|policy|moderation|safety)|moderation|flagged|usage (policy|policies|guidelines)"
    r"|inappropriate|safety[ _](check|system|polic|filter)|responsible ?ai|high risk|exists risk|data_?inspection"
    r"|prohibited[ _]content|invalid_prompt|sensitive (content|words|information)"
)
"""How they say that a filter has refused the prompt."""

_NO_CREDIT = re.compile(
    r"insufficient[ _](quota|balance|credit|fund)|billing[ _]|credit balance|out of credit"
)

_WRONG_KEY = re.compile(
    r"(invalid|incorrect|missing|expired)[ _]api[ _]?key|api key (not|is not|expired|invalid)"
)

_UNSUPPORTED_PARAMETER = re.compile(
    r"unsupported|not support|unrecognized|unknown|only the default|deprecated"
)

_RATE_LIMIT_WORDS = ("rate_limit", "tokens per minute", "requests per minute")


@dataclass(frozen=True, slots=True)
class Failure:
    """An attempt without a usable reply."""

    reason: str
    retry: bool
    """Whether another attempt may succeed."""
    retry_after_s: float = 0.0
    """Seconds that the server asked to wait (``Retry-After``)."""
    remedy: str = ""
    """What to do about it; empty if nothing particular is known."""
    counts_as: Reply | None = None
    """The reply to record if nothing better comes: the model had its turn, or the service refuses this prompt."""
    certain: bool = True
    """Of a refused prompt: whether the service has said why, so that to ask again is of no use."""
    tokens: tuple[int, int] = (0, 0)
    """Of prompt and response that were billed without a reply."""

    @property
    def refuses_prompt(self) -> bool:
        """Whether the service refused this prompt, if it answers others."""
        return self.counts_as is not None and not self.retry


@dataclass(frozen=True, slots=True)
class ServiceError:
    """An error as a service has sent it: with an error's status, or in a body of status 200."""

    status: int
    message: str
    codes: tuple[str, ...] = ()
    """Values of its machine-readable fields (code, type and the like) in small letters."""
    in_success_body: bool = False
    """Whether the response itself had status 200; ``status`` is then what the body says (200 if it says none)."""

    @property
    def title(self) -> str:
        if not self.in_success_body:
            return f"HTTP {self.status}"
        stated = f" {self.status}" if self.status != 200 else ""
        return f"HTTP 200 with an error{stated}"

    def matches(self, pattern: re.Pattern[str]) -> bool:
        return any(pattern.search(text) for text in (self.message.lower(), *self.codes))


class _ErrorObject(NamedTuple):
    message: str
    codes: tuple[str, ...]


def parse_error_response(status: int, body: str) -> ServiceError:
    """Return the error that a response with an error's status holds; its message is the body if the form is unknown."""
    try:
        found = _parse_error_object(json.loads(body))
    except (ValueError, RecursionError):
        found = None
    if found is None:
        return ServiceError(status, body)
    return ServiceError(status, found.message, found.codes)


def find_error(value: Any) -> ServiceError | None:
    """Return the error in a body of status 200; ``None`` if there is none."""
    found = _parse_error_object(value)
    if found is None:
        return None

    status = next((int(code) for code in found.codes if re.fullmatch("[45][0-9][0-9]", code)), 200)
    if status == 200 and any(re.search("invalid_?request|bad_?request", code) for code in found.codes):
        status = 400
    return ServiceError(status, found.message, found.codes, in_success_body=True)


def _parse_error_object(value: Any) -> _ErrorObject | None:
    """Return message and codes of an error object; ``None`` if there is none.

    It has several forms: ``{"error": {"message", "code", ...}}``, a list of that, ``{"error": "words"}``,
    ``{"object": "error", "message"}``, ``{"detail": ...}``.
    """
    if isinstance(value, list) and value:
        value = value[0]
    if not isinstance(value, dict):
        return None

    error = value.get("error")
    # With choices in the body, only ``error`` is one: that of a reply that had begun.
    if not error and not value.get("choices") and {"message", "detail"} & value.keys():
        error = value
    if not error:
        return None
    if not isinstance(error, dict):
        return _ErrorObject(_as_text(error), ())

    # Azure puts the filter's code into "innererror", OpenRouter the provider's own error into "metadata".
    inner = [error[name] for name in ("innererror", "metadata") if isinstance(error.get(name), dict)]
    names = ("code", "type", "status", "reasons", "param")
    codes = [part.get(name) for part in (error, *inner) for name in names]
    messages = [error.get("message"), error.get("detail"), *(part.get("raw") for part in inner)]
    message = ": ".join(_as_text(one) for one in messages if one) or _as_text(error)
    return _ErrorObject(message, tuple(_as_text(code).lower() for code in codes if code))


def classify_error(
    error: ServiceError, refused: Reply, secrets: Sequence[str], settings: str
) -> Failure:
    """Return what an error means.

    Args:
        error: as the service has sent it.
        refused: what is recorded of a prompt that it refuses, without the kind of refusal.
        secrets: keys and passwords that no message may show, although services quote them.
        settings: the environment variables with the address and the key.
    """
    status = error.status
    message = redact_secrets(error.message, secrets)
    quoted = f" ({message})" if message else ""
    reason = error.title + quoted

    # Before the other statuses: services report a lack of credit with 400, 403 or 429, too.
    if status == 402 or (status != 401 and _is_lack_of_credit(error)):
        remedy = "Add credit at the service or raise its limit; the key itself is right."
        return Failure(reason, retry=False, remedy=remedy)
    if status == 401 or (status in (400, 403) and error.matches(_WRONG_KEY)):
        reason = f"{error.title}, the server refuses the key{quoted}"
        return Failure(reason, retry=False, remedy=f"Check {settings}.")
    # 407 is the proxy's, not the service's.
    if status == 407:
        return Failure(reason, retry=False, remedy=PROXY_LOGIN)

    refusal = _find_prompt_refusal(error)
    if refusal is not None:
        has_filter_code = any(_CONTENT_FILTER.search(code) for code in error.codes)
        # A 403 with a filter's code may also mean that the account may not use the model.
        is_certain_filter = refusal == "prompt_filtered" and has_filter_code and status != 403
        return Failure(
            reason,
            retry=False,
            remedy=_suggest_remedy(error, settings),
            counts_as=refused.model_copy(update={"refused": refusal}),
            certain=refusal == "prompt_too_long" or is_certain_filter,
        )

    if status == 403:
        remedy = f"The key may not use this model or not from here: check {settings}, and the rights of the account."
        return Failure(f"{error.title}, the server refuses access{quoted}", retry=False, remedy=remedy)
    # With the message of a rate limit, or it would be a prompt that is too long.
    if status == 413:
        remedy = "Raise the account's limit of tokens per minute at the service."
        return Failure(reason, retry=False, remedy=remedy)
    if status in (200, 408, 409, 425, 429) or status >= 500:
        return Failure(reason, retry=True)
    return Failure(reason, retry=False, remedy=_suggest_remedy(error, settings))


def _is_lack_of_credit(error: ServiceError) -> bool:
    if error.status in (429, 200):
        # At some services the message of a limit per minute is the same; the codes differ.
        return any(_NO_CREDIT.search(code) for code in error.codes)
    return error.status < 500 and error.matches(_NO_CREDIT)


def _find_prompt_refusal(error: ServiceError) -> Refusal | None:
    """Return in which way an error can be caused by the prompt; ``None`` if it has another cause."""
    status = error.status
    texts = (error.message.lower(), *error.codes)
    is_rate_limit = any(words in text for words in _RATE_LIMIT_WORDS for text in texts)
    if status in (404, 408, 409, 425, 429) or is_rate_limit:
        return None

    # A server that fails may mention the prompt, too: that it took too long, for one.
    if error.matches(_PROMPT_TOO_LONG if status < 500 else _CONTEXT_LENGTH):
        return "prompt_too_long"
    if status < 500 and error.matches(_CONTENT_FILTER):
        return "prompt_filtered"
    if status == 413:
        return "prompt_too_long"
    if status in (400, 422) and not _suggest_parameter(error):
        return "prompt_refused"
    return None


def _suggest_parameter(error: ServiceError) -> str:
    """Return what to set if a service does not take a parameter as it is sent; empty if it does not say so."""
    if not error.matches(_UNSUPPORTED_PARAMETER):
        return ""
    message = error.message.lower()
    if "max_tokens" in message or "max_completion_tokens" in message:
        return "Set the endpoint's limit_parameter to the other of max_tokens and max_completion_tokens."
    return "Set the endpoint's send_temperature: false." if "temperature" in message else ""


def _suggest_remedy(error: ServiceError, settings: str) -> str:
    remedy = _suggest_parameter(error) if error.status in (400, 422) else ""
    return remedy or f"Check {settings}, and the endpoint's settings."


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def redact_secrets(message: str, secrets: Iterable[str]) -> str:
    """Return a server's message in one line of at most 300 characters, without any part of a secret.

    Servers quote keys with stars in the middle, or their first or last characters alone.
    """
    known_secrets = list(secrets)
    # Word by word, since a secret that can be sent has no blank: the rest of the sentence is what helps.
    words = []
    for word in message.split():
        is_secret = any(_quotes_secret(secret, word) for secret in known_secrets)
        words.append("[…]" if is_secret else word)

    # A secret may also be spread over several words.
    joined = "".join(words)
    if any(len(secret) >= 8 and shares_secret_text(secret, joined) for secret in known_secrets):
        return "its message is left out, since it quotes the API key or a password"
    return escape_controls(" ".join(words)[:_MAX_MESSAGE_CHARACTERS])


def _quotes_secret(secret: str, word: str) -> bool:
    bare = word.strip("\"'`.,:;!?()[]{}<>")
    is_masked = re.search(r"\*{2,}|•{2,}|x{5,}|\S(…|\.{3})\S", word, re.IGNORECASE) is not None
    is_one_end = len(bare) >= 4 and (secret.startswith(bare) or secret.endswith(bare))
    return is_masked or is_one_end or shares_secret_text(secret, word)


def shares_secret_text(secret: str, text: str) -> bool:
    """Return whether ``text`` contains any eight consecutive characters of a secret, or all of a shorter one."""
    length = min(8, len(secret))
    starts = range(len(secret) - length + 1)
    return any(secret[start : start + length] in text for start in starts)
