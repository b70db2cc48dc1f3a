"""How work is taken away and how a job ends: what is in flight reports first, and the last events are stored."""

import json
from collections.abc import Iterator
from typing import Any

from loom_dsl.agent.run import result_of_failure, result_of_finish
from loom_dsl.agent.states import RunState
from loom_dsl.errors import ExpressionError
from loom_dsl.machine.commands import CancelActivity, CancelChild, CancelTimer, Failure, Finish, RunActivity
from loom_dsl.machine.payloads import MAX_RESULT, size_of
from loom_dsl.machine.records import ApprovalRecord, ChildRecord, MapRecord
from loom_dsl.machine.state import BACKING_OFF, CHILD, OWNING, RUNNING, WAITING, Frame, Token, place_of
from loom_dsl.machine.tokens.checkpoint import keep_all, stored, where_failed
from loom_dsl.machine.tokens.compensation import handed_up, take_back
from loom_dsl.machine.tokens.core import Core, SideWork
from loom_dsl.machine.tokens.node_events import BY_ITSELF, TOLD, cancelled
from loom_dsl.machine.tokens.retry import wait_over
from loom_dsl.text.canonical import digest

FLUSH = "loom.events.flush"
ANNOUNCEMENTS, VERIFICATIONS = "~announce/", "~verify/"
"""What executions are called that belong to a question and not to its token."""
MAX_DECIDED = 100
EXPIRED = "!"
"""Behind the id of a question that nobody decided in time."""
MAX_CODE, MAX_MESSAGE = 200, 10_000
"""Characters of why a job failed."""


def end(machine: Core, ending: list[Any]) -> None:
    """End the job as soon as nothing is in flight and the last events are stored. Only the first call counts."""
    state = machine.state
    if state.ending is not None:
        return
    ending = _bounded(ending)
    if ending[0] == "fail":
        keep_all(machine)
    state.ending = ending
    if ending[0] == "fail" and state.run_state != RunState.FAILED:
        machine.emit("error", error=ending[1], message=ending[2])
        if not state.undo:
            machine.enter_state(RunState.FAILED)
    drop_all(machine)


def _bounded(ending: list[Any]) -> list[Any]:
    """An ending that the engine can carry: what is too large for it is told in place of the job's result."""
    if ending[0] == "fail":
        _, code, message, details = ending
        cut = size_of(details) > MAX_RESULT
        return ["fail", code[:MAX_CODE], message[:MAX_MESSAGE], None if cut else details]
    size = size_of(ending[1])
    if size <= MAX_RESULT:
        return ending
    why = f"the result has {size} bytes, and a job may give back {MAX_RESULT}; give back a part of it, or a path"
    return ["fail", "result_too_large", why, None]


def drop_all(machine: Core) -> None:
    """Take every token away."""
    for token in machine.state.in_order():
        if token.at in machine.state.tokens:
            drop(machine, token)


def drop(machine: Core, token: Token) -> None:
    """Take a token away, with the graphs that it started; one with work in flight goes when that has reported."""
    if token.status in (RUNNING, CHILD):
        if not token.doomed:
            cancelled(machine, token)
            token.doomed = True
            in_flight = CancelActivity(at=token.at)
            child = token.status == CHILD
            machine.command(CancelChild(at=token.at, child=token.kept(ChildRecord).child) if child else in_flight)
        return
    cancelled(machine, token)
    if token.status == WAITING:
        close_approval(machine, token, choice="cancelled")
    if token.status in (WAITING, BACKING_OFF) or token.deadline is not None:
        machine.command(CancelTimer(at=token.at))
    wait_over(machine, token)
    machine.state.tokens.pop(token.at, None)
    if token.status == OWNING:
        for key in [key for key, frame in machine.state.frames.items() if frame.parent == token.at]:
            drop_frame(machine, key)


def close_approval(machine: Core, token: Token, **decision: Any) -> None:
    """An approval needs no decision any more; tell how it ended, and know it when another decision comes."""
    asked = token.kept(ApprovalRecord)
    name = asked.id + (EXPIRED if decision.get("choice") == "expired" else "")
    machine.state.decided = [*machine.state.decided, name][-MAX_DECIDED:]
    machine.emit("approval_decided", approval_id=asked.id, **decision)
    if asked.halted:
        machine.emit("resumed", node=token.at, cause="approval_expired", by=decision.get("by", ""))


def drop_frame(machine: Core, key: str) -> None:
    """Take away a frame, what runs in it, and the frames below it."""
    for other, frame in machine.state.frames.items():
        if other.startswith(key + "/") or (other == key and not frame.over):
            frame.dropped = True
    inside = [t for t in machine.state.tokens.values() if t.frame == key or t.frame.startswith(key + "/")]
    for token in sorted(inside, key=place_of):
        if token.at in machine.state.tokens:
            drop(machine, token)
    sweep(machine)


def sweep(machine: Core) -> list[Frame]:
    """Remove the frames in which and below which no token is left, and give them."""
    state, live = machine.state, {""}
    for token in state.tokens.values():
        frame = token.frame
        while frame not in live:
            live.add(frame)
            frame = frame.rpartition("/")[0]
    return [state.frames.pop(key) for key in list(state.frames) if key not in live]


def abort(machine: Core, how: dict[str, Any]) -> None:
    """End the job before its time: what runs is cancelled, and what is open is settled first."""
    if machine.state.abort is not None:
        return
    machine.state.abort, machine.state.paused = how, None
    drop_all(machine)
    for at in machine.side_work:
        if at.startswith((ANNOUNCEMENTS, VERIFICATIONS)):  # work about a question that is gone must not hold the end up
            machine.command(CancelActivity(at=at))


def place_abort(machine: Core) -> None:
    """Send a token to where the graph settles an abort, once nothing is in flight."""
    state = machine.state
    abort = state.abort
    if abort is None or abort.get("placed") or state.ending or machine.at_work() or machine.between_runs():
        return
    abort["placed"] = True
    state.tokens.clear()
    root = state.frames[""]
    root.joins = {}
    state.frames = {"": root}
    target = machine.plan.bodies[root.graph].on_abort
    if target:
        machine.place("", target)
    elif "code" in abort:
        end(machine, ["fail", abort["code"], abort.get("reason") or "the job was ended", None])
    else:
        end(machine, ["finish", {"status": "aborted", "reason": abort.get("reason", "")}])


def place_ending(machine: Core) -> None:
    """Give the job's result once nothing is in flight and everything that observers are told is stored."""
    state = machine.state
    ending = state.ending
    if ending is None or machine.over or machine.at_work() or machine.between_runs():
        return
    went_wrong = ending[0] == "fail" or state.abort is not None
    if went_wrong and take_back(machine):
        return
    machine.leave_phase()
    _enter_last_state(machine, ending)
    if state.inbox:
        text = f"the job ended before it could read {len(state.inbox)} of the messages that were sent to it"
        machine.emit("warning", code="not_delivered", ids=[message["id"] for message in state.inbox], message=text)
        state.inbox = []
    finished = _finished(machine, ending)
    if state.outbox.waiting() or "" in state.failed_at or (state.turn is None and not state.concluded):
        last = state.concluded = len(state.outbox.ready()) == len(state.outbox.waiting())
        return issue_flush(machine, _kept(machine, finished), stored(machine)) if last else issue_flush(machine)
    machine.over = True
    return machine.command(finished)


def _finished(machine: Core, ending: list[Any]) -> Finish | Failure:
    told = {"compensations": machine.state.undone} if machine.state.undone else {}
    if ending[0] == "finish":
        result = ending[1]
        result = {**result, **told} if told and isinstance(result, dict) else result
        return Finish(result=result, undo=handed_up(machine))
    details = ending[3]
    if told and (details is None or isinstance(details, dict)):
        details = {**(details or {}), **told}
    return Failure(code=ending[1], message=ending[2], details=details)


def _kept(machine: Core, finished: Finish | Failure) -> dict[str, Any]:
    """What is stored of a graph's end together with its last events; an agent's nodes have stored their own."""
    if machine.state.turn is not None:
        return {}
    if isinstance(finished, Failure):
        result = result_of_failure(machine.job, finished.code, finished.message, finished.details)
    else:
        result = result_of_finish(machine.job, finished.result, aborted=machine.state.abort is not None)
    told = {"result": result.model_dump(mode="json", exclude_defaults=True)}
    return {**told, **(where_failed(machine, told) if isinstance(finished, Failure) else {})}


def _enter_last_state(machine: Core, ending: list[Any]) -> None:
    """Say how a graph ended; the nodes of an agent's graph say it themselves."""
    if ending[0] == "fail":
        machine.enter_state(RunState.FAILED)
    elif machine.state.abort is not None and machine.state.turn is None:
        machine.enter_state(RunState.ABORTED)
    elif machine.state.turn is None:
        if machine.state.run_state == RunState.AWAITING_HUMAN:
            machine.enter_state(RunState.RUNNING)
        machine.enter_state(RunState.COMPLETED)


def flush(machine: Core) -> None:
    """Store what observers wait for, when no other activity takes it along soon."""
    outbox = machine.state.outbox
    if machine.at_boundary or machine.over or (machine.draining and not outbox.is_heavy()):
        return
    # A node's end is told at once, too; but one flush after the other, so that what happens meanwhile goes together.
    nodes = not any(at.startswith("~flush") for at in machine.side_work) and outbox.tells(_is_news)
    if (outbox.pressing() or nodes or not machine.in_flight()) and outbox.ready():
        issue_flush(machine)


def _is_news(event: dict[str, Any]) -> bool:
    """Whether an event of a node is not one that the node's own activity takes along."""
    return event["t"] == "node_end" or (event["t"] == "node_start" and event["kind"] not in BY_ITSELF)


def issue_flush(machine: Core, arguments: dict[str, Any] | None = None, then: SideWork | None = None) -> None:
    """Store what waits with an activity of its own; `then` takes how that went."""
    machine.state.flushes += 1
    at = f"~flush#{machine.state.flushes}"
    machine.side_work[at] = then
    machine.command(RunActivity(at=at, activity=FLUSH, arguments=arguments or {}, carrier="local", timeout=30.0))


# What nodes gave whose work is done, kept when an expression fails over it: the work is not lost with the job.


PIECE = 400_000
"""Characters of JSON that one activity takes along; escaped they are twice as many at most, and events come besides."""
MAX_OUTPUTS = 50
"""Outputs that a job keeps: a loop that catches its failures could go on keeping for ever."""
FOR = frozenset({ExpressionError.code, "result_too_large", "state_too_large"})
"""Codes of failures that come of what was done, and not of doing it."""


def keep_outputs(machine: Core, key: str, code: str) -> None:
    """Store what the nodes of a graph gave that is about to go because an expression failed in it.

    The results of a map count that is not done, too: null stands for the items that are missing. An agent's own graph
    keeps everything in its conversation already.

    Args:
        machine: The machine.
        key: The graph's frame.
        code: Why it fails.
    """
    if code not in FOR or machine.state.turn is not None:
        return
    root = machine.state.frames[""]
    for at, output, done in _outputs(machine, key, machine.state.frames[key]):
        if root.kept >= MAX_OUTPUTS:
            return
        root.kept += 1
        _keep(machine, at, output, done)


def _keep(machine: Core, at: str, output: Any, done: int | None) -> None:
    text = json.dumps(output, separators=(",", ":"))
    pieces = [text[start : start + PIECE] for start in range(0, len(text), PIECE)]
    for piece in pieces[:-1]:
        issue_flush(machine, {"keep": piece})
    counted = {"items": len(output), "done": len(output) if done is None else done} if isinstance(output, list) else {}
    machine.emit("output_kept", node=at, size=len(text), blobs=[digest(piece) for piece in pieces], **counted)
    issue_flush(machine, {"keep": pieces[-1]})


def _outputs(machine: Core, key: str, frame: Frame) -> Iterator[tuple[str, Any, int | None]]:
    """The outputs in a graph by the execution that gave them; of a map that is not done, how many items are."""
    nodes = machine.plan.bodies[frame.graph].nodes
    above = f"{key}/" if key else ""
    inside = (token for token in machine.state.tokens.values() if token.frame == key and token.status == OWNING)
    under_way = {
        token.node: (token.at, token.record)
        for token in inside
        if isinstance(token.record, MapRecord) and token.record.done
    }
    for name, output in frame.outputs.items():
        if nodes[name].kind in TOLD and output is not None:
            visit = frame.visits.get(name, 1) - (1 if name in under_way else 0)
            yield f"{above}{name}#{max(1, visit)}", output, None
    for at, record in under_way.values():
        yield at, *_results(record)


def _results(record: MapRecord) -> tuple[list[Any], int]:
    """The results that a map has so far, and of how many items they are."""
    if not record.chunked:
        return list(record.results), len(record.done)
    parts = zip(record.items, record.results, strict=True)
    results = [result for part, given in parts for result in (given or [None] * len(part["items"]))]
    return results, sum(len(record.items[index]["items"]) for index in record.done)
