"""What activities work with: the store, the tools, the models, and the facts of a job that never change."""

import asyncio
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from temporalio import activity

from activities.chat.stream import Timeouts
from activities.lifecycle.attempts import Steps
from activities.lifecycle.deaths import DEATH_RULES, DeathRules
from activities.lifecycle.shutdown import Stopping
from loom_dsl.agent.definition import Agent, call_name
from loom_dsl.errors import (
    ConfigurationError,
    ModelAccessRefused,
    PermissionDenied,
    StoreError,
    WrongStore,
)
from loom_dsl.graph.nodes import ToolCallNode as ToolNode
from loom_dsl.graph.plan import Plan
from loom_store.store import Store
from loom_store.transaction import Transaction
from loom_tools.approver_keys import ApproverKeys
from loom_tools.mcp.servers import Servers
from loom_tools.registry import ToolRegistry
from loom_tools.sandbox.run import LAUNCHER
from loom_tools.secrets import NO_SECRETS, AllowedSecrets

if TYPE_CHECKING:
    from activities.chat.client import ChatEndpoint


MAX_FACTS = 1_000
SHORTEST_PAUSE, MAX_PAUSE = 0.1, 5.0
"""Seconds between two tries of a write that cannot be given up."""
Kept = TypeVar("Kept")
Value = TypeVar("Value")
Run = tuple[str, str]
"""A job's id, and what its workflow is known by: the id alone may stand for another job once the first was pruned."""
_KNOWN_BY: ContextVar[str] = ContextVar("known_by", default="")


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What is fixed for a job's whole life."""

    plan: Plan
    agent: Agent
    workdir: Path
    session: str
    node_tools: tuple[str, ...] = ()
    """References of the tools that nodes of the plan's graphs name."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """A session: its name, and the store's number of it, which no other session ever gets."""

    name: str
    number: int


@dataclass(frozen=True, slots=True)
class ActivityCall:
    """What the workflow gave an activity.

    Attributes:
        job: The job's id.
        turn: Number of the turn.
        at: Name of the execution.
        session: Id of the conversation.
        arguments: The node's mapped ``with``.
        batches: Event batches to store first: ``[[sequence, [event, …]], …]``.
        attempt: Number of the attempt, from 1, also over the activities that the workflow tried it with one by one.
        run: What to remember things of this job by.
        latest: What to remember by what may be another thing after a continue-as-new.
    """

    job: str
    turn: int
    at: str
    session: str
    arguments: dict[str, Any]
    batches: list[Any]
    attempt: int = 1
    run: Run = ("", "")
    latest: Run = ("", "")

    @classmethod
    def of(cls, envelope: Mapping[str, Any]) -> "ActivityCall":
        """Read the activity's argument."""
        return cls(
            job=activity.info().workflow_id or "",
            turn=envelope.get("turn", 0),
            at=envelope["at"],
            session=envelope.get("session", ""),
            arguments=envelope["with"],
            batches=envelope.get("events", []),
            attempt=envelope.get("before", 0) + activity.info().attempt,
            run=this_run(),
            latest=(activity.info().workflow_id or "", activity.info().workflow_run_id or ""),
        )

    @property
    def key(self) -> str:
        """Names this execution over all jobs; the same for every attempt."""
        return f"{self.job}/{self.turn}/{self.at}"


class CallMeans(Protocol):
    """What of a worker the stages of a tool call share; what one of them needs besides, it names itself."""

    @property
    def store(self) -> Store:
        """Where contents, approvals and effects are."""

    @property
    def registry(self) -> ToolRegistry:
        """The tools that this worker has."""

    @property
    def secrets(self) -> Mapping[str, str]:
        """Names and values that are masked."""

    async def facts(self, job: str) -> JobFacts:
        """Give what is fixed for a job."""

    async def conversation(self, job: str) -> Conversation:
        """Give the session that a job writes in."""


@dataclass(slots=True)
class Runtime:
    """One worker's means, put together in `worker.py`. What needs little of them says so, such as `CallMeans`.

    Attributes:
        root: Working directories must lie under it.
        on_approval: Command or URL that is told of a new approval, or empty.
        secrets: Names and values that never enter the store, history or events.
        environment: Where endpoints and credentials of models are looked up, and how long their calls may take.
        allowed: The secrets that tools may have, and where those may be sent.
        store_delays: Seconds until the next attempt after the store failed, by attempt; the last one stays.
        tools_delays: Seconds until a worker is asked again that may have a job's tools: at first, and at most.
        mcp: The MCP servers that this worker knows.
        approver_keys: Public keys of those who sign decisions; None: nothing that is signed can be verified here.
        deaths: What it means for a step that its worker died.
        stopping: How the worker stops.
        timeouts: How long a model call may wait, from the environment.
        steps: What notes the steps under way.
    """

    store: Store
    registry: ToolRegistry
    root: Path
    on_approval: str = ""
    secrets: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    store_delays: Sequence[float] = (20.0, 120.0)
    tools_delays: tuple[float, float] = (5.0, 300.0)
    allowed: AllowedSecrets = NO_SECRETS
    mcp: Servers = field(default_factory=lambda: Servers({}, NO_SECRETS))
    approver_keys: ApproverKeys | None = None
    deaths: DeathRules = DEATH_RULES
    stopping: Stopping = field(default_factory=Stopping)
    timeouts: Timeouts = field(init=False)
    steps: Steps = field(init=False)
    _facts: OrderedDict[Run, JobFacts] = field(default_factory=OrderedDict)
    _known: OrderedDict[Run, Conversation] = field(default_factory=OrderedDict)
    _endpoints: dict[str, tuple["ChatEndpoint", str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.timeouts = Timeouts.from_environment(self.environment)
        self.steps = Steps(self.store, self.secrets, self.deaths)

    async def facts(self, job: str) -> JobFacts:
        """Give what is fixed for a job, to one of its activities.

        Raises:
            WrongStore: This store does not know the job.
            PermissionDenied: The job's working directory is not under the worker's root.
        """
        run = this_run()
        known = self._facts.get(run)
        if known is not None:
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

    async def check_job(self, job: str) -> None:
        """Make sure that the job is one of this store's, before anything is written that would be lost here.

        Raises:
            WrongStore: It is not; another worker can go on with it.
        """
        await self.conversation(job)

    async def conversation(self, job: str) -> Conversation:
        """Give the session that a job writes in, to one of its activities.

        Raises:
            WrongStore: This store does not know the job.
        """
        run = this_run()
        known = self._known.get(run)
        if known is None:
            known = await self.store.read(lambda tx: _conversation(tx, job))
            remember(self._known, run, known)
        return known

    def endpoint(self, model: str) -> "tuple[ChatEndpoint, str]":
        """Give where a model is asked, and what it is called there. The connection is kept for all jobs.

        Raises:
            ModelAccessRefused: The environment does not say where, or with which key.
        """
        from activities.chat.client import endpoint_from_environment  # a worker has it; what only asks need not wait

        if model not in self._endpoints:
            try:
                self._endpoints[model] = endpoint_from_environment(model, self.environment)
            except ConfigurationError as error:
                raise ModelAccessRefused(error.message) from None
        return self._endpoints[model]

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

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections to models and MCP servers, and end the process that commands are started from."""
        await self.steps.close()
        await self.mcp.close()
        await asyncio.to_thread(LAUNCHER.close)
        endpoints, self._endpoints = self._endpoints, {}
        for endpoint, _ in endpoints.values():
            await endpoint.aclose()


def this_run() -> Run:
    """What to remember things by of the job whose activity this is, for as long as it has this plan."""
    return activity.info().workflow_id or "", _KNOWN_BY.get() or activity.info().workflow_run_id or ""


def take_run(envelope: Any) -> None:
    """Note for `this_run` what the workflow says; what began under an earlier release says nothing."""
    if isinstance(envelope, dict) and isinstance(envelope.get("run"), str):
        _KNOWN_BY.set(envelope["run"])


def remember(kept: OrderedDict[Run, Value], run: Run, value: Value) -> None:
    """Keep a value for a run, and only so many."""
    kept[run] = value
    if len(kept) > MAX_FACTS:
        kept.popitem(last=False)


def _node_tools(plan: Plan) -> tuple[str, ...]:
    nodes = (node for body in plan.bodies.values() for node in body.nodes.values())
    return tuple(sorted({node.tool for node in nodes if isinstance(node, ToolNode)}))


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


BEGIN = "loom.job.begin"
"""The one activity of a job that comes before its row."""


Item = Mapping[str, Any]


def is_node_call(item: Item) -> bool:
    """Whether a node makes this call, and not a model."""
    return "arguments" in item


def offered(facts: JobFacts, item: Item) -> dict[str, str]:
    """Give the references of the tools that this call can mean, by the names that it may use for them."""
    if is_node_call(item):
        return {reference: reference for reference in facts.node_tools}
    return {call_name(reference): reference for reference in facts.agent.tools}
