"""Compressing a conversation: a model writes notes about what is old, and a summary stands for it from then on.

The session keeps every entry. A failed compression leaves it as it was.
"""

import asyncio
import json
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from temporalio import activity

from activities.chat.endpoints import Endpoints
from activities.chat.reply import used
from activities.context.view import MESSAGE_TOKENS, View, Views
from activities.interceptor import telling
from activities.observe.events import store_events
from activities.record.activity_call import ActivityCall
from activities.record.job_store import JobFacts, JobStore
from activities.record.transcript import Transcript
from loom_dsl.agent import compression
from loom_dsl.agent.context import cut_to, estimate_tokens
from loom_dsl.agent.finish import FILTERED
from loom_dsl.agent.messages import NOT_COMPRESSED, SUMMARY
from loom_dsl.agent.provenance import words_of_user
from loom_dsl.agent.turn import Usage
from loom_dsl.errors import Aborted, ContextLengthExceeded, ModelError, ModelProtocolError
from loom_dsl.text.redaction import mask_known
from loom_store.rows import NewEntry
from loom_store.transaction import Transaction

MAX_SECONDS = 1_700.0
"""Seconds that a compression may take, with all its model calls. Its activity has more, which is the worker's."""
SMALLEST_PIECE = 200
"""Tokens of the smallest part of a conversation that a model is asked to summarise on its own."""
SMALLEST_SECTION = 32
_NOTHING_LEFT = "There is nothing left to compress: the task alone is too long."


class Compress:
    """The activity ``loom.context.compress``."""

    def __init__(self, jobs: JobStore, transcript: Transcript, endpoints: Endpoints) -> None:
        self._jobs, self._endpoints, self._views = jobs, endpoints, Views(jobs, transcript, endpoints)

    @activity.defn(name="loom.context.compress")
    async def compress(self, envelope: dict[str, Any]) -> dict[str, Any]:
        """Write a summary of what is old, once; the latest messages and the task stay as they were said.

        Takes ``entries`` (the end of the range), ``overflow`` (whether the model has refused the conversation) and
        ``why`` (its words).

        Returns:
            The end of the entry range, usage and cost of the model's calls, and the conversation's tokens before and
            after; or ``code`` and ``message`` of what it failed with, for what was used counts also then.

        Raises:
            ContextLengthExceeded: There is nothing left to compress.
            Aborted: The job has gone on without it, since this attempt was taken for lost.
        """
        call = ActivityCall.of(envelope)
        facts = await self._jobs.facts(call.job)
        stored = await self._jobs.store.write(lambda tx: _begin(tx, call))
        if stored is not None:
            return stored
        began = time.monotonic()
        view = await self._views.of(call, call.arguments["entries"])
        notes = _Notes(self._jobs.secrets, self._endpoints, facts, call, view)
        try:
            async with asyncio.timeout(MAX_SECONDS):
                since = await _compressed(view, notes)
        except TimeoutError:
            late = {"code": "timeout", "message": f"the summary was not written within {MAX_SECONDS:g} s"}
            return await self._jobs.keep(lambda tx: _give_up(tx, call, {**late, **notes.used()}))
        except ModelError as error:
            if error.outage or error.halts or (error.retryable and not envelope.get("last")):
                raise  # the machine says whether it is tried again
            failed = {"code": error.code, "message": telling(error.message, self._jobs.secrets), **notes.used()}
            return await self._jobs.keep(lambda tx: _give_up(tx, call, failed))
        if since < 0:
            raise ContextLengthExceeded(f"{call.arguments.get('why', '')} {_NOTHING_LEFT}".strip())
        text = _summary(view, notes, since)
        told = {"before": view.tokens, "after": _tokens_after(view, since, text), **notes.used()}
        return await self._jobs.keep(lambda tx: _finish(tx, call, view, since, text, told, began))


class _Notes:
    """The notes that a model writes about a conversation, part by part."""

    def __init__(
        self, secrets: Mapping[str, str], endpoints: Endpoints, facts: JobFacts, call: ActivityCall, view: View
    ) -> None:
        self._secrets, self._endpoints, self._model, self._job = secrets, endpoints, facts.agent.model, call.job
        window = facts.agent.limits.max_context_tokens
        # A model that has refused the conversation has a smaller window than the agent's file says.
        self._window = min(window, view.tokens) if call.arguments["overflow"] else window
        self.room = min(self._window, call.arguments.get("room") or self._window)
        """Tokens that there are for the conversation beside the task."""
        replaced = view.tokens_of(view.compressible) + (view.summary.tokens if view.summary else 0)
        self._most = min(self.room // 4, replaced // 2)
        """Tokens that all sections may have: they are shorter than what they stand for, and leave room."""
        self._task = "" if view.task is None else view.messages[view.task][0]
        self._usage, self._cost = Usage(), 0
        self.sections = compression.summary_sections(view.summary.text) if view.summary else {}

    @property
    def longest_question(self) -> int:
        """Tokens of the user's last message that there is room for in the summary."""
        return min(compression.MAX_QUESTION, self._most // 2)

    @property
    def _piece(self) -> int:
        return max(self._window // 2, SMALLEST_PIECE)

    @property
    def _section(self) -> int:
        # A piece, the task and the notes so far leave a part of the window for the answer.
        most = min(self._window // 4, self._most) // len(compression.SECTIONS)
        return min(compression.SECTION_TOKENS, max(most, SMALLEST_SECTION))

    async def take(self, texts: Sequence[str]) -> None:
        """Work a part of the conversation into the notes.

        Raises:
            ContextLengthExceeded: The model refuses also the smallest piece.
            ModelProtocolError: The model writes nothing, or a filter cuts off what it writes.
        """
        waiting = deque(compression.in_pieces(texts, self._piece))
        while waiting:
            try:
                said = await self._ask(compression.request(self.sections, waiting[0], self._told_task()))
            except ContextLengthExceeded:
                if self._piece <= SMALLEST_PIECE:
                    raise
                self._window //= 2
                self.sections = compression.cut_sections(self.sections, self._section)
                waiting = deque(compression.in_pieces(waiting, self._piece))
                continue
            waiting.popleft()
            sections = compression.read_sections(said)
            if not any(sections.values()):
                raise ModelProtocolError("the model was asked for a summary of the conversation, and wrote nothing")
            self.sections = await self._shortened(sections)

    def used(self) -> dict[str, Any]:
        """What the calls used: ``usage`` in tokens and ``cost`` in millionths of a dollar."""
        return {"usage": self._usage.model_dump(), "cost": self._cost}

    def _told_task(self) -> str:
        return compression.told_text(self._task, self._window // 8) if self._task else ""

    async def _shortened(self, sections: dict[str, str]) -> dict[str, str]:
        if long := compression.too_long(sections, self._section):
            with suppress(ContextLengthExceeded):  # then they are cut
                again = compression.read_sections(await self._ask(compression.shorten(long, self._section)))
                sections = {**sections, **{name: again[name] for name in long if again[name]}}
        return compression.cut_sections(sections, self._section)

    async def _ask(self, text: str) -> str:
        system = {"role": "system", "content": compression.instructions(self._section)}
        messages = [json.dumps(one, ensure_ascii=False) for one in (system, {"role": "user", "content": text})]
        body = self._endpoints.body(self._model, messages, parameters={})
        reply = await self._endpoints.ask(self._model, body, job=self._job, on_text=_ignore)
        told = used(self._model, reply, body)
        self._usage, self._cost = self._usage + Usage(**told["usage"]), self._cost + told["cost"]
        if reply.finish_reason == FILTERED:
            raise ModelProtocolError("the provider's filter cut the summary off, and what it lacks would be lost")
        return mask_known(reply.text, self._secrets)


def _ignore(text: str) -> None:
    """Watchers see the agent's own words only."""


async def _compressed(view: View, notes: _Notes) -> int:
    """Compress until it is worthwhile.

    Returns:
        The entry from which on everything is kept as it was said; -1: there is nothing to compress.
    """
    groups = view.compressible
    end = groups[-1][1] if groups else 0
    again, least = view.summary is not None and view.summary.fresh, view.unread(notes.room)
    mosts = [0] if again else [max(int(compression.KEPT_SHARE * min(view.tokens, notes.room)), least), least]
    since = -1
    for most in mosts:
        keep = compression.kept_from(view.sizes, groups, most)
        texts = [text for text in view.spoken(groups) if since <= text[0] < keep]
        if not texts:
            continue
        await notes.take([compression.told_text(text) for _, text in texts])
        since = keep
        after = _tokens_after(view, since, _summary(view, notes, since))
        if since == end or after <= compression.WORTHWHILE * view.tokens:
            break
    return since


def _summary(view: View, notes: _Notes, since: int) -> str:
    when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    question = cut_to(_question(view, since), notes.longest_question)
    return compression.write_summary(notes.sections, when, question)


def _question(view: View, since: int) -> str:
    """What the user said last, where that is neither the task nor kept as it was said."""
    kept = {seq for seq, _ in view.spoken(view.kept(since))}
    for seq in range(len(view.messages) - 1, -1, -1):
        text, _, role = view.messages[seq]
        if role == "user" and (words := words_of_user([json.loads(text)])):
            return "" if seq in kept else words
    return ""


def _tokens_after(view: View, since: int, summary: str) -> int:
    return view.tokens_of(view.kept(since)) + estimate_tokens(summary) + MESSAGE_TOKENS


def _begin(tx: Transaction, call: ActivityCall) -> dict[str, Any] | None:
    """Store the events; give the result if an attempt before this one stored a summary, or that there is none."""
    store_events(tx, call)
    start = call.arguments["entries"]
    found = next(iter(tx.read_entries(call.session, start, start + 1)), None)
    if found is None:
        return None
    if found.key != call.key:
        raise Aborted("the job has gone on without this compression")
    return {"entries": found.seq + 1, **found.head["told"]}


def _give_up(tx: Transaction, call: ActivityCall, told: Mapping[str, Any]) -> dict[str, Any]:
    """Write down once that it failed: what it used is part of the job's usage, and the next turns wait."""
    if (stored := _begin(tx, call)) is not None:
        return stored
    overflow = call.arguments["overflow"]
    head = {"note": NOT_COMPRESSED, "job": call.job, "turn": call.turn, "overflow": overflow, "told": told}
    entry = NewEntry(kind="note", head=head, content=str(told["message"]), job=call.job, turn=call.turn)
    return {"entries": tx.append_entries(call.session, call.key, [entry]).end, **told}


def _finish(
    tx: Transaction, call: ActivityCall, view: View, since: int, text: str, told: Mapping[str, Any], began: float
) -> dict[str, Any]:
    """Store the summary once. Where an attempt that was taken for lost stored its own first, that one counts."""
    if (stored := _begin(tx, call)) is not None:
        return stored
    kept = view.kept(since)
    head = {
        "note": SUMMARY,
        "job": call.job,
        "turn": call.turn,
        "since": since,
        "kept": [one for one in kept if one[0] < since],
        "overflow": call.arguments["overflow"],
        "told": told,
    }
    entry = NewEntry(kind="note", head=head, content=text, job=call.job, turn=call.turn)
    end = tx.append_entries(call.session, call.key, [entry]).end
    event = {
        "t": "compression_applied",
        "n": call.turn,
        "at": round(time.time(), 3),
        "ms": round((time.monotonic() - began) * 1000),
        "messages_before": len(view.spoken(view.groups)) + (view.summary is not None),
        "messages_after": len(view.spoken(kept)) + 1,
        "tokens_before": told["before"],
        "tokens_after": told["after"],
    }
    tx.append_events(call.job, f"{call.turn}/{call.at}/compressed", [event])
    return {"entries": end, **told}
