"""What graphs that extend the agent's turn need: to read what was said, and to say something."""

import json
from typing import Any

from temporalio import activity

from activities.observe.events import store_events
from activities.record.activity_call import ActivityCall
from activities.record.job_store import JobStore
from loom_dsl.errors import UserError
from loom_dsl.text.canonical import read_json_or_text
from loom_dsl.text.redaction import mask_known
from loom_store.rows import Entry, NewEntry
from loom_store.transaction import Transaction

MAX_MESSAGES = 20
MAX_TEXT = 8_000
"""Characters of one message that enter the history."""
ROLES = ("user", "system")


class TurnText:
    """Activities that read and extend the conversation."""

    def __init__(self, jobs: JobStore) -> None:
        self._jobs = jobs

    @activity.defn(name="loom.turn.read")
    async def read(self, envelope: dict[str, Any]) -> dict[str, Any]:
        """Give the last messages: role, text (cut to 8,000 characters) and calls with their arguments.

        Takes ``entries`` (the end of the range) and ``last`` (how many messages, 1 when absent, at most 20).
        """
        call = ActivityCall.of(envelope)
        count = call.arguments.get("last", 1)
        if not isinstance(count, int) or not 1 <= count <= MAX_MESSAGES:
            raise UserError(f"`last` is {count!r}; give a number from 1 to {MAX_MESSAGES}")
        end = call.arguments["entries"]
        messages = await self._jobs.store.read(lambda tx: self._read(tx, call.session, max(0, end - count), end))
        return {"messages": messages}

    def _read(self, tx: Transaction, session: str, start: int, end: int) -> list[dict[str, Any]]:
        return [self._message(tx, entry) for entry in tx.read_entries(session, start, end) if entry.kind == "message"]

    def _message(self, tx: Transaction, entry: Entry) -> dict[str, Any]:
        text = tx.get_blob(entry.content_digest).decode("utf-8", "replace") if entry.content_digest else ""
        calls = [
            {
                "name": call["function"]["name"],
                "arguments": self._shown(read_json_or_text(call["function"]["arguments"])),
            }
            for call in entry.head.get("tool_calls", ())
        ]
        return {"role": entry.head.get("role", ""), "text": self._masked(text), "calls": calls}

    def _masked(self, text: str) -> str:
        return mask_known(text, self._jobs.secrets)[:MAX_TEXT]

    def _shown(self, value: Any) -> Any:
        masked = mask_known(json.dumps(value, ensure_ascii=False), self._jobs.secrets)
        return json.loads(masked) if len(masked) <= MAX_TEXT else masked[:MAX_TEXT]

    @activity.defn(name="loom.turn.add")
    async def add(self, envelope: dict[str, Any]) -> dict[str, Any]:
        """Append a message, once for each execution. Takes ``entries``, ``text`` and ``role`` (user when absent)."""
        call = ActivityCall.of(envelope)
        role, text = call.arguments.get("role", "user"), call.arguments.get("text")
        if role not in ROLES or not isinstance(text, str) or not text.strip():
            raise UserError(
                f"a message has a `role` of {' or '.join(ROLES)} and a `text`; it has {role!r}, {text!r:.60}"
            )
        content = mask_known(text, self._jobs.secrets)
        entry = NewEntry(kind="message", head={"role": role}, content=content, job=call.job, turn=call.turn)
        end = await self._jobs.store.write(lambda tx: _append(tx, call, entry))
        return {"entries": max(end, call.arguments["entries"])}


def _append(tx: Transaction, call: ActivityCall, entry: NewEntry) -> int:
    store_events(tx, call)
    return tx.append_entries(call.session, call.key, [entry]).end
