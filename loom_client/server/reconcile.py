"""Jobs that ended without the store being told: terminated on the server, or never started."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

from temporalio.client import Client, WorkflowExecutionDescription, WorkflowExecutionStatus
from temporalio.service import RPCError

from loom_client.server.errors import is_missing, refusal
from loom_client.server.liveness import LOST, in_doubt, is_starting
from loom_client.server.namespace import look_up_namespace
from loom_client.server.reconnect import lasting
from loom_client.server.workers import pollers, workers_of
from loom_dsl.errors import ConflictError, LoomError
from loom_dsl.queues import job_queue
from loom_store.store import Store
from loom_store.transaction import Transaction

AT_ONCE = 20
_OPEN = (WorkflowExecutionStatus.RUNNING, WorkflowExecutionStatus.CONTINUED_AS_NEW)


def is_running(described: WorkflowExecutionDescription) -> bool:
    """Whether the server counts a job as running."""
    return described.status in _OPEN


async def has_closed(client: Client, job: str, within: float | None = 0.0) -> bool:
    """Whether the server knows a job and says that it has ended; one that it does not know may be another server's.

    Args:
        client: Of the server.
        job: The job.
        within: Seconds for which a server that is away is waited for; None: without an end.

    Raises:
        LoomError: The server does not say.
    """
    try:
        return not is_running(await lasting(client, client.get_workflow_handle(job).describe, within))
    except RPCError as error:
        if is_missing(error):
            return False
        raise refusal(job, error) from None


async def why_refused(client: Client, store: Store, job: str, error: RPCError) -> LoomError | None:
    """Give what to raise when the server did not take something for a job; None: it runs, so it may be sent again.

    The server has one code for a job that it never knew, one that has ended, and one that ended while it was asked,
    in changing words. So it is asked where the job stands; of one that it has forgotten, the store knows.
    """
    try:
        if is_missing(error):
            ended = not is_running(await client.get_workflow_handle(job).describe())
            return ConflictError(f"job {job} has already ended") if ended else None
    except RPCError as later:
        error = later
    row = await store.read(lambda tx: tx.job(job)) if is_missing(error) else None
    if row is not None and row["ended_at"] is not None:
        return ConflictError(f"job {job} has already ended, and the server has forgotten it")
    return refusal(job, error)


async def settle_lost(client: Client, store: Store, job: str) -> bool:
    """Write down that a job has ended, if the server says so and nothing in the store does.

    A job is lost to the store when it is terminated on the server; what it asked is withdrawn, as nobody can decide it
    any more. One that the server does not know at all is `lost`: the server's database was, or its client died before
    it was started. Should the server know it after all, for it was another server that was asked, it runs again.

    Returns:
        Whether it had ended.
    """
    row = await store.read(lambda tx: tx.job(job))
    try:
        if is_running(await client.get_workflow_handle(job).describe()):
            if row is not None and row["status"] == LOST:
                await store.write(lambda tx: tx.update_job(job, status="running", ended_at=None))
            return False
    except RPCError as error:
        return is_missing(error) and row is not None and await _is_lost(client, store, row)
    await store.write(lambda tx: _end(tx, job, "failed"))
    await store.write(lambda tx: _withdraw(tx, job))
    return True


async def reconcile(client: Client, store: Store, rows: Sequence[Mapping[str, Any]]) -> None:
    """Look on the server for the jobs that the store has as running, or as lost, and write down what became of them.

    Nothing is written where the server does not answer, does not have the namespace, or is plainly not the jobs' one.

    Args:
        client: Of the jobs' server. Jobs of other namespaces are left alone.
        store: Where the jobs are.
        rows: The jobs; those that have ended are not asked about.
    """
    mine = [row["job"] for row in rows if row["namespace"] == client.namespace and in_doubt(row)]
    at_once = asyncio.Semaphore(AT_ONCE)

    async def look(job: str) -> None:
        async with at_once:
            await settle_lost(client, store, job)

    await asyncio.gather(*map(look, mine))


async def _is_lost(client: Client, store: Store, row: Mapping[str, Any]) -> bool:
    """Write down that a job is lost which the server does not know, unless it may be because of who was asked."""
    job = row["job"]
    if row["ended_at"] is not None:
        return True
    if is_starting(row) or row["namespace"] != client.namespace or not await _is_asked_well(client):
        return False
    serving = await store.read(lambda tx: workers_of(tx, row["namespace"], row["task_queue"]))
    if serving and not await pollers(client, job_queue(row["task_queue"], store.id)):
        return False  # its workers serve another server
    return await store.write(lambda tx: _end(tx, job, LOST))


async def _is_asked_well(client: Client) -> bool:
    """Whether the server has the namespace: without it, too, it says of every job that it is not there."""
    try:
        await look_up_namespace(client)
    except RPCError:
        return False
    return True


def _end(tx: Transaction, job: str, status: str) -> bool:
    """Write down that a job has ended, unless its worker did meanwhile; whether it has."""
    row = tx.job(job)
    if row is not None and (row["ended_at"] is None or row["status"] == LOST):
        tx.update_job(job, status=status, ended_at=time.time())
    return row is not None


def _withdraw(tx: Transaction, job: str) -> None:
    for row in tx.approvals(status="pending", job=job):
        tx.decide_approval(row["id"], "cancelled", "cancelled", message="the job has ended")
