"""What a job answers when it is asked where it stands."""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, JsonValue

from loom_dsl.agent.turn import TurnState
from loom_dsl.machine.interpreter import Machine
from loom_dsl.machine.kinds.approvals import deciders, halted_question, must_be_signed
from loom_dsl.machine.records import ApprovalRecord, ChildRecord, EventRecord
from loom_dsl.machine.state import CHILD, LISTENING, RUNNING, TIMING, WAITING, Token
from loom_dsl.machine.tokens.retry import backing_off, halted


class OpenApproval(BaseModel, frozen=True):
    """A question that a job asks now. Times are seconds since 1970."""

    approval_id: str
    """Its id, ``ap_…``."""
    node: str
    """The execution that waits for it, such as ``calls#1[0]/ask#1``."""
    since: float | None = None
    """When it was asked."""
    expires_at: float | None = None
    """When it expires; None: never."""
    request: JsonValue = None
    """What is asked: of a call an object with `tool`, of a graph's node whatever it has as its request."""
    approvers: tuple[str, ...] = ()
    """Who may decide now; empty: anybody."""
    votes: tuple[str, ...] = ()
    """Who has approved it, where it takes several."""
    halted: bool = False
    """Whether nobody decided in time, so that the job waits for a person."""
    signed: bool = False
    """Whether the decision must be signed."""


class HaltedStep(BaseModel, frozen=True):
    """A step that goes on when a person resumes the job. Times are seconds since 1970."""

    at: str
    """The execution that it is, such as ``model#1``."""
    cause: str
    """Why it stopped, as a code such as ``auth``."""
    message: str = ""
    """The same for people."""
    action: str = ""
    """What there is to do."""
    since: float | None = None
    """Since when it waits."""
    approval: str = ""
    """The question that nobody answered in time; empty where it is something else."""


class WaitingStep(BaseModel, frozen=True):
    """A step that is tried again by itself. Times are seconds since 1970."""

    at: str
    """The execution that it is, such as ``model#1``."""
    cause: str
    """Why it failed, as a code such as ``model_unavailable``."""
    message: str = ""
    """The same for people."""
    since: float | None = None
    """Since when it is tried."""
    next_at: float | None = None
    """When it is tried next."""
    tries: int = 0
    """How often it was tried."""
    outage: bool = True
    """Whether it waits for the end of an outage, so that a resume tries it at once."""


class Wait(BaseModel, frozen=True):
    """What an execution waits for that is neither an approval nor an activity."""

    at: str
    """The execution, such as ``gate#1``."""
    until: float | None = None
    """Until when at most, in seconds since 1970; None: there is no deadline."""
    event: str | None = None
    """Name of the event that it waits for."""
    key: JsonValue = None
    """The event's key; None: any event of the name."""
    child: str | None = None
    """Id of the job that it waits for."""


def _turn_of(value: object) -> object:
    """Read a turn as `TurnState.from_dict` does, which knows of older and newer releases."""
    return TurnState.from_dict(value) if isinstance(value, dict) else value


class JobStatus(BaseModel, frozen=True):
    """Where a job stands, as its workflow says."""

    state: str
    """The state of the run, such as ``model_running`` or ``awaiting_human``; ``idle`` before its first step."""
    phase: str = ""
    """The lane of its graph that it was last in."""
    turn: Annotated[TurnState | None, BeforeValidator(_turn_of)] = None
    """The agent's turn; None: a graph's job."""
    paused: dict[str, JsonValue] | None = None
    """Who paused it, as ``by``, and when, as ``at`` in seconds since 1970; None: it is not paused."""
    abort: dict[str, JsonValue] | None = None
    """Who ended it, as ``by``, and the ``reason``; None: nobody."""
    approvals: tuple[OpenApproval, ...] = ()
    """What it asks."""
    running: tuple[str, ...] = ()
    """The executions with an activity under way."""
    halted: tuple[HaltedStep, ...] = ()
    """The steps that wait for a person."""
    backing_off: tuple[WaitingStep, ...] = ()
    """The steps that are tried again later."""
    tokens: tuple[str, ...] = ()
    """The executions that there are, such as ``calls#1[0]/ask#1``, in order."""
    visits: dict[str, dict[str, int]] = Field(default_factory=dict)
    """By graph's run (the root's is empty) and node: how often the node was entered."""
    events: tuple[str, ...] = ()
    """Names of the events that came and that no node has taken yet."""
    waits: tuple[Wait, ...] = ()
    """What its executions wait for besides."""
    waiting_messages: int = 0
    """How many injected messages the agent has not been given yet."""
    plan: str = ""
    """Digest of the plan that it runs under."""


def status_of(machine: Machine) -> dict[str, Any]:
    """Give the run's state, its turn, open approvals, what runs and what waits, as the JSON of a `JobStatus`."""
    state = machine.state
    tokens = state.in_order()
    approvals = [
        {
            "approval_id": asked.id,
            "node": token.at,
            "since": asked.since,
            "expires_at": token.deadline,
            "request": asked.request,
            "approvers": deciders(token),
            "votes": [vote["by"] for vote in asked.votes],
            "halted": bool(asked.halted),
            "signed": must_be_signed(machine, token),
        }
        for token in tokens
        if token.status == WAITING and (asked := token.kept(ApprovalRecord))
    ]
    questions = [
        halted_question(machine, token)
        for token in tokens
        if isinstance(token.record, ApprovalRecord) and token.record.halted
    ]
    return {
        "state": state.run_state,
        "phase": state.phase,
        "turn": state.turn.to_dict() if state.turn else None,
        "paused": state.paused,
        "abort": state.abort,
        "approvals": approvals,
        "running": [token.at for token in tokens if token.status == RUNNING],
        "halted": [*halted(machine), *questions],
        "backing_off": backing_off(machine),
        "tokens": [token.at for token in tokens],
        "visits": {key: frame.visits for key, frame in state.frames.items()},
        "events": [event["name"] for event in state.events],
        "waits": [wait for token in tokens if (wait := _wait(token))],
        "waiting_messages": len(state.inbox),
        "plan": machine.plan.hash,
    }


def _wait(token: Token) -> dict[str, Any] | None:
    """What a token waits for that is no approval and no activity; until when at most, where an edge has a deadline."""
    waits = _waits_for(token)
    due = token.deadline
    if due is None or token.status == WAITING:
        return waits
    return {"at": token.at, "until": due, **(waits or {})}


def _waits_for(token: Token) -> dict[str, Any] | None:
    if token.status == LISTENING:
        awaited = token.kept(EventRecord)
        return {"at": token.at, "event": awaited.name, "key": awaited.key}
    if token.status == TIMING:
        return {"at": token.at, "until": token.deadline}
    if token.status == CHILD:
        return {"at": token.at, "child": token.kept(ChildRecord).child}
    return None
