"""HTTP clients, and the environment variables for proxies and certificates that a client reads when it is made."""

import ipaddress
import os
import urllib.parse
from collections.abc import Callable
from typing import TypeVar

from threespo.errors import InputError

ClientT = TypeVar("ClientT")


def is_local_url(url: str) -> bool:
    """Return whether an address is plain HTTP to this machine, which needs neither proxy nor certificate."""
    address = urllib.parse.urlsplit(url)
    host = address.hostname or ""
    if address.scheme != "http":
        return False
    if host == "localhost" or host.endswith(".localhost"):
        return True

    try:
        ip_address = ipaddress.ip_address(host)
    except ValueError:
        return False
    # Servers print 0.0.0.0 as the address that they listen on, and people copy it.
    return ip_address.is_loopback or ip_address.is_unspecified


def make_http_client(purpose: str, make: Callable[[], ClientT]) -> ClientT:
    """Return the HTTP client that ``make`` returns.

    A client reads all proxies and certificates of the environment at once, also those that its address does not need.

    Args:
        purpose: what the client is for, the beginning of messages.
        make: makes the client.

    Raises:
        InputError: if the environment names a proxy or certificates that cannot be used.
    """
    try:
        return make()
    # Libraries raise their own errors for a wrong address, ImportError for SOCKS and OSError for certificates.
    except Exception as error:
        if not isinstance(error, ImportError | OSError) and not list_proxy_variables():
            raise
        explanation = _explain_client_error(error)
    # Raised outside of the except clause: the client's error, as its context, may hold a proxy's password.
    raise InputError(
        f"{purpose}: no HTTP client can be made with what the environment names. {explanation}"
    )


def list_proxy_variables() -> list[str]:
    """Return the names of the set variables that name proxies; their values may hold passwords."""
    return _list_set_variables("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


def _explain_client_error(error: Exception) -> str:
    proxies = " and ".join(list_proxy_variables())
    if isinstance(error, ImportError):
        return f"A proxy in {proxies} speaks SOCKS, for which a package is missing: pip install socksio, or unset it."

    if isinstance(error, OSError):
        variables = _list_set_variables("SSL_CERT_FILE", "SSL_CERT_DIR")
        files = " and ".join(f"{name}={os.environ[name]}" for name in variables) or "certificates"
        return f"{files}: {error.strerror or error}. Name a file of certificates in PEM form that is there, or unset it."

    return f"A proxy in {proxies} has no usable address ({type(error).__name__}): write http://HOST:PORT, or unset it."


def _list_set_variables(*names: str) -> list[str]:
    # Proxies are read from variables in small letters, too.
    spellings = [spelling for name in names for spelling in (name, name.lower())]
    return [spelling for spelling in spellings if os.environ.get(spelling)]
