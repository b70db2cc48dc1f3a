"""What the ledger tells about a job's effects, put together with who approved them and what was taken back."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from loom_dsl.text.printable import clock
from loom_store.queries.effects import undo_key
from loom_store.rows import Effect, EffectStatus
from loom_store.transaction import Transaction

_STATES = {
    "settled": "settled",
    "pending": "under way",
    "failed": "failed",
    "unknown": "unknown",
    "cancelled": "cancelled",
}
_TAKEN = {
    "settled": "compensated",
    "pending": "{0}, being taken back",
    "failed": "{0}, not taken back",
    "unknown": "{0}, not known if taken back",
}


def told_effects(tx: Transaction, job: str) -> list[dict[str, Any]]:
    """Give a job's effects in the order in which they were written down, as JSON.

    Besides the ledger's fields each has `state` in words, `summary` as an approver saw it, `approved_by` (empty when
    nobody was asked), `reconciled`, and `undone`: what came of taking it back, or None. What has no outcome when its
    job has ended gets none any more: nobody saw its end, so its state is unknown. `unheard_since` says of what is under
    way when its worker was last heard of, where that worker has gone; else it is None.
    """
    gone = {worker.process: worker.seen_at for worker in tx.workers() if not worker.alive}
    rows = tx.effects(job)
    over = (tx.job(job) or {}).get("ended_at") is not None
    undoing = {row.key: row for row in rows}
    asked = {(row["turn"], row["call_id"]): row for row in tx.approvals(job=job)}
    keys = {undo_key(row) for row in rows}
    found = []
    for row in rows:
        if row.key in keys:
            continue
        undone = undoing.get(undo_key(row))
        approval = asked.get((row.turn, row.call_id))
        found.append(
            {
                **{name: value for name, value in asdict(row).items() if name != "created"},
                "state": _state(row, undone, over=over),
                "summary": approval["summary"] if approval else row.summary,
                "approved_by": (approval["by"] or "") if approval and approval["choice"] else "",
                "approval_id": approval["id"] if approval else None,
                "undone": _undone(undone, over=over),
                "unheard_since": gone.get(row.holder or "") if row.status == "pending" and not over else None,
            }
        )
    return found


def effects_in_state(tx: Transaction, state: str) -> list[dict[str, Any]]:
    """Give the effects of all jobs whose state begins so, the oldest job first, as `told_effects` gives them."""
    # What is under way is unknown once its job has ended, and what was taken back begins as it was before.
    statuses = ["unknown", "pending"] if "unknown".startswith(state) else list(_STATES)
    jobs = tx.jobs_with_effects(statuses)
    return [row for job in jobs for row in told_effects(tx, job) if row["state"].startswith(state)]


def unheard_line(effect: Mapping[str, Any], now: float) -> str:
    """Say of an effect as `told_effects` gives it that its worker is gone; empty where it is not.

    Args:
        effect: The effect.
        now: Seconds since 1970.
    """
    if not effect.get("unheard_since"):
        return ""
    since = clock(effect["unheard_since"], now)
    return f"its worker has not been heard of since {since}; what became of it is found out by the next one"


def _state(row: Effect, undone: Effect | None, *, over: bool) -> str:
    state = _STATES[_status(row, over=over)]
    if row.reconciled and row.status == "settled":
        state = "reconciled"
    return state if undone is None else _TAKEN.get(_status(undone, over=over), "{0}").format(state)


def _status(row: Effect, *, over: bool) -> EffectStatus:
    return "unknown" if over and row.status == "pending" else row.status


def _undone(row: Effect | None, *, over: bool) -> dict[str, Any] | None:
    if row is None:
        return None
    names = ("note", "attempts", "begun_at", "settled_at")
    return {"status": _status(row, over=over), **{name: getattr(row, name) for name in names}}
