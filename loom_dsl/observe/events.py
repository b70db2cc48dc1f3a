"""What an observer of a job sees: one vocabulary, one schema, and its compact form in the store.

A stored event is ``{"t": type, "n": turn, **data}``. What follows from the job and the turn (turn_id,
parent_turn_id, depth) is derived on reading, not stored. Types and fields that this release does not
know are read as they are, so that an old observer can follow a newer job.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from loom_dsl.agent.turn import turn_id

SCHEMA_VERSION = 1

Kind = Literal["model_delta", "assistant_message", "tool_result", "status", "error"]
"""The coarse classes of events that a run's stream is made of."""


class EventType(StrEnum):
    """What happened."""

    ITERATION_START = "iteration_start"
    MAX_ITERATIONS_REACHED = "max_iterations_reached"
    EXECUTION_CANCELLED = "execution_cancelled"
    PHASE_START = "phase_start"
    PHASE_END = "phase_end"
    RETRIEVAL_START = "retrieval_start"
    RETRIEVAL_COMPLETE = "retrieval_complete"
    COMPRESSION_APPLIED = "compression_applied"
    LLM_START = "llm_start"
    LLM_DELTA = "llm_delta"
    LLM_FINISH = "llm_finish"
    TOOL_CALLS_START = "tool_calls_start"
    TOOL_CALLS_COMPLETE = "tool_calls_complete"
    TOOL_START = "tool_start"
    TOOL_RESULT = "tool_result"
    RECURSION = "recursion"
    AGENT_FINISH = "agent_finish"
    ERROR = "error"
    STREAM_START = "stream_start"
    STREAM_RESET = "stream_reset"
    STATE = "state"
    APPROVAL_REQUESTED = "approval_requested"
    APPROVAL_CHANGED = "approval_changed"
    APPROVAL_DECIDED = "approval_decided"
    HOOK = "hook"
    PROGRESS = "progress"
    WARNING = "warning"
    CONTROL = "control"
    HALTED = "halted"
    RESUMED = "resumed"
    WAITING = "waiting"
    ABORTED = "aborted"
    COMPENSATING = "compensating"
    COMPENSATED = "compensated"
    GRAPH_ADMITTED = "graph_admitted"
    GRAPH_REFUSED = "graph_refused"
    NODE_START = "node_start"
    NODE_RETRY = "node_retry"
    NODE_END = "node_end"
    OUTPUT_KEPT = "output_kept"


KINDS: dict[EventType, Kind] = {
    EventType.STREAM_START: "model_delta",
    EventType.STREAM_RESET: "model_delta",
    EventType.LLM_DELTA: "model_delta",
    EventType.LLM_FINISH: "assistant_message",
    EventType.TOOL_RESULT: "tool_result",
    EventType.ERROR: "error",
}
"""The types that are not plain status. STREAM_RESET belongs to the deltas, because who adds them up must see it."""

FIELDS: dict[EventType, tuple[str, ...]] = {
    EventType.ITERATION_START: ("iteration",),
    EventType.MAX_ITERATIONS_REACHED: ("turn_counter", "max_iterations"),
    EventType.EXECUTION_CANCELLED: ("correlation_id",),
    EventType.PHASE_START: ("name",),
    EventType.PHASE_END: ("name",),
    EventType.RETRIEVAL_COMPLETE: ("doc_count",),
    EventType.COMPRESSION_APPLIED: ("messages_before", "messages_after", "tokens_before", "tokens_after"),
    EventType.LLM_DELTA: ("content",),
    EventType.LLM_FINISH: ("content",),
    EventType.TOOL_CALLS_START: ("tool_count", "tool_names"),
    EventType.TOOL_CALLS_COMPLETE: ("results_count",),
    EventType.TOOL_START: ("tool_call_id", "tool"),
    EventType.TOOL_RESULT: ("tool_call_id", "status", "content"),
    EventType.RECURSION: ("from_turn", "to_turn", "depth"),
    EventType.AGENT_FINISH: ("content", "turn_counter", "total_llm_calls"),
    EventType.ERROR: ("error", "message"),
    EventType.STATE: ("state", "from"),
    EventType.APPROVAL_REQUESTED: ("approval_id", "tool"),
    EventType.APPROVAL_CHANGED: ("approval_id", "what"),
    EventType.APPROVAL_DECIDED: ("approval_id", "choice"),
    EventType.HOOK: ("tool_call_id", "point", "hook", "did"),
    EventType.PROGRESS: ("tool_call_id", "content"),
    EventType.WARNING: ("code", "message"),
    EventType.CONTROL: ("op", "by"),
    EventType.HALTED: ("node", "cause", "message", "action", "since"),
    EventType.RESUMED: ("node", "cause", "by"),
    EventType.WAITING: ("node", "cause", "message", "since", "next_at", "tries"),
    EventType.ABORTED: ("reason",),
    EventType.COMPENSATING: ("node",),
    EventType.COMPENSATED: ("node", "outcome"),
    EventType.GRAPH_ADMITTED: ("node", "child", "graph", "plan", "nodes"),
    EventType.GRAPH_REFUSED: ("node", "message"),
    EventType.NODE_START: ("node", "kind"),
    EventType.NODE_RETRY: ("node", "attempt"),
    EventType.NODE_END: ("node", "outcome"),
    EventType.OUTPUT_KEPT: ("node", "size", "blobs"),
}
"""What the data of a type holds at least. An ERROR's `error` is such as retrieval_failed or tool_execution_failed."""

_OWN = {"t": "type", "n": "turn", "v": "schema_version", "at": "at", "d": "depth", "p": "parent_turn_id"}
"""Keys of the stored form that are not data."""


class Event(BaseModel):
    """One event of a job."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    type: str
    """An `EventType`, or a type of a newer release."""
    job: str = ""
    offset: int = 0
    """The event's place in its job, from 1; 0 while it is not stored."""
    turn: int = Field(default=0, ge=0)
    turn_id: str = ""
    parent_turn_id: str | None = None
    depth: int = 0
    """How deep the recursion is."""
    at: float | None = None
    """When it happened, in seconds since 1970; of what notes no time itself, the second in which it was stored."""
    data: dict[str, JsonValue] = Field(default_factory=dict)
    schema_version: int = SCHEMA_VERSION

    @property
    def kind(self) -> Kind:
        """The coarse class of the event; `status` for types that this release does not know."""
        return kind_of(self.type)

    @property
    def is_known(self) -> bool:
        """Whether this release knows the type."""
        return self.type in _TYPES


_TYPES: dict[str, EventType] = {member.value: member for member in EventType}


def kind_of(event_type: str) -> Kind:
    """Give the coarse class of a type; `status` for one that this release does not know."""
    known = _TYPES.get(event_type)
    return KINDS.get(known, "status") if known else "status"


def event(
    event_type: EventType,
    job: str,
    turn: int,
    *,
    at: float | None = None,
    parent_turn_id: str | None = None,
    **data: Any,
) -> Event:
    """Make an event of a job's turn. `parent_turn_id` is only for a first turn that comes from another job's."""
    return Event(
        type=event_type.value,
        job=job,
        turn=turn,
        turn_id=turn_id(job, turn),
        parent_turn_id=parent_turn_id or _derived_parent(job, turn),
        depth=turn,
        at=at,
        data=data,
    )


def encode(event: Event) -> dict[str, Any]:
    """Write an event in the store's form, without what can be derived.

    Data goes in beside the type, unless one of its keys means something there; then it goes in as `data`.
    """
    raw: dict[str, Any] = {"t": str(event.type), "n": event.turn}
    if event.schema_version != SCHEMA_VERSION:
        raw["v"] = event.schema_version
    if event.at is not None:
        raw["at"] = event.at
    if event.depth != event.turn:
        raw["d"] = event.depth
    if event.parent_turn_id != _derived_parent(event.job, event.turn):
        raw["p"] = event.parent_turn_id
    clash = event.data.keys() & (_OWN.keys() | {"type", "data"})
    return {**raw, "data": event.data} if clash else {**raw, **event.data}


def decode(job: str, offset: int, raw: Mapping[str, Any]) -> Event:
    """Read an event in the store's form. Nothing that is in a store makes this fail."""
    turn = raw.get("n")
    turn = turn if isinstance(turn, int) and not isinstance(turn, bool) and turn >= 0 else 0
    nested = raw.get("data")
    data = {key: value for key, value in raw.items() if key not in _OWN and key not in ("type", "data")}
    if isinstance(nested, Mapping):
        data.update(nested)
    parent = raw["p"] if "p" in raw else _derived_parent(job, turn)
    if raw.get("t") == EventType.RECURSION:
        # Told at the head of the turn that follows; what it says follows from that turn's number.
        data = {"from_turn": parent, "to_turn": turn_id(job, turn), "depth": turn, **data}
    at, depth, version = raw.get("at"), raw.get("d", turn), raw.get("v", SCHEMA_VERSION)
    return Event(
        type=str(raw.get("t") or raw.get("type") or "unknown"),
        job=job,
        offset=offset,
        turn=turn,
        turn_id=turn_id(job, turn),
        parent_turn_id=parent if isinstance(parent, str) else None,
        depth=depth if isinstance(depth, int) else turn,
        at=float(at) if isinstance(at, int | float) else None,
        data=data,
        schema_version=version if isinstance(version, int) else SCHEMA_VERSION,
    )


def _derived_parent(job: str, turn: int) -> str | None:
    return turn_id(job, turn - 1) if turn else None
