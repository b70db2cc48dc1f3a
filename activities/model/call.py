"""The model call: streamed to watchers, stored once, retried by the engine."""

import asyncio
import json
import logging
import sys
import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from temporalio import activity

from activities import catalogue as catalogues
from activities.catalogue import KEPT, tool_specs
from activities.chat.endpoints import Endpoints
from activities.chat.reply import ModelReply, used
from activities.model.tool_calls import kept_calls, traits
from activities.observe.events import store_events
from activities.observe.turn_log import tell
from activities.record.activity_call import ActivityCall
from activities.record.job_store import JobFacts, JobStore
from activities.record.transcript import MASKED, WASTED, Transcript
from loom_dsl.agent.context import estimate_tokens
from loom_dsl.agent.finish import FILTERED, LENGTH, STOP, TOOL_CALLS, is_known
from loom_dsl.agent.messages import render
from loom_dsl.agent.provider_fields import ProviderFields, given_fields
from loom_dsl.errors import Aborted, ModelProtocolError, ModelRequestRefused, StoreError
from loom_dsl.observe.events import EventType
from loom_dsl.text.redaction import MaskedStream, mask_known
from loom_store.rows import NewEntry
from loom_store.transaction import Transaction
from loom_store.transcript import GIVEN, NOTE, PRIVATE, given_in
from loom_tools.mcp.servers import Servers
from loom_tools.registry import ToolRegistry

DEEP = "the recursion is at depth %d, deeper than limits.alarm_depth; see `loom show %s --profile`"
"""The alarm, about the turn of this depth."""
DELTA_SECONDS = 0.05
"""Text goes to watchers in pieces of this time: 0 history events, 20 rows a second."""


class Deltas:
    """Text on its way to watchers, in batches, without the secrets that are known, fenced by attempt."""

    def __init__(self, jobs: JobStore, call: ActivityCall) -> None:
        self._store, self._call, self._attempt = jobs.store, call, call.attempt
        self._pending: list[str] = []
        self._masked = MaskedStream(jobs.secrets)
        self._unsent = ""
        self._sequence = 0
        self._last = time.monotonic()

    async def add(self, text: str) -> None:
        """Take a piece of text.

        Raises:
            Aborted: A newer attempt streams already, so this one must stop.
        """
        self._pending.append(text)
        if time.monotonic() - self._last >= DELTA_SECONDS:
            try:
                if not await self._store.write(self.flush, durable=False):
                    raise Aborted("a newer attempt of this model call is running")
                self._unsent = ""
            except StoreError as error:
                if not error.passes:
                    raise
                # It goes with the next piece: the answer is not given up because watchers cannot see it grow.
            self._last = time.monotonic()

    def flush(self, tx: Transaction, *, last: bool = False) -> bool:
        """Write what is pending, and at last what may have been the beginning of a secret.

        Returns:
            False when a newer attempt has begun.
        """
        text, self._pending = self._masked.feed("".join(self._pending)), []
        text += self._masked.rest() if last else ""
        self._unsent += text
        if not self._unsent:
            return True
        self._sequence += 1
        stream, unsent = _stream_of(self._call), self._unsent
        return tx.append_deltas(self._call.job, stream, self._attempt, self._sequence, unsent, turn=self._call.turn)


class ModelCall:
    """The activity ``loom.model.call``."""

    def __init__(
        self, jobs: JobStore, transcript: Transcript, endpoints: Endpoints, registry: ToolRegistry, mcp: Servers
    ) -> None:
        self._jobs, self._transcript, self._endpoints = jobs, transcript, endpoints
        self._registry, self._mcp = registry, mcp
        self._tool_specs: dict[tuple[tuple[str, ...], str | None], str] = {}

    @activity.defn(name="loom.model.call")
    async def call(self, envelope: dict[str, Any]) -> dict[str, Any]:
        """Ask the model and store its answer.

        Returns:
            End of the entry range, usage, cost in millionths of a dollar, and the tool calls with the traits that
            order them. The text and the arguments stay in the store.
        """
        call = ActivityCall.of(envelope)
        facts = await self._jobs.facts(call.job)
        # Before the model is asked: what a store that cannot be written to would lose is not paid for. The disk is
        # waited for once, with the answer, which lies behind this in the same log.
        alarm = call.turn > (facts.agent.limits.alarm_depth or sys.maxsize)
        writing = asyncio.ensure_future(self._body(call, facts))  # while the store begins
        writing.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            stored, alarmed = await self._jobs.store.write(lambda tx: _begin(tx, call, alarm=alarm), durable=False)
            if alarmed:
                tell(call, DEEP, call.turn, call.job, level=logging.WARNING)
            if stored is not None:
                return await self._result(facts, *stored)
            body = await writing
        finally:
            writing.cancel()
        deltas = Deltas(self._jobs, call)
        began = time.monotonic()
        reply = await self._endpoints.ask(facts.agent.model, body, job=call.job, on_text=deltas.add)
        took = round((time.monotonic() - began) * 1000)
        head = _head(facts, reply, body, call.arguments["context"].get(KEPT), self._jobs.secrets)
        given = self._given(facts.agent.model, reply)
        warning, said = warning_of(reply), mask_known(reply.text, self._jobs.secrets)
        end, kept, text, given = await self._jobs.keep(
            lambda tx: _finish(tx, call, _with_given(tx, head, given), said, deltas, warning, took)
        )
        self._transcript.add(await self._jobs.conversation(call.job), end - 1, kept, text, given)
        return await self._result(facts, end, kept)

    async def _body(self, call: ActivityCall, facts: JobFacts) -> bytes:
        context = call.arguments["context"]
        system = (await self._jobs.store.content(context["system"])).decode()
        session = await self._jobs.conversation(call.job)
        to = self._endpoints.send_back(facts.agent.model)
        messages = await self._transcript.messages(session, call.arguments["entries"], to)
        texts = [render({"role": "system"}, system)] if system else []
        if (summary := context.get("summary")) is not None:
            texts.append(render({"role": "system"}, messages[summary][0]))
        for start, end in context["ranges"]:
            texts += [text for text, _, role in messages[start:end] if not role.startswith(NOTE)]
        specs, agent = await self._specs(facts, context.get(KEPT)), facts.agent
        return self._endpoints.body(agent.model, texts, tools_json=specs, parameters=agent.parameters)

    def _given(self, model: str, reply: ModelReply) -> ProviderFields | None:
        """What the provider gave beside the text and the calls."""
        to = self._endpoints.send_back(model)
        assert to is not None  # it has just been asked
        return given_fields(
            by=to.by,
            model=to.model,
            message=reply.extra,
            calls=[call.extra for call in reply.tool_calls],
            reasoning=reply.reasoning,
            secrets=self._jobs.secrets,
        )

    async def _specs(self, facts: JobFacts, offered: str | None) -> str:
        key = facts.agent.tools, offered
        if key not in self._tool_specs:
            catalogue = await catalogues.kept(self._jobs.store, offered)
            self._tool_specs[key] = tool_specs(self._registry, self._mcp, facts.agent, catalogue)
        return self._tool_specs[key]

    async def _result(self, facts: JobFacts, end: int, head: dict[str, Any]) -> dict[str, Any]:
        kept = head[PRIVATE]
        catalogue = await catalogues.kept(self._jobs.store, catalogues.catalogue_of(head))
        tools = catalogues.tools_of(self._registry, self._mcp, facts.agent, catalogue)
        calls = await traits(end - 1, head.get("tool_calls", ()), tools, self._jobs.secrets)
        return {"entries": end, "usage": kept["usage"], "cost": kept["cost"], "calls": calls}


def _begin(tx: Transaction, call: ActivityCall, *, alarm: bool) -> tuple[tuple[int, dict[str, Any]] | None, bool]:
    """Store the events; give the answer if an attempt before this one stored it, and whether the alarm is new."""
    store_events(tx, call)
    start = call.arguments["entries"]
    for entry in tx.read_entries(call.session, start, start + 1):
        if entry.key == call.key:
            return (entry.seq + 1, entry.head), False
    alarmed = alarm and _sound_alarm(tx, call)
    tx.append_events(call.job, _start_of(call), [{"t": "llm_start", "n": call.turn, "at": round(time.time(), 3)}])
    return None, alarmed


def _sound_alarm(tx: Transaction, call: ActivityCall) -> bool:
    """Tell watchers, once a job, that its recursion is deep; whether they had not been told."""
    last = tx.last_offset(call.job)
    warning = {"t": "warning", "n": call.turn, "code": "deep_recursion", "message": DEEP % (call.turn, call.job)}
    first, _ = tx.append_events(call.job, "deep_recursion", [warning])
    return first > last


def _head(
    facts: JobFacts, reply: ModelReply, body: bytes, offered: str | None, secrets: Mapping[str, str]
) -> dict[str, Any]:
    """The answer as the session keeps it, without its text."""
    calls = kept_calls(reply.tool_calls, secrets)
    told = used(facts.agent.model, reply, body, json.dumps(calls))
    head: dict[str, Any] = {"role": "assistant", PRIVATE: {**told, "finish": reply.finish_reason[:40]}}
    if offered and calls:
        head[PRIVATE][KEPT] = offered
    kept = [call["function"]["arguments"] for call in calls]
    if masked := [at for at, call in enumerate(reply.tool_calls) if call.arguments != kept[at]]:
        head[PRIVATE][MASKED] = masked
    return {**head, "tool_calls": calls} if calls else head


def _with_given(tx: Transaction, head: dict[str, Any], given: ProviderFields | None) -> dict[str, Any]:
    if given is None:
        return head
    return {**head, PRIVATE: {**head[PRIVATE], GIVEN: tx.put_blob(given.dump())}}


def warning_of(reply: ModelReply) -> dict[str, str] | None:
    """What a watcher should know about an answer that is not what it should be.

    Raises:
        ModelProtocolError: It is no answer at all.
        ModelRequestRefused: The provider withheld all of it.
    """
    finish, said = reply.finish_reason, bool(reply.text or reply.tool_calls)
    if finish == LENGTH:
        what = "the model reached its limit of output tokens, so its answer is cut off"
        return {"code": "answer_cut", "message": f"{what}; raise max_tokens in the agent's parameters"}
    if finish == FILTERED:
        if not said:
            raise ModelRequestRefused("the provider's filter withheld the whole answer (content_filter)")
        return {"code": "answer_filtered", "message": "the provider's filter cut the answer off"}
    if finish == TOOL_CALLS and not reply.tool_calls:
        raise ModelProtocolError("the model's answer ends with tool calls, and has none")
    if said and not is_known(finish):
        what = f"the model ended its answer with {finish[:40]!r}, which Loom does not know"
        return {"code": "answer_end_unknown", "message": f"{what}; look whether the answer is whole"}
    if said:
        return None
    if finish != STOP:
        raise ModelProtocolError(f"the model's answer is empty (it ended with {finish[:40]!r})")
    return {"code": "empty_answer", "message": "the model ended with an empty answer"}


def _finish(
    tx: Transaction,
    call: ActivityCall,
    head: dict[str, Any],
    text: str,
    deltas: Deltas,
    warning: dict[str, str] | None,
    took: int,
) -> tuple[int, dict[str, Any], str | None, ProviderFields | None]:
    """Store the answer once. Where an attempt that was taken for lost stored its own first, that one counts."""
    if not deltas.flush(tx, last=True):
        raise Aborted("a newer attempt of this model call is running")
    if lost := _lost_before(tx, call, head[PRIVATE]["usage"]["prompt_tokens"]):
        head = {**head, PRIVATE: {**head[PRIVATE], WASTED: lost}}
    # Without calls, an API wants a text back, be it an empty one.
    content = text if text or "tool_calls" not in head else None
    entry = NewEntry(kind="message", head=head, content=content, job=call.job, turn=call.turn)
    end = tx.append_entries(call.session, call.key, [entry]).end
    stored = tx.read_entries(call.session, end - 1, end)[0]
    kept = tx.get_blob(stored.content_digest).decode() if stored.content_digest else None
    event: dict[str, Any] = {"t": "llm_finish", "n": call.turn, "ms": took}
    event["content"] = {"$blob": stored.content_digest} if stored.content_digest else ""
    more = [{"t": "warning", "n": call.turn, **warning}] if warning else []
    tx.append_events(call.job, f"{call.turn}/{call.at}/finish", [event, *more])
    return end, stored.head, kept, given_in(tx, stored.head)


def _stream_of(call: ActivityCall) -> str:
    """Name the stream of a model call's text."""
    return f"{call.turn}/{call.at}"


def _start_of(call: ActivityCall) -> str:
    """Name the batch of events with which a model call begins."""
    return f"{_stream_of(call)}/start"


def _lost_before(tx: Transaction, call: ActivityCall, prompt_tokens: int) -> dict[str, int]:
    """Estimate the tokens of the attempts before this one of which watchers have seen text; nothing where none was.

    A lost attempt tells no usage: it has read what the kept one reads, and written at least what was seen.

    Args:
        tx: Of the store that has the text.
        call: The kept attempt.
        prompt_tokens: What the kept attempt has read.
    """
    if call.attempt == 1:
        return {}
    texts: dict[int, list[str]] = defaultdict(list)
    after, stream = tx.append_events(call.job, _start_of(call), [])[0], _stream_of(call)
    for _, event in tx.each_event(call.job, after):
        if event.get("type") == EventType.LLM_DELTA and event["stream"] == stream:
            texts[event["attempt"]].append(event["content"])
    lost = ["".join(pieces) for attempt, pieces in texts.items() if attempt < call.attempt]
    if not lost:
        return {}
    written = sum(estimate_tokens(text) for text in lost)
    return {"prompt_tokens": prompt_tokens * len(lost), "completion_tokens": written}
