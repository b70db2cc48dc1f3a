"""What people and other systems send: decisions, pause, resume, abort, messages. Everything is checked here.

A refusal is never silent: an update gets an answer, and every refusal is an event.
"""

from collections.abc import Callable
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, field_validator

from loom_dsl.approvals.decision import Decision, problem_of
from loom_dsl.approvals.policy import is_among
from loom_dsl.errors import ExpressionError
from loom_dsl.fields import Retry
from loom_dsl.machine.commands import ChildEnded, SignalReceived
from loom_dsl.machine.decisions.queue import outcome
from loom_dsl.machine.decisions.refusals import DECISION, refuse
from loom_dsl.machine.decisions.stages import decide
from loom_dsl.machine.kinds.approvals import HALT_CAUSE, renew_halted
from loom_dsl.machine.kinds.work import child_ended
from loom_dsl.machine.records import ChildRecord
from loom_dsl.machine.tokens.ending import abort
from loom_dsl.machine.tokens.moves import Moves
from loom_dsl.machine.tokens.retry import resume_steps


class Control(BaseModel):
    """What the signal ``loom.control`` carries."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    op: Literal["pause", "resume", "abort", "inject"]
    """What to do."""
    id: str = Field(default="", max_length=100)
    """Sent twice with one id, it counts once. Ids that start with ``~`` are Loom's own."""
    by: str = Field(default="", max_length=200)
    """Who says so. An injected message without it is nobody's words after something from outside was read."""
    reason: str = Field(default="", max_length=2_000)
    """Why."""
    text: str = Field(default="", max_length=20_000)
    """With ``inject``: the message for the model."""
    ref: str = Field(default="", pattern="^([0-9a-f]{64})?$")
    """With ``inject``: digest of the message in the store, in place of the text."""
    when: Literal["asap", "when_idle"] = "asap"
    """With ``inject``: before the next model call, or when the agent would finish."""
    cause: str = Field(default="", max_length=200)
    """With ``resume``: only steps that are halted, or wait, for this cause go on; a pause stays."""

    @field_validator("id")
    @classmethod
    def _not_ours(cls, value: str) -> str:
        if value.startswith("~"):
            raise ValueError("an id cannot start with `~`")
        return value


class OutsideEvent(BaseModel):
    """What the signal ``loom.event`` and the update ``loom.event`` carry, from any system."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: str = Field(min_length=1, max_length=200)
    """Name of the event: that of the nodes that wait for it."""
    key: JsonValue = None
    """Which of several waiting nodes it is for."""
    data: JsonValue = None
    """The result of the node that takes it."""
    id: str = Field(default="", max_length=100)
    """Sent twice with one id, it counts once. Ids that start with ``~`` are Loom's own."""
    by: str = Field(default="", max_length=200)
    """Who says so."""


class UndoCall(BaseModel):
    """The activity that takes something back."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    activity: str
    timeout: float
    retry: Retry = Retry()


class UndoEntry(BaseModel):
    """How one thing that a child job did is taken back."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, populate_by_name=True)

    at: str
    with_: dict[str, JsonValue] | None = Field(default=None, alias="with")
    sure: bool = False
    why: str = ""
    do: UndoCall


class ChildReport(BaseModel):
    """What the signal ``loom.child`` carries: how a child job ended."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    at: str
    """The execution that started it."""
    child: str
    """The child's job id."""
    result: JsonValue = None
    code: str = ""
    """Why it did not complete, or empty."""
    message: str = ""
    undo: list[UndoEntry] = Field(default_factory=list)
    """How what it did is taken back, oldest first."""


CONTROL, EVENT, CHILD = "loom.control", "loom.event", "loom.child"
SEEN = "already_done", "this was received before"
MAX_SEEN = 100
MAX_WAITING = 50
MAX_EVENTS = 100
"""Events that wait for a token."""
MAX_REPORT = 1_500_000
"""Bytes of what a child job reports: its result, and how what it did is taken back."""
MAX_PAYLOAD = 64 * 1024
"""Bytes of a signal's JSON. Larger ones are refused; a large message goes to the store and is sent as a reference."""


def receive(machine: Moves, signal: SignalReceived) -> None:
    """Take a signal or an update."""
    if signal.problem:
        return refuse(machine, signal, "invalid", signal.problem)
    if (machine.state.ending is not None and signal.name != CHILD) or machine.over:
        if (before := _before(machine, signal)) is not None:
            # The server gives an update to the next run when the one that took it ended before the answer was known.
            return machine.answer(signal.answer_to, *before)
        return refuse(machine, signal, "ended", "the job is ending")
    if signal.answer_to is not None and (machine.draining or machine.at_boundary):
        return machine.answer(signal.answer_to, "retry", "the job is between two runs; send it again")
    if signal.name not in _TAKERS:
        return refuse(machine, signal, "invalid", f"no signal of the name {signal.name[:100]!r} is known")
    model, take = _TAKERS[signal.name]
    try:
        payload = model.model_validate(signal.payload)
    except ValidationError as error:
        return refuse(machine, signal, "invalid", problem_of(error))
    return take(machine, signal, payload)


def _before(machine: Moves, signal: SignalReceived) -> tuple[str, str] | None:
    """What became of this when it was received before; None: it was not, or was refused."""
    payload = signal.payload
    if signal.name != DECISION:
        known = signal.answer_to is not None and isinstance(payload, dict) and bool(payload.get("id"))
        return SEEN if known and payload["id"] in machine.state.seen else None
    try:
        return outcome(machine, Decision.model_validate(payload))
    except ValidationError:
        return None


def _event(machine: Moves, signal: SignalReceived, event: OutsideEvent) -> None:
    state = machine.state
    if event.id.startswith("~"):
        return refuse(machine, signal, "invalid", "id: an id cannot start with `~`: those are Loom's own")
    if event.id and event.id in state.seen:
        return machine.answer(signal.answer_to, *SEEN)
    verdict = deliver_event(machine, {"name": event.name, "key": event.key, "data": event.data})
    if verdict == "full":
        return refuse(machine, signal, "full", "too many events wait already; none of them was dropped")
    if verdict == "unknown":
        return refuse(machine, signal, "unknown", f"no node of this job waits for the event {event.name!r}")
    if event.id:
        state.seen = [*state.seen, event.id][-MAX_SEEN:]
    machine.emit("control", op="event", by=event.by, reason=event.name, **machine.named(id=event.id))
    return machine.answer(signal.answer_to, "recorded", f"event {event.name} {verdict}")


def deliver_event(machine: Moves, event: dict[str, Any]) -> str:
    """Give an event to whoever waits for it.

    Returns:
        ``recorded``, ``buffered``, ``full`` (nothing was kept) or ``unknown`` (no node of the plan waits for it, now or
        later).
    """
    for token in machine.state.in_order():
        try:
            if machine.handler(token).event(machine, token, event):
                return "recorded"
        except ExpressionError as error:
            machine.fail_node(token, error.code, error.message)
            return "recorded"
    nodes = (node for body in machine.plan.bodies.values() for node in body.nodes.values())
    if not any(machine.handlers[node.kind].awaits(node, event["name"]) for node in nodes):
        return "unknown"
    if len(machine.state.events) >= MAX_EVENTS:
        return "full"
    machine.state.events = [*machine.state.events, event]
    return "buffered"


def _child(machine: Moves, signal: SignalReceived, report: ChildReport) -> None:
    token = machine.state.tokens.get(report.at)
    if token is None or token.record != ChildRecord(report.child):
        return refuse(machine, signal, "unknown", f"no child of the name {report.child[:100]!r} is under way")
    now = machine.state.last
    undo = [entry.model_dump(mode="json", by_alias=True, exclude_defaults=True) for entry in report.undo]
    undo = [{"with": None, "sure": False, **entry} for entry in undo]
    ended = ChildEnded(now=now, at=report.at, result=report.result, code=report.code, message=report.message, undo=undo)
    child_ended(machine, ended)
    return machine.answer(signal.answer_to, "recorded", "report recorded")


def _control(machine: Moves, signal: SignalReceived, control: Control) -> None:
    state = machine.state
    if control.id and control.id in state.seen:
        return machine.answer(signal.answer_to, *SEEN)
    if control.op == "inject":
        if not control.text and not control.ref:
            return refuse(machine, signal, "invalid", "inject needs a text or a ref")
        size = sum(len(message.get("text", "")) for message in state.inbox) + len(control.text)
        if len(state.inbox) >= MAX_WAITING or size > MAX_PAYLOAD:
            return refuse(machine, signal, "full", "too many messages wait already; none of them was dropped")
    if control.op == "pause" and state.abort is not None:
        return refuse(machine, signal, "ended", "the job is being aborted")
    if control.id:
        state.seen = [*state.seen, control.id][-MAX_SEEN:]
    cause = {"cause": control.cause} if control.cause else {}
    named = machine.named(id=control.id)
    machine.emit("control", op=control.op, by=control.by, reason=control.reason, **cause, **named)
    if control.op == "pause":
        _pause(machine, control)
    elif control.op == "resume":
        _resume(machine, control)
    elif control.op == "abort":
        reason = control.reason or (f"aborted by {control.by}" if control.by else "aborted")
        abort(machine, {"by": control.by, "reason": reason})
    else:
        _inject(machine, control)
    return machine.answer(signal.answer_to, "recorded", f"{control.op} recorded")


def _pause(machine: Moves, control: Control) -> None:
    state = machine.state
    if state.paused is None:
        state.paused = {"by": control.by, "at": round(state.last, 3)}


def _resume(machine: Moves, control: Control) -> None:
    """Go on after a pause, and end what steps wait for; with a cause, only the waits for that."""
    if not control.cause:
        machine.state.paused = None
    resume_steps(machine, control.by, control.cause)
    if control.cause in ("", HALT_CAUSE):
        renew_halted(machine, control.by)


def _inject(machine: Moves, control: Control) -> None:
    state = machine.state
    message: dict[str, Any] = {"id": control.id or f"~{state.outbox.sequence + len(state.outbox.open)}"}
    message.update({"ref": control.ref} if control.ref else {"text": control.text})
    if control.by:
        message["by"] = control.by
    if is_among(control.by, [state.starter]):
        message["own"] = True
    if control.when == "when_idle":
        message["idle"] = True
    state.inbox.append(message)


_TAKERS: dict[str, tuple[type[BaseModel], Callable[..., None]]] = {
    DECISION: (Decision, decide),
    CONTROL: (Control, _control),
    EVENT: (OutsideEvent, _event),
    CHILD: (ChildReport, _child),
}
