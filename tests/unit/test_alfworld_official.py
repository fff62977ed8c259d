"""Fetching the release, from a server on this machine that fails in every way that matters."""

import hashlib
import io
import json
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from threespo.envs.alfworld import GameRecord, sources
from threespo.envs.alfworld.embedded import generate_games
from threespo.envs.alfworld.official import Archive, fetch_release
from threespo.errors import InputError


class Server:
    """Serves one archive; ``cut`` ends the next response after that many bytes."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.cut: int | None = None
        self.ranges: list[str | None] = []
        self.honours_ranges = True
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked = self.headers.get("Range")
                outer.ranges.append(asked)
                start = (
                    int(asked.removeprefix("bytes=").removesuffix("-"))
                    if asked and outer.honours_ranges
                    else 0
                )
                if start >= len(outer.content):
                    self.send_error(416)
                    return
                body = outer.content[start:]
                self.send_response(206 if start else 200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body[: outer.cut])
                outer.cut = None

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/games.zip"

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()


@pytest.fixture(scope="module")
def records() -> list[GameRecord]:
    return sorted(generate_games("train", 3, 0, "small"), key=lambda record: record.game_id)


def zipped(names: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in names.items():
            archive.writestr(name, text)
    return buffer.getvalue()


@pytest.fixture
def server(records: list[GameRecord]) -> Iterator[Server]:
    files = {}
    for record in records:
        game = {
            "pddl_domain": record.domain,
            "grammar": record.grammar,
            "pddl_problem": record.problem,
            "solvable": True,
        }
        text = json.dumps({**game, "walkthrough": record.walkthrough})
        files[f"json_2.1.1/train/{record.game_id}/game.tw-pddl"] = text
    server = Server(zipped(files))
    yield server
    server.close()


def test_fetched_games_are_those_that_were_released(
    server: Server, records: list[GameRecord], tmp_path: Path
) -> None:
    folder = fetch_release(tmp_path, [Archive(server.url)], progress=False)
    assert sources.load_games(folder, "train") == records
    assert fetch_release(tmp_path, [Archive(server.url)], progress=False) == folder
    assert server.ranges == [None]
    assert not list(tmp_path.glob("*.zip*"))


@pytest.mark.parametrize("honours_ranges", [True, False])
def test_an_interrupted_download_is_resumed(
    server: Server, records: list[GameRecord], tmp_path: Path, honours_ranges: bool
) -> None:
    server.cut, server.honours_ranges = 1000, honours_ranges
    with pytest.raises(InputError, match=r"ended after 1000 of \d+ bytes.*1000 bytes are kept"):
        fetch_release(tmp_path, [Archive(server.url)], progress=False)
    assert (
        sources.load_games(fetch_release(tmp_path, [Archive(server.url)], progress=False), "train")
        == records
    )
    assert server.ranges == [None, "bytes=1000-"]


def test_a_complete_partial_file_is_used(
    server: Server, records: list[GameRecord], tmp_path: Path
) -> None:
    (tmp_path / "games.zip.part").write_bytes(server.content)
    assert (
        sources.load_games(fetch_release(tmp_path, [Archive(server.url)], progress=False), "train")
        == records
    )


def test_a_wrong_checksum_is_refused(server: Server, tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=f"SHA-256 is {hashlib.sha256(server.content).hexdigest()}, expected {'0' * 64}"
    ):
        fetch_release(tmp_path, [Archive(server.url, sha256="0" * 64)], progress=False)
    assert not (tmp_path / "games").exists()
    assert not (tmp_path / "games.zip").exists()


def test_the_first_checksum_is_pinned(server: Server, tmp_path: Path) -> None:
    folder = fetch_release(tmp_path, [Archive(server.url)], progress=False)
    pinned = json.loads((tmp_path / "checksums.json").read_text())
    assert pinned["games.zip"]["sha256"] == hashlib.sha256(server.content).hexdigest()
    folder.rename(tmp_path / "elsewhere")
    server.content = zipped({"json_2.1.1/train/a/b/game.tw-pddl": "{}"})
    with pytest.raises(InputError, match="SHA-256"):
        fetch_release(tmp_path, [Archive(server.url)], progress=False)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"no archive at all", "not a zip archive"),
        (zipped({"readme.txt": "nothing here"}), "no games in it"),
        (zipped({"../../escape.txt": "x"}), "unsafe path"),
    ],
)
def test_bad_archives(server: Server, tmp_path: Path, content: bytes, message: str) -> None:
    server.content = content
    with pytest.raises(InputError, match=message):
        fetch_release(tmp_path / "here", [Archive(server.url)], progress=False)
    assert not (tmp_path / "here" / "games").exists()
    assert not (tmp_path / "escape.txt").exists()


def test_a_damaged_file_in_the_archive(server: Server, tmp_path: Path) -> None:
    content = bytearray(server.content)
    content[200] ^= 255
    server.content = bytes(content)
    with pytest.raises(InputError, match=r"damaged|not a zip archive"):
        fetch_release(tmp_path, [Archive(server.url)], progress=False)


def test_offline(server: Server, tmp_path: Path) -> None:
    url = server.url
    server.close()
    with pytest.raises(
        InputError, match=r"download failed .*Run again when the server can be reached.*embedded or path"
    ):
        fetch_release(tmp_path, [Archive(url)], progress=False)
