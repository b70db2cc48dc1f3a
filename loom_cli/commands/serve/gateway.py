"""``loom gateway`` and ``loom token``: approvals over HTTP, and who may come in."""

from typing import Annotated

import typer

from loom_cli.errors import DONE, guarded, say
from loom_cli.options import ConnectionOptions, connection_options

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("gateway", help="Serve approvals and jobs over HTTP, for people with tokens and roles.")(gateway)
    app.command("token", help="Make a token for a person; it is shown once.")(token)


@guarded
@connection_options()
async def gateway(
    host: Annotated[
        str, typer.Option(help="Address to listen on; others than this machine's own need TLS before it.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8480,
    *,
    connection: ConnectionOptions,
) -> int:
    """Serve."""
    import os

    from loom_cli.opening import opened
    from loom_gateway.server import key_of, roles_of, serve, tokens_path
    from loom_gateway.starts import start_policy_of
    from loom_gateway.tokens import Tokens

    settings = connection.settings()
    roles_of(os.environ)  # what is missing is told before a server is looked for
    Tokens(tokens_path(settings))
    key_of(settings)
    start_policy_of(settings)
    if host not in _LOOPBACK:
        say(f"listening on {host} without TLS: let only a proxy that speaks TLS reach it")
    async with opened(settings, create=True) as loom:
        await serve(loom, host, port)
    say("gateway stopped")
    return DONE


@guarded
def token(
    name: Annotated[str, typer.Argument(help="Whose it is, as the policy's roles have the name.", metavar="NAME")],
) -> int:
    """Make a token."""
    from loom_gateway.server import tokens_path
    from loom_gateway.tokens import add_token

    path = tokens_path(ConnectionOptions().settings())
    print(add_token(path, name))
    say(f"a token of {name}; its hash is in {path}: take the line out to revoke it")
    return DONE
