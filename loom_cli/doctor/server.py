"""The Temporal server, its namespace, and the workers on the task queue."""

import asyncio
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from loom_cli.doctor.check import PROBE_SECONDS, Check, Status
from loom_cli.doctor.workers import Kept, workers
from loom_client.server.workers import pollers
from loom_client.settings import Settings
from loom_dsl.errors import ConfigurationError, DocumentError

if TYPE_CHECKING:
    from temporalio.client import Client


def server(settings: Settings, store: Kept, seconds: float = PROBE_SECONDS) -> Iterator[Check]:
    """Whether the server answers, knows the namespace, and has a worker; later checks are left out when one fails.

    Args:
        settings: Where the server is.
        store: What the store knows of its workers.
        seconds: How long it has to answer.
    """
    what = f"Temporal server {settings.address}"
    reason = _refused(settings.address, seconds)
    if reason:
        yield Check(Status.FAIL, what, reason, "start one with `loom dev`, or set LOOM_ADDRESS to one that runs")
        return
    from loom_store.server.access import explain

    try:
        yield from asyncio.run(_ask_server(settings, store, what, seconds))
    except ConfigurationError as error:
        yield Check(Status.FAIL, what, error.message, "correct the setting: docs/reference/settings.md")
    except (TimeoutError, RuntimeError, OSError) as error:
        found = explain(settings, error)
        if found.startswith("no Temporal server answers"):
            found = "something listens there that does not speak Temporal's protocol"
        yield Check(Status.FAIL, what, found, "set LOOM_ADDRESS to the server's gRPC port (`loom dev`: 7233)")


def _refused(address: str, seconds: float) -> str:
    """Say why no connection is taken at ``host:port``; empty when one is."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        return f"{address!r} is not HOST:PORT"
    try:
        socket.create_connection((host.strip("[]"), int(port)), seconds).close()
    except (OSError, OverflowError) as error:
        return f"nothing answers there ({getattr(error, 'strerror', None) or error})"
    return ""


async def _ask_server(settings: Settings, store: Kept, what: str, seconds: float) -> list[Check]:
    import temporalio.service
    from temporalio.api.workflowservice.v1 import GetSystemInfoRequest

    from loom_client.server.namespace import look_up_namespace

    async with asyncio.timeout(3 * seconds):
        client = await _connected(settings)
        info = await client.workflow_service.get_system_info(GetSystemInfoRequest())
        checks = [Check(Status.OK, what, f"answers, version {info.server_version}")]
        try:
            await look_up_namespace(client)
        except temporalio.service.RPCError as error:
            fix = f"temporal operator namespace create -n {settings.namespace}, or set LOOM_NAMESPACE"
            return [*checks, Check(Status.FAIL, f"namespace {settings.namespace}", error.message, fix)]
        checks.append(Check(Status.OK, f"namespace {settings.namespace}", "is there"))
        return [*checks, *await workers(client, settings, store)]


async def _connected(settings: Settings) -> "Client":
    from temporalio.client import Client

    from loom_store.server.access import access_of

    access = access_of(settings)
    return await Client.connect(settings.address, namespace=settings.namespace, tls=access.tls, api_key=access.api_key)


# Messages of webhooks: those that no worker delivers, those that were given up, and workers that write none.


# Not from the worker's package, which may be another distribution's here.
_SETTING = "LOOM_WEBHOOKS"
_HOW = "docs/howto/notify.md"


@dataclass(frozen=True, slots=True)
class _Heard:
    """Workers that asked for work lately, by their names on the server.

    Attributes:
        all: Those of the queue.
        having: Those that have an endpoint, by its name; none where the server did not say.
    """

    all: frozenset[str] = frozenset()
    having: Mapping[str, frozenset[str]] = field(default_factory=dict)


def webhooks(
    settings: Settings, place: str | Path, store: str, env: Mapping[str, str], seconds: float = PROBE_SECONDS
) -> Iterator[Check]:
    """Look for messages that wait or were given up, and for workers that lack an endpoint; else says nothing.

    Endpoints are those that messages are for, and those of the file that `LOOM_WEBHOOKS` names here.

    Args:
        settings: The server, and the queue whose jobs are looked at.
        place: Where the store is.
        store: The store's id.
        env: The environment's variables.
        seconds: How long the server has to answer.
    """
    found = _counts(settings, place)
    try:
        named = _named(env)
    except (DocumentError, OSError) as error:
        named = ()
        yield Check(Status.FAIL, f"webhooks ({_SETTING})", str(error), f"correct it: {_HOW}")
    names = sorted({*found, *named})
    heard = asyncio.run(_served(settings, store, names, seconds))
    for name in names:
        waiting, dead = found.get(name, (0, 0))
        yield from _workers(name, settings.task_queue, heard, waiting, expected=name in named)
        if dead:
            fix = "`loom webhooks` says why; `loom webhooks retry --all` has them delivered after all"
            yield Check(Status.WARN, f"webhook {name}", f"{_messages(dead)} given up", fix)


def _workers(name: str, task_queue: str, heard: _Heard, waiting: int, *, expected: bool) -> Iterator[Check]:
    """Say which workers have an endpoint, where that is not all of them or messages wait."""
    what, having = f"webhook {name}", heard.having.get(name)
    fix = f"start a worker of the queue {task_queue} with a --webhooks FILE that has this endpoint"
    if waiting and having is not None and not having:
        yield Check(Status.WARN, what, f"{_messages(waiting)} waiting, and no worker has this endpoint", fix)
    elif waiting:
        yield Check(Status.OK, what, f"{_messages(waiting)} waiting for the delivery")
    elif expected and heard.all and not having:
        yield Check(Status.WARN, what, "no worker has this endpoint, so none writes messages for it", fix)
    if having and (lacking := sorted(heard.all - having)):
        told = f"{len(lacking)} of {len(heard.all)} workers lack this endpoint and write no messages for it: "
        fix = f"give all workers of the queue {task_queue} the same --webhooks FILE"
        yield Check(Status.WARN, what, told + ", ".join(lacking[:3]), fix)


def _named(env: Mapping[str, str]) -> Sequence[str]:
    """Name the endpoints of the file that the environment names.

    Raises:
        DocumentError: The file is wrong.
        OSError: It cannot be read.
    """
    from loom_dsl.observe.webhooks import read_webhooks

    file = env.get(_SETTING)
    return [one.name for one in read_webhooks(Path(file).read_bytes(), file).endpoints] if file else ()


def _counts(settings: Settings, place: str | Path) -> Mapping[str, tuple[int, int]]:
    from loom_store.store import look

    return look(place, lambda tx: tx.delivery_counts(settings.namespace, settings.task_queue)) or {}


async def _served(settings: Settings, store: str, names: Sequence[str], seconds: float) -> _Heard:
    """Ask the server which workers there are, and which of them have the endpoints."""
    if not names or not store:
        return _Heard()
    from temporalio.service import RPCError

    from loom_dsl.queues import job_queue, webhook_queue

    try:
        async with asyncio.timeout(3 * seconds):
            client = await _connected(settings)
            queue = settings.task_queue
            having = {name: frozenset(await pollers(client, webhook_queue(queue, store, name))) for name in names}
            return _Heard(frozenset(await pollers(client, job_queue(queue, store))), having)
    except (ConfigurationError, RPCError, TimeoutError, RuntimeError, OSError):
        return _Heard()


def _messages(count: int) -> str:
    return f"{count} message is" if count == 1 else f"{count} messages are"
