"""Starting the workflow of a job that is written down: once, and only where its id is free on the server."""

import secrets
import time
from typing import Any, NoReturn

from temporalio.client import Client, WorkflowExecutionDescription
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError

from loom_client.graph_submission import GraphSubmission
from loom_client.lasting import SENT_SECONDS, lasting
from loom_client.lost import is_running, settle_lost
from loom_client.server_errors import is_away, is_missing
from loom_client.submission import Submission, Written
from loom_dsl.errors import ConfigurationError, ConflictError, JobExists, UserError
from loom_dsl.machine_state import MachineState
from loom_dsl.plan import ENGINE, PlanText
from loom_dsl.queues import job_queue
from loom_dsl.run import ErrorInfo, GraphResult, RunResult
from loom_store.store import Store
from loom_store.transaction import Transaction

WORKFLOW = "loom.graph"
ORIGIN = "loom.origin"
"""Memo of a job's workflow: which store's job it is."""
Starting = Submission | GraphSubmission


async def launch(
    client: Client, store: Store, task_queue: str, start: Starting, state: MachineState, written: Written
) -> None:
    """Start a job's workflow, or find that it runs already.

    Raises:
        ConflictError: The id is another job's on the server, or this one has ended there.
        UserError: The server does not take it.
    """
    envelope: dict[str, Any] = {"engine": ENGINE, "state": state.to_json()}
    if start.plan.agents or not start.plan.agent:
        envelope["key"] = secrets.token_hex(16)  # by which it knows reports of jobs below it
    if start.steps:
        envelope["steps"] = start.steps

    async def begin() -> None:
        await client.start_workflow(
            WORKFLOW,
            args=[envelope, PlanText(start.plan.text)],
            id=start.job,
            task_queue=job_queue(task_queue, store.id),
            memo={ORIGIN: written.origin},
            id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
            id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
        )

    try:
        await lasting(client, begin, SENT_SECONDS)  # an id begins once: the second try finds what the first began
    except WorkflowAlreadyStartedError:
        await _join(client, store, start, written)
    except RPCError as error:
        raise _not_taken(error) from None


async def check_free(client: Client, name: str) -> None:
    """Look for a job of this id that this store does not know, before anything is written.

    Raises:
        ConflictError: There is one.
        UserError: The server does not answer.
    """
    try:
        described = await lasting(client, client.get_workflow_handle(name).describe, SENT_SECONDS)
    except RPCError as error:
        if is_missing(error):
            return
        raise _not_taken(error) from None
    _refuse(name, described)


async def _join(client: Client, store: Store, start: Starting, written: Written) -> None:
    """Go on with the job that runs under this id, if it is this very one."""
    try:
        described = await lasting(client, client.get_workflow_handle(start.job).describe, SENT_SECONDS)
    except RPCError as error:
        raise _not_taken(error) from None
    if (await described.memo()).get(ORIGIN) == written.origin:
        if is_running(described):
            return
        await settle_lost(client, store, start.job)
    else:  # somebody was quicker than we between our look and our start
        await store.write(lambda tx: _give_up(tx, start))
    _refuse(start.job, described)


def _not_taken(error: RPCError) -> UserError:
    kind = ConfigurationError if is_away(error) else UserError
    return kind(f"the server does not take the job: {error.message}")


def _refuse(name: str, described: WorkflowExecutionDescription) -> NoReturn:
    if not is_running(described):
        raise ConflictError(f"job {name!r} has ended on the server; take another id")
    raise JobExists(
        f"job {name!r} runs on the server already, and it is not this store's: another store has started it, or "
        "another program; take another id"
    )


def _give_up(tx: Transaction, start: Starting) -> None:
    error = ErrorInfo(code=JobExists.code, message="the id was taken on the server; this job was never started")
    result: RunResult | GraphResult = RunResult(
        session_id=start.session, run_id=start.job, status="failed", error=error
    )
    if isinstance(start, GraphSubmission):
        result = GraphResult(job=start.job, status="failed", error=error)
    tx.update_job(start.job, status="failed", ended_at=time.time(), result=result.model_dump(mode="json"))
