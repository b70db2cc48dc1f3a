"""An endpoint of webhooks on loopback that can be down, refuse, or keep a sender waiting."""

import json
import socket
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.waiting import PATIENCE


@dataclass(frozen=True)
class Received:
    """A request.

    Attributes:
        headers: With names in lower case.
        body: As it came.
        status: What it was answered.
    """

    headers: dict[str, str]
    body: bytes
    status: int

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def told(self) -> dict[str, Any]:
        said: dict[str, Any] = json.loads(self.body)
        return said


@dataclass
class Receiver:
    """An endpoint.

    Attributes:
        port: Where it listens, also when it does so again; nobody else gets it in between.
        status: Gives the status for what an endpoint is told.
        answer_headers: More headers of its answers.
        seen: Every request that was answered.
        hold: Not set: requests are kept waiting. They are counted in `held`.
    """

    port: int = 0
    status: Callable[[dict[str, Any]], int] = lambda told: 204
    answer_headers: dict[str, str] = field(default_factory=dict)
    seen: list[Received] = field(default_factory=list)
    held: list[str] = field(default_factory=list)
    hold: threading.Event = field(default_factory=threading.Event)
    _kept: socket.socket = field(default_factory=socket.socket)

    def __post_init__(self) -> None:
        self._kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._kept.bind(("127.0.0.1", self.port))  # and never listened on: nobody answers
        self.port = self._kept.getsockname()[1]
        weakref.finalize(self, self._kept.close)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    @property
    def taken(self) -> list[Received]:
        """The messages that were taken."""
        return [received for received in self.seen if received.status < 300]

    @contextmanager
    def up(self) -> Iterator[None]:
        """Listen until the block ends; the port stays this one's."""
        mine = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                body = self.rfile.read(int(headers["content-length"]))
                mine.held.append(headers.get("webhook-id", ""))
                mine.hold.wait(PATIENCE)
                status = mine.status(json.loads(body))
                mine.seen.append(Received(headers, body, status))
                self.send_response(status)
                for name, value in mine.answer_headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        with _Server(("127.0.0.1", self.port), Handler) as server:
            thread = threading.Thread(target=server.serve_forever, args=(0.02,))
            thread.start()
            try:
                yield
            finally:
                self.hold.set()
                server.shutdown()
                thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_port = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: senders are killed."""


def receiver() -> Receiver:
    """Give an endpoint that takes everything at once."""
    made = Receiver()
    made.hold.set()
    return made
