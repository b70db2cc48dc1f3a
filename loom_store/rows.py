"""What goes into the store and comes out of it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, JsonValue

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
    """What a tool did, or was about to do, to the world. Times are ISO 8601 in UTC."""

    key: str
    """Its idempotency key, ``job/turn/call``."""
    job: str
    """The job's id."""
    turn: int
    """Number of the turn, from 0."""
    call_id: str
    """The model's id of the call."""
    tool: str
    """The tool's name."""
    arguments_digest: str
    """Digest of the call's arguments."""
    status: EffectStatus
    """``pending`` until it is known how it ended."""
    result_digest: str | None
    """Digest of what it gave; None: it gave nothing."""
    note: str | None
    """What there is to say about how it ended."""
    begun_at: str
    """When the intent was written down."""
    settled_at: str | None
    """When the outcome was; None: it has none."""
    summary: str = ""
    """What the call was about, in a line, without secrets."""
    attempts: int = 1
    """How often an attempt came to it; only the first one runs the tool, unless `reconciled` says so."""
    reconciled: str | None = None
    """What the tool's `reconcile` said of an attempt whose end nobody saw."""
    holder: str | None = None
    """The process in which the tool runs, while it does; see `activities.lifecycle.lease`."""
    held_until: str | None = None
    """Until when the holder says so, unless it says so again."""
    images: tuple[Mapping[str, JsonValue], ...] = ()
    """What stands for the images that the call returned: digest, type and size of each."""
    started_at: str | None = None
    """When the tool's function was called; None: not that anybody knows. It is not waited for the disk."""
    idempotent: bool = False
    """Whether it may be repeated. Such a row is written with the outcome, unless it can be taken back."""
    renewed: bool = field(default=False, compare=False)
    """Whether `held_until` was still to come when this was read, by the store's clock."""
    created: bool = False
    """Whether this call of `begin_effect` wrote the intent; always False on reading."""


def as_text(value: object) -> str:
    """Write what stands where a text is wanted: none as the empty one, anything else that is no text as JSON.

    A graph's question is whatever its author has put together.
    """
    return value if isinstance(value, str) else "" if value is None else json.dumps(value)


AnyText = Annotated[str, BeforeValidator(as_text)]
"""A text; read from a row, what is none is written as one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRow:
    """A request for an approval, as lists show it. The truth is the job's own state."""

    id: str
    """``ap_…``, unique over all jobs."""
    job: str
    """The job that asks."""
    tool: AnyText
    """The tool that is asked about; empty for a graph's question."""
    arguments_digest: str
    """Digest of the call's arguments; empty for a graph's question."""
    summary: AnyText
    """What is asked, in a line."""
    created_at: Moment
    """When it was asked."""
    turn: int = 0
    """Number of the turn, from 0."""
    node: str = ""
    """The execution that waits, such as ``calls#1[0]/ask#1``."""
    call_id: AnyText = ""
    """The model's id of the call."""
    arguments: JsonValue = None
    """The canonical arguments of the call, or None when they are only named by `arguments_digest`."""
    reason: AnyText = ""
    """Why it is asked."""
    requester: AnyText = ""
    """Who asks: who started the job, where four eyes are needed."""
    choices: tuple[str, ...] = ("approve", "reject")
    """What can be answered."""
    expires_at: Moment | None = None
    """When it expires; None: never."""
    policy: Mapping[str, JsonValue] = field(default_factory=dict)
    """Who may decide and when it escalates, as the agent's or the node's `approvals` say it."""
    details: Mapping[str, JsonValue] = field(default_factory=dict)
    """Whatever else a front end shows (a preview, a risk), plain JSON."""


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
