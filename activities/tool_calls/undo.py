"""Taking back what tools did, where the agent's file says so for a job that is aborted: the last effect first."""

import asyncio
import json
import threading
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.lifecycle.lease import AT_WORK, HELD_SECONDS, let_go, never_began
from activities.lifecycle.process_identity import this_process
from activities.lifecycle.shutdown import STOPPED
from activities.observe.events import store_events
from activities.record.activity_call import ActivityCall, Run
from activities.record.job_store import JobFacts, JobStore
from activities.record.outcomes import ask_tool, outcome_of
from activities.tool_calls.node import value_of
from activities.tool_calls.services import Lender
from loom_dsl.agent.definition import call_name
from loom_dsl.errors import BlobMissing, LoomError, MissingTools, PermissionDenied, StepDied, StoreError
from loom_dsl.tools.context import ToolContext
from loom_dsl.tools.tool import Arguments, Tool
from loom_store.queries.effects import undo_key
from loom_store.rows import Effect, EffectStatus
from loom_store.transaction import Transaction
from loom_tools.masking import redact
from loom_tools.registry import ToolRegistry
from loom_tools.running import describe, run_function, runs_apart
from loom_tools.user_code import Code, Raised, by_position

ATTEMPTS = 3
"""How often a `compensate` is called that raises."""
PAUSES = (0.5, 2.0)
"""Seconds before it is called again."""
MAX_NOTE = 500
Outcome = Literal["undone", "failed", "unknown", "kept"]
Told = tuple[Outcome, str]
"""What came of taking an effect back, and why."""
_STATUS: dict[Outcome, EffectStatus] = {"undone": "settled", "failed": "failed", "unknown": "unknown"}
NO_WAY = "the tool has no `compensate`"
NOT_KNOWN = "it is not known whether it happened"
NOT_SEEN = "the worker was lost while it took this back"
NOT_THERE: Told = "undone", "it had not happened"
UNCLEAR: Told = "unknown", NOT_KNOWN


@dataclass(frozen=True, slots=True)
class _Effect:
    """An effect that is to be taken back, with what that needs."""

    call: ActivityCall
    facts: JobFacts
    effect: Effect
    tool: Tool
    arguments: Arguments = field(repr=False)

    @property
    def key(self) -> str:
        """Names the taking back, in the ledger and towards the tool."""
        return undo_key(self.effect)

    @property
    def place(self) -> tuple[Run, str]:
        """Names it in this worker; the key may come again with another job of the same id."""
        return self.call.run, self.key


class Undo:
    """The activity ``loom.effects.undo``."""

    def __init__(self, jobs: JobStore, registry: ToolRegistry, lender: Lender) -> None:
        self._jobs, self._registry, self._lender = jobs, registry, lender
        self._unwritten: dict[tuple[Run, str], Told] = {}
        """What came of taking something back while the store has not taken it."""

    @activity.defn(name="loom.effects.undo")
    async def undo(self, envelope: dict[str, Any]) -> dict[str, Any]:
        """Take back a job's effects, each at most once. What cannot be taken back is told, and hinders nothing.

        Returns:
            How many there were of each outcome.

        Raises:
            MissingTools: This worker lacks a tool whose effect is to be taken back; another one may have it.
        """
        call = ActivityCall.of(envelope)
        await self._jobs.store.write(lambda tx: store_events(tx, call))
        facts = await self._jobs.facts(call.job)
        rows = {row.key: row for row in await self._jobs.store.read(lambda tx: tx.effects(call.job))}
        undone = {undo_key(row) for row in rows.values()}
        found: dict[str, int] = {}
        for row in reversed([row for key, row in rows.items() if key not in undone]):
            if row.status in ("failed", "cancelled"):
                continue
            outcome, note = await self._one(call, facts, row)
            found[outcome] = found.get(outcome, 0) + 1
            await self._tell(call, row, outcome, note)
        return found

    async def _one(self, call: ActivityCall, facts: JobFacts, row: Effect) -> Told:
        try:
            tool = self._tool(facts, row.tool)
            if tool is None or tool.compensate is None:
                return "kept", NO_WAY
            text = await self._jobs.store.read(lambda tx: tx.get_blob(row.arguments_digest))
            one = _Effect(call, facts, await let_go(self._jobs.store, row, tool.timeout), tool, json.loads(text))
            earlier = await self._jobs.store.read(lambda tx: tx.effect(one.key))
            return await (self._begin(one) if earlier is None else self._earlier(one, earlier))
        except (MissingTools, StoreError, StepDied) as error:
            if not isinstance(error, BlobMissing):
                raise
            return "failed", self._masked(error.message)  # it does not come back, and must not keep the others here
        except LoomError as error:
            return "failed", self._masked(error.message)

    async def _earlier(self, one: _Effect, begun: Effect) -> Told:
        """An attempt before this one began to take it back: say what came of it; it is not begun twice."""
        unwritten = self._unwritten.get(one.place)
        if begun.status == "pending" and unwritten is not None:
            return await self._settle(one, *unwritten)
        begun = await let_go(self._jobs.store, begun, one.tool.timeout)
        epoch = await self._jobs.store.read(lambda tx: tx.epoch_began())
        if never_began(begun, epoch) and await self._jobs.store.write(lambda tx: outcome_of(tx, one.key)) is None:
            return await self._begin(one)
        if begun.status == "settled":
            return "undone", begun.note or ""
        if begun.status == "pending":
            return await self._settle(one, "unknown", NOT_SEEN)
        return ("failed" if begun.status == "failed" else "unknown"), begun.note or ""

    async def _begin(self, one: _Effect) -> Told:
        """Take it back, once it is clear that it happened. Until then nothing is begun: that may be tried again."""
        told, result = None, None
        try:
            secrets = self._lender.secrets(one.facts, one.tool, one.arguments)
            one = replace(one, arguments={**one.arguments, **secrets})
            happened, result = await self._happened(one)
            told = {"not_happened": NOT_THERE, "unknown": UNCLEAR}.get(happened)
        except PermissionDenied as error:
            told = "failed", self._masked(error.message)
        begun = await self._jobs.store.write(lambda tx: self._write(tx, one, told))
        if not begun.created:
            return await self._earlier(one, begun)
        if told is not None:
            return told
        AT_WORK.add(one.key)
        try:
            return await self._called(one, result)
        finally:
            AT_WORK.discard(one.key)

    def _write(self, tx: Transaction, one: _Effect, told: Told | None) -> Effect:
        """Write down that it is being taken back, or at once what came of it where nothing is called."""
        row = one.effect
        begun = tx.begin_effect(
            one.key,
            job=row.job,
            turn=row.turn,
            call_id=row.call_id,
            tool=row.tool,
            arguments_digest=row.arguments_digest,
            summary=f"take back {row.summary}",
            held=(this_process(), HELD_SECONDS),
        )
        if begun.created and told is not None:
            tx.settle_effect(one.key, _STATUS[told[0]], note=told[1])
        return begun

    async def _happened(self, one: _Effect) -> tuple[str, Any]:
        """Whether the effect is there, and what the call gave."""
        row = one.effect
        if row.status == "settled":
            name = row.result_digest
            text = "" if name is None else (await self._jobs.store.read(lambda tx: tx.get_blob(name))).decode()
            return "happened", value_of(text, one.tool)
        found = await ask_tool(one.tool, one.arguments, self._context(one, row.key))
        return found.outcome, found.result

    async def _called(self, one: _Effect, result: Any) -> Told:
        compensate = one.tool.compensate
        assert compensate is not None
        keywords = {"arguments": one.arguments, "result": result, "context": self._context(one, one.key)}
        code = Code.of(one.tool, "compensate", by_position)
        if not await self._jobs.keep(lambda tx: tx.start_effect(one.key, this_process()), durable=False):
            raise ApplicationError("another worker takes this back", type=STOPPED)
        for number in range(1, ATTEMPTS + 1):
            if number > 1:
                await asyncio.sleep(PAUSES[number - 2])
                await self._jobs.keep(lambda tx: tx.count_attempt(one.key))
            try:
                async with asyncio.timeout(None if runs_apart(code) else one.tool.timeout):
                    await run_function(
                        lambda arguments, result, context: compensate(arguments, result, context),
                        keywords,
                        code=code,
                        seconds=one.tool.timeout,
                    )
                return await self._settle(one, "undone", "")
            except TimeoutError:
                return await self._settle(one, "unknown", f"it did not end within {one.tool.timeout:g} s")
            except Raised as raised:
                error = raised.error
                why = error.message if isinstance(error, LoomError) else describe(error)
        return await self._settle(one, "failed", f"{why} ({ATTEMPTS} attempts)")

    async def _settle(self, one: _Effect, outcome: Outcome, note: str) -> Told:
        note = self._masked(note)
        # Nobody else knows it: where the store fails, the next attempt that comes here writes it down.
        self._unwritten[one.place] = outcome, note
        await self._jobs.keep(lambda tx: tx.settle_effect(one.key, _STATUS[outcome], note=note or None))
        self._unwritten.pop(one.place, None)
        return outcome, note

    async def _tell(self, call: ActivityCall, row: Effect, outcome: Outcome, note: str) -> None:
        event = {
            "t": "compensated",
            "n": call.turn,
            "node": f"{row.tool} {row.call_id}",
            "tool_call_id": row.call_id,
            "outcome": outcome,
            **({"message": note} if note else {}),
        }
        await self._jobs.keep(lambda tx: tx.append_events(call.job, f"{undo_key(row)}/told", [event]))

    def _tool(self, facts: JobFacts, name: str) -> Tool | None:
        references = {call_name(reference): reference for reference in facts.agent.tools}
        return self._registry.resolve(references[name]) if name in references else None

    def _masked(self, text: str) -> str:
        return redact(text[: 8 * MAX_NOTE], self._jobs.secrets)[:MAX_NOTE]

    def _context(self, one: _Effect, key: str) -> ToolContext:
        return ToolContext(
            working_dir=one.facts.workdir,
            job=one.call.job,
            turn=one.effect.turn,
            call_id=one.effect.call_id,
            idempotency_key=key,
            cancelled=threading.Event().is_set,
            services=self._lender.services(one.call, one.facts),
        )
