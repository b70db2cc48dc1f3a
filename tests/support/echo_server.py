"""An HTTP server on loopback that answers what the path asks for, and keeps what it was sent."""

import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class EchoServer:
    """A server that runs.

    Attributes:
        port: Where it listens.
        seen: Method, path, headers in lower case, and body of each request.
    """

    port: int = 0
    seen: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        """Give an address of it."""
        return f"http://{host}:{self.port}{path}"


@contextmanager
def echo_server(tls: ssl.SSLContext | None = None) -> Iterator[EchoServer]:
    """Serve until the block ends, behind TLS where a context is given."""
    made = EchoServer()

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            made.seen.append(
                (self.command, self.path, {name.lower(): value for name, value in self.headers.items()}, body)
            )
            word, _, rest = self.path.lstrip("/").partition("/")
            _ANSWERS.get(word, _echo)(self, rest)

        do_GET = do_POST = do_HEAD = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = _answer

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    made.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _send(handler: BaseHTTPRequestHandler, status: int, body: bytes = b"", **headers: str) -> None:
    handler.send_response(status)
    for name, value in {"content-length": str(len(body)), **headers}.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(body)


def _echo(handler: BaseHTTPRequestHandler, rest: str) -> None:
    said = handler.headers.get("authorization", "nobody")
    _send(handler, 200, f"hello {said}".encode(), content_type="text/plain", set_cookie="id=4711", etag='"a"')


def _redirect(handler: BaseHTTPRequestHandler, rest: str) -> None:
    _send(handler, 302, location=rest.replace("_", "/"))


def _endless(handler: BaseHTTPRequestHandler, rest: str) -> None:
    handler.send_response(200)
    handler.send_header("content-type", "text/plain")
    handler.end_headers()
    try:
        while True:
            handler.wfile.write(b"x" * 65536)
    except OSError:
        pass


def _drip(handler: BaseHTTPRequestHandler, rest: str) -> None:
    handler.send_response(200)
    handler.end_headers()
    try:
        for _ in range(200):
            handler.wfile.write(b".")
            handler.wfile.flush()
            time.sleep(0.05)
    except OSError:
        pass


_ANSWERS: dict[str, Callable[[BaseHTTPRequestHandler, str], None]] = {
    "redirect": _redirect,
    "loop": lambda handler, _: _send(handler, 302, location="/loop/"),
    "endless": _endless,
    "drip": _drip,
    "gzip": lambda handler, _: _send(handler, 200, b"\x1f\x8b123", content_encoding="gzip", content_type="text/plain"),
    "binary": lambda handler, _: _send(handler, 200, bytes(range(256)), content_type="application/octet-stream"),
    "teapot": lambda handler, _: _send(handler, 418, b'{"short": "stout"}', content_type="application/json"),
    "latin": lambda handler, _: _send(
        handler, 200, "grün".encode("latin-1"), content_type="text/plain; charset=latin-1"
    ),
}
