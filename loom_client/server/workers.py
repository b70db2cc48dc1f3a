"""Which workers serve a store, as they told it themselves, and what they lack for a job."""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from loom_client.requirements import modules_of
from loom_dsl.errors import LoomError
from loom_dsl.graph.plan import Plan
from loom_dsl.queues import presence_queue
from loom_dsl.text.abridgement import abridge
from loom_dsl.text.printable import moment_of
from loom_store.queries.workers import RENEW_SECONDS, WorkerRow
from loom_store.transaction import Transaction

if TYPE_CHECKING:
    from temporalio.client import Client


# Which workers ask a task queue for work.


RECENT_SECONDS = 70.0
"""A worker asks for work at least once in this time: a question waits for a minute."""


async def pollers(client: "Client", task_queue: str, *, activities: bool = False) -> dict[str, float]:
    """Give the workers that asked for work on a queue lately, and how many seconds ago.

    Args:
        client: Of the namespace.
        task_queue: The queue, as Temporal has it.
        activities: Those that asked for activities; else for steps of workflows.
    """
    # Only here: `loom doctor` also looks where there is no server, and is quick without the SDK.
    from temporalio.api.enums.v1 import TaskQueueType
    from temporalio.api.taskqueue.v1 import TaskQueue
    from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest

    request = DescribeTaskQueueRequest(
        namespace=client.namespace,
        task_queue=TaskQueue(name=task_queue),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY
        if activities
        else TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
    )
    answer = await client.workflow_service.describe_task_queue(request)
    now = time.time()
    ages = ((poller.identity, now - poller.last_access_time.ToSeconds()) for poller in answer.pollers)
    return {identity: age for identity, age in ages if age < RECENT_SECONDS}


async def present_workers(client: "Client", task_queue: str) -> dict[str, str]:
    """Give the workers of all stores under a base name that were heard lately, and the id of each one's store."""
    seen = await pollers(client, presence_queue(task_queue), activities=True)
    return {name: store for name, _, store in (identity.partition("#") for identity in seen)}


MAX_SHOWN = 3
LATE_SECONDS = 2 * RENEW_SECONDS
"""A worker that asks for work so long after its last word in the store lives, and cannot write there."""


def told_worker(about: Mapping[str, Any]) -> str:
    """Say in a line which worker this is: where it runs, and what it has."""
    tools = ", ".join(about.get("tools") or ()) or "only Loom's own"
    place = f"{about.get('host')} process {about.get('pid')}"
    return f"{place} (queue {about.get('queue')}, tools {tools}, root {about.get('root')})"


def identity(about: Mapping[str, Any]) -> str:
    """Name a worker as the server does."""
    return f"{about.get('pid')}@{about.get('host')}"


def told_workers(rows: Sequence[WorkerRow]) -> str:
    """Say which workers these are."""
    return abridge(rows, MAX_SHOWN, lambda row: told_worker(row.about), between="; ")


def workers_of(tx: Transaction, namespace: str, queue: str) -> list[WorkerRow]:
    """Give the workers that serve the jobs of a queue now.

    Args:
        tx: Of the store.
        namespace: The jobs' namespace.
        queue: The base name of their queue.
    """
    return serving(tx.workers(alive=True), namespace, queue)


def serving(workers: Iterable[WorkerRow], namespace: str, queue: str) -> list[WorkerRow]:
    """Give those of some workers that serve the jobs of a queue now."""
    place = (namespace, queue)
    return [row for row in workers if row.alive and (row.about.get("namespace"), row.about.get("queue")) == place]


def is_served(tx: Transaction, namespace: str, queue: str, seen: Mapping[str, float]) -> bool | None:
    """Say whether workers serve the jobs of a queue now, as the server and the workers themselves tell.

    Either may be late by itself: a server that was just started has heard nobody yet, and it lists those that died for
    a minute more.

    Args:
        tx: Of the store.
        namespace: The jobs' namespace.
        queue: The base name of their queue.
        seen: Who asked the server for work on it lately, and how many seconds ago.

    Returns:
        None: workers say that they live, and the server has heard none of them.
    """
    found = [row for row in tx.workers() if (row.about.get("namespace"), row.about.get("queue")) == (namespace, queue)]
    if not seen:
        return None if any(row.alive for row in found) else False
    latest = {identity(row.about): row for row in sorted(found, key=lambda row: row.seen_at)}
    now = time.time()
    return not all(name in latest and _is_gone(latest[name], now - age) for name, age in seen.items())


def _is_gone(row: WorkerRow, asked_at: float) -> bool:
    """Whether a worker that the server lists has ended since."""
    return row.stopped_at is not None or (not row.alive and asked_at < moment_of(row.seen_at) + LATE_SECONDS)


def lacking(tx: Transaction, row: Mapping[str, Any], workers: Iterable[WorkerRow]) -> tuple[str, ...]:
    """Name the modules of tools that a job needs and none of these workers has; none where one has them all.

    Args:
        tx: Of the store.
        row: The job's row.
        workers: Who serves its queue.
    """
    try:
        needed = set(modules_of(Plan.load(tx.get_blob(row["plan"]).decode())))
    except (LoomError, ValueError):
        return ()  # a plan that is not there, or not to be read, names no tools
    has = [set(worker.about.get("tools") or ()) for worker in workers]
    return tuple(sorted(needed - max(has, key=lambda modules: len(needed & modules)))) if has else ()
