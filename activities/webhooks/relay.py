"""Begins the workflows that deliver: at once when a message is written down, and for what nobody delivers."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Collection
from datetime import timedelta

from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.service import RPCError

from loom_dsl.errors import StoreError
from loom_dsl.observe.webhook_names import MORE, WORKFLOW, workflow_of
from loom_dsl.queues import webhook_queue
from loom_store.store import Store

SWEEP_SECONDS, AGAIN_SECONDS = 10.0, 600.0
"""How often the store is looked through for messages that nobody delivers, and when a workflow that was begun is begun
again where the server cannot list those that run."""
_LOG = logging.getLogger(__name__)
_RUNNING = f"WorkflowType = '{WORKFLOW}' AND ExecutionStatus = 'Running'"
EndpointKey = tuple[str, str]
"""A job and an endpoint."""


async def begin(client: Client, store: Store, task_queue: str, place: EndpointKey, *, more: bool = True) -> None:
    """Have delivered what waits; a workflow that does so already goes on.

    Args:
        client: Of the namespace of the job.
        store: The job's.
        task_queue: The base name of the job's queue.
        place: The job and the endpoint.
        more: Tell the workflow that there is more: it may have looked already.

    Raises:
        RPCError: The server cannot be asked.
    """
    await client.start_workflow(
        WORKFLOW,
        args=list(place),
        id=workflow_of(*place),
        task_queue=webhook_queue(task_queue, store.id, place[1]),
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        start_signal=MORE if more else None,
        rpc_timeout=timedelta(seconds=10),
    )


class Relay:
    """Between the store, where messages are written down, and the server, which has them delivered.

    Args:
        client: Of the worker's namespace.
        store: Where messages wait.
        task_queue: The base name of the worker's queue.
        endpoints: Names of those that the worker has. Messages for others are left to workers that have them.
    """

    def __init__(self, client: Client, store: Store, task_queue: str, endpoints: Collection[str]) -> None:
        self._client, self._store, self._queue, self._endpoints = client, store, task_queue, endpoints
        self._told: asyncio.Queue[EndpointKey] = asyncio.Queue()
        self._begun: dict[EndpointKey, float] = {}
        self._missed: set[str] = set()
        self._loop = asyncio.get_running_loop()

    def wake(self, job: str, endpoint: str) -> None:
        """Take notice of a message, from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: the next worker sweeps
            self._loop.call_soon_threadsafe(self._told.put_nowait, (job, endpoint))

    async def run(self) -> None:
        """Relay until cancelled. A job does not notice whatever goes wrong here."""
        await asyncio.gather(self._pass_on(), self._sweep())

    async def _pass_on(self) -> None:
        while True:
            await self._begin(await self._told.get(), more=True)

    async def _sweep(self) -> None:
        while True:
            with contextlib.suppress(StoreError):
                waiting = await self._store.read(lambda tx: tx.waiting_deliveries(self._client.namespace, self._queue))
                self._tell_of_missing({endpoint for _, endpoint in waiting} - set(self._endpoints))
                await self._begin_again([place for place in waiting if place[1] in self._endpoints])
            await asyncio.sleep(SWEEP_SECONDS)

    def _tell_of_missing(self, missing: set[str]) -> None:
        """Say once of each endpoint that messages wait for it and this worker cannot deliver them."""
        for name in sorted(missing - self._missed):
            has = f"its webhooks have only {', '.join(self._endpoints)}" if self._endpoints else "it has no --webhooks"
            _LOG.warning(
                "messages for the endpoint %s wait, and this worker leaves them to others: %s. "
                "Give all workers of the queue %s the same file",
                *(name, has, self._queue),
            )
        self._missed |= missing

    async def _begin_again(self, waiting: list[EndpointKey]) -> None:
        """Begin what nobody delivers: a worker died before it told, or somebody ended the workflow on the server."""
        now = time.monotonic()
        self._begun = {place: at for place, at in self._begun.items() if place in waiting}
        # What was begun just now is perhaps not in the server's list yet.
        old = [place for place in waiting if now - self._begun.get(place, -SWEEP_SECONDS) >= SWEEP_SECONDS]
        running = await self._running() if old else set()
        for place in old:
            if running is None:
                due = now - self._begun.get(place, -AGAIN_SECONDS) >= AGAIN_SECONDS
            else:
                due = workflow_of(*place) not in running
            if due:
                await self._begin(place, more=False)

    async def _running(self) -> set[str] | None:
        """List the workflows that deliver: one question, however much waits for an endpoint that is down."""
        try:
            return {found.id async for found in self._client.list_workflows(_RUNNING)}
        except RPCError:
            return None

    async def _begin(self, place: EndpointKey, *, more: bool) -> None:
        try:
            await begin(self._client, self._store, self._queue, place, more=more)
            self._begun[place] = time.monotonic()
        except Exception as error:  # whatever it is: the others must go on, and the sweep tries again
            self._begun.pop(place, None)
            _LOG.warning("webhook %s of job %s is not begun yet: %s", place[1], place[0], type(error).__name__)
