"""Running a tool: what is not idempotent goes through the effect ledger and happens at most once."""

import asyncio
import time
from dataclasses import dataclass
from typing import Any

from temporalio import activity

from activities.observe import store_events
from activities.runtime import Call, Heartbeats, JobFacts, Runtime
from activities.stages import Calls
from loom_dsl.canonical import canonical_json, digest
from loom_dsl.errors import LoomError, OutcomeUnknown, PermissionDenied, ToolError, ToolTimeout
from loom_dsl.redaction import redact
from loom_dsl.tools import Arguments, Tool, ToolContext
from loom_store.rows import Effect
from loom_store.transaction import Transaction

LARGEST_OUTPUT = 8 * 1024 * 1024
"""Characters of a tool's output that are kept."""


@dataclass(frozen=True, slots=True)
class _Run:
    """One attempt at one call."""

    call: Call
    facts: JobFacts
    tool: Tool
    arguments: Arguments
    key: str


class Execute:
    """The activity ``loom.tool.execute``."""

    def __init__(self, runtime: Runtime, calls: Calls) -> None:
        self._runtime, self._calls = runtime, calls

    @activity.defn(name="loom.tool.execute")
    async def execute(self, envelope: dict[str, Any]) -> dict[str, Any]:
        """Run the tool once. Every failure of a tool is a result, not a failure of the activity."""
        call = Call.of(envelope)
        facts = await self._runtime.facts(call.job)
        started = time.monotonic()
        async with Heartbeats():
            try:
                run = await self._prepare(call, facts)
                silent = run.tool.quick and run.tool.idempotent and not call.batches
                effect = None if silent else await self._runtime.store.write(lambda tx: self._begin(tx, run))
                if effect is not None and not effect.created:
                    return await self._earlier(run, effect)
                output = await self._run(run)
            except LoomError as error:
                return {"ok": False, "code": error.code, "message": error.message, "ms": _ms(started)}
            name = await self._runtime.store.write(lambda tx: self._settle(tx, run, output))
        return {"ok": True, "output": name, "ms": _ms(started)}

    async def _prepare(self, call: Call, facts: JobFacts) -> _Run:
        tool = self._calls.tool(facts, call.arguments["call"]["name"])
        arguments = await self._calls.arguments(call, tool)
        verdict = self._calls.verdict(call, facts, tool, arguments)
        if verdict.decision != "allow":
            raise PermissionDenied(verdict.reason)
        return _Run(call, facts, tool, arguments, f"{call.job}/{call.turn}/{call.arguments['call']['id']}")

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
        if effect.status == "settled" and effect.result_digest:
            return {"ok": True, "output": effect.result_digest}
        if effect.status == "failed":
            return {"ok": False, "code": "tool_error", "message": effect.note or "the tool failed"}
        if effect.status == "pending" and run.tool.reconcile is not None:
            context = self._context(run)
            found = await asyncio.to_thread(run.tool.reconcile, run.arguments, context)
            if found.outcome == "happened":
                output = _text(found.result)
                return {"ok": True, "output": await self._runtime.store.write(lambda tx: self._settle(tx, run, output))}
            if found.outcome == "not_happened":
                output = await self._run(run)
                return {"ok": True, "output": await self._runtime.store.write(lambda tx: self._settle(tx, run, output))}
        unknown = OutcomeUnknown()
        if effect.status == "pending":
            await self._runtime.store.write(lambda tx: tx.settle_effect(run.key, "unknown", note=unknown.message))
        return {"ok": False, "code": unknown.code, "message": unknown.message}

    async def _run(self, run: _Run) -> str:
        keywords = run.tool.bind(run.arguments, self._context(run))
        try:
            async with asyncio.timeout(run.tool.timeout):
                if run.tool.is_async:
                    result = await run.tool.function(**keywords)
                else:
                    result = await asyncio.to_thread(run.tool.function, **keywords)
            return redact(_text(result), self._runtime.secrets)[:LARGEST_OUTPUT]
        except asyncio.CancelledError:
            await self._cancelled(run)
            raise
        except TimeoutError:
            seconds = f"{run.tool.timeout:g} s"
            await self._failed(run, f"it did not end within {seconds}", "unknown")
            raise ToolTimeout(f"the tool {run.tool.name} did not end within {seconds}") from None
        except LoomError as error:
            await self._failed(run, error.message, "failed")
            raise
        except Exception as error:
            message = redact(f"{type(error).__name__}: {error}", self._runtime.secrets)[:2_000]
            await self._failed(run, message, "failed")
            raise ToolError(message) from None

    async def _failed(self, run: _Run, message: str, status: Any) -> None:
        if not run.tool.idempotent:
            note = redact(message, self._runtime.secrets)[:500]
            await self._runtime.store.write(lambda tx: tx.settle_effect(run.key, status, note=note))

    async def _cancelled(self, run: _Run) -> None:
        """Aborted in the middle: whether the effect happened is not known. A worker that stops leaves it pending."""
        details = activity.cancellation_details()
        if details is not None and details.cancel_requested:
            await self._failed(run, "the job was aborted while the tool ran", "unknown")

    def _settle(self, tx: Transaction, run: _Run, output: str) -> str:
        name = tx.put_blob(output.encode("utf-8", "replace"))
        if not run.tool.idempotent:
            tx.settle_effect(run.key, "settled", result_digest=name)
        return name

    def _context(self, run: _Run) -> ToolContext:
        call, item = run.call, run.call.arguments["call"]
        loop = asyncio.get_running_loop()
        count = 0

        def progress(text: str) -> None:
            nonlocal count
            count += 1
            event = {"t": "progress", "n": call.turn, "tool_call_id": item["id"], "content": redact(text)[:2_000]}
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
            cancelled=activity.is_cancelled,
        )


def _text(result: Any) -> str:
    if result is None:
        return ""
    return result if isinstance(result, str) else canonical_json(result)


def _ms(started: float) -> int:
    return round((time.monotonic() - started) * 1000)
