"""What activities work with: the store, the tools, the models, and the facts of a job that never change."""

import asyncio
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from temporalio import activity

from activities.openai_chat import ChatEndpoint, Timeouts, endpoint_from_environment
from activities.registry import ToolRegistry
from loom_dsl.agent import Agent
from loom_dsl.errors import PermissionDenied, StoreLocked, WrongStore
from loom_dsl.plan import Plan
from loom_store.store import Store
from loom_store.transaction import Transaction

MOST_FACTS = 1_000
_UNKNOWN = "this worker's store does not know the job {0!r}; workers and clients must share one store (LOOM_STORE)"
Kept = TypeVar("Kept")


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What is fixed for a job's whole life."""

    plan: Plan
    agent: Agent
    workdir: Path
    session: str


@dataclass(frozen=True, slots=True)
class Call:
    """What the workflow gave an activity.

    Attributes:
        job: The job's id.
        turn: Number of the turn.
        at: Name of the execution.
        session: Id of the conversation.
        arguments: The node's mapped ``with``.
        batches: Event batches to store first: ``[[sequence, [event, …]], …]``.
    """

    job: str
    turn: int
    at: str
    session: str
    arguments: dict[str, Any]
    batches: list[Any]

    @classmethod
    def of(cls, envelope: Mapping[str, Any]) -> "Call":
        """Read the activity's argument."""
        return cls(
            job=activity.info().workflow_id or "",
            turn=envelope.get("turn", 0),
            at=envelope["at"],
            session=envelope.get("session", ""),
            arguments=envelope["with"],
            batches=envelope.get("events", []),
        )

    @property
    def key(self) -> str:
        """Names this execution over all jobs; the same for every attempt."""
        return f"{self.job}/{self.turn}/{self.at}"


@dataclass(slots=True)
class Runtime:
    """One worker's means.

    Attributes:
        root: Working directories must lie under it.
        on_approval: Command or URL that is told of a new approval, or empty.
        secrets: Names and values that never enter the store, history or events.
        environment: Where endpoints and credentials of models are looked up, and how long their calls may take.
        timeouts: How long a model call may wait, from the environment.
    """

    store: Store
    registry: ToolRegistry
    root: Path
    on_approval: str = ""
    secrets: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    timeouts: Timeouts = field(init=False)
    _facts: OrderedDict[str, JobFacts] = field(default_factory=OrderedDict)
    _known: OrderedDict[str, None] = field(default_factory=OrderedDict)
    _endpoints: dict[str, tuple[ChatEndpoint, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.timeouts = Timeouts.from_environment(self.environment)

    async def facts(self, job: str) -> JobFacts:
        """Give what is fixed for a job.

        Raises:
            WrongStore: This store does not know the job.
            PermissionDenied: The job's working directory is not under the worker's root.
        """
        known = self._facts.get(job)
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
        facts = JobFacts(plan, Agent.from_plan_data(plan.agent), workdir, row["session"])
        self._facts[job] = facts
        if len(self._facts) > MOST_FACTS:
            self._facts.popitem(last=False)
        return facts

    async def check_job(self, job: str) -> None:
        """Make sure that the job is one of this store's, before anything is written that would be lost here.

        Raises:
            WrongStore: It is not; another worker can go on with it.
        """
        if job in self._known:
            return
        if await self.store.read(lambda tx: tx.job(job)) is None:
            raise WrongStore(_UNKNOWN.format(job))
        self._known[job] = None
        if len(self._known) > MOST_FACTS:
            self._known.popitem(last=False)

    def endpoint(self, model: str) -> tuple[ChatEndpoint, str]:
        """Give where a model is asked, and what it is called there. The connection is kept for all jobs.

        Raises:
            ConfigurationError: The environment does not say where.
        """
        if model not in self._endpoints:
            self._endpoints[model] = endpoint_from_environment(model, self.environment)
        return self._endpoints[model]

    async def keep(self, work: Callable[[Transaction], Kept]) -> Kept:
        """Write down what cannot be found out again, such as a model's answer: a locked store is waited for."""
        while True:
            try:
                return await self.store.write(work)
            except StoreLocked:
                await asyncio.sleep(0.1)

    async def close(self) -> None:
        """Close the connections to models."""
        endpoints, self._endpoints = self._endpoints, {}
        for endpoint, _ in endpoints.values():
            await endpoint.aclose()


def _is_below(path: Path, root: Path) -> bool:
    return path.resolve().is_relative_to(root.resolve())


def _job_and_plan(tx: Transaction, job: str) -> tuple[dict[str, Any], str]:
    row = tx.job(job)
    if row is None:
        raise WrongStore(_UNKNOWN.format(job))
    return row, tx.get_blob(row["plan"]).decode()


class Heartbeats:
    """Beats while an activity works, so that the server notices a lost worker and we notice a cancel.

    Only where the plan asks for heartbeats: the others end soon.
    """

    def __init__(self, every: float = 0.25) -> None:
        self._every = every
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Heartbeats":
        info = activity.info()
        if not info.is_local and info.heartbeat_timeout is not None:
            self._task = asyncio.create_task(self._beat())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _beat(self) -> None:
        while True:
            activity.heartbeat()
            await asyncio.sleep(self._every)
