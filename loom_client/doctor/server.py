"""The Temporal server, its namespace, and the workers on the task queue."""

import asyncio
import socket
from collections.abc import Iterator

from loom_client.doctor.check import Check, Status
from loom_client.doctor.workers import Kept, workers
from loom_client.settings import Settings
from loom_dsl.errors import ConfigurationError

PROBE_SECONDS = 2.0


def server(settings: Settings, store: Kept) -> Iterator[Check]:
    """Whether the server answers, knows the namespace, and has a worker; later checks are left out when one fails.

    Args:
        settings: Where the server is.
        store: What the store knows of its workers.
    """
    what = f"Temporal server {settings.address}"
    reason = _refused(settings.address)
    if reason:
        yield Check(Status.FAIL, what, reason, "start one with `loom dev`, or set LOOM_ADDRESS to one that runs")
        return
    from loom_client.access import explain

    try:
        yield from asyncio.run(_ask_server(settings, store, what))
    except ConfigurationError as error:
        yield Check(Status.FAIL, what, error.message, "correct the setting: docs/reference/settings.md")
    except (TimeoutError, RuntimeError, OSError) as error:
        found = explain(settings, error)
        if found.startswith("no Temporal server answers"):
            found = "something listens there that does not speak Temporal's protocol"
        yield Check(Status.FAIL, what, found, "set LOOM_ADDRESS to the server's gRPC port (`loom dev`: 7233)")


def _refused(address: str) -> str:
    """Say why no connection is taken at ``host:port``; empty when one is."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        return f"{address!r} is not HOST:PORT"
    try:
        socket.create_connection((host.strip("[]"), int(port)), PROBE_SECONDS).close()
    except (OSError, OverflowError) as error:
        return f"nothing answers there ({getattr(error, 'strerror', None) or error})"
    return ""


async def _ask_server(settings: Settings, store: Kept, what: str) -> list[Check]:
    import temporalio.service
    from temporalio.api.workflowservice.v1 import GetSystemInfoRequest
    from temporalio.client import Client

    from loom_client.access import access_of
    from loom_client.namespace import look_up_namespace

    access = access_of(settings)
    async with asyncio.timeout(3 * PROBE_SECONDS):
        client = await Client.connect(
            settings.address, namespace=settings.namespace, tls=access.tls, api_key=access.api_key
        )
        info = await client.workflow_service.get_system_info(GetSystemInfoRequest())
        checks = [Check(Status.OK, what, f"answers, version {info.server_version}")]
        try:
            await look_up_namespace(client)
        except temporalio.service.RPCError as error:
            fix = f"temporal operator namespace create -n {settings.namespace}, or set LOOM_NAMESPACE"
            return [*checks, Check(Status.FAIL, f"namespace {settings.namespace}", error.message, fix)]
        checks.append(Check(Status.OK, f"namespace {settings.namespace}", "is there"))
        return [*checks, *await workers(client, settings, store)]
