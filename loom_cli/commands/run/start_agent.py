"""Starting a job from the command line: everything that can be wrong is found before anything starts."""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from temporalio.service import RPCError

from loom_cli.errors import say, say_findings, tell_on_interrupt
from loom_cli.project.validate import rule_findings
from loom_client.client import Loom
from loom_client.requirements import start_worker
from loom_client.settings import worker_command
from loom_client.start.submission import check_tools, new_id
from loom_dsl.agent.definition import Agent, read_agent
from loom_dsl.agent.run import LoopLimits, RunInput, check_id
from loom_dsl.documents.document import Document, load_yaml, of_kind
from loom_dsl.errors import ConflictError, JobExists, NotFoundError, UserError
from loom_dsl.permissions.policy import Mode
from loom_store.store import Store

MAX_TASK = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Request:
    """What `loom run` was told.

    Attributes:
        agent: The agent's file.
        task: The task, or ``-`` for standard input.
        tools: Modules with the user's tools that are to be looked at.
        mode: In place of the file's mode.
    """

    agent: Path
    task: str
    workdir: Path | None = None
    job: str | None = None
    session: str | None = None
    model: str | None = None
    max_turns: int | None = None
    tools: tuple[str, ...] = ()
    mode: Mode | None = None
    document: Document | None = None
    """What is in the agent's file, where it was read already."""


@dataclass(frozen=True, slots=True)
class ForkRequest:
    """What `loom fork` was told.

    Attributes:
        parent: The job that is forked.
        turn: How many of its turns the new one has.
        task: What to do now; may be empty.
        job: The new job's id.
        agent: The file of another agent that goes on.
    """

    parent: str
    turn: int
    task: str
    workdir: Path | None = None
    job: str | None = None
    agent: Path | None = None
    model: str | None = None


def load(request: Request) -> tuple[Agent, str]:
    """Read the agent's file and the task, and look its tools up.

    Raises:
        UserError: Something is wrong with one of them; says what, and where.
    """
    for what, name in (("job", request.job), ("session", request.session)):
        check_id(what, name)
    document = request.document or load_yaml(_read_file(request.agent), str(request.agent))
    agent = _agent_of(document, request.model, request.tools)
    if request.mode is not None:
        permissions = agent.permissions.model_copy(update={"mode": request.mode})
        agent = agent.model_copy(update={"permissions": permissions})
    say_findings(
        replace(found, severity="warning") for found in rule_findings(agent, document) if found.severity != "note"
    )
    return agent, read_task(request.task)


def load_definition(path: Path, model: str | None, tools: tuple[str, ...]) -> Agent:
    """Read an agent's file, with another model if one is named, and look its tools up.

    Raises:
        UserError: Something is wrong with it; says what, and where.
    """
    return _agent_of(load_yaml(_read_file(path), str(path)), model, tools)


def _agent_of(document: Document, model: str | None, tools: tuple[str, ...]) -> Agent:
    overrides = {"model": model} if model is not None else None
    agent = read_agent(of_kind(document, ("agent",)), os.environ, overrides)
    check_tools(agent, document, _resolver(tools))
    return agent


def read_task(task: str) -> str:
    """Give the task; ``-`` stands for standard input.

    Raises:
        UserError: It is empty, or cannot be read.
    """
    text = _read_input() if task == "-" else task
    if not text.strip():
        raise UserError("the task is empty; say what the agent is to do")
    return text


async def start(loom: Loom, request: Request, agent: Agent, task: str) -> str:
    """Start the job, or find it when its id has been started before; its id.

    Raises:
        UserError: It cannot be started.
    """
    name = await chosen_id(loom.store, request.job, "answer")
    run = RunInput.of_text(task, loop_limits=LoopLimits(max_iterations=request.max_turns))
    try:
        turn = request.agent.parent / agent.turn if agent.turn else None
        await loom.start(agent, run, workdir=request.workdir, job=name, session=request.session, turn=turn)
    except JobExists as error:
        raise told_of_other(error, name) from None
    return name


async def start_fork(loom: Loom, request: ForkRequest, agent: Agent | None) -> str:
    """Start the job that goes on from another one's turn, or find it; its id.

    Raises:
        UserError: It cannot be started.
    """
    name = await chosen_id(loom.store, request.job, "answer")
    turns = request.agent.parent / agent.turn if request.agent and agent and agent.turn else None
    try:
        await loom.fork(
            request.parent,
            request.turn,
            request.task,
            workdir=request.workdir,
            job=name,
            agent=agent,
            turns=turns,
            model=request.model,
        )
    except JobExists as error:
        raise told_of_other(error, name) from None
    row = await loom.store.read(lambda tx: tx.job(name)) or {}
    say(
        f"job {name} goes on from turn {request.turn} of {request.parent}; "
        f"files in {row['workdir']} stay as they are now: a fork takes nothing back"
    )
    return name


async def chosen_id(store: Store, job: str | None, what: str) -> str:
    """Give the id of the job that is to start, and see to it that whoever interrupts the start is told of it.

    Args:
        store: Where jobs that have ended are looked for.
        job: The id that the user wants; None for a fresh one.
        what: What the job gives: an answer, or a result.

    Raises:
        ConflictError: A job of this id has ended; says how to get what it gave.
    """
    name = job or new_id()
    if job is not None:
        await _refuse_ended(store, name, what)
    tell_on_interrupt(f"if the job has been started it goes on; see it with `loom watch {name}`")
    return name


async def _refuse_ended(store: Store, job: str, what: str) -> None:
    row = await store.read(lambda tx: tx.job(job))
    if row is not None and row["ended_at"]:
        raise ConflictError(
            f"job {job!r} has ended ({row['status']}); its {what}: `loom result {job}`. "
            "To start a new one take another id, or leave --job out"
        )


def told_of_other(error: JobExists, job: str) -> JobExists:
    """Say of an id that is taken what to do."""
    return JobExists(f"{error.message}, or leave --job out; see the other with `loom show {job}`", error.differs)


async def announce_worker(loom: Loom, job: str) -> bool:
    """Say at once when nobody takes the work, and the job waits for a worker; whether it was said."""
    try:
        if await loom.has_worker():
            return False
    except RPCError:  # whoever goes on to wait for the job is told of a server that is away
        return False
    queue = loom.settings.task_queue
    row = await loom.store.read(lambda tx: tx.job(job))
    command = await loom.store.read(lambda tx: start_worker(tx, row, queue)) if row else worker_command(queue)
    say(
        f"no worker serves the queue {queue} yet for this store (id {loom.store.id}), so the job waits; "
        f"start one with `{command}` (or `loom dev`, which also starts the server)"
    )
    return True


def _read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except IsADirectoryError:
        raise UserError(f"{path} is a directory; give the agent's file") from None
    except FileNotFoundError:
        from loom_cli.project.files import near_file

        hint = near_file(path) or "give the agent's file, or make one with `loom init`"
        raise NotFoundError(f"there is no file {path}; {hint}") from None
    except OSError as error:
        raise UserError(f"the file {path} cannot be read: {error.strerror}") from None


def _read_input() -> str:
    if sys.stdin.isatty():
        say("reading the task from the terminal; end it with Ctrl-D on a line of its own")
    raw = sys.stdin.buffer.read(MAX_TASK + 1)
    if len(raw) > MAX_TASK:
        raise UserError(f"the task is longer than {MAX_TASK // 1024 // 1024} MiB; put it into a file in --workdir")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"the task on standard input is not UTF-8 (byte {error.start})") from None


def _resolver(modules: tuple[str, ...]) -> Callable[[str], object]:
    """Look up what can be looked up here: built-ins, and the modules that were named. The worker has the others."""
    from loom_tools.registry import ToolRegistry

    if modules:
        sys.path.insert(0, os.getcwd())
    registry = ToolRegistry.load(modules=list(modules))

    def resolve(reference: str) -> object:
        module = reference.rpartition(":")[0]
        if module and module not in modules:
            return None
        return registry.resolve(reference)

    return resolve
