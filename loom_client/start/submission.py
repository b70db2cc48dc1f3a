"""A job that is about to start: what it is, how it is written down, and what its first turn begins with."""

import json
import os
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Protocol

from temporalio.client import Client, WorkflowExecutionDescription
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError

from loom_client.server.errors import is_away, is_missing
from loom_client.server.reconcile import is_running, settle_lost
from loom_client.server.reconnect import SENT_SECONDS, lasting
from loom_client.start.forking import Fork, check_same
from loom_dsl.agent.definition import Agent, call_name
from loom_dsl.agent.fork import ForkPoint
from loom_dsl.agent.messages import PROJECT_CONTEXT, RUNTIME_DATA
from loom_dsl.agent.provenance import words_in
from loom_dsl.agent.run import (
    ErrorInfo,
    GraphResult,
    RunInput,
    RunResult,
    allowed_tools,
    effective_limits,
    unknown_tools,
)
from loom_dsl.agent.turn import TurnState, turn_id
from loom_dsl.documents.document import Document
from loom_dsl.errors import (
    ConfigurationError,
    ConflictError,
    Diagnostic,
    DocumentError,
    JobExists,
    LoomError,
    NotFoundError,
    UserError,
)
from loom_dsl.graph.compiler import compile_document, compile_graph
from loom_dsl.graph.graph import Graph
from loom_dsl.graph.plan import ENGINE, Plan, PlanText
from loom_dsl.machine.state import MachineState
from loom_dsl.queues import job_queue
from loom_dsl.text.canonical import canonical_json, written_json
from loom_store.job_facts import MAX_TASK, origin_of
from loom_store.queries.jobs import Mark
from loom_store.rows import NewEntry
from loom_store.store import Store
from loom_store.transaction import Transaction

# The plan of a graph, wherever the graph is. Nothing is started here, so nothing that starts jobs is imported.


def plan_of(graph: Plan | Graph | Document | str | Path, warned: Callable[[Diagnostic], None] | None = None) -> Plan:
    """Give the plan of a graph: compiled already, made in Python, in a document that was read already, or in a file.

    Args:
        graph: Any of them.
        warned: Takes what is doubtful about it and does not keep it from running.

    Raises:
        DocumentError: The graph is not valid; carries every finding.
        NotFoundError: The file cannot be read.
    """
    if isinstance(graph, Plan):
        return graph
    if isinstance(graph, Graph):
        made = written_json(graph.dump())
        return compile_graph(made, graph.name, read_file=_beside(Path()), env=os.environ, warned=warned)
    if isinstance(graph, Document):
        beside = _beside(Path(graph.source).parent)
        return compile_document(graph, read_file=beside, env=os.environ, warned=warned)
    try:
        text = Path(graph).read_bytes()
    except OSError as error:
        raise NotFoundError(f"the graph's file {graph} cannot be read: {error.strerror or error}") from None
    return compile_graph(text, str(graph), read_file=_beside(Path(graph).parent), env=os.environ, warned=warned)


def _beside(place: Path) -> Callable[[str], bytes]:
    """Read the files that a document names: their paths are relative to its own."""
    return lambda name: (place / name).read_bytes()


@dataclass(frozen=True, slots=True)
class Submission:
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
    fork: Fork | None = None

    @property
    def shared(self) -> int:
        """How many entries of another session it begins with."""
        return self.fork.point.end if self.fork else 0


@dataclass(frozen=True, slots=True)
class WrittenJob:
    """What was written down of a job before it starts.

    Attributes:
        entries: How many entries its session has.
        origin: Names this job of this store: another store's job of the same id has another one.
    """

    entries: int
    origin: str


def new_id() -> str:
    """Make an id for a job that nobody has named."""
    return f"job-{secrets.token_hex(5)}"


def write_down(tx: Transaction, start: Submission, namespace: str, task_queue: str) -> WrittenJob:
    """Write the job, its session and its first messages, all or nothing."""
    fork = start.fork
    if not start.run.auto_create_session and not tx.session_exists(start.session):
        raise NotFoundError(f"there is no session {start.session!r}; create it, or allow it to be created")
    check_same(tx, start.job, fork.point if fork else None)
    if fork:
        tx.create_session(start.session, parent=fork.session, parent_entry=fork.point.end)
    text = " ".join(str(m.get("content") or "") for m in start.run.input_messages)
    write_job(tx, start, name=start.agent.name, task=text or (fork.task if fork else ""), place=(namespace, task_queue))
    tx.acquire_lease(start.session, start.job)
    for kind, value in fork.marks if fork else ():
        tx.mark(start.job, kind, value)
    entries = [_entry(start.job, dict(message)) for message in start.run.input_messages]
    news = [_entry(start.job, {"role": "system", "content": text}) for text in (fork.news if fork else ())]
    entries = [*news, *entries]
    if start.context != (fork.known if fork else ""):
        note = {"note": PROJECT_CONTEXT}
        entries.insert(0, NewEntry(kind="note", head=note, content=start.context, job=start.job, turn=0))
    if start.run.runtime_init_data:
        data = canonical_json(start.run.runtime_init_data)
        entries.insert(0, NewEntry(kind="note", head={"note": RUNTIME_DATA}, content=data, job=start.job, turn=0))
    # A fork that is told nothing new has nothing to append.
    end = tx.append_entries(start.session, f"{start.job}/input", entries).end if entries else start.shared
    return WrittenJob(end, origin_of(tx, start.job))


class Starting(Protocol):
    """What the jobs of agents and of graphs have in common before they start."""

    @property
    def job(self) -> str:
        """The job's id."""

    @property
    def session(self) -> str:
        """The session's."""

    @property
    def plan(self) -> Plan:
        """What the job runs."""

    @property
    def workdir(self) -> str:
        """Absolute path of the directory that file tools are confined to."""


def write_job(
    tx: Transaction,
    start: Starting,
    *,
    name: str,
    task: str,
    place: tuple[str, str],
    words: Mapping[str, str] | None = None,
) -> None:
    """Write a job's row, its plan and its session. The same job again changes nothing.

    Args:
        tx: The transaction.
        start: The job.
        name: The agent's or the graph's.
        task: What lists show of what it is to do.
        place: Namespace and task queue.
        words: What fields of a job are called where they have another name for the user.

    Raises:
        ConflictError: The job has ended.
        JobExists: The id stands for another job; says what differs.
    """
    tx.put_blob(start.plan.text.encode())
    row = tx.job(start.job)
    if row is not None and row["ended_at"] is not None:
        raise ConflictError(f"job {start.job!r} has ended ({row['status']}); take another id")
    tx.create_session(start.session, job=start.job)
    try:
        tx.create_job(
            start.job,
            session=start.session,
            agent=name,
            plan=start.plan.hash,
            task=task,
            workdir=start.workdir,
            namespace=place[0],
            task_queue=place[1],
            created_at=time.time(),
        )
    except JobExists as error:
        known = {"task_queue": "task queue", "workdir": "working directory", **(words or {})}
        differs = tuple(known.get(field, field) for field in error.differs)
        raise JobExists(
            f"job {start.job!r} exists already with another {', '.join(differs)}; take another id", differs
        ) from None


def fork_of(fork: Fork, job: str, task: str, place: Path) -> Submission:
    """Give the job that goes on from a turn of another one, with a budget of its own.

    Raises:
        UserError: The agent had finished, and nobody says what to do next.
    """
    if not task.strip() and (task or fork.finished):
        why = "is empty" if task else f"is needed: after turn {fork.point.turn} the agent had finished"
        raise UserError(f"the task {why}; say what the agent is to do next")
    first, agent = fork.point.turn, fork.agent
    turn = TurnState.initial(
        job,
        first=first,
        max_iterations=first + agent.limits.max_iterations,
        parent_turn_id=turn_id(fork.point.job, first - 1) if first else None,
    )
    told: tuple[dict[str, Any], ...] = ({"role": "user", "content": task},) if task else ()
    return Submission(
        job=job,
        session=f"s-{job}",
        plan=fork.plan,
        agent=agent,
        run=RunInput(input_messages=told, runtime_init_data=fork.runtime),
        workdir=str(place),
        turn_state=turn,
        steps=None,
        context=fork.context_in(place),
        fork=fork,
    )


def first_turn(start: Submission, entries: int) -> TurnState:
    """Give the state that the job begins with."""
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


def check_tools(agent: Agent, document: Document, resolve: Callable[[str], object]) -> None:
    """Look every tool of an agent up, so that a mistake is told before anything starts.

    Args:
        agent: The agent.
        document: Where it was read from, for the places of what is found.
        resolve: Gives the tool of a reference, or raises a `LoomError`.

    Raises:
        DocumentError: A tool cannot be found or is not declared well; it carries every finding.
    """
    findings = []
    for index, reference in enumerate(agent.tools):
        try:
            resolve(reference)
        except LoomError as error:
            message = f"tool `{call_name(reference)}`: {error.message}"
            findings.append(document.diagnostic("L150", message, ("tools", index)))
    if findings:
        raise DocumentError(findings)


def _entry(job: str, message: Mapping[str, Any]) -> NewEntry:
    content = message.get("content")
    if isinstance(content, str):
        head = {key: value for key, value in message.items() if key != "content"}
        return NewEntry(kind="message", head=head, content=content, job=job, turn=0)
    return NewEntry(kind="message", head=dict(message), job=job, turn=0)


# A graph's job that is about to start: what it is, and how it is written down.


@dataclass(frozen=True, slots=True)
class GraphSubmission:
    """A job of a graph that is about to start.

    Attributes:
        input: Its values, checked and complete.
        steps: For tests: continue as new after so many activities.
        point: The job that it goes on from; None: it begins at its start.
        marks: What is known of that job and holds for this one.
    """

    job: str
    session: str
    plan: Plan
    input: Mapping[str, Any]
    workdir: str
    steps: int | None
    point: ForkPoint | None = None
    marks: tuple[tuple[Mark, str], ...] = ()


def write_graph_down(tx: Transaction, start: GraphSubmission, namespace: str, task_queue: str) -> WrittenJob:
    """Write the job and its plan, all or nothing."""
    task = json.dumps(start.input, ensure_ascii=False)[:MAX_TASK] if start.input else ""
    check_same(tx, start.job, start.point)
    words = {"agent": "graph", "plan": "graph's content", "task": "input"}
    write_job(tx, start, name=start.plan.root, task=task, place=(namespace, task_queue), words=words)
    tx.mark(start.job, "words", tx.put_blob(words_in(start.input).encode("utf-8", "replace")))
    for kind, value in start.marks:
        tx.mark(start.job, kind, value)
    return WrittenJob(0, origin_of(tx, start.job))


# Starting the workflow of a job that is written down: once, and only where its id is free on the server.


WORKFLOW = "loom.graph"
ORIGIN = "loom.origin"
"""Memo of a job's workflow: which store's job it is."""
AnySubmission = Submission | GraphSubmission


async def launch(
    client: Client, store: Store, task_queue: str, start: AnySubmission, state: MachineState, written: WrittenJob
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


async def _join(client: Client, store: Store, start: AnySubmission, written: WrittenJob) -> None:
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


def _give_up(tx: Transaction, start: AnySubmission) -> None:
    error = ErrorInfo(code=JobExists.code, message="the id was taken on the server; this job was never started")
    result: RunResult | GraphResult = RunResult(
        session_id=start.session, run_id=start.job, status="failed", error=error
    )
    if isinstance(start, GraphSubmission):
        result = GraphResult(job=start.job, status="failed", error=error)
    tx.update_job(start.job, status="failed", ended_at=time.time(), result=result.model_dump(mode="json"))
