"""Serving a scripted model on a real socket."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import uvicorn

from loom_cli.dev.fake_model.app import FakeModel
from loom_dsl.documents.document import load_document
from loom_dsl.documents.validation import validate_model
from loom_dsl.errors import ConfigurationError, NotFoundError
from loom_dsl.simulation.script import Script


def load_script(path: Path | str) -> Script:
    """Read a ``kind: fake-model`` file.

    Raises:
        NotFoundError: The file cannot be read.
        DocumentError: It is not a script.
    """
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        reason = error.strerror or "it cannot be read"
        raise NotFoundError(f"Cannot read the script {path}: {reason}. Give the path of a fake-model file.") from error
    return validate_model(load_document(text, str(path), kinds=("fake-model",)), Script)


@contextlib.asynccontextmanager
async def running(
    model: FakeModel | Script, *, host: str = "127.0.0.1", port: int = 0, api_key: str | None = None
) -> AsyncIterator[str]:
    """Serve a model in this event loop, and yield its base URL, ``http://HOST:PORT/v1``.

    Args:
        model: The model, or only its script. Keep the model to look at its `requests` afterwards.
        host: The address to listen on.
        port: The port, 0 for a free one.
        api_key: The only key that is accepted, when `model` is a script.

    Raises:
        ConfigurationError: The address cannot be listened on.
    """
    app = model if isinstance(model, FakeModel) else FakeModel(model, api_key=api_key)
    listener = _listen(host, port)
    server = _Quiet(_config(app))
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        await server.ready.wait()
        yield base_url(listener)
    finally:
        server.should_exit = True
        await task
        await _let_go(server)
        listener.close()


async def _let_go(server: uvicorn.Server) -> None:
    """Close the connections whose requests were cut off: uvicorn does not wait for them, and the loop may end next."""
    while connections := list(server.server_state.connections):
        for connection in connections:
            if connection.transport is not None:
                connection.transport.abort()
        await asyncio.sleep(0)


def serve(script: Script | Path | str, host: str = "127.0.0.1", port: int = 0, *, api_key: str | None = None) -> None:
    """Serve a script until the process is interrupted; the first line printed is the base URL.

    Raises:
        ConfigurationError: The address cannot be listened on.
        NotFoundError: The script cannot be read.
        DocumentError: It is not a script.
    """
    loaded = script if isinstance(script, Script) else load_script(script)
    listener = _listen(host, port)
    server = uvicorn.Server(_config(FakeModel(loaded, api_key=api_key)))
    # Connections are queued by the socket from here on, so the address may be told before the loop runs.
    print(base_url(listener), flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        server.run(sockets=[listener])
    listener.close()


def base_url(listener: socket.socket) -> str:
    """Return what to set OPENAI_BASE_URL to."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}/v1" if ":" in host else f"http://{host}:{port}/v1"


def _config(app: FakeModel) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        lifespan="off",
        access_log=False,
        # Closing in mid-stream is an error to uvicorn, and a script's wish.
        log_level="critical",
        # Clients keep connections open between the turns of a conversation.
        timeout_keep_alive=75,
        timeout_graceful_shutdown=0,
        ws="none",
    )


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigurationError(f"Cannot listen on {host}: {error.strerror or error}. Try 127.0.0.1.") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(512)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        advice = "Another program may use the port; port 0 takes a free one."
        raise ConfigurationError(f"Cannot listen on {host}:{port}: {error.strerror}. {advice}") from error
    return listener


class _Quiet(uvicorn.Server):
    """A server inside somebody else's program, whose signals are not the server's to take."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
