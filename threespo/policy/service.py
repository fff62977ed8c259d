"""A chat service: its address, model and key, and one request to it."""

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

_OPENAI_URL = "https://api.openai.com/v1"


@dataclass(frozen=True, slots=True)
class Service:
    """Where a model is asked, and how."""

    model: str
    base_url: str = field(repr=False)
    """May contain a password (http://USER:PASSWORD@HOST)."""
    key: str = field(repr=False)
    variables: str
    """The environment variables that all of this was read from, for messages."""
    timeout_s: float
    max_attempts: int
    max_response_tokens: int
    limit_parameter: str = "max_tokens"
    """The name under which ``max_response_tokens`` is sent."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """Keys and passwords that no message and no file may show."""
        address = urllib.parse.urlsplit(self.base_url)
        user = urllib.parse.unquote(address.username or "")
        password = urllib.parse.unquote(address.password or "")
        # As it is sent, too: a service may repeat what it has received.
        basic_auth = base64.b64encode(f"{user}:{password}".encode()).decode() if password else ""
        return tuple(secret for secret in (self.key, password, basic_auth) if secret)


class Connection:
    """Sends requests to a service; any number of threads may."""

    def __init__(self, service: Service) -> None:
        """Prepare a client; nothing is sent.

        Raises:
            InputError: if the environment names a proxy or certificates that no client can be made with.
        """
        import openai

        self._service = service

        def make_client() -> openai.OpenAI:
            http_client = None
            if is_local_url(service.base_url):
                # A server on this machine needs no proxy and no certificate, and those of the environment may be unusable.
                http_client = openai.DefaultHttpxClient(trust_env=False)
            return openai.OpenAI(
                api_key=service.key,
                base_url=service.base_url,
                timeout=service.timeout_s,
                # Retries are counted, spaced and announced by ChatClient.
                max_retries=0,
                http_client=http_client,
            )

        self._client = make_http_client(service.model, make_client)

    def send_request(self, digest: str, prompt: str, temperature: float | None) -> Reply | Failure:
        """Send one request and return the reply, or why there is none.

        Args:
            digest: name of the request.
            prompt: the user message.
            temperature: of sampling; ``None`` is not sent.
        """
        import openai

        service = self._service
        # No seed: draws are independent without it, it promises no repetition (the cassette does), and some servers
        # (Gemini's) have refused it.
        parameters: dict[str, Any] = {service.limit_parameter: service.max_response_tokens}
        if temperature is not None:
            parameters["temperature"] = temperature
        try:
            # The raw body, because the client takes anything for a completion, or raises errors of its JSON parser.
            response = self._client.chat.completions.with_raw_response.create(
                model=service.model, messages=[{"role": "user", "content": prompt}], **parameters
            )
            body = response.text
        except openai.APITimeoutError:
            return Failure(f"no answer within {service.timeout_s:g} s", retry=True)
        except openai.APIConnectionError as error:
            return self._explain_connection_error(error)
        except openai.APIStatusError as error:
            service_error = parse_error_response(error.status_code, error.response.text)
            retry_after_s = _parse_retry_after(error.response.headers.get("retry-after"))
            return self._classify(service_error, digest, retry_after_s)

        # Of at least 16 characters: local servers take any word as a key ("none"), which a reply may well contain.
        if any(len(secret) >= 16 and secret in body for secret in service.secrets):
            reason = "the reply contains the API key or a password; it was not recorded"
            return Failure(reason, retry=False)

        # No token is shorter than a byte, so the prompt's bytes bound its tokens.
        max_tokens = (len(prompt.encode(errors="replace")), service.max_response_tokens)
        outcome = parse_reply(body, digest, service.model, max_tokens)
        return self._classify(outcome, digest) if isinstance(outcome, ServiceError) else outcome

    def _classify(self, error: ServiceError, digest: str, retry_after_s: float = 0.0) -> Failure:
        service = self._service
        refused = Reply(
            digest=digest, asked=service.model, served="", text="", finish=None, tokens=(0, 0)
        )
        failure = classify_error(error, refused, service.secrets, service.variables)
        return replace(failure, retry_after_s=retry_after_s) if failure.retry else failure

    def _explain_connection_error(self, error: "openai.APIConnectionError") -> Failure:
        causes: list[BaseException] = []
        cause: BaseException | None = error.__cause__
        while cause is not None and cause not in causes:
            causes.append(cause)
            cause = cause.__cause__ or cause.__context__

        name = type(causes[0]).__name__ if causes else "no reason given"
        message = redact_secrets(str(causes[-1]) if causes else "", self._service.secrets)
        detail = f"{name}: {message}" if message else name
        reason = f"the connection failed or broke off ({detail})"
        proxies = [] if is_local_url(self._service.base_url) else list_proxy_variables()
        if proxies:
            reason += f"; proxies are in {' and '.join(proxies)}"

        # Another attempt mends neither a certificate nor a missing login.
        if any(isinstance(one, ssl.SSLCertVerificationError) for one in causes):
            remedy = "Name the file of the authority that signed its certificate in SSL_CERT_FILE, or correct the address."
            return Failure(reason, retry=False, remedy=remedy)
        if name == "ProxyError" and "407" in message:
            return Failure(reason, retry=False, remedy=PROXY_LOGIN)
        return Failure(reason, retry=True)


def read_api_key(settings: EndpointSettings) -> str:
    """Return the key, empty if there is none.

    Raises:
        InputError: if it cannot be sent; libraries would print it in their error.
    """
    key = os.environ.get(settings.key_env, "").strip()
    if not all("!" <= character <= "~" for character in key):
        raise InputError(
            f"{settings.key_env}: no API key has spaces or other than ASCII characters; copy it anew."
        )
    return key


def read_service(settings: EndpointSettings, model: str) -> Service:
    """Return the service that answers for a model.

    Raises:
        InputError: if the environment has no address for it.
    """
    url = os.environ.get(settings.base_url_env, "").strip()
    if not url and settings.base_url_env == EndpointSettings.model_fields["base_url_env"].default:
        url = _OPENAI_URL
    if not _is_http_url(url):
        raise InputError(
            f"{settings.base_url_env}: {'found no http(s) address' if url else 'not set'}; set it to the address of the "
            f"service, up to and without /chat/completions, e.g. {_OPENAI_URL}."
        )

    variables = f"{settings.key_env} and {settings.base_url_env}"
    if settings.model_env:
        variables = f"{settings.key_env}, {settings.base_url_env} and {settings.model_env}"
    return Service(
        model=model,
        base_url=url,
        key=read_api_key(settings),
        variables=variables,
        timeout_s=settings.timeout_s,
        max_attempts=settings.max_attempts,
        max_response_tokens=settings.max_response_tokens,
        limit_parameter=settings.limit_parameter,
    )


def _is_http_url(url: str) -> bool:
    try:
        parts = urllib.parse.urlsplit(url)
        # ``port`` raises ValueError where it is not a number.
        has_valid_port = parts.port is None or parts.port >= 0
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and has_valid_port


def _parse_retry_after(value: str | None) -> float:
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
    if date.tzinfo is None:
        date = date.replace(tzinfo=datetime.UTC)
    return max(0.0, (date - datetime.datetime.now(datetime.UTC)).total_seconds())
