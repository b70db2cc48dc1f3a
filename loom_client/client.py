"""Starting jobs and finding them again."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, overload

from pydantic import TypeAdapter
from temporalio.client import Client

from loom_client.job import GraphJob, Job, JobHandle
from loom_client.records import ApprovalRecord, JobRecord
from loom_client.server.reconcile import settle_lost
from loom_client.server.reconnect import SENT_SECONDS, lasting
from loom_client.server.workers import is_served, pollers
from loom_client.settings import Settings
from loom_client.start.forking import read_fork
from loom_client.start.graph_fork import Resuming, read_resuming, write_resuming
from loom_client.start.schedules import Schedules
from loom_client.start.submission import (
    GraphSubmission,
    Submission,
    WrittenJob,
    check_free,
    first_turn,
    fork_of,
    launch,
    merge,
    new_id,
    plan_of,
    working_directory,
    write_down,
    write_graph_down,
)
from loom_client.user import user_name
from loom_dsl.agent.definition import Agent
from loom_dsl.agent.run import RunInput, check_id
from loom_dsl.agent.turn import TurnState
from loom_dsl.errors import NotFoundError, SessionBusy, UserError
from loom_dsl.graph.compiler import compile_agent
from loom_dsl.graph.graph import Graph, checked_input
from loom_dsl.graph.plan import Plan
from loom_dsl.machine.state import MachineState
from loom_dsl.queues import job_queue
from loom_store.store import Store
from loom_store.transaction import Transaction
from loom_tools.workspace.project import project_context

_JOBS = TypeAdapter(list[JobRecord])
_APPROVALS = TypeAdapter(list[ApprovalRecord])


class Loom:
    """A connection to Loom: start jobs, find them, decide what they ask.

    Attributes:
        client: The Temporal client; its data converter claims plans from the store.
        store: The store that workers use too.
        settings: Where the server, its task queue and the store are, and how long answers are waited for.
        schedules: Jobs that the server starts at set times.
    """

    def __init__(self, client: Client, store: Store, settings: Settings) -> None:
        self.client, self.store, self.settings = client, store, settings
        self.schedules = Schedules(client, store, settings)

    @property
    def queue(self) -> str:
        """The task queue of this store's jobs, as Temporal has it."""
        return job_queue(self.settings.task_queue, self.store.id)

    async def start(  # noqa: PLR0913 - what a job is started with
        self,
        agent: Agent,
        task: str | RunInput,
        *,
        workdir: str | Path | None = None,
        job: str | None = None,
        session: str | None = None,
        turn: Plan | Graph | str | Path | None = None,
        turn_state: TurnState | None = None,
        steps: int | None = None,
        by: str = "",
    ) -> Job:
        """Start a job. The same id again is the same job.

        Args:
            agent: The agent's definition.
            task: What to do: text, or everything that a run is started with.
            workdir: Directory that file tools are confined to; the current one when absent.
            job: The job's id; a fresh one when absent.
            session: Conversation to go on with; a new one when absent.
            turn: The graph of the agent's turns, which extends ``loom.tt``; the agent's `turn`, a file, when absent.
            turn_state: Where the recursion goes on: number, limit and metadata of its first turn.
            steps: For tests: continue as new after so many activities, also in the middle of a turn.
            by: Who starts it, for approvals that need four eyes; the user of this process when absent.

        Returns:
            A handle on the job, which the server has.

        Raises:
            ConflictError: The id is taken by another job, here or on the server, or the session is busy.
            NotFoundError: The session does not exist and must not be created.
            UserError: The task is empty, the directory does not exist, an id is not one, or the agent lacks a tool.
        """
        run = task if isinstance(task, RunInput) else RunInput.of_text(task)
        if not run.input_messages or not any(str(m.get("content") or "").strip() for m in run.input_messages):
            raise UserError("the task is empty; say what the agent is to do")
        place = working_directory(workdir or (run.context.working_dir if run.context else "."))
        for what, given in (("job", job), ("session", session)):
            check_id(what, given)
        name = job or run.run_id or new_id()
        merged = merge(agent, run)
        chosen = Submission(
            job=name,
            session=session or run.session_id or f"s-{name}",
            plan=compile_agent(merged, plan_of(turn or Path(merged.turn)) if turn or merged.turn else None),
            agent=merged,
            run=run,
            workdir=str(place),
            turn_state=turn_state,
            steps=steps,
            context=project_context(place, run.context),
        )
        return await self._start(chosen, by, named=bool(job or run.run_id))

    @overload
    async def fork(
        self,
        parent: JobHandle | str,
        turn: int,
        task: str = "",
        *,
        workdir: str | Path | None = None,
        job: str | None = None,
        agent: Agent | None = None,
        turns: Plan | Graph | str | Path | None = None,
        model: str | None = None,
        by: str = "",
    ) -> Job: ...

    @overload
    async def fork(
        self,
        parent: JobHandle | str,
        *,
        workdir: str | Path | None = None,
        job: str | None = None,
        graph: Plan | Graph | str | Path | None = None,
        names: Mapping[str, str] | None = None,
        by: str = "",
    ) -> GraphJob: ...

    async def fork(  # noqa: PLR0913 - what a fork is started with
        self,
        parent: JobHandle | str,
        turn: int | None = None,
        task: str = "",
        *,
        workdir: str | Path | None = None,
        job: str | None = None,
        agent: Agent | None = None,
        turns: Plan | Graph | str | Path | None = None,
        model: str | None = None,
        graph: Plan | Graph | str | Path | None = None,
        names: Mapping[str, str] | None = None,
        by: str = "",
    ) -> Job | GraphJob:
        """Start a job that goes on from a turn of another one, or where a graph's failed. The same id is the same job.

        What that job did up to there is not done again. Files are not taken back. The job of a graph enters the node
        that failed, and whatever was under way; what had been finished is finished.

        Args:
            parent: The other job, or its id; only this store must know it.
            turn: How many of its turns the new job has; 0: only its task. None: it is a graph's, which failed.
            task: What to do now; may be left out where the agent had not finished.
            workdir: Directory that file tools are confined to; that of the other job when absent.
            job: The new job's id; a fresh one when absent.
            agent: In place of the other job's agent, which has the policy of its project as it was then.
            turns: The graph of that agent's turns; the agent's `turn`, a file, when absent.
            model: In place of the agent's.
            graph: A changed graph, in place of the one that failed; every node that is under way must be in it.
            names: Old node → new node, where that graph has another name for it.
            by: Who starts it, for approvals that need four eyes; the user of this process when absent.

        Returns:
            A handle on the new job: with a turn an agent's, without one a graph's.

        Raises:
            ConflictError: The id is taken by another job, here or on the server.
            DocumentError: The changed graph is not valid; carries every finding.
            NotFoundError: There is no such job to fork.
            UserError: It is a graph's (with a turn) or an agent's (without), has not finished so many turns, nobody
                says what to do next, or a graph cannot go on where it failed.
        """
        check_id("job", job)
        name = (await self.find(parent)).id if isinstance(parent, str) else parent.id
        if turn is None:
            return await self._resume(name, job, None if graph is None else plan_of(graph), names, workdir, by)
        found = await self.store.read(lambda tx: read_fork(tx, name, turn))
        if agent is not None:
            found = found.redefined(agent, plan_of(turns or Path(agent.turn)) if turns or agent.turn else None)
        if model is not None:
            found = found.with_model(model)
        chosen = fork_of(found, job or new_id(), task, working_directory(workdir or found.workdir))
        return await self._start(chosen, by, named=bool(job))

    async def _resume(
        self,
        parent: str,
        job: str | None,
        plan: Plan | None,
        names: Mapping[str, str] | None,
        workdir: str | Path | None,
        by: str,
    ) -> GraphJob:
        """Start the job that goes on where a graph's failed."""
        name, place = job or new_id(), (self.client.namespace, self.settings.task_queue)
        if job and await self.store.read(lambda tx: tx.job(name)) is None:
            await check_free(self.client, name)

        def write(tx: Transaction) -> tuple[Resuming, WrittenJob]:
            found = read_resuming(tx, parent, name, plan=plan, names=names, workdir=workdir)
            return found, write_resuming(tx, found, *place)

        found, written = await self.store.write(write)
        found.state.starter = _starter(by)
        await self._launch(found.start, found.state, written)
        return self.graph_job(name)

    async def start_graph(
        self,
        graph: Plan | Graph | str | Path,
        *,
        input: Mapping[str, Any] | None = None,
        workdir: str | Path | None = None,
        job: str | None = None,
        steps: int | None = None,
        by: str = "",
    ) -> GraphJob:
        """Start a job of a graph. The same id again is the same job.

        Args:
            graph: A plan, a graph made in Python, or a file's path.
            input: The values that the graph declares as its `input`, by name.
            workdir: Directory that file tools are confined to; the current one when absent.
            job: The job's id; a fresh one when absent.
            steps: For tests: continue as new after so many activities.
            by: Who starts it, for approvals that need four eyes; the user of this process when absent.

        Returns:
            A handle on the job, which the server has.

        Raises:
            ConflictError: The id is taken by another job, here or on the server.
            DocumentError: The graph is not valid; carries every finding.
            UserError: The input is not what the graph declares, or the directory does not exist.
        """
        plan = plan_of(graph)
        given = checked_input(plan.root, plan.bodies[plan.root], input or {})
        place = working_directory(workdir or ".")
        check_id("job", job)
        name = job or new_id()
        chosen = GraphSubmission(name, f"s-{name}", plan, given, str(place), steps)
        if job and await self.store.read(lambda tx: tx.job(name)) is None:
            await check_free(self.client, name)
        settings = self.settings
        written = await self.store.write(
            lambda tx: write_graph_down(tx, chosen, self.client.namespace, settings.task_queue)
        )
        await self._launch(chosen, _first_state(by, input=given), written)
        return GraphJob(name, self.client, self.store, self.settings.answer_seconds)

    async def settle_lost(self, job: str) -> bool:
        """Write down that a job has ended, if the server says so and nothing in the store does.

        Args:
            job: The job's id.

        Returns:
            Whether it had ended; its session is free then, and nothing of it waits for a decision.
        """
        return await settle_lost(self.client, self.store, job)

    def job(self, name: str) -> Job:
        """Give a handle on a job; nothing is checked.

        Args:
            name: The job's id.
        """
        return Job(name, self.client, self.store, self.settings.answer_seconds)

    def graph_job(self, name: str) -> GraphJob:
        """Give a handle on a job of a graph; nothing is checked.

        Args:
            name: The job's id.
        """
        return GraphJob(name, self.client, self.store, self.settings.answer_seconds)

    async def find(self, name: str) -> Job:
        """Give a handle on a job that exists.

        Args:
            name: The job's id.

        Raises:
            NotFoundError: This store does not know it.
        """
        if await self.store.read(lambda tx: tx.job(name)) is None:
            known = [row["job"] for row in await self.store.read(lambda tx: tx.jobs(limit=3))]
            hint = f"the latest are {', '.join(known)}" if known else "there are no jobs yet"
            raise NotFoundError(f"there is no job {name!r} in the store {self.store.place}; {hint}")
        return self.job(name)

    async def jobs(self, limit: int = 50, status: str | None = None) -> list[JobRecord]:
        """List the latest jobs.

        Args:
            limit: At most so many.
            status: Only those that are ``running``, ``completed``, ``failed``, ``aborted``, ``lost`` or, of those
                that run, ``halted``.

        Returns:
            The jobs, the newest first.
        """
        return _JOBS.validate_python(await self.store.read(lambda tx: tx.jobs(limit=limit, status=status)))

    async def approvals(
        self, job: str | None = None, status: str | None = "pending", *, below: bool = False
    ) -> list[ApprovalRecord]:
        """List approvals, by default those that wait.

        Args:
            job: Only those of this job.
            status: Only those; None: all.
            below: With `job`: also those of the jobs below it.

        Returns:
            The approvals, the oldest first.
        """
        rows = await self.store.read(lambda tx: tx.approvals(status=status, job=job, below=below))
        return _APPROVALS.validate_python(rows)

    async def has_worker(self) -> bool:
        """Whether a worker serves this store's jobs, as the server and the workers' own notes in the store tell.

        Where a worker says that it lives and the server, which may have just been started, has not heard it: it does.
        """
        seen = await lasting(self.client, lambda: pollers(self.client, self.queue), SENT_SECONDS)
        place = (self.client.namespace, self.settings.task_queue)
        return await self.store.read(lambda tx: is_served(tx, *place, seen)) is not False

    async def _start(self, chosen: Submission, by: str, *, named: bool) -> Job:
        """Write an agent's job down, and start it."""
        if named and await self.store.read(lambda tx: tx.job(chosen.job)) is None:
            await check_free(self.client, chosen.job)
        try:
            written = await self.store.write(lambda tx: self._write_down(tx, chosen))
        except SessionBusy as busy:
            if not await self.settle_lost(busy.holder):
                raise
            written = await self.store.write(lambda tx: self._write_down(tx, chosen))
        await self._launch(chosen, _first_state(by, turn=first_turn(chosen, written.entries)), written)
        return self.job(chosen.job)

    def _write_down(self, tx: Transaction, start: Submission) -> WrittenJob:
        return write_down(tx, start, self.client.namespace, self.settings.task_queue)

    async def _launch(self, start: Submission | GraphSubmission, state: MachineState, written: WrittenJob) -> None:
        await launch(self.client, self.store, self.settings.task_queue, start, state, written)


def _first_state(by: str, **fields: Any) -> MachineState:
    return MachineState(starter=_starter(by), **fields)


def _starter(by: str) -> str:
    return (by or user_name())[:200]
