"""Decide what jobs of Loom ask, from a workflow that knows Temporal and nothing of Loom.

Its own condition is a change window: when somebody opens one, the call is approved; when nobody does in time, it is
rejected, and the model reads why.

    python workflow.py worker                                 # run such workflows
    loom worker --on-approval 'python workflow.py notice'     # start one for each question, here with eight hours
    temporal workflow signal --workflow-id window-APPROVAL --name open --input '"ann"'
    temporal workflow result --workflow-id window-APPROVAL

`notice 600` gives ten minutes. The server is the one that TEMPORAL_ADDRESS and TEMPORAL_NAMESPACE name.
`go/main.go` is the same in Go.
"""

import asyncio
import gc
import json
import sys
from dataclasses import dataclass
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.envconfig import ClientConfig
from temporalio.exceptions import FailureError, WorkflowAlreadyStartedError
from temporalio.runtime import Runtime, TelemetryConfig
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Worker

QUEUE = "change-windows"
EIGHT_HOURS = 8 * 3600


@dataclass
class Question:
    """What a job waits for: its id, the approval's, and how many seconds a window has to open."""

    job: str
    approval: str
    patience: float


@dataclass
class Outcome:
    """What was decided, and what became of it.

    `settled`: the question is closed. `late`: it was closed before, and nothing was sent. `open`: it still waits,
    because this was refused or others must agree.
    """

    choice: str
    became: str


@workflow.defn(name="change-window")
class ChangeWindow:
    """One question."""

    def __init__(self) -> None:
        self._opened_by = ""

    @workflow.signal
    def open(self, by: str) -> None:
        self._opened_by = by

    @workflow.run
    async def run(self, question: Question) -> Outcome:
        decision = {"approval_id": question.approval, "by": "the change window"}
        try:
            await workflow.wait_condition(lambda: self._opened_by != "", timeout=question.patience)
            decision |= {"choice": "approve", "message": f"opened by {self._opened_by}"}
        except TimeoutError:
            decision |= {"choice": "reject", "message": "no change window opened in time"}
        return Outcome(decision["choice"], await self._send(question, decision))

    async def _send(self, question: Question, decision: dict[str, str]) -> str:
        if not await self._is_open(question):
            return "late"
        try:
            await workflow.get_external_workflow_handle(question.job).signal("loom.decision", decision)
        except FailureError:  # the job has ended since
            return "late"
        # A signal has no answer: look whether the question is closed now.
        for _ in range(3):
            if not await self._is_open(question):
                return "settled"
            await workflow.sleep(1)
        return "open"

    async def _is_open(self, question: Question) -> bool:
        # Tried again for as long as no worker of Loom is up to answer.
        return await workflow.execute_activity(is_open, question, start_to_close_timeout=timedelta(seconds=20))


@activity.defn
async def is_open(question: Question) -> bool:
    """Ask the job whether the question still waits."""
    job = activity.client().get_workflow_handle(question.job)
    try:
        if (await job.describe()).status != WorkflowExecutionStatus.RUNNING:
            return False
        status = await job.query("loom.status", rpc_timeout=timedelta(seconds=10))
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            return False
        raise
    return any(asked["approval_id"] == question.approval for asked in status["approvals"])


async def work(client: Client) -> None:
    async with Worker(client, task_queue=QUEUE, workflows=[ChangeWindow], activities=[is_open]):
        print("ready", flush=True)
        await asyncio.Event().wait()


async def begin(client: Client, patience: float) -> None:
    """Start a workflow for a notice. It may come again: then the workflow is there already."""
    notice = json.load(sys.stdin)
    question = Question(notice["job"], notice["approval_id"], patience)
    try:
        await client.start_workflow(
            "change-window",
            question,
            id=f"window-{question.approval}",
            task_queue=QUEUE,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
        )
    except WorkflowAlreadyStartedError:
        print(f"window-{question.approval} has ended", file=sys.stderr)


async def main(what: str, patience: str = str(EIGHT_HOURS)) -> None:
    runtime = Runtime(telemetry=TelemetryConfig())
    client = await Client.connect(**ClientConfig.load_client_connect_config(), runtime=runtime)
    await (work(client) if what == "worker" else begin(client, float(patience)))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
    # The SDK's threads end here, with the runtime. The interpreter's own end may be too late: a thread that still
    # answers then aborts the process (https://github.com/temporalio/sdk-python/issues/300).
    gc.collect()
