"""Serving the gateway: on this machine's own address by default, and never without tokens and roles."""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from loom_client.client import Loom
from loom_client.settings import Settings
from loom_dsl.errors import ConfigurationError
from loom_dsl.permissions.roles import Roles
from loom_gateway.app import application
from loom_gateway.links import LEAST_KEY
from loom_gateway.responses import PROBLEM, SAFE, SOON, Problem, problem, problem_text
from loom_gateway.service import Service
from loom_gateway.starts import start_policy_of
from loom_gateway.tokens import SETTING, Tokens
from loom_tools.policy_files import POLICY_VARIABLE, deployment_policy

# A connection of the gateway: what HTTP itself refuses is told as a problem, too.


MAX_AT_ONCE = 200
"""Connections, and requests under way, beyond which requests are refused."""


class Connection(H11Protocol):
    """HTTP/1.1, as uvicorn speaks it, with our own words for refusals."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._answer, self.app = self.app, self._if_not_too_many

    async def _if_not_too_many(self, scope: Any, receive: Any, send: Any) -> None:
        if max(len(self.connections), len(self.tasks)) <= MAX_AT_ONCE:
            await self._answer(scope, receive, send)
            return
        busy = problem(Problem(503, "too many requests at once; try again", after=SOON))
        busy.headers["Connection"] = "close"
        await busy(scope, receive, send)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP request, and close the connection."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):  # an answer is under way
            self.transport.close()
            return
        text = problem_text(Problem(400, "this is no HTTP/1.1 request, or its headers are too long"))
        headers = {**SAFE, "Content-Type": PROBLEM, "Content-Length": str(len(text)), "Connection": "close"}
        answer = h11.Response(status_code=400, reason=b"Bad Request", headers=list(headers.items()))
        for event in (answer, h11.Data(data=text), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


def roles_of(environment: Mapping[str, str], whose: str = "the gateway needs") -> Roles:
    """Read who may do what from the deployment's policy.

    Args:
        environment: Names the policy.
        whose: Who needs it, for the message.

    Raises:
        ConfigurationError: There is no policy, or it has no roles.
    """
    policy = deployment_policy(environment)
    if policy is None or not policy.roles:
        raise ConfigurationError(f"{whose} the deployment's policy with `roles` in {POLICY_VARIABLE}: who may do what")
    return policy.roles


def tokens_path(settings: Settings) -> Path:
    """Give the file of tokens.

    Raises:
        ConfigurationError: None is named.
    """
    if not settings.gateway_tokens:
        raise ConfigurationError(f"{SETTING} names no file of tokens; set it, and make one with `loom token NAME`")
    return Path(settings.gateway_tokens).expanduser()


def key_of(settings: Settings) -> bytes:
    """Give the key that signs links, empty for none.

    Raises:
        ConfigurationError: It is too short to be one.
    """
    key = settings.gateway_key.get_secret_value() if settings.gateway_key else ""
    if key and len(key) < LEAST_KEY:
        raise ConfigurationError(
            f"LOOM_GATEWAY_KEY has {len(key)} characters and needs {LEAST_KEY}; make one with `openssl rand -hex 32`"
        )
    return key.encode()


async def serve(loom: Loom, host: str, port: int) -> None:
    """Serve until the process is told to stop; prints the address first.

    Raises:
        ConfigurationError: A setting is missing or wrong, or the address cannot be listened on.
    """
    settings = loom.settings
    roles, tokens = roles_of(os.environ), Tokens(tokens_path(settings))
    key, policy = key_of(settings), start_policy_of(settings)
    with _listening(host, port) as listener:
        name, number = listener.getsockname()[:2]
        here = f"http://[{name}]:{number}" if ":" in name else f"http://{name}:{number}"
        service = Service(loom, roles, key, policy, (settings.gateway_url or here).rstrip("/"))
        config = uvicorn.Config(
            application(service, tokens),
            lifespan="off",
            access_log=False,  # a link is as good as a decision, so no log has one
            log_level="critical",
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=10,
            http=Connection,
            ws="none",
        )
        server = _Server(config)
        for sent in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(sent, server.stop)
        print(here, flush=True)
        await server.serve(sockets=[listener])


class _Server(uvicorn.Server):
    """A server that is stopped by us, so that the store is closed after it."""

    def stop(self) -> None:
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family, backlog=256)
    except OSError as error:
        advice = "another program may use the port; --port 0 takes a free one"
        raise ConfigurationError(f"cannot listen on {host}:{port}: {error.strerror or error}; {advice}") from None
    with listener:
        listener.setblocking(False)
        yield listener
