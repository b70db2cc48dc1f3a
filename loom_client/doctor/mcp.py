"""What the MCP servers of this deployment offer."""

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from loom_client.doctor.check import Check, Status
from loom_dsl.errors import LoomError

if TYPE_CHECKING:
    from activities.mcp.servers import Servers

_HOW = "docs/howto/mcp.md"


def mcp_servers(env: Mapping[str, str]) -> Iterator[Check]:
    """Start, or ask, each server that LOOM_MCP names; secrets come from this environment, as if all were lent."""
    from activities.allowed_secrets import AllowedSecrets
    from activities.mcp.servers import SETTING, Servers, read_file

    if not env.get(SETTING):
        return
    what = f"MCP servers ({env[SETTING]})"
    try:
        file = Path(env[SETTING])
        named = sorted({name for server in read_file(file).servers.values() for name in server.secrets})
        servers = Servers.load(file, AllowedSecrets.of(named, env))
    except LoomError as error:
        yield Check(Status.FAIL, what, str(error), f"correct it: {_HOW}")
        return
    for name, (fine, found) in asyncio.run(_asked(servers)).items():
        status = Status.OK if fine else Status.WARN
        yield Check(status, f"MCP server {name}", found, "" if fine else f"its tools will fail; see {_HOW}")


async def _asked(servers: "Servers") -> dict[str, tuple[bool, str]]:
    try:
        asked = await asyncio.gather(*map(servers.about, servers.settings))
    finally:
        await servers.close()
    return dict(zip(servers.settings, asked, strict=True))
