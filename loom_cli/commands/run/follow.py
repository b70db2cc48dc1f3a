"""Following a job: its events as they come, why nothing comes, and the questions that it asks."""

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from temporalio.service import RPCError

from loom_cli.commands.run.halt import shorten, unless_halted
from loom_cli.errors import say
from loom_cli.render.timeline import RequestedCall, Timeline
from loom_cli.required_action import ANSWER_SECONDS, Facts, gather, required_action, stands_still, unserved, why
from loom_client.client import Loom
from loom_client.job import JobGone, is_graph, is_graph_job, with_final_message, with_whole_answer
from loom_client.recovery import check_known, going_on
from loom_dsl.agent.run import GraphResult, RunResult
from loom_dsl.errors import JobHalted, NotFoundError, ServerAway
from loom_dsl.observe.events import Event, EventType
from loom_store.store import Store

Ended = RunResult | GraphResult
"""How a job of an agent, or of a graph, ended."""
IDLE_SECONDS = 2.0
"""After so long without an event it is said why nothing happens, and looked up again as often."""


class Watcher(Protocol):
    """What is done with a job's events."""

    def feed(self, event: Event) -> None:
        """Take an event."""

    def waiting(self, reason: str) -> None:
        """Take the reason why none comes."""

    def has_told(self, halted: Sequence[Mapping[str, Any]]) -> bool:
        """Say whether these halted steps, as jobs list them, were among the events."""

    def end(self, result: Ended, seconds: float | None = None) -> None:
        """Take the end."""

    def interrupt(self) -> None:
        """Leave off, because something else is to be said."""


class JsonLines:
    """Prints one JSON object a line for each event, and one of the type ``result`` at the end."""

    def __init__(self, job: str) -> None:
        self._job = job

    def feed(self, event: Event) -> None:
        """Print an event."""
        print(json.dumps(event.model_dump(mode="json")), flush=True)

    def waiting(self, reason: str) -> None:
        """Say nothing: a reason is not an event."""

    def has_told(self, halted: Sequence[Mapping[str, Any]]) -> bool:
        """Say no: events are for programs."""
        return False

    def end(self, result: Ended, seconds: float | None = None) -> None:
        """Print the result."""
        print(json.dumps({"type": "result", "job": self._job, "result": result.model_dump(mode="json")}), flush=True)

    def interrupt(self) -> None:
        """Do nothing: every line is ended."""


@dataclass
class Calls:
    """What the model asked for, by the ids of the calls: read from the session as it grows.

    Attributes:
        store: Where the session is.
        session: Its id.
        job: The job whose calls are wanted.
    """

    store: Store
    session: str
    job: str
    _next: int = 0
    _known: dict[tuple[int, str], RequestedCall] = field(default_factory=dict)

    def __call__(self, turn: int, call_id: str) -> RequestedCall | None:
        """Give a call, if the session has it by now."""
        return self._known.get((turn, call_id))

    async def read_on(self) -> None:
        """Read what has been added to the session since the last time."""
        start = self._next
        for entry in await self.store.read(lambda tx: tx.read_entries(self.session, start)):
            self._next = max(self._next, entry.seq + 1)
            if entry.job != self.job or entry.turn is None:
                continue
            for call in entry.head.get("tool_calls", ()):
                function = call.get("function", {})
                named = RequestedCall(str(function.get("name", "")), str(function.get("arguments", "")))
                self._known[(entry.turn, call.get("id", ""))] = named


@dataclass
class Follower:
    """Reads a job's events to a watcher until the job has ended.

    Attributes:
        loom: The connection.
        job: The job's row.
        watcher: What is done with the events.
        calls: Kept up to date for the watcher.
        ask: Asks about an approval that was requested; None: nobody is asked here.
    """

    loom: Loom
    job: Mapping[str, Any]
    watcher: Watcher
    calls: Calls
    ask: Callable[[Event, "Follower"], Awaitable[None]] | None = None
    _queue: "asyncio.Queue[Event | BaseException | None]" = field(default_factory=asyncio.Queue)
    _held: list[Event] = field(default_factory=list)
    _decided: set[str] = field(default_factory=set)

    async def run(self, after: int = 0) -> Ended:
        """Follow from an offset on; how the job ended.

        Raises:
            JobGone: It was ended outside Loom.
            JobHalted: It waits for a person, and nothing of it goes on by itself.
        """
        if self.job["ended_at"]:
            return await self._run(after)
        try:
            return await unless_halted(self.loom, str(self.job["job"]), self._run(after))
        except JobHalted as error:
            self.watcher.interrupt()
            raise shorten(str(self.job["job"]), error) if self.watcher.has_told(error.steps) else error from None

    async def _run(self, after: int) -> Ended:
        pump = asyncio.create_task(self._pump(after))
        try:
            async for event in self._events():
                if event.type == EventType.TOOL_CALLS_START:
                    await self.calls.read_on()
                self.watcher.feed(event)
                if event.type == EventType.APPROVAL_REQUESTED and self.ask is not None and self._open(event):
                    await self.ask(event, self)
        finally:
            pump.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await pump
        result, seconds = await final_result(self.loom, str(self.job["job"]))
        self.watcher.end(result, seconds)
        return result

    async def decided(self, approval: str) -> None:
        """Wait until somebody has decided an approval, or the job has ended; other events are kept for later."""
        while approval not in self._decided:
            event = await self._queue.get()
            if not isinstance(event, Event):
                self._queue.put_nowait(event)
                return
            self._held.append(event)
            self._note(event)

    def _open(self, event: Event) -> bool:
        """Whether an approval is still undecided, as far as the events go that are here already."""
        while not self._queue.empty():
            following = self._queue.get_nowait()
            if not isinstance(following, Event):
                self._queue.put_nowait(following)
                break
            self._held.append(following)
            self._note(following)
        approval = str(event.data.get("approval_id", ""))
        return approval not in self._decided and is_pending(self.loom.store, approval)

    def _note(self, event: Event) -> None:
        if event.type == EventType.APPROVAL_DECIDED:
            self._decided.add(str(event.data.get("approval_id", "")))

    async def _events(self) -> AsyncIterator[Event]:
        while True:
            if self._held:
                yield self._held.pop(0)
                continue
            event = await self._next_event()
            if event is None:
                return
            if not isinstance(event, Event):
                raise event
            self._note(event)
            yield event

    async def _next_event(self) -> "Event | BaseException | None":
        """Wait for the next event; meanwhile look up why there is none, beside it and not before it."""
        getting = asyncio.create_task(self._queue.get())
        asking: asyncio.Task[str] | None = None
        try:
            while not getting.done():
                waited = {getting, asking} if asking else {getting}
                await asyncio.wait(waited, timeout=IDLE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                if asking is None and not getting.done():
                    asking = asyncio.create_task(why(self.loom, str(self.job["job"]), self.watcher.has_told))
                elif asking is not None and asking.done() and not getting.done():
                    if reason := asking.result():
                        self.watcher.waiting(reason)
                    asking = None
            return getting.result()
        finally:
            for task in (getting, asking):
                if task is not None and not task.done():
                    task.cancel()

    async def _pump(self, after: int) -> None:
        """Move the events into the queue: a generator must not be cancelled while it waits for one."""
        try:
            job = self.loom.job(str(self.job["job"]))
            async for event in job.events(after, follow=not self.job["ended_at"]):
                self._queue.put_nowait(event)
        except Exception as error:
            self._queue.put_nowait(error)
        else:
            self._queue.put_nowait(None)


async def final_result(loom: Loom, job: str) -> tuple[Ended, float | None]:
    """Give how a job ended, with the whole answer, and how many seconds it took; waits while it runs.

    Raises:
        JobGone: It was ended outside Loom.
        JobLost: The server does not know it any more.
    """
    row = await loom.store.read(lambda tx: tx.job(job))
    result = stored_result(row)
    if result is None and row is not None and row["ended_at"]:
        await loom.store.read(lambda tx: check_known(tx, job))
        result = await _left(loom, row)
    if result is None:
        await loom.store.read(lambda tx: check_known(tx, job))
        of_graph = row is not None and await is_graph_job(loom.store, row)
        try:
            result = await (loom.graph_job(job).result() if of_graph else loom.job(job).result())
        except NotFoundError:
            await loom.settle_lost(job)
            await loom.store.read(lambda tx: check_known(tx, job))
            raise
        row = await loom.store.read(lambda tx: tx.job(job))
        result = stored_result(row) or result
    seconds = None
    if row is not None:
        from loom_dsl.text.printable import moment_of

        ended = moment_of(row["ended_at"]) if row["ended_at"] else time.time()
        seconds = max(0.0, ended - moment_of(row["created_at"]))
    return await whole(loom.store, job, result), seconds


async def _left(loom: Loom, row: Mapping[str, Any]) -> Ended:
    """Give how a job ended of which the store knows only that it did: as the server tells, if it answers at once.

    Raises:
        JobGone: It was ended outside Loom.
    """
    name = str(row["job"])
    with contextlib.suppress(TimeoutError, RPCError, RuntimeError, ServerAway, NotFoundError):
        async with asyncio.timeout(ANSWER_SECONDS):
            return await (loom.graph_job(name) if await is_graph_job(loom.store, row) else loom.job(name)).result()
    raise JobGone(f"job {name} was ended outside Loom, and left no result")


async def whole(store: Store, job: str, result: Ended) -> Ended:
    """Put a long answer of an agent back, and its last message; the result of a graph is whole."""
    if isinstance(result, GraphResult):
        return result
    return await with_final_message(store, job, await with_whole_answer(store, job, result))


def stored_result(row: Mapping[str, Any] | None) -> Ended | None:
    """Give the result that the store has of a job that has ended."""
    if row is None or not row["ended_at"] or not row["result"]:
        return None
    if "job" in row["result"]:
        return GraphResult.model_validate(row["result"])
    return RunResult.model_validate(row["result"])


def is_pending(store: Store, approval: str) -> bool:
    """Whether an approval is still to be decided; one that the lists do not have yet is."""
    row = store.read_sync(lambda tx: tx.approval(approval))
    return row is None or row["status"] == "pending"


def make_watcher(
    loom: Loom, row: Mapping[str, Any], *, as_json: bool, states: bool = False, tell: bool = True
) -> tuple[Watcher, Calls]:
    """Give what shows a job's events: a timeline on standard output, or JSON lines.

    Args:
        loom: The connection.
        row: The job's row.
        as_json: Print JSON.
        states: Show every change of state.
        tell: Tell the commands by which approvals are decided.
    """
    from loom_cli.render.terminal import terminal_for

    calls = Calls(loom.store, row["session"], row["job"])
    if as_json:
        return JsonLines(row["job"]), calls

    def preview(request: Mapping[str, Any]) -> str:
        name = request.get("preview")
        return loom.store.read_sync(lambda tx: tx.get_blob(name).decode("utf-8", "replace")) if name else ""

    def how_to_decide(approval: str) -> bool:
        return tell and is_pending(loom.store, approval)

    paper = terminal_for(sys.stdout)
    turns = not loom.store.read_sync(lambda tx: is_graph(tx, row))
    timeline = Timeline(paper, states=states, turns=turns, call=calls, preview=preview, how_to_decide=how_to_decide)
    timeline.begin(row)
    return timeline, calls


# Says what a person has to do: while a command waits for a job that waits for a person, and when a job has failed.


MAX_STILL = 3
"""A job that stands still at so many looks, and whose end is not told, waits for a job below that does not."""


@dataclass(slots=True)
class Told:
    """What was said to whoever waits for a job, so that nothing is said twice.

    Attributes:
        unserved: That no worker serves it.
    """

    unserved: bool = False
    _line: str = ""
    _halted: Sequence[Mapping[str, Any]] = ()
    _still: int = 0

    def take(self, facts: Facts, now: float) -> list[str]:
        """Take what is known of the job now, and give the lines that are to be said.

        Args:
            facts: What is known.
            now: Seconds since 1970.
        """
        self._still = self._still + 1 if stands_still(facts, now) else 0
        if not facts.server or 0 < self._still < MAX_STILL:
            return []  # a server that is away is told for all who wait, and a halted job by what ends the waiting
        nobody, line = unserved(facts), required_action(replace(facts, worker=None), now)
        lines = ["is served by a worker again"] if self.unserved and facts.worker else []
        parts = [line] if line != self._line else []
        parts += [nobody] if not self.unserved else []
        if any(parts):
            lines.append(f"waits: {'; and '.join(filter(None, parts))}")
        if line != self._line:
            self._line, self._halted = line, facts.halted if line else ()
        if facts.worker is not None:
            self.unserved = bool(nobody)
        return lines

    def has_told(self, halted: Sequence[Mapping[str, Any]]) -> bool:
        """Say whether just these halted steps were told."""
        return bool(halted) and list(halted) == list(self._halted)


@asynccontextmanager
async def telling_waits(loom: Loom, job: str, told: Told) -> AsyncIterator[None]:
    """Say on standard error, while this is open, what a person has to do before the job goes on; each thing once."""
    telling = asyncio.create_task(_tell(loom, job, told))
    try:
        yield
    finally:
        telling.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):  # what is only told must not end the waiting
            await telling


async def tell_how_to_go_on(store: Store, job: str, ended: Ended) -> None:
    """Say by which command a failed job goes on, where one would help."""
    if ended.status == "failed" and (how := await going_on(store, job)):
        say(how)


@asynccontextmanager
async def telling_the_lost(loom: Loom, job: str) -> AsyncIterator[None]:
    """Say the same of a job that turns out to have been ended outside Loom, while this is open."""
    try:
        yield
    except JobGone:
        await loom.settle_lost(job)
        if how := await going_on(loom.store, job):
            say(how)
        raise


async def _tell(loom: Loom, job: str, told: Told) -> None:
    while True:
        await asyncio.sleep(IDLE_SECONDS)
        facts = await gather(loom, job)
        for line in told.take(facts, time.time()) if facts is not None else ():
            say(f"job {job} {line}")
