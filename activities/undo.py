"""Taking back what tools did, where the agent's file says so for a job that is aborted: the last effect first."""

import asyncio
import json
import threading
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from temporalio import activity

from activities.holding import AT_WORK, HELD_SECONDS, let_go, this_process
from activities.node_call import value_of
from activities.observe import store_events
from activities.runtime import Call, JobFacts, Runtime
from activities.services import secrets_of, services_of
from activities.tool_run import Raised, describe, run_function
from loom_dsl.agent import call_name
from loom_dsl.errors import LoomError, MissingTools, PermissionDenied, StoreError
from loom_dsl.redaction import redact
from loom_dsl.tools import Arguments, Reconciliation, Tool, ToolContext
from loom_store.effects import undo_key
from loom_store.rows import Effect

ATTEMPTS = 3
"""How often a `compensate` is called that raises."""
PAUSES = (0.5, 2.0)
"""Seconds before it is called again."""
LONGEST_NOTE = 500
Outcome = Literal["undone", "failed", "unknown", "kept"]
NO_WAY = "the tool has no `compensate`"
NOT_KNOWN = "it is not known whether it happened"
NOT_SEEN = "the worker was lost while it took this back"


@dataclass(frozen=True, slots=True)
class _Effect:
    """An effect that is to be taken back, with what that needs."""

    call: Call
    facts: JobFacts
    effect: Effect
    tool: Tool
    arguments: Arguments = field(repr=False)

    @property
    def key(self) -> str:
        """Names the taking back, in the ledger and towards the tool."""
        return undo_key(self.effect)


class Undo:
    """The activity ``loom.effects.undo``."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    @activity.defn(name="loom.effects.undo")
    async def undo(self, envelope: dict[str, Any]) -> dict[str, Any]:
        """Take back a job's effects, each at most once. What cannot be taken back is told, and hinders nothing.

        Returns:
            How many there were of each outcome.

        Raises:
            MissingTools: This worker lacks a tool whose effect is to be taken back; another one may have it.
        """
        call = Call.of(envelope)
        await self._runtime.store.write(lambda tx: store_events(tx, call))
        facts = await self._runtime.facts(call.job)
        rows = {row.key: row for row in await self._runtime.store.read(lambda tx: tx.effects(call.job))}
        undone = {undo_key(row) for row in rows.values()}
        found: dict[str, int] = {}
        for row in reversed([row for key, row in rows.items() if key not in undone]):
            if row.status in ("failed", "cancelled"):
                continue
            outcome, note = await self._one(call, facts, row)
            found[outcome] = found.get(outcome, 0) + 1
            await self._tell(call, row, outcome, note)
        return found

    async def _one(self, call: Call, facts: JobFacts, row: Effect) -> tuple[Outcome, str]:
        try:
            tool = self._tool(facts, row.tool)
            if tool is None or tool.compensate is None:
                return "kept", NO_WAY
            text = await self._runtime.store.read(lambda tx: tx.get_blob(row.arguments_digest))
            one = _Effect(call, facts, await let_go(self._runtime.store, row, tool.timeout), tool, json.loads(text))
            begun = await self._runtime.store.write(
                lambda tx: tx.begin_effect(
                    one.key,
                    job=row.job,
                    turn=row.turn,
                    call_id=row.call_id,
                    tool=row.tool,
                    arguments_digest=row.arguments_digest,
                    summary=f"take back {row.summary}",
                    held=(this_process(), HELD_SECONDS),
                )
            )
            return await self._begin(one) if begun.created else await self._earlier(one, begun)
        except (MissingTools, StoreError):
            raise
        except LoomError as error:
            return "failed", self._masked(error.message)

    async def _earlier(self, one: _Effect, begun: Effect) -> tuple[Outcome, str]:
        """An attempt before this one began to take it back: say what came of it; it is not begun twice."""
        begun = await let_go(self._runtime.store, begun, one.tool.timeout)
        if begun.status == "settled":
            return "undone", begun.note or ""
        if begun.status == "pending":
            return await self._settle(one, "unknown", NOT_SEEN)
        return ("failed" if begun.status == "failed" else "unknown"), begun.note or ""

    async def _begin(self, one: _Effect) -> tuple[Outcome, str]:
        """Take it back, once it is clear that it happened."""
        AT_WORK.add(one.key)
        try:
            secrets = secrets_of(self._runtime, one.facts, one.tool, one.arguments)
            one = replace(one, arguments=one.arguments | secrets)
            happened, result = await self._happened(one)
            if happened == "not_happened":
                return await self._settle(one, "undone", "it had not happened")
            if happened == "unknown":
                return await self._settle(one, "unknown", NOT_KNOWN)
            return await self._called(one, result)
        except PermissionDenied as error:
            return await self._settle(one, "failed", error.message)
        finally:
            AT_WORK.discard(one.key)

    async def _happened(self, one: _Effect) -> tuple[str, Any]:
        """Whether the effect is there, and what the call gave."""
        row, reconcile = one.effect, one.tool.reconcile
        if row.status == "settled":
            name = row.result_digest
            text = "" if name is None else (await self._runtime.store.read(lambda tx: tx.get_blob(name))).decode()
            return "happened", value_of(text, one.tool)
        if reconcile is None:
            return "unknown", None
        try:
            async with asyncio.timeout(one.tool.timeout):
                keywords = {"arguments": one.arguments, "context": self._context(one, row.key)}
                found = await run_function(lambda arguments, context: reconcile(arguments, context), keywords)
        except (Raised, TimeoutError):
            return "unknown", None
        return (found.outcome, found.result) if isinstance(found, Reconciliation) else ("unknown", None)

    async def _called(self, one: _Effect, result: Any) -> tuple[Outcome, str]:
        compensate = one.tool.compensate
        assert compensate is not None
        keywords = {"arguments": one.arguments, "result": result, "context": self._context(one, one.key)}
        for number in range(1, ATTEMPTS + 1):
            if number > 1:
                await asyncio.sleep(PAUSES[number - 2])
                await self._runtime.keep(lambda tx: tx.count_attempt(one.key))
            try:
                async with asyncio.timeout(one.tool.timeout):
                    await run_function(
                        lambda arguments, result, context: compensate(arguments, result, context),
                        keywords,
                    )
                return await self._settle(one, "undone", "")
            except TimeoutError:
                return await self._settle(one, "unknown", f"it did not end within {one.tool.timeout:g} s")
            except Raised as raised:
                error = raised.error
                why = error.message if isinstance(error, LoomError) else describe(error)
        return await self._settle(one, "failed", f"{why} ({ATTEMPTS} attempts)")

    async def _settle(self, one: _Effect, outcome: Outcome, note: str) -> tuple[Outcome, str]:
        status: Any = {"undone": "settled", "failed": "failed", "unknown": "unknown"}[outcome]
        note = self._masked(note)
        await self._runtime.keep(lambda tx: tx.settle_effect(one.key, status, note=note or None))
        return outcome, note

    async def _tell(self, call: Call, row: Effect, outcome: Outcome, note: str) -> None:
        event = {
            "t": "compensated",
            "n": call.turn,
            "node": f"{row.tool} {row.call_id}",
            "tool_call_id": row.call_id,
            "outcome": outcome,
            **({"message": note} if note else {}),
        }
        await self._runtime.keep(lambda tx: tx.append_events(call.job, f"{undo_key(row)}/told", [event]))

    def _tool(self, facts: JobFacts, name: str) -> Tool | None:
        references = {call_name(reference): reference for reference in facts.agent.tools}
        return self._runtime.registry.resolve(references[name]) if name in references else None

    def _masked(self, text: str) -> str:
        return redact(text[: 8 * LONGEST_NOTE], self._runtime.secrets)[:LONGEST_NOTE]

    def _context(self, one: _Effect, key: str) -> ToolContext:
        return ToolContext(
            working_dir=one.facts.workdir,
            job=one.call.job,
            turn=one.effect.turn,
            call_id=one.effect.call_id,
            idempotency_key=key,
            cancelled=threading.Event().is_set,
            services=services_of(self._runtime, one.call, one.facts),
        )
