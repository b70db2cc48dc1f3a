"""Starting jobs and finding them again."""

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import temporalio.service
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError

from loom_client.job import Job
from loom_client.settings import Settings
from loom_dsl.agent import Agent, call_name
from loom_dsl.compile import compile_agent
from loom_dsl.errors import ConflictError, DocumentError, NotFoundError, SessionBusy, UserError
from loom_dsl.machine_state import MachineState
from loom_dsl.messages import PROJECT_CONTEXT
from loom_dsl.plan import ENGINE, Plan, PlanText
from loom_dsl.run import RunInput, allowed_tools, check_id, effective_limits, unknown_tools
from loom_dsl.turn import TurnState, turn_id
from loom_store.rows import NewEntry
from loom_store.store import Store
from loom_store.transaction import Transaction

WORKFLOW = "loom.graph"
INSTRUCTION_FILES = ("AGENTS.md", "CLAUDE.md")
"""Files of a project that tell an agent how to work in it."""
STARTING_SECONDS = 60.0
"""How long a job that is written down may take to appear on the server."""
LARGEST_INSTRUCTIONS = 32 * 1024
"""Bytes of one such file that are used."""


@dataclass(frozen=True, slots=True)
class _Start:
    """A job that is about to start."""

    job: str
    session: str
    plan: Plan
    agent: Agent
    run: RunInput
    workdir: str
    turn_state: TurnState | None
    steps: int | None
    context: str


class Loom:
    """A connection to Loom: start jobs, find them, decide what they ask.

    Attributes:
        client: The Temporal client; its data converter claims plans from the store.
        store: The store that workers use too.
    """

    def __init__(self, client: Client, store: Store, settings: Settings) -> None:
        self.client, self.store, self.settings = client, store, settings

    async def start(
        self,
        agent: Agent,
        task: str | RunInput,
        *,
        workdir: str | Path | None = None,
        job: str | None = None,
        session: str | None = None,
        turn_state: TurnState | None = None,
        steps: int | None = None,
    ) -> Job:
        """Start a job. The same id again is the same job.

        Args:
            agent: The agent's definition.
            task: What to do: text, or everything that a run is started with.
            workdir: Directory that file tools are confined to; the current one when absent.
            job: The job's id; a fresh one when absent.
            session: Conversation to go on with; a new one when absent.
            turn_state: Where the recursion goes on: number, limit and metadata of its first turn.
            steps: For tests: continue as new after so many activities, also in the middle of a turn.

        Raises:
            ConflictError: The id is taken by another job, or the session is busy.
            NotFoundError: The session does not exist and must not be created.
            UserError: The task is empty, the directory does not exist, an id is not one, or the agent lacks a tool.
        """
        run = task if isinstance(task, RunInput) else RunInput.of_text(task)
        if not run.input_messages or not any(str(m.get("content") or "").strip() for m in run.input_messages):
            raise UserError("the task is empty; say what the agent is to do")
        place = working_directory(workdir or (run.context.working_dir if run.context else "."))
        for what, given in (("job", job), ("session", session)):
            check_id(what, given)
        name = job or run.run_id or f"job-{secrets.token_hex(5)}"
        merged = merge(agent, run)
        chosen = _Start(
            job=name,
            session=session or run.session_id or f"s-{name}",
            plan=compile_agent(merged),
            agent=merged,
            run=run,
            workdir=str(place),
            turn_state=turn_state,
            steps=steps,
            context=project_context(place),
        )
        try:
            entries = await self.store.write(lambda tx: self._prepare(tx, chosen))
        except SessionBusy as busy:
            if not await self.settle_lost(busy.holder):
                raise
            entries = await self.store.write(lambda tx: self._prepare(tx, chosen))
        await self._start_workflow(chosen, entries)
        return Job(name, self.client, self.store)

    async def settle_lost(self, job: str) -> bool:
        """Write down that a job has ended, if the server says so and nothing in the store does.

        A job is lost to the store when it is terminated on the server, or its client died before it was started.

        Returns:
            Whether it had ended; its session is free then.
        """
        try:
            described = await self.client.get_workflow_handle(job).describe()
            status = described.status
        except temporalio.service.RPCError as error:
            if error.status is not temporalio.service.RPCStatusCode.NOT_FOUND:
                return False
            status = None
        if status in (WorkflowExecutionStatus.RUNNING, WorkflowExecutionStatus.CONTINUED_AS_NEW):
            return False
        row = await self.store.read(lambda tx: tx.job(job))
        if row is not None and row["ended_at"] is None:
            started = datetime.fromisoformat(row["created_at"]).timestamp()
            if status is None and time.time() - started < STARTING_SECONDS:
                return False
            await self.store.write(lambda tx: tx.update_job(job, status="failed", ended_at=time.time()))
        return True

    def job(self, name: str) -> Job:
        """Give a handle on a job; nothing is checked."""
        return Job(name, self.client, self.store)

    async def find(self, name: str) -> Job:
        """Give a handle on a job that exists.

        Raises:
            NotFoundError: This store does not know it.
        """
        if await self.store.read(lambda tx: tx.job(name)) is None:
            known = [row["job"] for row in await self.store.read(lambda tx: tx.jobs(limit=3))]
            hint = f"the latest are {', '.join(known)}" if known else "there are no jobs yet"
            raise NotFoundError(f"there is no job {name!r} in the store {self.store.path}; {hint}")
        return self.job(name)

    async def jobs(self, limit: int = 50, status: str | None = None) -> list[dict[str, Any]]:
        """List the latest jobs."""
        return await self.store.read(lambda tx: tx.jobs(limit=limit, status=status))

    async def approvals(self, job: str | None = None, status: str | None = "pending") -> list[dict[str, Any]]:
        """List approvals, by default those that wait."""
        return await self.store.read(lambda tx: tx.approvals(status=status, job=job))

    async def has_worker(self) -> bool:
        """Whether a worker has asked for work lately."""
        from temporalio.api.enums.v1 import TaskQueueType
        from temporalio.api.taskqueue.v1 import TaskQueue
        from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest

        answer = await self.client.workflow_service.describe_task_queue(
            DescribeTaskQueueRequest(
                namespace=self.client.namespace,
                task_queue=TaskQueue(name=self.settings.task_queue),
                task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
            )
        )
        limit = time.time() - 70
        return any(poller.last_access_time.ToSeconds() > limit for poller in answer.pollers)

    def _prepare(self, tx: Transaction, start: _Start) -> int:
        """Write the job, its session and its first messages, all or nothing."""
        if not start.run.auto_create_session and not tx.session_exists(start.session):
            raise NotFoundError(f"there is no session {start.session!r}; create it, or allow it to be created")
        tx.put_blob(start.plan.text.encode())
        text = " ".join(str(m.get("content") or "") for m in start.run.input_messages)
        row = tx.job(start.job)
        if row is not None and row["ended_at"] is not None:
            raise ConflictError(f"job {start.job!r} has ended ({row['status']}); take another id")
        tx.create_session(start.session, job=start.job)
        tx.create_job(
            start.job,
            session=start.session,
            agent=start.agent.name,
            plan=start.plan.hash,
            task=text,
            workdir=start.workdir,
            namespace=self.client.namespace,
            task_queue=self.settings.task_queue,
            created_at=time.time(),
        )
        tx.acquire_lease(start.session, start.job)
        entries = [_entry(start.job, dict(message)) for message in start.run.input_messages]
        if start.context:
            note = {"note": PROJECT_CONTEXT}
            entries.insert(0, NewEntry(kind="note", head=note, content=start.context, job=start.job, turn=0))
        return tx.append_entries(start.session, f"{start.job}/input", entries).end

    async def _start_workflow(self, start: _Start, entries: int) -> None:
        envelope: dict[str, Any] = {"engine": ENGINE, "state": MachineState(turn=_first_turn(start, entries)).to_json()}
        if start.steps:
            envelope["steps"] = start.steps
        try:
            await self.client.start_workflow(
                WORKFLOW,
                args=[envelope, PlanText(start.plan.text)],
                id=start.job,
                task_queue=self.settings.task_queue,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
            )
        except WorkflowAlreadyStartedError:
            raise ConflictError(f"job {start.job!r} has ended on the server; take another id") from None
        except temporalio.service.RPCError as error:
            raise UserError(f"the server does not take the job: {error.message}") from None


def _first_turn(start: _Start, entries: int) -> TurnState:
    metadata: dict[str, Any] = {}
    if start.run.context:
        metadata["correlation_id"] = start.run.context.correlation_id
    first = TurnState.initial(
        start.job,
        max_iterations=start.agent.limits.max_iterations,
        session_id=start.session,
        entries=entries,
        metadata=metadata,
    )
    given = start.turn_state
    if given is None:
        return first
    changes = {
        "turn_counter": given.turn_counter,
        "turn_id": turn_id(start.job, given.turn_counter),
        "parent_turn_id": given.parent_turn_id,
        "max_iterations": given.max_iterations,
        "metadata": {**given.metadata, **metadata},
    }
    return first.model_copy(update=changes)


def project_context(place: Path) -> str:
    """Give the texts of a project's instruction files, each under its name; empty when there are none."""
    parts = []
    for name in INSTRUCTION_FILES:
        try:
            text = (place / name).read_bytes()[:LARGEST_INSTRUCTIONS].decode("utf-8", "replace").strip()
        except OSError:
            continue
        if text:
            parts.append(f"{name}:\n{text}")
    return "\n\n".join(parts)


def working_directory(path: str | Path) -> Path:
    """Give the absolute path of a directory.

    Raises:
        UserError: It is not one.
    """
    place = Path(path).expanduser().resolve()
    if not place.is_dir():
        raise UserError(f"the working directory {place} does not exist")
    return place


def merge(agent: Agent, run: RunInput) -> Agent:
    """Put what a run says over what the agent's definition says.

    Raises:
        UserError: The run names a tool that the agent does not have.
    """
    wrong = unknown_tools(agent, run)
    if wrong:
        raise UserError("; ".join(wrong))
    changes: dict[str, Any] = {
        "limits": effective_limits(agent, run),
        "tools": allowed_tools(run.tool_policy, run, agent),
    }
    if run.system_prompt_override is not None:
        changes["instructions"] = run.system_prompt_override
    if run.tool_policy.require_approval_by_default and agent.permissions.default in (None, "allow"):
        changes["permissions"] = agent.permissions.model_copy(update={"default": "ask"})
    return agent.model_copy(update=changes)


def check_tools(agent: Agent, resolve: Callable[[str], object]) -> None:
    """Look every tool of an agent up, so that a mistake is told before anything starts.

    Raises:
        DocumentError: A tool cannot be found or is not declared well; it carries every finding.
    """
    from loom_dsl.errors import Diagnostic, LoomError

    findings = []
    for reference in agent.tools:
        try:
            resolve(reference)
        except LoomError as error:
            findings.append(Diagnostic("L150", f"tool `{call_name(reference)}`: {error.message}"))
    if findings:
        raise DocumentError(findings)


def _entry(job: str, message: Mapping[str, Any]) -> NewEntry:
    content = message.get("content")
    if isinstance(content, str):
        head = {key: value for key, value in message.items() if key != "content"}
        return NewEntry(kind="message", head=head, content=content, job=job, turn=0)
    return NewEntry(kind="message", head=dict(message), job=job, turn=0)
