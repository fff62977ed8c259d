"""What the environment says of the network, proxies and certificates: HTTP clients read it when they are made."""

import ipaddress
import os
import urllib.parse
from collections.abc import Callable
from typing import TypeVar

from threespo.errors import InputError

ClientT = TypeVar("ClientT")

_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")


def is_local_url(url: str) -> bool:
    """Return whether an address is this machine's own, by plain HTTP: no proxy and no certificate has a part in it."""
    address = urllib.parse.urlsplit(url)
    host = address.hostname or ""
    if address.scheme != "http":
        return False
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        number = ipaddress.ip_address(host)
    except ValueError:
        return False
    # 0.0.0.0 is where servers listen, and what people copy from their output.
    return number.is_loopback or number.is_unspecified


def make_http_client(what: str, make: Callable[[], ClientT]) -> ClientT:
    """Return the HTTP client that ``make`` returns.

    Clients read all proxies and certificates at once, also those that the address at hand does not need.

    Args:
        what: what it is for, the beginning of messages.
        make: makes it.

    Raises:
        InputError: if the environment names a proxy or certificates that cannot be used.
    """
    try:
        return make()
    # Libraries have errors of their own for a wrong address, ImportError for SOCKS, OSError for certificates.
    except Exception as error:
        if not isinstance(error, ImportError | OSError) and not list_proxy_variables():
            raise
        fault = _fault(error)
    # Outside of the except clause: the client's errors may hold a proxy's password.
    raise InputError(f"{what}: no HTTP client can be made with what the environment names. {fault}")


def list_proxy_variables() -> list[str]:
    """Return the names of the variables that name proxies; their values may hold passwords."""
    return _set(_PROXIES)


def _fault(error: Exception) -> str:
    named = " and ".join(list_proxy_variables())
    if isinstance(error, ImportError):
        return f"A proxy in {named} speaks SOCKS, for which a package is missing: pip install socksio, or unset it."
    if isinstance(error, OSError):
        files = (
            " and ".join(f"{name}={os.environ[name]}" for name in _set(_CERTIFICATES)) or "certificates"
        )
        return f"{files}: {error.strerror or error}. Name a file of certificates in PEM form that is there, or unset it."
    return f"A proxy in {named} has no usable address ({type(error).__name__}): write http://HOST:PORT, or unset it."


def _set(names: tuple[str, ...]) -> list[str]:
    """Return those of the variables that are set, as they are spelled: proxies are read in small letters, too."""
    return [spelled for name in names for spelled in (name, name.lower()) if os.environ.get(spelled)]
