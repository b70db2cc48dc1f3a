"""The model's endpoint, as this shell's environment has it."""

import asyncio
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from loom_cli.doctor.check import PROBE_SECONDS, Check, Status
from loom_dsl.errors import ConfigurationError, LoomError

if TYPE_CHECKING:
    from loom_tools.mcp.servers import Servers


# What the MCP servers of this deployment offer.


_INSTALL = "docs/howto/mcp.md"


def mcp_servers(env: Mapping[str, str]) -> Iterator[Check]:
    """Start, or ask, each server that LOOM_MCP names; secrets come from this environment, as if all were lent."""
    from loom_tools.mcp.servers import SETTING, Servers, read_file
    from loom_tools.secrets import AllowedSecrets

    if not env.get(SETTING):
        return
    what = f"MCP servers ({env[SETTING]})"
    try:
        file = Path(env[SETTING])
        named = sorted({name for server in read_file(file).servers.values() for name in server.secrets})
        servers = Servers.load(file, AllowedSecrets.of(named, env))
    except LoomError as error:
        yield Check(Status.FAIL, what, str(error), f"correct it: {_INSTALL}")
        return
    for name, (fine, found) in asyncio.run(_asked(servers)).items():
        status = Status.OK if fine else Status.WARN
        yield Check(status, f"MCP server {name}", found, "" if fine else f"its tools will fail; see {_INSTALL}")


async def _asked(servers: "Servers") -> dict[str, tuple[bool, str]]:
    try:
        asked = await asyncio.gather(*map(servers.about, servers.settings))
    finally:
        await servers.close()
    return dict(zip(servers.settings, asked, strict=True))


def model(env: Mapping[str, str], seconds: float = PROBE_SECONDS) -> Check:
    """Whether a model is configured; one on this machine is asked, others are not. No key is shown.

    Args:
        env: The environment's variables.
        seconds: How long it has to answer.
    """
    from activities.chat.provider import address, is_local

    what = "model (as this shell has it)"
    if not env.get("OPENAI_API_KEY") and not env.get("OPENAI_BASE_URL"):
        fix = "set OPENAI_API_KEY where the worker runs; or try without: loom fake-model --script FILE"
        return Check(Status.WARN, what, "neither OPENAI_API_KEY nor OPENAI_BASE_URL is set", fix)
    try:
        where = address(env.get("OPENAI_MODEL") or "gpt-4.1-mini", env)
    except ConfigurationError as error:
        return Check(Status.FAIL, what, error.message, "correct the variable where the worker runs")
    parts = urlsplit(where.base_url)
    endpoint = f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")
    key = f"{where.key_name} is set" if where.api_key else "no key is needed"
    if not is_local(where.base_url):
        return Check(Status.OK, what, f"{endpoint}, {key}; not asked, as it is not on this machine")
    problem = _unreachable(f"{where.base_url}/models", where.api_key, seconds)
    if problem:
        fix = "start it (loom fake-model --script FILE --port PORT), or correct OPENAI_BASE_URL"
        return Check(Status.FAIL, what, f"{endpoint}, {key}: {problem}", fix)
    return Check(Status.OK, what, f"{endpoint} answers, {key}")


def _unreachable(url: str, key: str, seconds: float) -> str:
    """Ask a model on this machine for its list of models; why that fails, or nothing."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {key}"} if key else {})
    # A proxy of the environment must not get to see what stays on this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        opener.open(request, timeout=seconds).close()
    except urllib.error.HTTPError as error:
        # Not every server has such a list; that it answers is enough, unless it refuses the key.
        return f"it answers {error.code}" if error.code in (401, 403) or error.code >= 500 else ""
    except (OSError, ValueError) as error:
        return f"it does not answer ({getattr(error, 'reason', error)})"
    return ""


# The deployment's policy: whether it can be used, and what its roles are worth.


_KEYS = "docs/howto/approvals.md#signed-decisions"


def policy(env: Mapping[str, str]) -> Iterator[Check]:
    """Look at the policy that the environment names; else say nothing."""
    from loom_dsl.errors import ConfigurationError
    from loom_dsl.tools.risk import Risk
    from loom_tools.policy_files import POLICY_VARIABLE, deployment_policy

    try:
        found = deployment_policy(env)
    except ConfigurationError as error:
        yield Check(Status.FAIL, "policy", error.message, f"correct it, or unset {POLICY_VARIABLE}")
        return
    if found is None:
        return
    what = f"policy {env[POLICY_VARIABLE].strip()}"
    if not found.roles or found.signed is Risk.LOW:
        yield Check(Status.OK, what, "it can be used")
        return
    below = f" below the risk {found.signed}" if found.signed else ""
    told = f"its roles go by the name that a sender gives: who reaches the Temporal server decides{below} as anybody"
    fix = (
        f"write `signed: low` and give workers the approvers' keys ({_KEYS}), or let only workers and the gateway there"
    )
    yield Check(Status.WARN, what, told, fix)
