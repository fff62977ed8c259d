"""A chat service: where and with which key it is asked, and one request to it."""

import base64
import datetime
import email.utils
import os
import ssl
import urllib.parse
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from threespo.errors import InputError
from threespo.network import is_local_url, list_proxy_variables, make_http_client
from threespo.policy.cassette import Reply
from threespo.policy.completions import parse_reply
from threespo.policy.failures import (
    PROXY_LOGIN,
    Failure,
    ServiceError,
    classify_error,
    parse_error_response,
    redact_secrets,
)
from threespo.policy.settings import EndpointSettings

if TYPE_CHECKING:
    import openai

_OPENAI = "https://api.openai.com/v1"


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
    limit_parameter: str = "max_tokens"
    """The name under which that is sent."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must get out nowhere."""
        address = urllib.parse.urlsplit(self.base_url)
        user, password = (
            urllib.parse.unquote(part or "") for part in (address.username, address.password)
        )
        # As it is sent, too: a service may repeat what it has received.
        sent = base64.b64encode(f"{user}:{password}".encode()).decode() if password else ""
        return tuple(filter(None, (self.key, password, sent)))


class Connection:
    """Sends requests to a service; any number of threads may."""

    def __init__(self, service: Service) -> None:
        """Prepare a client; nothing is sent.

        Raises:
            InputError: if the environment names a proxy or certificates that no client can be made with.
        """
        import openai

        self._service = service

        def make() -> openai.OpenAI:
            # What the environment names may be unusable, and a server on this machine needs none of it.
            own = openai.DefaultHttpxClient(trust_env=False) if is_local_url(service.base_url) else None
            # Retries are counted, spaced and announced here, so the client must not have its own.
            return openai.OpenAI(
                api_key=service.key,
                base_url=service.base_url,
                timeout=service.timeout_s,
                max_retries=0,
                http_client=own,
            )

        self._client = make_http_client(service.model, make)

    def send_request(self, digest: str, prompt: str, temperature: float | None) -> Reply | Failure:
        """Send one request and return the reply, or what came in its place.

        Args:
            digest: name of the request.
            prompt: the user message.
            temperature: of sampling; ``None`` is not sent.
        """
        import openai

        service = self._service
        # No seed: draws are independent without it, it promises no repetition (the cassette does), and some servers
        # (Gemini's) have refused it.
        sent: dict[str, Any] = {service.limit_parameter: service.max_response_tokens}
        if temperature is not None:
            sent["temperature"] = temperature
        try:
            # The raw body, because the client takes anything for a completion, or raises errors of its JSON parser.
            response = self._client.chat.completions.with_raw_response.create(
                model=service.model, messages=[{"role": "user", "content": prompt}], **sent
            )
            body = response.text
        except openai.APITimeoutError:
            return Failure(f"no answer within {service.timeout_s:g} s", retry=True)
        except openai.APIConnectionError as error:
            return self._unconnected(error)
        except openai.APIStatusError as error:
            said = parse_error_response(error.status_code, error.response.text)
            return self._judged(said, digest, _retry_after(error.response.headers.get("retry-after")))

        # Local servers take any word as a key ("none"), which a reply may well contain.
        if any(len(secret) >= 16 and secret in body for secret in service.secrets):
            return Failure(
                "the reply contains the API key or a password; it was not recorded", retry=False
            )
        most = (len(prompt.encode(errors="replace")), service.max_response_tokens)
        outcome = parse_reply(body, digest, service.model, most)
        return self._judged(outcome, digest) if isinstance(outcome, ServiceError) else outcome

    def _judged(self, error: ServiceError, digest: str, wait: float = 0.0) -> Failure:
        service = self._service
        refused = Reply(
            digest=digest, asked=service.model, served="", text="", finish=None, tokens=(0, 0)
        )
        failure = classify_error(error, refused, service.secrets, service.variables)
        return replace(failure, retry_after_s=wait) if failure.retry else failure

    def _unconnected(self, error: "openai.APIConnectionError") -> Failure:
        """Return what a failed connection means; certificates do not become right by another attempt."""
        causes: list[BaseException] = []
        cause: BaseException | None = error.__cause__
        while cause is not None and cause not in causes:
            causes.append(cause)
            cause = cause.__cause__ or cause.__context__
        words = redact_secrets(str(causes[-1]) if causes else "", self._service.secrets)
        name = type(causes[0]).__name__ if causes else "no reason given"
        detail = f"{name}: {words}" if words else name
        through = "" if is_local_url(self._service.base_url) else " and ".join(list_proxy_variables())
        reason = f"the connection failed or broke off ({detail})" + (
            f"; proxies are in {through}" if through else ""
        )

        if any(isinstance(one, ssl.SSLCertVerificationError) for one in causes):
            remedy = "Name the file of the authority that signed its certificate in SSL_CERT_FILE, or correct the address."
            return Failure(reason, retry=False, remedy=remedy)
        if name == "ProxyError" and "407" in words:
            return Failure(reason, retry=False, remedy=PROXY_LOGIN)
        return Failure(reason, retry=True)


def read_api_key(settings: EndpointSettings) -> str:
    """Return the key, empty if there is none; raise ``InputError`` if it cannot be sent, since libraries would print it."""
    key = os.environ.get(settings.key_env, "").strip()
    if not all("!" <= character <= "~" for character in key):
        raise InputError(
            f"{settings.key_env}: no API key has spaces or other than ASCII characters; copy it anew."
        )
    return key


def read_service(settings: EndpointSettings, model: str) -> Service:
    """Return whom to ask for a model; raise ``InputError`` if the environment has no address for it."""
    url = os.environ.get(settings.base_url_env, "").strip()
    if not url and settings.base_url_env == EndpointSettings.model_fields["base_url_env"].default:
        url = _OPENAI
    try:
        parts = urllib.parse.urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        valid = False
    if not valid:
        raise InputError(
            f"{settings.base_url_env}: {'found no http(s) address' if url else 'not set'}; set it to the address of the "
            f"service, up to and without /chat/completions, e.g. {_OPENAI}."
        )
    names = [
        settings.key_env,
        settings.base_url_env,
        *([settings.model_env] if settings.model_env else []),
    ]
    return Service(
        model=model,
        base_url=url,
        key=read_api_key(settings),
        variables=", ".join(names[:-1]) + f" and {names[-1]}",
        timeout_s=settings.timeout_s,
        max_attempts=settings.max_attempts,
        max_response_tokens=settings.max_response_tokens,
        limit_parameter=settings.limit_parameter,
    )


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
