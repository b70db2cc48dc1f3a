"""Messages of webhooks: those that no worker delivers, and those that were given up."""

import asyncio
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

from loom_client.doctor.check import Check, Status
from loom_client.doctor.server import PROBE_SECONDS, pollers
from loom_client.settings import Settings

_COUNTS = """
    SELECT endpoint, sum(died_at IS NULL), sum(died_at IS NOT NULL)
    FROM deliveries JOIN jobs ON jobs.id = deliveries.job
    WHERE jobs.namespace = ? AND jobs.task_queue = ?
    GROUP BY endpoint ORDER BY endpoint
"""


def webhooks(settings: Settings, path: Path) -> Iterator[Check]:
    """Look for messages that wait or were given up; says nothing where there are none.

    Args:
        settings: The server, and the queue whose jobs are looked at.
        path: The store's file.
    """
    found = _counts(settings, path)
    heard = asyncio.run(_served(settings, [name for name, (waiting, _) in found.items() if waiting]))
    for name, (waiting, dead) in found.items():
        what = f"webhook {name}"
        if waiting and heard.get(name) is False:
            fix = f"start a worker of the queue {settings.task_queue} with a --webhooks FILE that has this endpoint"
            yield Check(Status.WARN, what, f"{_messages(waiting)} waiting, and no worker has this endpoint", fix)
        elif waiting:
            yield Check(Status.OK, what, f"{_messages(waiting)} waiting for the delivery")
        if dead:
            fix = "`loom webhooks` says why; `loom webhooks retry --all` has them delivered after all"
            yield Check(Status.WARN, what, f"{_messages(dead)} given up", fix)


def _counts(settings: Settings, path: Path) -> dict[str, tuple[int, int]]:
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=PROBE_SECONDS)) as opened:
            rows = opened.execute(_COUNTS, (settings.namespace, settings.task_queue)).fetchall()
    except sqlite3.Error:  # there is no store yet, or an older one without webhooks
        return {}
    return {name: (int(waiting), int(dead)) for name, waiting, dead in rows}


async def _served(settings: Settings, names: list[str]) -> Mapping[str, bool]:
    """Ask the server which endpoints a worker has; nothing where it does not say."""
    if not names:
        return {}
    from temporalio.client import Client
    from temporalio.service import RPCError

    from loom_client.access import access_of
    from loom_dsl.errors import ConfigurationError
    from loom_dsl.webhook_names import queue_of

    try:
        async with asyncio.timeout(3 * PROBE_SECONDS):
            access = access_of(settings)
            client = await Client.connect(
                settings.address, namespace=settings.namespace, tls=access.tls, api_key=access.api_key
            )
            return {name: bool(await pollers(client, queue_of(settings.task_queue, name))) for name in names}
    except (ConfigurationError, RPCError, TimeoutError, RuntimeError, OSError):
        return {}


def _messages(count: int) -> str:
    return f"{count} message is" if count == 1 else f"{count} messages are"
