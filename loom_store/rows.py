"""What goes into the store and comes out of it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

EntryKind = Literal["message", "note"]
EffectStatus = Literal["pending", "settled", "failed", "unknown", "cancelled"]
Moment = datetime | str | float
"""A time: an aware datetime, an ISO 8601 text, or seconds since 1970."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEntry:
    """An entry to append to a session.

    Attributes:
        kind: ``message`` is part of the conversation; ``note`` is kept beside it.
        head: The message without its big parts, plain JSON.
        content: The big part, kept once per content; None when the message has none.
        job: The job that appends it.
        turn: The turn that appends it.
    """

    kind: EntryKind
    head: Mapping[str, Any]
    content: str | None = None
    job: str
    turn: int


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a session. Entries never change, and one object may be given to several readers.

    Attributes:
        seq: Its place in the session, from 0; a fork counts on from its parent.
        key: The key it was appended with.
        kind: ``message`` or ``note``.
        head_json: The head as canonical JSON.
        content_digest: The name of its content, or None.
        job: The job that appended it.
        turn: The turn that appended it.
    """

    seq: int
    key: str
    kind: EntryKind
    head_json: str
    content_digest: str | None
    job: str
    turn: int

    @property
    def head(self) -> dict[str, Any]:
        """The head as a value of the caller's own, free to change."""
        value: dict[str, Any] = json.loads(self.head_json)
        return value


@dataclass(frozen=True, slots=True)
class EntryRange:
    """Entries of a session, from `first` up to and without `end`."""

    first: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What a tool did, or was about to do, to the world.

    Attributes:
        key: Its idempotency key, ``job/turn/call``.
        status: ``pending`` until it is known how it ended.
        summary: What the call was about, in a line, without secrets.
        attempts: How often an attempt came to it; only the first one runs the tool, unless `reconciled` says so.
        reconciled: What the tool's `reconcile` said of an attempt whose end nobody saw.
        holder: The process in which the tool runs, while it does; see `activities.lifecycle.lease`.
        held_until: Until when the holder says so, unless it says so again.
        images: What stands for the images that the call returned: digest, type and size of each.
        started_at: When the tool's function was called; None: not that anybody knows. It is not waited for the disk.
        idempotent: Whether it may be repeated. Such a row is written with the outcome, unless it can be taken back.
        created: Whether this call of `begin_effect` wrote the intent; always False on reading.
    """

    key: str
    job: str
    turn: int
    call_id: str
    tool: str
    arguments_digest: str
    status: EffectStatus
    result_digest: str | None
    note: str | None
    begun_at: str
    settled_at: str | None
    summary: str = ""
    attempts: int = 1
    reconciled: str | None = None
    holder: str | None = None
    held_until: str | None = None
    images: tuple[Mapping[str, Any], ...] = ()
    started_at: str | None = None
    idempotent: bool = False
    created: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRow:
    """A request for an approval, as lists show it. The truth is the job's own state.

    Attributes:
        id: ``ap_…``, unique over all jobs.
        arguments: The canonical arguments of the call, or None when they are only named by `arguments_digest`.
        created_at: When it was asked.
        expires_at: When it expires; None: never.
        details: Whatever else a front end shows (a preview, a risk), plain JSON.
    """

    id: str
    job: str
    tool: str
    arguments_digest: str
    summary: str
    created_at: Moment
    turn: int = 0
    node: str = ""
    call_id: str = ""
    arguments: Any = None
    reason: str = ""
    requester: str = ""
    choices: tuple[str, ...] = ("approve", "reject")
    expires_at: Moment | None = None
    policy: Mapping[str, Any] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)


def to_millis(moment: Moment) -> int:
    """Turn a time into whole milliseconds since 1970.

    Raises:
        ValueError: The text is not ISO 8601, or the datetime has no time zone.
    """
    if isinstance(moment, str):
        moment = datetime.fromisoformat(moment)
    if isinstance(moment, datetime):
        if moment.tzinfo is None:
            raise ValueError(f"{moment.isoformat()} has no time zone; use datetime.now(UTC)")
        return round(moment.timestamp() * 1000)
    return round(moment * 1000)


def from_millis(millis: int) -> str:
    """Write milliseconds since 1970 as ISO 8601 in UTC."""
    return datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
