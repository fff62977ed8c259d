"""A model hub on this machine: it serves repositories as the real one does, and fails in every way that matters."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "0123456789abcdef0123456789abcdef01234567"

LARGE = (".safetensors", ".bin")
"""Files with these endings are kept as large ones, whose digest is SHA-256; that of others is git's."""


class Hub:
    """Serves ``files`` of one repository by name, at one commit."""

    def __init__(self, repository: str, files: dict[str, bytes], kind: str = "models") -> None:
        self.repository, self.files, self.kind = repository, files, kind
        self.cut: list[int] = []
        """The next bodies end after so many bytes."""
        self.wrong: set[str] = set()
        """Files whose content comes damaged."""
        self.asked: list[tuple[str, str, str | None]] = []
        """(method, file, range) of every request for a file."""
        self.seen: list[str | None] = []
        """The token of every request for the repository."""
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"

    def digest(self, name: str) -> str:
        """Return what the hub states of a file."""
        content = self.files[name]
        if name.endswith(LARGE):
            return hashlib.sha256(content).hexdigest()
        return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()

    def bodies(self) -> list[tuple[str, str | None]]:
        """Return (file, range) of every download."""
        return [(name, span) for method, name, span in self.asked if method == "GET"]

    def _handler(hub) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self) -> None:
                self.answer(body=False)

            def do_GET(self) -> None:
                self.answer(body=True)

            def answer(self, *, body: bool) -> None:
                # The library asks for other things too, without a token.
                if hub.repository in self.path:
                    hub.seen.append(self.headers.get("authorization"))
                prefix = f"/api/{hub.kind}/{hub.repository}"
                if self.path.startswith(prefix):
                    self.listing()
                    return
                place = (
                    f"/{hub.repository}/resolve/"
                    if hub.kind == "models"
                    else f"/{hub.kind}/{hub.repository}/resolve/"
                )
                revision, _, name = self.path.removeprefix(place).partition("?")[0].partition("/")
                if (
                    not self.path.startswith(place)
                    or revision not in ("main", COMMIT)
                    or name not in hub.files
                ):
                    known = self.path.startswith(place)
                    self.refuse(
                        "EntryNotFound" if known and revision in ("main", COMMIT) else "RepoNotFound"
                    )
                    return
                self.file(name, body)

            def refuse(self, code: str) -> None:
                self.send_response(404)
                self.send_header("X-Error-Code", code)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def listing(self) -> None:
                siblings = [{"rfilename": name} for name in hub.files]
                text = json.dumps({"id": hub.repository, "sha": COMMIT, "siblings": siblings}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def file(self, name: str, body: bool) -> None:
                span = self.headers.get("Range")
                hub.asked.append((self.command, name, span))
                content = hub.files[name]
                if name in hub.wrong:
                    content = bytes([content[0] ^ 1]) + content[1:]
                start = int(span.removeprefix("bytes=").partition("-")[0]) if span else 0
                self.send_response(206 if start else 200)
                self.send_header("X-Repo-Commit", COMMIT)
                self.send_header("ETag", f'"{hub.digest(name)}"')
                self.send_header("Content-Length", str(len(content) - start))
                self.end_headers()
                if not body:
                    return
                sent = content[start:]
                if hub.cut:
                    sent = sent[: hub.cut.pop(0)]
                    self.close_connection = True
                self.wfile.write(sent)

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler


@contextmanager
def serve(repository: str, files: dict[str, bytes], kind: str = "models") -> Iterator[Hub]:
    """Yield a hub with one repository."""
    hub = Hub(repository, files, kind)
    threading.Thread(target=hub.http.serve_forever, daemon=True).start()
    try:
        yield hub
    finally:
        hub.http.shutdown()
        hub.http.server_close()
