"""What the ledger tells about a job's effects, put together with who approved them and what was taken back."""

from dataclasses import asdict, dataclass, fields

from pydantic import JsonValue

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    """What came of taking an effect back. Times are ISO 8601 in UTC."""

    status: EffectStatus
    """``settled``: it was taken back."""
    note: str | None
    """What there is to say about it."""
    attempts: int
    """How often it was tried."""
    begun_at: str
    """When it began."""
    settled_at: str | None
    """When it ended; None: it has not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectRecord(Effect):
    """An effect as the ledger has it, with who approved it and whether it was taken back.

    What has no outcome when its job has ended gets none any more: nobody saw its end, so its state is unknown.
    """

    state: str
    """How it stands, in words, such as ``settled``, ``under way`` or ``compensated``."""
    approved_by: str = ""
    """Who approved it; empty when nobody was asked."""
    approval_id: str | None = None
    """The approval; None when nobody was asked."""
    undone: Undone | None = None
    """What came of taking it back; None: that was not begun."""
    unheard_since: str | None = None
    """When its worker was last heard of, where it is under way and that worker has gone."""

    def to_dict(self) -> dict[str, JsonValue]:
        """Give the fields as JSON."""
        return {name: value for name, value in asdict(self).items() if name != "created"}


def effects_of(tx: Transaction, job: str) -> list[EffectRecord]:
    """Give a job's effects in the order in which they were written down; the summaries are those an approver saw."""
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
        more = {"summary": approval["summary"]} if approval else {}
        found.append(
            EffectRecord(
                **{field.name: getattr(row, field.name) for field in fields(Effect)} | more,
                state=_state(row, undone, over=over),
                approved_by=(approval["by"] or "") if approval and approval["choice"] else "",
                approval_id=approval["id"] if approval else None,
                undone=_undone(undone, over=over),
                unheard_since=gone.get(row.holder or "") if row.status == "pending" and not over else None,
            )
        )
    return found


def effects_in_state(tx: Transaction, state: str) -> list[EffectRecord]:
    """Give the effects of all jobs whose state begins so, the oldest job first."""
    # What is under way is unknown once its job has ended, and what was taken back begins as it was before.
    statuses = ["unknown", "pending"] if "unknown".startswith(state) else list(_STATES)
    jobs = tx.jobs_with_effects(statuses)
    return [effect for job in jobs for effect in effects_of(tx, job) if effect.state.startswith(state)]


def unheard_line(effect: EffectRecord, now: float) -> str:
    """Say of an effect that its worker is gone; empty where it is not.

    Args:
        effect: The effect.
        now: Seconds since 1970.
    """
    if not effect.unheard_since:
        return ""
    since = clock(effect.unheard_since, now)
    return f"its worker has not been heard of since {since}; what became of it is found out by the next one"


def _state(row: Effect, undone: Effect | None, *, over: bool) -> str:
    state = _STATES[_status(row, over=over)]
    if row.reconciled and row.status == "settled":
        state = "reconciled"
    return state if undone is None else _TAKEN.get(_status(undone, over=over), "{0}").format(state)


def _status(row: Effect, *, over: bool) -> EffectStatus:
    return "unknown" if over and row.status == "pending" else row.status


def _undone(row: Effect | None, *, over: bool) -> Undone | None:
    if row is None:
        return None
    names = ("note", "attempts", "begun_at", "settled_at")
    return Undone(status=_status(row, over=over), **{name: getattr(row, name) for name in names})
