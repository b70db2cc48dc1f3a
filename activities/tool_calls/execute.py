"""Running a tool: what is not idempotent goes through the effect ledger and happens at most once."""

import asyncio
import contextlib
import itertools
import json
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.lifecycle.lease import AT_WORK, HELD_SECONDS, let_go, never_began, renew, take_over
from activities.lifecycle.process_identity import this_process
from activities.lifecycle.shutdown import STOPPED, Stopping, refuse_to_begin, set_fate
from activities.observe.events import store_events
from activities.record.activity_call import ActivityCall, Run
from activities.record.job_store import JobFacts, JobStore
from activities.record.outcomes import NEVER_BEGAN, ask_tool, effect_key, given_of, is_told, outcome_of, status_of
from activities.record.transcript import images_of, put_images
from activities.tool_calls.call_policy import CallPolicy
from activities.tool_calls.call_reader import CallReader
from activities.tool_calls.hooks import Hooks, hooked
from activities.tool_calls.services import Lender
from loom_dsl.errors import (
    Aborted,
    LoomError,
    PermissionDenied,
    StepDied,
    StoreError,
    ToolError,
    ToolTimeout,
    UnreadableResult,
)
from loom_dsl.text.canonical import canonical_json, digest
from loom_dsl.text.redaction import MaskedStream
from loom_dsl.tools.context import Image, ToolContext, ToolServices
from loom_dsl.tools.tool import Arguments, Tool
from loom_store.rows import Effect, EffectStatus, from_millis
from loom_store.store import Store
from loom_store.transaction import Transaction
from loom_tools.background import BackgroundTasks
from loom_tools.isolation.processes import LOADING_SECONDS
from loom_tools.masking import redact
from loom_tools.running import ProgressReporter, describe, run_again, run_function, runs_apart, text_of
from loom_tools.user_code import Code, Raised

# What the stage `execute` has at hand: one attempt at a call, and a tool's function at work.


UNKNOWN = "its outcome will be unknown"


@dataclass(frozen=True, slots=True)
class CallAttempt:
    """One attempt at one call."""

    call: ActivityCall
    facts: JobFacts
    tool: Tool
    arguments: Arguments
    key: str
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What the function gets in the place of references, by parameter; nothing of it is written down."""
    images: list[Image] = field(default_factory=list)
    """What the function returned besides text."""
    states: frozenset[str] = frozenset()
    """The states of what it changes for which the call was approved."""
    left: list[str] = field(default_factory=list)
    """The states in which the function said that it left what it changes."""
    begun: float = field(default_factory=time.time)

    @property
    def is_kept(self) -> bool:
        """Whether the ledger knows of it before it runs: what must not happen twice, or may have to be taken back."""
        return not self.tool.idempotent or self.tool.compensate is not None

    @property
    def is_listed(self) -> bool:
        """Whether the ledger gets to know of it with its outcome: what changes something, and may be repeated."""
        return not self.is_kept and not self.tool.read_only

    @property
    def fate(self) -> str:
        """What becomes of the call if its worker stops while the function runs."""
        if self.tool.idempotent:
            return "run again"
        return UNKNOWN if self.tool.reconcile is None else "the tool will be asked what became of it"

    @property
    def place(self) -> tuple[Run, str]:
        """Names it among what runs in this worker; the key may come again with another job of the same id."""
        return self.call.run, self.key

    def context(self, services: ToolServices, stop: threading.Event, progress: ProgressReporter) -> ToolContext:
        """What the function is told about the call."""
        return ToolContext(
            working_dir=self.facts.workdir,
            job=self.call.job,
            turn=self.call.turn,
            call_id=self.call.arguments["call"]["id"],
            idempotency_key=self.key,
            progress=progress,
            cancelled=stop.is_set,
            approved_states=self.states,
            leaves=self.left.append,
            services=services,
        )


@dataclass(slots=True)
class Running:
    """A tool's function at work. It may outlive the attempt that began it; the next attempt then waits for it.

    Attributes:
        stop: Set when the function is to end.
        progress: What it says while it works.
        task: Gives what the function returns. It ends by itself when the tool's time is over.
        called: Whether the function has been called.
    """

    stop: threading.Event
    progress: ProgressReporter
    task: asyncio.Task[Any] = field(init=False)
    called: bool = False

    def end(self) -> None:
        """Tell the function to end, and listen to it no longer."""
        self.stop.set()
        self.task.cancel()


# The state of things for which a call was approved: what was changed since is not what its approver was shown.


async def approved_states(store: Store, call: ActivityCall, tool: Tool, arguments: Arguments) -> frozenset[str]:
    """Give the states in which an approved call may find what it changes; none: its approver was shown none.

    Besides the one that was shown, these are those in which approved calls of the same turn left things: they are
    asked about together, and each is shown what was there before all of them.
    """
    if not call.arguments.get("approved"):
        return frozenset()
    return await store.read(lambda tx: _states(tx, call, tool, arguments))


def _states(tx: Transaction, call: ActivityCall, tool: Tool, arguments: Arguments) -> frozenset[str]:
    mine = (call.turn, call.arguments["call"]["id"])
    rows = [row for row in tx.approvals(job=call.job) if (row["turn"], row["call_id"]) == mine]
    asked = rows[-1] if rows else None
    if asked is None or not asked["details"].get("state") or _is_elsewhere(tx, asked, tool, arguments):
        return frozenset()
    left = [json.loads(mark) for mark in tx.marks(call.job, "left")]
    return frozenset([asked["details"]["state"], *(state for turn, state in left if turn == call.turn)])


def _is_elsewhere(tx: Transaction, asked: dict[str, Any], tool: Tool, arguments: Arguments) -> bool:
    """Whether the approver edited where the call works: of that place nothing was shown."""
    shown = json.loads(tx.get_blob(asked["arguments_digest"]))
    return any(shown.get(name) != arguments.get(name) for name in tool.path_arguments)


def keep_left(tx: Transaction, run: CallAttempt) -> None:
    """Keep the states in which an approved call left things."""
    for state in run.left if run.states else ():
        tx.mark(run.call.job, "left", canonical_json([run.call.turn, state]))


# What a tool gives and what is told of it, without secrets and down to size.


MAX_OUTPUT = 8 * 1024 * 1024
"""Characters of a tool's output that are kept."""
MAX_MESSAGE = 8_000
"""Characters of a failure's message that enter the history."""
OVERLAP = 4_096
"""Characters beyond a cut that are looked at: half a secret at the cut would not be seen as one."""
_SMALL = 64 * 1024


async def masked_output(text: str, secrets: Mapping[str, str]) -> str:
    """Give an output as it may be kept; a large one is looked at in a thread."""
    text = text[: MAX_OUTPUT + OVERLAP]
    masked = redact(text, secrets) if len(text) < _SMALL else await asyncio.to_thread(redact, text, secrets)
    return masked[:MAX_OUTPUT]


def masked_message(message: str, secrets: Mapping[str, str]) -> str:
    """Give a failure's message as it may be told."""
    return redact(message[: MAX_MESSAGE + OVERLAP], secrets)[:MAX_MESSAGE]


# What a tool tells while it works, as events of its job: without secrets, also those that come in pieces.


MAX_PROGRESS = 2_000
"""Characters of a text that a tool tells while it works."""
LEAST_HELD = 4
"""Characters of a secret's beginning at the end of what a tool tells that are held back."""


def progress_of(jobs: JobStore, call: ActivityCall, numbers: Iterator[int]) -> ProgressReporter:
    """Give what a call's function tells by.

    Args:
        jobs: Keeps what it tells, without secrets.
        call: The call.
        numbers: Tell apart what is told.
    """
    item, attempt = call.arguments["call"], activity.info().attempt
    stream = MaskedStream(jobs.secrets, LEAST_HELD)

    async def tell(text: str) -> None:
        # What may be the beginning of a secret goes with the next text, or with none.
        content = masked_message(stream.feed(text), jobs.secrets)[:MAX_PROGRESS]
        if not content and text:
            return
        event = {"t": "progress", "n": call.turn, "tool_call_id": item["id"], "content": content}
        key = f"{call.turn}/{call.at}/progress/{attempt}/{next(numbers)}"
        # The tool's work does not depend on who hears of it.
        with contextlib.suppress(StoreError):
            await jobs.store.write(lambda tx: tx.append_events(call.job, key, [event]), durable=False)

    return ProgressReporter(tell, MAX_MESSAGE + OVERLAP)


MAX_UNHEARD = 200
"""Functions that ended while no attempt waited for them, whose results are held for the attempt that comes."""
LEFT_ALONE = 1.0
"""Seconds beyond its timeout for which a function in another worker is waited for."""
FORGOTTEN = "the store was restored or replaced after this call began: an attempt before may have called the tool"
MAX_SUMMARY = 300
"""Characters of what the ledger says of a call."""


class Execute:
    """The activity ``loom.tool.execute``."""

    def __init__(
        self, jobs: JobStore, reader: CallReader, policy: CallPolicy, hooks: Hooks, lender: Lender, stopping: Stopping
    ) -> None:
        self._jobs, self._reader, self._policy, self._hooks = jobs, reader, policy, hooks
        self._lender, self._stopping = lender, stopping
        self._running: dict[tuple[Run, str], Running] = {}
        self._readable = partial(masked_output, secrets=jobs.secrets)
        self._masked = partial(masked_message, secrets=jobs.secrets)
        self._background = BackgroundTasks()
        self._told = itertools.count()

    @activity.defn(name="loom.tool.execute")
    @hooked("execute")
    async def execute(self, envelope: dict[str, Any]) -> dict[str, Any]:
        """Run the tool once. Every failure of a tool is a result, not a failure of the activity."""
        call = ActivityCall.of(envelope)
        facts = await self._jobs.facts(call.job)
        started = time.monotonic()
        try:
            run = await self._prepare(call, facts)
        except LoomError as error:
            if not is_told(error):
                raise
            # An attempt before this one may have been let through: what it did counts, not what would be said now.
            told = await self._jobs.store.write(lambda tx: outcome_of(tx, effect_key(call)))
            return told or {"ok": False, "code": error.code, "message": self._masked(error.message), "ms": _ms(started)}
        try:
            silent = run.tool.quick and not run.is_kept and not call.batches
            if not silent and run.place not in self._running:
                refuse_to_begin(self._stopping)
            effect = None if silent else await self._jobs.store.write(lambda tx: self._begin(tx, run))
            if effect is not None and not effect.created and run.place not in self._running:
                return await self._earlier(run, effect)
            given = await self._kept(run, await self._run(run))
        except UnreadableResult as error:
            message = self._masked(error.message)
            await self._kept(run, message, note=UnreadableResult.code)
            return {"ok": False, "code": error.code, "message": message, "ms": _ms(started)}
        except (StoreError, StepDied):
            raise
        except LoomError as error:
            return {"ok": False, "code": error.code, "message": self._masked(error.message), "ms": _ms(started)}
        return {"ok": True, **given, "ms": _ms(started)}

    async def _prepare(self, call: ActivityCall, facts: JobFacts) -> CallAttempt:
        tool = await self._reader.tool(facts, call.arguments["call"])
        arguments = await self._reader.arguments(call, tool)
        verdict = await self._policy.verdict(call, facts, tool, arguments, recorded=True)
        if verdict.decision != "allow":
            raise PermissionDenied(verdict.reason)
        secrets = self._lender.secrets(facts, tool, arguments, call.arguments["call"])
        states = await approved_states(self._jobs.store, call, tool, arguments)
        return CallAttempt(call, facts, tool, arguments, effect_key(call), secrets, states=states)

    def _begin(self, tx: Transaction, run: CallAttempt) -> Effect | None:
        store_events(tx, run.call)
        if not run.tool.quick:
            item = run.call.arguments["call"]
            event = {"t": "tool_start", "n": run.call.turn, "tool_call_id": item["id"], "tool": item["name"]}
            tx.append_events(run.call.job, f"{run.call.turn}/{run.call.at}/start", [event])
        if not run.is_kept:
            return None
        unseen = _may_have_been_forgotten(tx, run)
        effect = tx.begin_effect(
            run.key, held=(this_process(), HELD_SECONDS), idempotent=run.tool.idempotent, **self._described(run)
        )
        if unseen:
            tx.settle_effect(run.key, "unknown", note=FORGOTTEN)
            return replace(effect, status="unknown", created=False)
        return effect

    def _described(self, run: CallAttempt) -> dict[str, Any]:
        """What the ledger says of a call."""
        return {
            "job": run.call.job,
            "turn": run.call.turn,
            "call_id": run.call.arguments["call"]["id"],
            "tool": run.tool.name,
            "arguments_digest": digest(canonical_json(run.arguments)),
            "summary": self._masked(f"{run.tool.name}({canonical_json(run.arguments)})")[:MAX_SUMMARY],
        }

    async def _earlier(self, run: CallAttempt, effect: Effect) -> dict[str, Any]:
        """An attempt before this one began the effect: give its result, find out, or say that it is not known.

        It may be at work still, in a worker that the server lost sight of: then its end is waited for. Where it never
        called the tool, this one does.
        """
        epoch = await self._jobs.store.read(lambda tx: tx.epoch_began())
        can_tell = run.tool.idempotent or run.tool.reconcile is not None or never_began(effect, epoch)
        wait, seconds = take_over if can_tell else let_go, run.tool.timeout + LEFT_ALONE
        effect = await wait(self._jobs.store, effect, seconds)
        if effect.status == "pending" and can_tell:
            try:
                if (output := await self._taken_over(run, never_began(effect, epoch))) is not None:
                    return {"ok": True, **await self._kept(run, output)}
            finally:
                if run.place not in self._running:
                    AT_WORK.discard(run.key)
        # Asked again: an attempt that was taken for lost may have settled it meanwhile.
        told = await self._jobs.store.write(lambda tx: outcome_of(tx, run.key))
        return told or {"ok": False, "code": Aborted.code, "message": NEVER_BEGAN}

    async def _taken_over(self, run: CallAttempt, unbegun: bool) -> str | None:
        """Give the output of a call whose attempt is gone, calling again where that may be; None: it is not known.

        A tool that is asked what became of it is asked again when its worker dies meanwhile: asking changes nothing.
        """
        if run.tool.idempotent or unbegun:
            return await self._run(run)
        if run.tool.reconcile is None:
            return None
        context = run.context(
            self._lender.services(run.call, run.facts), threading.Event(), progress_of(self._jobs, run.call, self._told)
        )
        set_fate("the tool will be asked again what became of it")
        asking = asyncio.ensure_future(ask_tool(run.tool, {**run.arguments, **run.secrets}, context))
        self._background.start(renew(self._jobs.store, run.key, asking))
        found = await asking
        await self._jobs.keep(lambda tx: tx.reconcile_effect(run.key, found.outcome))
        if found.outcome == "unknown":
            return None
        return await self._read(run, found.result) if found.outcome == "happened" else await self._run(run)

    async def _run(self, run: CallAttempt) -> str:
        tool, seconds = run.tool, f"{run.tool.timeout:g} s"
        running = self._running.get(run.place) or self._start(run)
        set_fate(run.fate)
        try:
            return await self._read(run, await asyncio.shield(running.task))
        except asyncio.CancelledError:
            await self._cancelled(run, running)
            raise
        except StepDied:
            running.stop.set()
            self._drop(run.place)
            raise
        except TimeoutError:
            await self._failed(run, f"it did not end within {seconds}", "unknown")
            check = "" if tool.idempotent else "; it may have had its effect: check before anything else"
            raise ToolTimeout(f"the tool {tool.name} did not end within {seconds}{check}") from None
        except ApplicationError:
            self._drop(run.place)
            raise
        except Raised as raised:
            error = raised.error
            if isinstance(error, Aborted) and tool.idempotent and self._stopping.warned:
                self._drop(run.place)
                raise ApplicationError("the worker was stopped while this ran", type=STOPPED) from None
            told = error if isinstance(error, LoomError) else ToolError(describe(error))
            await self._failed(run, told.message, status_of(error))
            raise told from None

    async def _read(self, run: CallAttempt, result: Any) -> str:
        """Give what a function returned as text, without secrets, and remember its images."""
        run.images[:] = images_of(result)
        return await self._readable(text_of(result))

    def _start(self, run: CallAttempt) -> Running:
        running = Running(threading.Event(), progress_of(self._jobs, run.call, self._told))
        tool, code = run.tool, Code.of(run.tool)
        context = run.context(self._lender.services(run.call, run.facts), running.stop, running.progress)
        keywords = tool.bind(run.arguments, context, run.secrets)
        once = partial(run_function, tool.function, keywords, is_async=tool.is_async, code=code, seconds=tool.timeout)
        seconds = tool.timeout + (LOADING_SECONDS if runs_apart(code) else 0.0)
        running.task = asyncio.create_task(self._called(run, running, once, seconds))
        AT_WORK.add(run.key)
        # Looked at here, because it may be that no attempt ever asks for it.
        running.task.add_done_callback(lambda done: done.cancelled() or done.exception())
        unheard = [key for key, other in self._running.items() if other.task.done()]
        for key in unheard[:-MAX_UNHEARD]:
            self._drop(key)
        self._running[run.place] = running
        return running

    async def _called(
        self, run: CallAttempt, running: Running, once: Callable[[], Awaitable[Any]], seconds: float
    ) -> Any:
        """Call the function, within its time. That it is called is known to other processes before it is.

        Raises:
            Raised: The function raised something.
            TimeoutError: It did not end in time.
            ApplicationError: Another worker has taken the call over, because this one was not heard of.
        """
        retry = run.tool.retry
        if run.is_kept:
            if not await self._jobs.keep(lambda tx: tx.start_effect(run.key, this_process()), durable=False):
                raise ApplicationError("another worker has taken this call over", type=STOPPED)
            self._background.start(renew(self._jobs.store, run.key, running.task))
        running.called = True
        with self._stopping.telling(running.stop):
            try:
                async with asyncio.timeout(seconds):
                    return await (run_again(once, retry, running.progress) if retry else once())
            except TimeoutError:
                running.stop.set()
                raise

    def _drop(self, place: tuple[Run, str]) -> None:
        self._running.pop(place, None)
        AT_WORK.discard(place[1])

    async def _failed(self, run: CallAttempt, message: str, status: EffectStatus) -> None:
        note = self._masked(message)[:500]
        await self._written(run, lambda tx: self._end(tx, run, status, note=note), durable=False)
        self._drop(run.place)

    async def _cancelled(self, run: CallAttempt, running: Running) -> None:
        """End what was aborted: whether its effect happened is not known. A worker that stops leaves it pending.

        When only the server lost sight of this attempt, because it was away itself, the function goes on: the next
        attempt waits for it, if it comes to this worker.
        """
        details = activity.cancellation_details()
        aborted = details is not None and details.cancel_requested
        if not (aborted or self._stopping.over or (details is not None and details.worker_shutdown)):
            self._background.start(self._settled_unheard(run, running))
            return
        running.end()
        self._drop(run.place)
        if aborted:
            status: EffectStatus = "unknown" if running.called else "cancelled"
            await self._failed(run, "the job was aborted while the tool ran", status)

    async def _settled_unheard(self, run: CallAttempt, running: Running) -> None:
        """Write down how a function ended whose attempt was lost: the next one may be in another worker."""
        if not run.is_kept:
            return
        try:
            output = await self._read(run, await asyncio.shield(running.task))
            await self._written(run, lambda tx: self._settle(tx, run, output))
        except UnreadableResult as error:
            output = self._masked(error.message)
            await self._written(run, lambda tx: self._settle(tx, run, output, UnreadableResult.code))
        except TimeoutError:
            note = f"it did not end within {run.tool.timeout:g} s"
            await self._written(run, lambda tx: self._end(tx, run, "unknown", note=note))
        except Raised as raised:
            why = raised.error
            note = self._masked(why.message if isinstance(why, LoomError) else describe(why))[:500]
            await self._written(run, lambda tx: self._end(tx, run, status_of(why), note=note))

    async def _kept(self, run: CallAttempt, output: str, note: str | None = None) -> dict[str, Any]:
        if run.tool.quick and not (run.is_kept or run.images or run.left):
            name = await self._jobs.store.put_later(output.encode("utf-8", "replace"))
            await self._told_all(run)
            self._drop(run.place)
            return given_of(name, [])
        # Also when this attempt is cancelled just now, as one is that the server lost sight of: nobody else knows it.
        keeping = self._background.start(self._written(run, lambda tx: self._settle(tx, run, output, note)))
        given: dict[str, Any] = await asyncio.shield(keeping)
        self._drop(run.place)
        return given

    async def _written(self, run: CallAttempt, work: Callable[[Transaction], Any], *, durable: bool = True) -> Any:
        """Write an outcome down: what other processes see at once is on the disk a little later.

        Until others see it, the call's outcome is unknown if this process dies; what may wait comes after that.
        """
        given = await self._jobs.keep(work, durable=durable and not run.is_kept)
        await self._told_all(run)
        if run.is_kept:
            await self._jobs.keep(lambda tx: tx.release_effect(run.key))
        return given

    async def _told_all(self, run: CallAttempt) -> None:
        if (running := self._running.get(run.place)) is not None:
            await running.progress.settle()

    def _settle(self, tx: Transaction, run: CallAttempt, output: str, note: str | None = None) -> dict[str, Any]:
        name, images = tx.put_blob(output.encode("utf-8", "replace")), put_images(tx, run.images)
        keep_left(tx, run)
        self._end(tx, run, "settled", result_digest=name, note=note, images=images)
        return given_of(name, images)

    def _end(self, tx: Transaction, run: CallAttempt, status: EffectStatus, **outcome: Any) -> None:
        """Put how a call ended into the ledger, if that is to know of it."""
        if run.is_kept:
            tx.settle_effect(run.key, status, **outcome, release=False)
        elif run.is_listed:
            ended = {"result_digest": None, "note": None, "settled_at": None, **outcome}
            begun_at = from_millis(round(run.begun * 1000))
            tx.list_effect(
                Effect(key=run.key, status=status, begun_at=begun_at, idempotent=True, **self._described(run), **ended)
            )


def _may_have_been_forgotten(tx: Transaction, run: CallAttempt) -> bool:
    """Whether an attempt before this one may have called the tool in a store that is older than the one before it.

    Where a copy of the store was put in its place, that the ledger lacks a call proves nothing for calls before that.
    """
    began = None if run.tool.idempotent or run.call.attempt == 1 else tx.epoch_began()
    return began is not None and activity.info().scheduled_time.timestamp() < began and tx.effect(run.key) is None


def _ms(started: float) -> int:
    return round((time.monotonic() - started) * 1000)
