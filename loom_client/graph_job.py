"""One job of a graph, from outside: what a job of an agent has, events from outside, and a result of its own."""

import json
import secrets
from collections.abc import Mapping
from typing import Any

from temporalio.client import WorkflowFailureError

from loom_client.job import JobHandle
from loom_client.outcome import failure_of
from loom_dsl.graph_result import result_of_failure, result_of_finish
from loom_dsl.run import GraphResult
from loom_store.store import Store
from loom_store.transaction import Transaction


class GraphJob(JobHandle):
    """A handle on one job of a graph."""

    async def result(self) -> GraphResult:
        """Wait for the end.

        Returns:
            How it went: completed, failed or aborted, with the result that the graph's end gives.

        Raises:
            NotFoundError: The server does not know the job.
            JobGone: It was ended outside Loom.
        """
        row = await self._store.read(lambda tx: tx.job(self.id))
        if row is not None and row["ended_at"] and row["result"]:
            return GraphResult.model_validate(row["result"])
        try:
            value = await self._end()
        except WorkflowFailureError as error:
            cause = failure_of(self.id, error)
            details = cause.details[0] if cause.details else None
            return result_of_failure(self.id, cause.type or "", cause.message, details)
        row = await self._store.read(lambda tx: tx.job(self.id))
        return result_of_finish(self.id, value, aborted=row is not None and row["status"] == "aborted")

    async def event(self, name: str, data: Any = None, *, key: Any = None, by: str = "") -> dict[str, str]:
        """Send an event to whichever node waits for it, now or later.

        Args:
            name: The event's name, as the node has it.
            data: What the node gives as its result; JSON.
            key: For a node that waits for an event with this key.
            by: Who sends it.

        Raises:
            NotFoundError: There is no such job, or none of its nodes waits for this event.
            ConflictError: The job has ended, or too many events wait in it.
        """
        payload = {"name": name, "key": key, "data": data, "by": by, "id": secrets.token_hex(8)}
        return await self._send_once("loom.event", "loom.event", payload)


def is_graph(tx: Transaction, row: Mapping[str, Any]) -> bool:
    """Whether a job is one of a graph, and not of an agent."""
    return not json.loads(tx.get_blob(row["plan"]))["agent"]


async def is_graph_job(store: Store, row: Mapping[str, Any]) -> bool:
    """Whether a job is one of a graph, and not of an agent."""
    return await store.read(lambda tx: is_graph(tx, row))
