"""Running a tool: what is not idempotent goes through the effect ledger and happens at most once."""

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from temporalio import activity

from activities.observe import store_events
from activities.runtime import Call, JobFacts, Runtime
from activities.stages import Calls
from activities.tool_run import Raised, describe, run_function, text_of
from loom_dsl.canonical import canonical_json, digest
from loom_dsl.errors import (
    LoomError,
    OutcomeUnknown,
    PermissionDenied,
    StoreError,
    ToolError,
    ToolTimeout,
    UnreadableResult,
)
from loom_dsl.redaction import redact
from loom_dsl.tools import Arguments, Reconciliation, Tool, ToolContext
from loom_store.rows import Effect
from loom_store.transaction import Transaction

LARGEST_OUTPUT = 8 * 1024 * 1024
"""Characters of a tool's output that are kept."""
LARGEST_MESSAGE = 8_000
"""Characters of a failure's message that enter the history."""
MOST_UNHEARD = 200
"""Functions that ended while no attempt waited for them, whose results are held for the attempt that comes."""
_SMALL = 64 * 1024
_OVERLAP = 4_096


@dataclass(frozen=True, slots=True)
class _Run:
    """One attempt at one call."""

    call: Call
    facts: JobFacts
    tool: Tool
    arguments: Arguments
    key: str


@dataclass(frozen=True, slots=True)
class _Running:
    """A tool's function at work. It may outlive the attempt that began it; the next attempt then waits for it.

    Attributes:
        task: Gives what the function returns.
        stop: Set when the function is to end.
        until: When its time is up, by the event loop's clock.
    """

    task: asyncio.Task[Any]
    stop: threading.Event
    until: float

    def end(self) -> None:
        """Tell the function to end, and listen to it no longer."""
        self.stop.set()
        self.task.cancel()


class Execute:
    """The activity ``loom.tool.execute``."""

    def __init__(self, runtime: Runtime, calls: Calls) -> None:
        self._runtime, self._calls = runtime, calls
        self._running: dict[str, _Running] = {}

    @activity.defn(name="loom.tool.execute")
    async def execute(self, envelope: dict[str, Any]) -> dict[str, Any]:
        """Run the tool once. Every failure of a tool is a result, not a failure of the activity."""
        call = Call.of(envelope)
        facts = await self._runtime.facts(call.job)
        started = time.monotonic()
        try:
            run = await self._prepare(call, facts)
        except StoreError:
            raise
        except LoomError as error:
            # An attempt before this one may have been let through: what it did counts, not what would be said now.
            key = _key(call)
            if await self._runtime.store.read(lambda tx: tx.effect(key)) is not None:
                return await self._outcome(key)
            return {"ok": False, "code": error.code, "message": self._masked(error.message), "ms": _ms(started)}
        try:
            silent = run.tool.quick and run.tool.idempotent and not call.batches
            effect = None if silent else await self._runtime.store.write(lambda tx: self._begin(tx, run))
            if effect is not None and not effect.created and run.key not in self._running:
                return await self._earlier(run, effect)
            output = await self._run(run)
            name = await self._kept(run, output)
        except UnreadableResult as error:
            message = self._masked(error.message)
            await self._kept(run, message, note=UnreadableResult.code)
            return {"ok": False, "code": error.code, "message": message, "ms": _ms(started)}
        except StoreError:
            raise
        except LoomError as error:
            return {"ok": False, "code": error.code, "message": self._masked(error.message), "ms": _ms(started)}
        return {"ok": True, "output": name, "ms": _ms(started)}

    async def _prepare(self, call: Call, facts: JobFacts) -> _Run:
        tool = self._calls.tool(facts, call.arguments["call"]["name"])
        arguments = await self._calls.arguments(call, tool)
        verdict = self._calls.verdict(call, facts, tool, arguments)
        if verdict.decision != "allow":
            raise PermissionDenied(verdict.reason)
        return _Run(call, facts, tool, arguments, _key(call))

    def _begin(self, tx: Transaction, run: _Run) -> Effect | None:
        store_events(tx, run.call)
        if not run.tool.quick:
            item = run.call.arguments["call"]
            event = {"t": "tool_start", "n": run.call.turn, "tool_call_id": item["id"], "tool": item["name"]}
            tx.append_events(run.call.job, f"{run.call.turn}/{run.call.at}/start", [event])
        if run.tool.idempotent:
            return None
        return tx.begin_effect(
            run.key,
            job=run.call.job,
            turn=run.call.turn,
            call_id=run.call.arguments["call"]["id"],
            tool=run.tool.name,
            arguments_digest=digest(canonical_json(run.arguments)),
        )

    async def _earlier(self, run: _Run, effect: Effect) -> dict[str, Any]:
        """An attempt before this one began the effect: give its result, find out, or say that it is not known."""
        if effect.status == "pending" and run.tool.reconcile is not None:
            found = await self._reconcile(run, run.tool.reconcile)
            if found.outcome != "unknown":
                happened = found.outcome == "happened"
                output = await self._readable(text_of(found.result)) if happened else await self._run(run)
                return {"ok": True, "output": await self._kept(run, output)}
        return await self._outcome(run.key)

    async def _outcome(self, key: str) -> dict[str, Any]:
        """Give what the ledger says now: an attempt that was taken for lost may have settled it meanwhile."""
        effect = await self._runtime.store.write(lambda tx: _closed(tx, key))
        if effect.status == "settled" and effect.result_digest:
            name = effect.result_digest
            if effect.note == UnreadableResult.code:
                told = (await self._runtime.store.read(lambda tx: tx.get_blob(name))).decode()
                return {"ok": False, "code": effect.note, "message": told}
            return {"ok": True, "output": name}
        if effect.status == "failed":
            return {"ok": False, "code": "tool_error", "message": effect.note or "the tool failed"}
        unknown = OutcomeUnknown()
        return {"ok": False, "code": unknown.code, "message": unknown.message}

    async def _reconcile(self, run: _Run, reconcile: Callable[..., Reconciliation]) -> Reconciliation:
        """Ask the tool what became of an earlier attempt; a tool that cannot say does not know."""
        asking = {"arguments": run.arguments, "context": self._context(run, threading.Event())}
        try:
            async with asyncio.timeout(run.tool.timeout):
                found = await run_function(lambda arguments, context: reconcile(arguments, context), asking)
        except (Raised, TimeoutError):
            found = None
        return found if isinstance(found, Reconciliation) else Reconciliation(outcome="unknown")

    async def _run(self, run: _Run) -> str:
        tool, seconds = run.tool, f"{run.tool.timeout:g} s"
        running = self._running.get(run.key) or self._start(run)
        try:
            async with asyncio.timeout_at(running.until):
                result = await asyncio.shield(running.task)
            return await self._readable(text_of(result))
        except asyncio.CancelledError:
            await self._cancelled(run, running)
            raise
        except TimeoutError:
            running.end()
            await self._failed(run, f"it did not end within {seconds}", "unknown")
            check = "" if tool.idempotent else "; it may have had its effect: check before anything else"
            raise ToolTimeout(f"the tool {tool.name} did not end within {seconds}{check}") from None
        except Raised as raised:
            error = raised.error
            told = error if isinstance(error, LoomError) else ToolError(describe(error))
            await self._failed(run, told.message, "failed")
            raise told from None

    def _start(self, run: _Run) -> _Running:
        stop = threading.Event()
        keywords = run.tool.bind(run.arguments, self._context(run, stop))
        task = asyncio.create_task(run_function(run.tool.function, keywords, is_async=run.tool.is_async))
        running = _Running(task, stop, asyncio.get_running_loop().time() + run.tool.timeout)

        # Looked at here, because it may be that no attempt ever asks for it.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        unheard = [key for key, other in self._running.items() if other.task.done()]
        for key in unheard[:-MOST_UNHEARD]:
            del self._running[key]
        self._running[run.key] = running
        return running

    async def _readable(self, text: str) -> str:
        """An output without secrets. Half a secret at the cut would not be seen as one, so more is looked at."""
        text, secrets = text[: LARGEST_OUTPUT + _OVERLAP], self._runtime.secrets
        masked = redact(text, secrets) if len(text) < _SMALL else await asyncio.to_thread(redact, text, secrets)
        return masked[:LARGEST_OUTPUT]

    def _masked(self, message: str) -> str:
        return redact(message[: LARGEST_MESSAGE + _OVERLAP], self._runtime.secrets)[:LARGEST_MESSAGE]

    async def _failed(self, run: _Run, message: str, status: Any) -> None:
        if not run.tool.idempotent:
            note = self._masked(message)[:500]
            await self._runtime.keep(lambda tx: tx.settle_effect(run.key, status, note=note))
        self._running.pop(run.key, None)

    async def _cancelled(self, run: _Run, running: _Running) -> None:
        """End what was aborted: whether its effect happened is not known. A worker that stops leaves it pending.

        When only the server lost sight of this attempt, because it was away itself, the function goes on: the next
        attempt waits for it, if it comes to this worker.
        """
        details = activity.cancellation_details()
        if details is None or not (details.cancel_requested or details.worker_shutdown):
            return
        running.end()
        self._running.pop(run.key, None)
        if details.cancel_requested:
            await self._failed(run, "the job was aborted while the tool ran", "unknown")

    async def _kept(self, run: _Run, output: str, note: str | None = None) -> str:
        name = await self._runtime.keep(lambda tx: self._settle(tx, run, output, note))
        self._running.pop(run.key, None)
        return name

    def _settle(self, tx: Transaction, run: _Run, output: str, note: str | None = None) -> str:
        name = tx.put_blob(output.encode("utf-8", "replace"))
        if not run.tool.idempotent:
            tx.settle_effect(run.key, "settled", result_digest=name, note=note)
        return name

    def _context(self, run: _Run, stop: threading.Event) -> ToolContext:
        call, item = run.call, run.call.arguments["call"]
        loop = asyncio.get_running_loop()
        count = 0

        def progress(text: str) -> None:
            nonlocal count
            count += 1
            event = {
                "t": "progress",
                "n": call.turn,
                "tool_call_id": item["id"],
                "content": self._masked(str(text))[:2_000],
            }
            key = f"{call.turn}/{call.at}/progress/{activity_attempt}/{count}"
            writing = self._runtime.store.write(lambda tx: tx.append_events(call.job, key, [event]))
            asyncio.run_coroutine_threadsafe(writing, loop)

        activity_attempt = activity.info().attempt
        return ToolContext(
            working_dir=run.facts.workdir,
            job=call.job,
            turn=call.turn,
            call_id=item["id"],
            idempotency_key=run.key,
            progress=progress,
            cancelled=stop.is_set,
        )


def _ms(started: float) -> int:
    return round((time.monotonic() - started) * 1000)


def _key(call: Call) -> str:
    """Names one call over all jobs, in the ledger and towards the tool."""
    return f"{call.job}/{call.turn}/{call.arguments['call']['id']}"


def _closed(tx: Transaction, key: str) -> Effect:
    """The effect; one of which nobody can tell any more what became of it is unknown from now on."""
    effect = tx.effect(key)
    if effect is not None and effect.status == "pending":
        tx.settle_effect(key, "unknown", note=OutcomeUnknown().message)
        effect = tx.effect(key)
    assert effect is not None
    return effect
