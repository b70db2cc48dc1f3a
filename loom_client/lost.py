"""Jobs that ended without the store being told: terminated on the server, or never started."""

import time
from datetime import datetime

from temporalio.client import Client, WorkflowExecutionDescription, WorkflowExecutionStatus
from temporalio.service import RPCError

from loom_client.lasting import lasting
from loom_client.server_errors import is_missing, refusal
from loom_dsl.errors import ConflictError, LoomError
from loom_store.store import Store
from loom_store.transaction import Transaction

STARTING_SECONDS = 60.0
"""How long a job that is written down may take to appear on the server."""
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

    A job is lost to the store when it is terminated on the server, or its client died before it was started. What it
    asked is withdrawn: nobody can decide it any more.

    Returns:
        Whether it had ended.
    """
    known = True
    try:
        if is_running(await client.get_workflow_handle(job).describe()):
            return False
    except RPCError as error:
        if not is_missing(error):
            return False
        known = False
    row = await store.read(lambda tx: tx.job(job))
    if row is not None and row["ended_at"] is None:
        started = datetime.fromisoformat(row["created_at"]).timestamp()
        if not known and time.time() - started < STARTING_SECONDS:
            return False
        await store.write(lambda tx: tx.update_job(job, status="failed", ended_at=time.time()))
    await store.write(lambda tx: _withdraw(tx, job))
    return True


def _withdraw(tx: Transaction, job: str) -> None:
    for row in tx.approvals(status="pending", job=job):
        tx.decide_approval(row["id"], "cancelled", "cancelled", message="the job has ended")
