"""A chat endpoint on a free port of this machine, which fails as it is told to.

Actions are scripted per prompt, one for each time that the prompt is asked; when they are used up, the server does what
``otherwise`` says: it replies ``reply to <prompt>``.
"""

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Action = Callable[["Handler", "Asked"], None]
"""Driver one request, or does not."""

USAGE = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}


@dataclass(frozen=True)
class Asked:
    time: float
    prompt: str
    body: dict[str, Any]
    headers: dict[str, str]


class Handler(BaseHTTPRequestHandler):
    """Driver one connection."""

    server: "ChatServer"
    protocol_version = "HTTP/1.1"
    # Header and body are two packets, and the second would wait for the first one's receipt: 40 ms a reply.
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        headers = {name.lower(): value for name, value in self.headers.items()}
        asked = Asked(time.monotonic(), body["messages"][-1]["content"], body, headers)
        self.server.act_on(self, asked, self.path)

    def do_CONNECT(self) -> None:
        """Answer as a proxy that does not connect."""
        self.send(self.server.connects, b"")
        self.close_connection = True

    def send(
        self,
        status: int,
        content: bytes,
        headers: Mapping[str, str] | None = None,
        length: int | None = None,
    ) -> None:
        self.send_response(status)
        sent = {
            "Content-Type": "application/json",
            "Content-Length": str(length or len(content)),
            **(headers or {}),
        }
        for name, value in sent.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


class ChatServer(ThreadingHTTPServer, AbstractContextManager["ChatServer"]):
    """Serves until ``stop``; ``asked`` lists the requests in the order of their arrival."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, script: Mapping[str, Sequence[Action]] | None = None) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[Asked] = []
        self.stopping = threading.Event()
        self.connects = 501
        self.otherwise: Action = lambda handler, asked: says(f"reply to {asked.prompt}")(handler, asked)
        self._script = {prompt: list(actions) for prompt, actions in (script or {}).items()}
        self._guard = threading.Lock()
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def act_on(self, handler: Handler, asked: Asked, path: str) -> None:
        # A proxy is sent the whole address.
        if not path.endswith("/v1/chat/completions"):
            return handler.send(404, b"{}")
        with self._guard:
            self.asked.append(asked)
            actions = self._script.get(asked.prompt)
            action = actions.pop(0) if actions else self.otherwise
        return action(handler, asked)

    def stop(self) -> None:
        if not self.stopping.is_set():
            self.stopping.set()
            self.shutdown()
            self.server_close()

    def __exit__(self, *error: object) -> None:
        self.stop()


def completion(text: str | None, finish: str | None = "stop", **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": text}}
    return {
        "object": "chat.completion",
        "model": "fake-2026-01-01",
        "choices": [choice],
        "usage": USAGE,
        **more,
    }


def answers(value: Any, status: int = 200, **headers: str) -> Action:
    content = value if isinstance(value, bytes) else json.dumps(value).encode()
    return lambda handler, _: handler.send(
        status, content, {name.replace("_", "-"): text for name, text in headers.items()}
    )


def says(text: str | None, finish: str | None = "stop", **more: Any) -> Action:
    return answers(completion(text, finish, **more))


def breaks_off(handler: Handler, _: Asked) -> None:
    content = json.dumps(completion("cut")).encode()
    handler.send(200, content[:-20], length=len(content))
    handler.close_connection = True


def hangs_up(handler: Handler, _: Asked) -> None:
    handler.close_connection = True
    handler.connection.close()


def hangs(handler: Handler, _: Asked) -> None:
    handler.server.stopping.wait(10)
    handler.close_connection = True


def echoes_the_key(status: int) -> Action:
    def act(handler: Handler, asked: Asked) -> None:
        key = asked.headers["authorization"]
        handler.send(
            status,
            json.dumps({"error": {"message": f"what about {key}?", "code": "invalid_api_key"}}).encode(),
        )

    return act
