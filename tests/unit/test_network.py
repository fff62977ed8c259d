"""Proxies and certificates of the environment, usable or not, before closed models and the model hub."""

import datetime
import ipaddress
import socket
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from huggingface_hub import close_session, constants

from tests import chat_server
from tests.chat_server import ChatServer, answers
from tests.endpoint_behaviours import rows
from threespo import hub
from threespo.errors import InputError
from threespo.network import is_local_url, make_http_client
from threespo.policy.cassette import read_replies
from threespo.policy.endpoint import EndpointSampler, EndpointSettings
from threespo.protocol import SampleRequest

VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")
SOCKS = [
    {"ALL_PROXY": "socks5://localhost:1080"},
    {"all_proxy": "socks5h://me:not-a-real-password@localhost:1080"},
    {"HTTPS_PROXY": "socks5://localhost:1080"},
    {"http_proxy": "socks5://[::1]:1080"},
]
NO_ADDRESSES = [
    {"ALL_PROXY": "gopher://me:not-a-real-password@localhost"},
    {"HTTP_PROXY": "http://localhost:port"},
    {"https_proxy": "http://[::1"},
    {"HTTPS_PROXY": "http://localhost:80:80"},
]
NO_CERTIFICATES = ["nowhere.pem", ".", "empty.pem", "text.pem"]
ROWS = {
    "a plain `http://` address of this machine, with any proxies and certificates in the environment",
    "a proxy that passes the request on",
    "a SOCKS proxy in the environment, without the package for it",
    "a proxy in the environment that is no address",
    "`SSL_CERT_FILE` that is not there or has no certificates",
    "a certificate that no known authority has signed",
    "no server at the address",
    "a connection that breaks off",
    "no answer within `timeout_s`",
}


@pytest.fixture(autouse=True)
def _clean(monkeypatch, tmp_path):
    """Begin with nothing in the environment; the hub's client, one for a process, is made anew."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    (tmp_path / "empty.pem").write_bytes(b"")
    (tmp_path / "text.pem").write_text("no certificate\n")
    close_session()
    yield
    close_session()


@pytest.fixture
def happens(monkeypatch, tmp_path):
    """Return a function that asks at an address and says what happens in the words of the page, and the message."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-fake-0123456789abcdef-SECRET")

    def ask(url, **changes):
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        given = {
            "model": "fake",
            "input_price": 1,
            "output_price": 1,
            "timeout_s": 5,
            "max_attempts": 3,
            **changes,
        }
        path, waits = tmp_path / "replies.jsonl", []
        with EndpointSampler(
            EndpointSettings(**given), path, _wait=lambda _, seconds: waits.append(seconds)
        ) as sampler:
            ended = None
            try:
                sampler.sample((SampleRequest("p", 1, ("evaluate",)),), seed=1, temperature=0.4)
            except InputError as error:
                ended = str(error)
        assert bool(read_replies(path)[0]) == (ended is None)
        assert "\n" not in (ended or "")
        if ended is None:
            return "reply", ""
        return "again, then stops" if waits else "stops", ended

    return ask


def page(row):
    return rows("Connections")[row]


def test_the_page_has_these_rows():
    assert set(rows("Connections")) == ROWS


def environments(tmp_path):
    return [
        *SOCKS,
        *NO_ADDRESSES,
        *({"SSL_CERT_FILE": str(tmp_path / name)} for name in NO_CERTIFICATES),
    ]


@pytest.mark.parametrize("number", range(len(SOCKS) + len(NO_ADDRESSES) + len(NO_CERTIFICATES)))
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0"])
def test_a_plain_local_address_works_whatever_the_environment_names(
    happens, monkeypatch, tmp_path, host, number
):
    for name, value in environments(tmp_path)[number].items():
        monkeypatch.setenv(name, value)
    with ChatServer() as server:
        found, _ = happens(server.url.replace("127.0.0.1", host))
    assert found == page(
        "a plain `http://` address of this machine, with any proxies and certificates in the environment"
    )


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("http://localhost:8000/v1", True),
        ("http://127.0.0.2/v1", True),
        ("http://[::1]:8000/v1", True),
        ("http://vllm.localhost/v1", True),
        ("http://0.0.0.0:8000/v1", True),
        ("https://localhost/v1", False),
        ("http://localhost.example.com/v1", False),
        ("http://10.0.0.1/v1", False),
        ("http://example.com/v1", False),
        ("http://127.0.0.1.example.com/v1", False),
    ],
)
def test_which_addresses_are_local(url, local):
    assert is_local_url(url) == local


@pytest.mark.parametrize("variables", SOCKS)
def test_a_socks_proxy_without_its_package_is_one_line(happens, monkeypatch, variables):
    ((name, value),) = variables.items()
    monkeypatch.setenv(name, value)
    for url in ("https://api.example.com/v1", "http://api.example.com/v1"):
        found, message = happens(url)
        assert found == page("a SOCKS proxy in the environment, without the package for it")
        assert message.startswith("fake: no HTTP client can be made with what the environment names. ")
        assert f"A proxy in {name} speaks SOCKS" in message
        assert "pip install socksio" in message
        assert "password" not in message


@pytest.mark.parametrize("variables", NO_ADDRESSES)
def test_a_proxy_that_is_no_address_is_one_line(happens, monkeypatch, variables):
    ((name, value),) = variables.items()
    monkeypatch.setenv(name, value)
    found, message = happens("https://api.example.com/v1")
    assert found == page("a proxy in the environment that is no address")
    assert f"A proxy in {name} has no usable address" in message
    assert "http://HOST:PORT" in message
    assert "password" not in message


@pytest.mark.parametrize("file", NO_CERTIFICATES)
def test_certificates_that_are_not_there_are_one_line(happens, monkeypatch, tmp_path, file):
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / file))
    found, message = happens("https://api.example.com/v1")
    assert found == page("`SSL_CERT_FILE` that is not there or has no certificates")
    assert f"SSL_CERT_FILE={tmp_path / file}: " in message
    assert "PEM form" in message


@pytest.mark.parametrize("number", range(len(SOCKS) + len(NO_ADDRESSES) + len(NO_CERTIFICATES)))
def test_the_hub_says_the_same(monkeypatch, tmp_path, number):
    ((name, value),) = environments(tmp_path)[number].items()
    monkeypatch.setenv(name, value)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with pytest.raises(
        InputError, match=rf"^owner/games, data.json: no HTTP client can be made.*{name}"
    ) as caught:
        hub.fetch_file("owner/games", "data.json", tmp_path / "data.json", revision="main")
    assert "password" not in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match=rf"^owner/tiny: no HTTP client can be made.*{name}"):
        hub.fetch_model("owner/tiny")


def test_a_fault_of_our_own_is_not_laid_to_the_environment():
    with pytest.raises(AttributeError):
        make_http_client("fake", lambda: object().nothing)


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
def test_a_proxy_passes_requests_on(happens, monkeypatch, name):
    with ChatServer() as proxy:
        monkeypatch.setenv(name, proxy.url.removesuffix("/v1"))
        found, _ = happens("http://api.example.com/v1")
        assert found == page("a proxy that passes the request on")
        assert proxy.asked[0].headers["host"] == "api.example.com"


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_wants_a_password_is_one_line(happens, monkeypatch, scheme):
    """Of a plain address it answers the request, of another one the wish to be connected."""
    with ChatServer() as proxy:
        proxy.otherwise = answers({}, 407)
        proxy.connects = 407
        monkeypatch.setenv("ALL_PROXY", proxy.url.removesuffix("/v1"))
        found, message = happens(f"{scheme}://api.example.com/v1")
    assert found == rows("Errors")["407 from a proxy"]
    assert "HTTPS_PROXY=http://USER:PASSWORD@HOST:PORT" in message


def test_a_proxy_that_is_out_of_order_is_tried_again(happens, monkeypatch):
    with ChatServer() as proxy:
        proxy.connects = 503
        monkeypatch.setenv("ALL_PROXY", proxy.url.removesuffix("/v1"))
        found, message = happens("https://api.example.com/v1")
    assert found == "again, then stops"
    assert "ProxyError: 503" in message


def test_a_proxy_that_is_not_there_is_named(happens, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as free:
        monkeypatch.setenv(
            "HTTPS_PROXY", f"http://me:not-a-real-password@127.0.0.1:{free.getsockname()[1]}"
        )
    found, message = happens("https://api.example.com/v1")
    assert found == page("no server at the address")
    assert "Connection refused); proxies are in HTTPS_PROXY" in message
    assert "password" not in message


def certificate(folder, host):
    """Return a file with a certificate that its own key has signed, and the key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = folder / "server.pem"
    form = serialization.PrivateFormat.PKCS8
    written = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    file.write_bytes(written + made.public_bytes(serialization.Encoding.PEM))
    return file


def test_a_certificate_that_nobody_knows_stops_at_once_and_its_remedy_works(
    happens, monkeypatch, tmp_path
):
    file = certificate(tmp_path, "127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    with ChatServer() as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        url = server.url.replace("http:", "https:")
        found, message = happens(url)
        assert found == page("a certificate that no known authority has signed")
        assert "self-signed certificate" in message
        assert "SSL_CERT_FILE" in message
        # A proxy has no part in it either way.
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
        assert happens(url)[0] == "reply"


def test_no_server(happens):
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    found, message = happens(url)
    assert found == page("no server at the address")
    assert "Connection refused" in message
    assert "check OPENAI_API_KEY and OPENAI_BASE_URL" in message


@pytest.mark.parametrize("how", [chat_server.breaks_off, chat_server.hangs_up])
def test_broken_connections(happens, how):
    with ChatServer() as server:
        server.otherwise = how
        assert happens(server.url)[0] == page("a connection that breaks off")


def test_time_outs(happens):
    with ChatServer() as server:
        server.otherwise = chat_server.hangs
        found, message = happens(server.url, timeout_s=0.1)
    assert found == page("no answer within `timeout_s`")
    assert "no answer within 0.1 s" in message
