"""The store as activities of jobs see it: the facts of a job that never change, and writes that are not given up."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from temporalio import activity

from activities.record.activity_call import Item, Run, is_node_call, remember, this_run
from loom_dsl.agent.definition import Agent, call_name
from loom_dsl.errors import PermissionDenied, StoreError, WrongStore
from loom_dsl.graph.nodes import ToolCallNode
from loom_dsl.graph.plan import Plan
from loom_store.store import Store
from loom_store.transaction import Transaction

SHORTEST_PAUSE, MAX_PAUSE = 0.1, 5.0
"""Seconds between two tries of a write that cannot be given up."""
READ_OUTPUT = "read_output"
Kept = TypeVar("Kept")


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What is fixed for a job's whole life."""

    plan: Plan
    agent: Agent
    workdir: Path
    session: str
    node_tools: tuple[str, ...] = ()
    """References of the tools that nodes of the plan's graphs name."""

    def offered(self, item: Item) -> dict[str, str]:
        """Give the references of the tools that a call can mean, by the names that it may use for them."""
        if is_node_call(item):
            return {reference: reference for reference in self.node_tools}
        return {call_name(reference): reference for reference in self.agent.tools}

    def reads_on(self, item: Item) -> bool:
        """Whether who reads the result of a call can read on in an output that is cut."""
        return self.offered(item).get(READ_OUTPUT) == READ_OUTPUT


@dataclass(frozen=True, slots=True)
class Conversation:
    """A session: its name, and the store's number of it, which no other session ever gets."""

    name: str
    number: int


@dataclass(frozen=True, slots=True)
class JobStore:
    """Jobs of a store, for their activities.

    Attributes:
        store: Where they are.
        root: Working directories must lie under it.
        secrets: Names and values that never enter the store, history or events.
    """

    store: Store
    root: Path
    secrets: Mapping[str, str] = field(default_factory=dict)
    _facts: OrderedDict[Run, JobFacts] = field(default_factory=OrderedDict)
    _known: OrderedDict[Run, Conversation] = field(default_factory=OrderedDict)

    async def facts(self, job: str) -> JobFacts:
        """Give what is fixed for a job, to one of its activities.

        Raises:
            WrongStore: This store does not know the job.
            PermissionDenied: The job's working directory is not under the worker's root.
        """
        run = this_run()
        if (known := self._facts.get(run)) is not None:
            return known
        row, text = await self.store.read(lambda tx: _job_and_plan(tx, job))
        plan = Plan.load(text)
        workdir = Path(row["workdir"])
        if not _is_below(workdir, self.root):
            raise PermissionDenied(
                f"the job works in {workdir}, which is not under this worker's root {self.root}; "
                "start the worker with --root at a directory above it"
            )
        facts = JobFacts(plan, _agent_of(plan), workdir, row["session"], _node_tools(plan))
        remember(self._facts, run, facts)
        return facts

    async def conversation(self, job: str) -> Conversation:
        """Give the session that a job writes in, to one of its activities.

        Asked for before anything is written, it makes sure that nothing is written that would be lost here.

        Raises:
            WrongStore: This store does not know the job; another worker can go on with it.
        """
        run = this_run()
        known = self._known.get(run)
        if known is None:
            known = await self.store.read(lambda tx: _conversation(tx, job))
            remember(self._known, run, known)
        return known

    async def keep(self, work: Callable[[Transaction], Kept], *, durable: bool = True) -> Kept:
        """Write down what cannot be found out again, such as a model's answer: a store that fails is waited for.

        It is waited for until somebody has freed the disk, or given the file back its permissions. Only what another
        try cannot change is raised.

        Args:
            work: As for `Store.write`.
            durable: As for `Store.write`.
        """
        pause, begun, told = SHORTEST_PAUSE, time.monotonic(), False
        while True:
            try:
                return await self.store.write(work, durable=durable)
            except StoreError as error:
                if not error.passes or self.store.closed:
                    raise
                if not told and time.monotonic() - begun >= MAX_PAUSE:
                    told = True
                    activity.logger.warning("what came of a step waits to be written: %s", error.message)
            await asyncio.sleep(pause)
            pause = min(2 * pause, MAX_PAUSE)


def _node_tools(plan: Plan) -> tuple[str, ...]:
    nodes = (node for body in plan.bodies.values() for node in body.nodes.values())
    return tuple(sorted({node.tool for node in nodes if isinstance(node, ToolCallNode)}))


def _agent_of(plan: Plan) -> Agent:
    """The plan's agent. Where there is none, its graph stands for one: its name, permissions and nodes' tools."""
    if plan.agent:
        return Agent.from_plan_data(plan.agent)
    graph = plan.graphs[plan.document]
    # Not validated: nodes may name two tools of one name, because they name modules too.
    return Agent.model_construct(
        name=graph.name,
        model="",
        permissions=graph.permissions,
        approvals=graph.approvals,
        hooks=graph.hooks,
        tools=_node_tools(plan),
    )


def _is_below(path: Path, root: Path) -> bool:
    return path.resolve().is_relative_to(root.resolve())


def _row(tx: Transaction, job: str) -> dict[str, Any]:
    row = tx.job(job)
    if row is None:
        raise WrongStore(
            f"this worker's store does not know the job {job!r}; workers and clients must share one store (LOOM_STORE)"
        )
    return row


def _conversation(tx: Transaction, job: str) -> Conversation:
    row = _row(tx, job)
    # Without a session nothing is kept of it, and 0 is nobody's number.
    return Conversation(row["session"], tx.session_number(row["session"]) or 0)


def _job_and_plan(tx: Transaction, job: str) -> tuple[dict[str, Any], str]:
    row = _row(tx, job)
    return row, tx.get_blob(row["plan"]).decode()
