"""Watching one job from outside: its events, where it stands, its end. Nothing here changes the job."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from temporalio.client import Client, WorkflowHandle, WorkflowQueryFailedError
from temporalio.service import RPCError

from loom_client.lasting import lasting
from loom_client.lost import is_running
from loom_client.outcome import NoAnswer
from loom_client.server_errors import is_missing, is_unanswered, refusal
from loom_dsl.events import Event, EventType, decode
from loom_store.store import Store

POLL_SECONDS = 0.05
LONGEST_POLL = 0.5
CHECK_SECONDS = 5.0
"""How often a watcher asks the server whether a silent job is still open."""
LOOK_SECONDS = 3.0
"""How long it waits for the server's answer to that."""
FINAL_STATES = ("completed", "failed", "aborted")


class WatchedJob:
    """A job that is looked at: its events, where it stands, its end.

    Args:
        name: The job's id.
        client: Of the server that it runs on.
        store: The store that knows it.
        answer_seconds: How long to wait for the workflow to answer.

    Attributes:
        id: The job's id, constant over all of its Temporal runs.
    """

    def __init__(self, name: str, client: Client, store: Store, answer_seconds: float) -> None:
        self.id = name
        self._client, self._store, self._answer_seconds = client, store, answer_seconds

    @property
    def handle(self) -> WorkflowHandle[Any, Any]:
        """The Temporal handle on the job's latest run."""
        return self._client.get_workflow_handle(self.id)

    async def events(self, after: int = 0, *, follow: bool = True) -> AsyncIterator[Event]:
        """Give the job's events from an offset on, and go on until the job has ended.

        Reads the store, so any number of watchers costs the job nothing, and a job that has ended can be read again.
        """
        wait, checked, offset = POLL_SECONDS, time.monotonic(), after
        while True:
            batch = await self._read_events(offset)
            for offset, raw in batch:
                event = decode(self.id, offset, raw)
                yield event
                if event.type == EventType.STATE and event.data.get("state") in FINAL_STATES:
                    follow = False
            if batch:
                wait = POLL_SECONDS
                continue
            if not follow:
                return
            if time.monotonic() - checked > CHECK_SECONDS:
                checked, follow = time.monotonic(), await self._is_open()
                continue
            await asyncio.sleep(wait)
            wait = min(wait * 1.5, LONGEST_POLL)

    async def status(self) -> dict[str, Any]:
        """Ask the workflow where it stands.

        Raises:
            NoAnswer: No worker answered in time.
            NotFoundError: The server does not know the job.
        """
        try:
            async with asyncio.timeout(self._answer_seconds):
                answer: dict[str, Any] = await lasting(self._client, lambda: self.handle.query("loom.status"))
        except (TimeoutError, WorkflowQueryFailedError):
            raise self._no_answer() from None
        except RPCError as error:
            raise (self._no_answer() if is_unanswered(error) else refusal(self.id, error)) from None
        return answer

    async def _end(self) -> Any:
        """Wait for the end, however often the server is away, and give what the workflow returned.

        Raises:
            WorkflowFailureError: It failed.
            NotFoundError: The server does not know the job.
        """
        try:
            return await lasting(self._client, self.handle.result)
        except RPCError as error:
            raise refusal(self.id, error) from None

    async def _read_events(self, after: int) -> list[tuple[int, dict[str, Any]]]:
        return await self._store.read(
            lambda tx: tx.read_events(self.id, after=after, limit=500, expand=True, timed=True)
        )

    async def _is_open(self) -> bool:
        for _ in range(3):  # a server that starts again may not know it for a moment
            try:
                async with asyncio.timeout(LOOK_SECONDS):  # what the store has by then is not kept back for longer
                    return is_running(await self.handle.describe())
            except TimeoutError:
                return True
            except RPCError as error:
                if not is_missing(error):
                    return True
                await asyncio.sleep(1)
        return False

    def _no_answer(self) -> NoAnswer:
        return NoAnswer(
            f"no worker answered for job {self.id} within {self._answer_seconds:g} s; "
            f"`loom show {self.id}` says why it waits"
        )
