"""What `loom show` tells about a job."""

import asyncio
import time
from typing import Any

from activities.record.transcript import wasted_in
from activities.tool_calls.services import todo_of
from loom_cli.commands.show.outputs import kept_outputs
from loom_cli.required_action import Facts, gather, halted_steps, reason
from loom_client.client import Loom
from loom_client.connection import temporal
from loom_client.effects import effects_of
from loom_client.job import is_graph
from loom_client.recovery import how_to_go_on, lost_line
from loom_client.server.liveness import LOST
from loom_client.server.reconcile import reconcile
from loom_client.settings import Settings
from loom_dsl.errors import ConfigurationError
from loom_store.rows import Entry
from loom_store.store import Store
from loom_store.transaction import Transaction
from loom_store.transcript import PRIVATE

CONNECT_SECONDS = 1.0
"""`show` also works without a server, so it does not wait long for one."""


async def summarise(store: Store, settings: Settings, row: dict[str, Any]) -> dict[str, Any]:
    """Collect what is known about a job, as JSON.

    Args:
        store: The store that knows it.
        settings: Where the server is; it is asked why the job waits.
        row: The job's row.
    """
    facts = await _facts(store, settings, row)
    now = await store.read(lambda tx: tx.job(row["job"])) or row
    stored = await store.read(lambda tx: _stored(tx, now))
    why = await store.read(lambda tx: lost_line(tx, now)) if now["status"] == LOST else reason(facts, time.time())
    return {**now, "why": why, "worker": facts.worker, "workers": facts.workers, **stored}


async def _facts(store: Store, settings: Settings, row: dict[str, Any]) -> Facts:
    if row["ended_at"] and row["status"] != LOST:
        return Facts(row)
    place = {"namespace": row["namespace"], "task_queue": row["task_queue"]}
    there = settings.model_copy(update={**place, "connect_seconds": CONNECT_SECONDS})
    try:
        async with asyncio.timeout(4 * CONNECT_SECONDS):
            client = await temporal(there, store)
            await reconcile(client, store, [row])
    except (ConfigurationError, TimeoutError):
        halted = await store.read(lambda tx: halted_steps(tx, row))
        return Facts(row, server=False, address=there.address, halted=halted, outages=row["waiting"] or ())
    return await gather(Loom(client, store, there), row["job"]) or Facts(row)


def _stored(tx: Transaction, row: dict[str, Any]) -> dict[str, Any]:
    job = row["job"]
    last = tx.last_offset(job)
    latest = tx.read_events(job, after=max(0, last - 1), limit=1)
    entries = [entry for entry in tx.read_entries(row["session"]) if entry.job == job]
    point, of_graph = tx.fork_point(job), is_graph(tx, row)
    turns = (latest[0][1].get("n", 0) + 1) if latest else 0
    return {
        "graph": of_graph,
        "forked_from": {"job": point.job, "turn": None if of_graph else point.turn} if point else None,
        "go_on": how_to_go_on(tx, row),
        "turns": max(0, turns - point.turn) if point else turns,
        "entries": len(entries),
        "events": last,
        "usage": (row["result"] or {}).get("usage") or _usage_so_far(entries, job),
        "todo": [item.model_dump() for item in todo_of(tx, row["session"])],
        "outputs": kept_outputs(tx, job),
        "effects": effects_of(tx, job),
        "approvals": tx.approvals(job=job),
        "children": [_child(tx, row) for row in tx.jobs_below(job)],
    }


def _child(tx: Transaction, row: dict[str, Any]) -> dict[str, Any]:
    """What is told of a job below another one: where it stands, and what it asks."""
    told = {key: row[key] for key in ("job", "agent", "status", "state", "created_at", "ended_at", "halted")}
    asks = [] if row["ended_at"] else tx.approvals(status="pending", job=row["job"])
    return {**told, "error": (row["result"] or {}).get("error"), "approvals": asks}


def _usage_so_far(entries: list[Entry], job: str) -> dict[str, Any]:
    """Add up what the answers in the session report."""
    usage: dict[str, Any] = {"prompt_tokens": 0, "completion_tokens": 0, "cached_tokens": 0, "model_calls": 0}
    micros = calls = 0
    for head in (entry.head for entry in entries):
        kept = head.get(PRIVATE) or {}
        if "usage" in kept:
            usage["model_calls"] += 1
            micros += kept.get("cost", 0)
            calls += len(head.get("tool_calls", ()))
            for name in ("prompt_tokens", "completion_tokens", "cached_tokens"):
                usage[name] += kept["usage"].get(name, 0)
    wasted = wasted_in(entries, job).model_dump()
    return {**usage, "tool_calls": calls, "cost_usd": micros / 1e6, "wasted": wasted}
