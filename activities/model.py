"""The model call: streamed to watchers, stored once, retried by the engine."""

import json
import time
from typing import Any

from temporalio import activity

from activities.assemble import tool_specs
from activities.observe import store_events
from activities.openai_chat import chat_body
from activities.prices import cost_microusd
from activities.runtime import Call, Heartbeats, JobFacts, Runtime
from activities.transcript import NOTE, PRIVATE, Transcript
from loom_dsl.context import estimate_tokens
from loom_dsl.errors import Aborted, ModelProtocolError, ToolError, ToolValidationError
from loom_dsl.messages import render, unique_calls
from loom_dsl.tools import Tool, validate_arguments
from loom_store.rows import NewEntry
from loom_store.transaction import Transaction

DELTA_SECONDS = 0.05
"""Text goes to watchers in pieces of this time: 0 history events, 20 rows a second."""
EXECUTE_MARGIN = 10.0
"""Seconds between a tool's own timeout and its activity's."""


class Deltas:
    """Text on its way to watchers, in batches, fenced by attempt."""

    def __init__(self, runtime: Runtime, call: Call, attempt: int) -> None:
        self._runtime, self._call, self._attempt = runtime, call, attempt
        self._pending: list[str] = []
        self._sequence = 0
        self._last = time.monotonic()

    async def add(self, text: str) -> None:
        """Take a piece of text.

        Raises:
            Aborted: A newer attempt streams already, so this one must stop.
        """
        self._pending.append(text)
        if time.monotonic() - self._last >= DELTA_SECONDS:
            if not await self._runtime.store.write(self.flush, durable=False):
                raise Aborted("a newer attempt of this model call is running")
            self._last = time.monotonic()

    def flush(self, tx: Transaction) -> bool:
        """Write what is pending; False when a newer attempt has begun."""
        if not self._pending:
            return True
        text, self._pending = "".join(self._pending), []
        self._sequence += 1
        stream = f"{self._call.turn}/{self._call.at}"
        return tx.append_deltas(
            self._call.job, stream, self._attempt, self._sequence, text, turn=self._call.turn
        )


class Model:
    """The activity ``loom.model.call``."""

    def __init__(self, runtime: Runtime, transcript: Transcript) -> None:
        self._runtime, self._transcript = runtime, transcript
        self._tool_specs: dict[tuple[str, ...], str] = {}

    @activity.defn(name="loom.model.call")
    async def call(self, envelope: dict[str, Any]) -> dict[str, Any]:
        """Ask the model and store its answer.

        Returns:
            End of the entry range, usage, cost in millionths of a dollar, and the tool calls with the traits that
            order them. The text and the arguments stay in the store.
        """
        call = Call.of(envelope)
        facts = await self._runtime.facts(call.job)
        stored = await self._runtime.store.write(lambda tx: self._begin(tx, call))
        if stored is not None:
            return self._result(facts, *stored)
        body = await self._body(call, facts)
        endpoint, _ = self._runtime.endpoint(facts.agent.model)
        deltas = Deltas(self._runtime, call, activity.info().attempt)
        async with Heartbeats():
            reply = await endpoint.stream(body, on_text=deltas.add, headers={"x-loom-run": call.job})
        if not reply.text and not reply.tool_calls and reply.finish_reason not in ("stop", "length"):
            raise ModelProtocolError(f"the model's answer is empty (it ended with {reply.finish_reason!r})")
        calls = [{"id": c.id, "name": c.name, "arguments": c.arguments} for c in reply.tool_calls]
        usage = reply.usage
        prompt, completion, cached = (
            (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens)
            if usage
            else (estimate_tokens(body.decode()), estimate_tokens(reply.text + json.dumps(calls)), 0)
        )
        told = {
            "usage": {"prompt_tokens": prompt, "completion_tokens": completion, "cached_tokens": cached},
            "cost": cost_microusd(facts.agent.model, reply.model, prompt, completion, cached),
            "finish": reply.finish_reason,
        }
        head: dict[str, Any] = {"role": "assistant", PRIVATE: told}
        if calls:
            head["tool_calls"] = [
                {"id": c["id"], "type": "function", "function": {"name": c["name"], "arguments": c["arguments"]}}
                for c in unique_calls(calls)
            ]
        end, kept, text = await self._runtime.store.write(lambda tx: _finish(tx, call, head, reply.text, deltas))
        self._transcript.add(call.session, end - 1, kept, text)
        return self._result(facts, end, kept)

    def _begin(self, tx: Transaction, call: Call) -> tuple[int, dict[str, Any]] | None:
        """Store the events; give the answer if an attempt before this one stored it."""
        store_events(tx, call)
        start = call.arguments["entries"]
        for entry in tx.read_entries(call.session, start, start + 1):
            if entry.key == call.key:
                return entry.seq + 1, entry.head
        tx.append_events(call.job, f"{call.turn}/{call.at}/start", [{"t": "llm_start", "n": call.turn}])
        return None

    async def _body(self, call: Call, facts: JobFacts) -> bytes:
        context = call.arguments["context"]
        kept = self._runtime.store.cached_blob(context["system"])
        if kept is None:
            kept = await self._runtime.store.read(lambda tx: tx.get_blob(context["system"]))
        system = kept.decode()
        messages = await self._transcript.messages(call.session, call.arguments["entries"])
        texts = [render({"role": "system"}, system)] if system else []
        for start, end in context["ranges"]:
            texts += [text for text, _, role in messages[start:end] if not role.startswith(NOTE)]
        _, name = self._runtime.endpoint(facts.agent.model)
        return chat_body(texts, model=name, tools_json=self._specs(facts), parameters=facts.agent.parameters)

    def _specs(self, facts: JobFacts) -> str:
        names = facts.agent.tools
        if names not in self._tool_specs:
            self._tool_specs[names] = tool_specs(self._runtime.registry, facts.agent)
        return self._tool_specs[names]

    def _result(self, facts: JobFacts, end: int, head: dict[str, Any]) -> dict[str, Any]:
        kept = head[PRIVATE]
        tools = self._runtime.registry.resolve_all(facts.agent.tools)
        calls = [
            _traits(index, end - 1, call, tools.get(call["function"]["name"]))
            for index, call in enumerate(head.get("tool_calls", ()))
        ]
        return {"entries": end, "usage": kept["usage"], "cost": kept["cost"], "calls": calls}


def _traits(index: int, entry: int, call: dict[str, Any], tool: Tool | None) -> dict[str, Any]:
    """What orders a call among the others, and where its arguments are."""
    traits: dict[str, Any] = {"id": call["id"], "name": call["function"]["name"], "e": entry, "i": index}
    traits |= {"safe": True, "key": None, "quick": False, "timeout": 60.0}
    if tool is None:
        return traits
    traits |= {"safe": tool.concurrency_safe, "quick": tool.quick, "timeout": tool.timeout + EXECUTE_MARGIN}
    if tool.concurrency_key is not None:
        try:
            traits["key"] = tool.concurrency_key(validate_arguments(tool, call["function"]["arguments"]))
        except (ToolValidationError, ToolError):
            traits["safe"] = True
    return traits


def _finish(
    tx: Transaction, call: Call, head: dict[str, Any], text: str, deltas: Deltas
) -> tuple[int, dict[str, Any], str | None]:
    """Store the answer once. Where an attempt that was taken for lost stored its own first, that one counts."""
    if not deltas.flush(tx):
        raise Aborted("a newer attempt of this model call is running")
    entry = NewEntry(kind="message", head=head, content=text or None, job=call.job, turn=call.turn)
    end = tx.append_entries(call.session, call.key, [entry]).end
    stored = tx.read_entries(call.session, end - 1, end)[0]
    kept = tx.get_blob(stored.content_digest).decode() if stored.content_digest else None
    event: dict[str, Any] = {"t": "llm_finish", "n": call.turn}
    event["content"] = {"$blob": stored.content_digest} if stored.content_digest else ""
    tx.append_events(call.job, f"{call.turn}/{call.at}/finish", [event])
    return end, stored.head, kept
