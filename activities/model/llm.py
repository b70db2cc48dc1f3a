"""One model call of a graph's node: streamed to watchers, its answer stored once, without tools and conversation."""

import asyncio
import json
from typing import Any

from temporalio import activity

from activities.chat.endpoints import Endpoints
from activities.chat.reply import used
from activities.model.call import Deltas, warning_of
from activities.observe.events import store_events
from activities.record.activity_call import ActivityCall
from activities.record.job_store import JobStore
from loom_dsl.errors import Aborted, ResultTooLarge
from loom_store.transaction import Transaction
from loom_tools.masking import redact

MAX_TEXT = 256 * 1024
"""Characters of an answer, which goes through the history."""


class Llm:
    """The activity ``loom.llm.call``."""

    def __init__(self, jobs: JobStore, endpoints: Endpoints) -> None:
        self._jobs, self._endpoints = jobs, endpoints

    @activity.defn(name="loom.llm.call")
    async def call(self, envelope: dict[str, Any]) -> dict[str, Any]:
        """Ask a model, or give the answer that an attempt before this one stored.

        Returns:
            ``text``, ``usage`` in tokens, and ``cost`` in millionths of a dollar.
        """
        call = ActivityCall.of(envelope)
        stored = await self._jobs.store.read(lambda tx: _stored(tx, call))
        if stored is not None:
            await self._jobs.store.write(lambda tx: store_events(tx, call))
            return stored
        # The store writes in order, so what watchers are told of the beginning comes before the first text.
        begun = asyncio.ensure_future(self._jobs.store.write(lambda tx: _begin(tx, call)))
        try:
            answer, warning = await self._ask(call, deltas := Deltas(self._jobs, call))
        finally:
            await begun
        return await self._jobs.keep(lambda tx: _finish(tx, call, answer, warning, deltas))

    async def _ask(self, call: ActivityCall, deltas: Deltas) -> tuple[dict[str, Any], dict[str, str] | None]:
        given = call.arguments
        messages = [{"role": "user", "content": str(given["prompt"])}]
        if given.get("system"):
            messages.insert(0, {"role": "system", "content": str(given["system"])})
        texts = [json.dumps(message, ensure_ascii=False) for message in messages]
        body = self._endpoints.body(given["model"], texts, parameters=given.get("parameters") or {})
        reply = await self._endpoints.ask(given["model"], body, job=call.job, on_text=deltas.add)
        text = redact(reply.text, self._jobs.secrets)
        if len(text) > MAX_TEXT:
            raise ResultTooLarge(
                f"the model's answer has {len(text)} characters, and a result may have {MAX_TEXT}; "
                "set max_tokens in the node's parameters"
            )
        return {"text": text, **used(given["model"], reply, body)}, warning_of(reply)


def _finish_key(call: ActivityCall) -> str:
    return f"{call.turn}/{call.at}/finish"


def _stored(tx: Transaction, call: ActivityCall) -> dict[str, Any] | None:
    """The answer, if an attempt before this one stored it."""
    first, count = tx.append_events(call.job, _finish_key(call), [])
    if not count:
        return None
    ((_, event),) = tx.read_events(call.job, after=first - 1, limit=1, expand=True)
    return {"text": event["content"], "usage": event["usage"], "cost": event["cost"]}


def _begin(tx: Transaction, call: ActivityCall) -> None:
    store_events(tx, call)
    tx.append_events(call.job, f"{call.turn}/{call.at}/start", [{"t": "llm_start", "n": call.turn, "node": call.at}])


def _finish(
    tx: Transaction, call: ActivityCall, answer: dict[str, Any], warning: dict[str, str] | None, deltas: Deltas
) -> dict[str, Any]:
    """Store the answer once. Where an attempt that was taken for lost stored its own first, that one counts."""
    stored = _stored(tx, call)
    if stored is not None:
        return stored
    if not deltas.flush(tx, last=True):
        raise Aborted("a newer attempt of this model call is running")
    content = {"$blob": tx.put_blob(answer["text"].encode("utf-8", "replace"))}
    event = {"t": "llm_finish", "n": call.turn, "node": call.at, **answer, "content": content}
    del event["text"]
    more = [{"t": "warning", "n": call.turn, **warning}] if warning else []
    tx.append_events(call.job, _finish_key(call), [event, *more])
    return answer
