"""Serving the gateway: on this machine's own address by default, and never without tokens and roles."""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

import uvicorn

from activities.policy_layers import POLICY_VARIABLE, deployment_policy
from loom_client.client import Loom
from loom_client.gateway.app import Gateway
from loom_client.gateway.connection import Connection
from loom_client.gateway.desk import Desk
from loom_client.gateway.links import LEAST_KEY
from loom_client.gateway.starts import grounds_of
from loom_client.gateway.tokens import SETTING, Tokens
from loom_client.settings import Settings
from loom_dsl.errors import ConfigurationError
from loom_dsl.roles import Roles


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
    desk = Desk(loom, roles, key_of(settings), grounds_of(settings))
    with _listening(host, port) as listener:
        name, number = listener.getsockname()[:2]
        here = f"http://[{name}]:{number}" if ":" in name else f"http://{name}:{number}"
        gateway = Gateway(desk, tokens, (settings.gateway_url or here).rstrip("/"))
        config = uvicorn.Config(
            gateway.app(),
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
