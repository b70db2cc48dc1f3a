"""How work is taken away and how a job ends: what is in flight reports first, and the last events are stored."""

from typing import TYPE_CHECKING, Any

from loom_dsl.commands import CancelActivity, CancelTimer, Failure, Finish, RunActivity
from loom_dsl.machine_state import RUNNING, WAITING, Token, natural
from loom_dsl.states import RunState

if TYPE_CHECKING:
    from loom_dsl.machine import Machine

FLUSH = "loom.events.flush"
MOST_DECIDED = 100


def end(machine: "Machine", ending: list[Any]) -> None:
    """End the job as soon as nothing is in flight and the last events are stored. Only the first call counts."""
    state = machine.state
    if state.ending is not None:
        return
    state.ending = ending
    if ending[0] == "fail" and state.run_state != RunState.FAILED:
        machine.emit("error", error=ending[1], message=ending[2])
        machine.enter_state(RunState.FAILED)
    drop_all(machine)


def drop_all(machine: "Machine") -> None:
    """Take every token away."""
    for token in machine.state.in_order():
        drop(machine, token)


def drop(machine: "Machine", token: Token) -> None:
    """Take a token away; one with an activity in flight goes when that has reported."""
    if token.status == RUNNING:
        if not token.doomed:
            token.doomed = True
            machine.command(CancelActivity(at=token.at))
        return
    if token.status == WAITING:
        machine.command(CancelTimer(at=token.at))
        machine.close_approval(token, choice="cancelled")
    machine.state.tokens.pop(token.at, None)


def drop_frame(machine: "Machine", key: str) -> None:
    """Take away a frame, what runs in it, and the frames of its maps."""
    inside = [t for t in machine.state.tokens.values() if t.frame == key or t.frame.startswith(key + "/")]
    for token in sorted(inside, key=lambda token: natural(token.at)):
        drop(machine, token)
    sweep(machine)


def sweep(machine: "Machine") -> None:
    """Remove the frames in which and below which no token is left."""
    state, live = machine.state, {""}
    for token in state.tokens.values():
        frame = token.frame
        while frame not in live:
            live.add(frame)
            frame = frame.rpartition("/")[0]
    for key in [key for key in state.frames if key not in live]:
        del state.frames[key]


def place_abort(machine: "Machine") -> None:
    """Send a token to where the graph settles an abort, once nothing is in flight."""
    state = machine.state
    abort = state.abort
    if abort is None or abort.get("placed") or state.ending or machine.in_flight() or machine.between_runs():
        return
    abort["placed"] = True
    state.tokens.clear()
    root = state.frames[""]
    state.frames = {"": root}
    target = machine.plan.graphs[root.graph].on_abort
    if target:
        machine.place("", target)
    else:
        machine.enter_state(RunState.ABORTED)
        end(machine, ["finish", {"status": "aborted", "reason": abort.get("reason", "")}])


def place_ending(machine: "Machine") -> None:
    """Give the job's result once nothing is in flight and everything that observers are told is stored."""
    state = machine.state
    ending = state.ending
    if ending is None or machine.over or machine.in_flight() or machine.between_runs():
        return
    machine.leave_phase()
    if state.inbox:
        text = f"the job ended before it could read {len(state.inbox)} of the messages that were sent to it"
        machine.emit("warning", code="not_delivered", ids=[message["id"] for message in state.inbox], message=text)
        state.inbox = []
    if state.outbox.waiting():
        return _issue_flush(machine)
    machine.over = True
    if ending[0] == "finish":
        return machine.command(Finish(result=ending[1]))
    return machine.command(Failure(code=ending[1], message=ending[2], details=ending[3]))


def flush(machine: "Machine") -> None:
    """Store what observers wait for, when no other activity takes it along soon."""
    outbox = machine.state.outbox
    if machine.between_runs() or machine.over:
        return
    if (outbox.pressing() or not machine.in_flight()) and outbox.waiting():
        _issue_flush(machine)


def _issue_flush(machine: "Machine") -> None:
    machine.state.flushes += 1
    at = f"~flush#{machine.state.flushes}"
    machine.side_work[at] = None
    machine.command(RunActivity(at=at, activity=FLUSH, arguments={}, carrier="local", timeout=30.0))
