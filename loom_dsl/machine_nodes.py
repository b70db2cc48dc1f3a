"""What each kind of node does when a token enters it. A new kind is a function and a row in `ENTER`."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from loom_dsl.approval import approval_id
from loom_dsl.commands import RunActivity, StartTimer, TurnEnded
from loom_dsl.duration import LONGEST, parse_duration
from loom_dsl.errors import ExpressionError
from loom_dsl.graph import Activity, Approval, End, Fail, Node, Recurse
from loom_dsl.machine_ends import end
from loom_dsl.machine_maps import enter_map, map_item_failed
from loom_dsl.machine_state import RUNNING, WAITING, Frame, Token

if TYPE_CHECKING:
    from loom_dsl.machine import Machine

ANNOUNCE = "loom.approval.announce"
"""Stores the request and tells whoever is to decide. Remote, so that it is tried again when it fails."""


def _enter_branch(machine: "Machine", token: Token, node: Node, names: dict[str, Any]) -> None:
    machine.pass_on(token)


def _enter_activity(machine: "Machine", token: Token, node: Activity, names: dict[str, Any]) -> None:
    arguments = machine.mapped(token, "with", node.with_, names)
    if node.inbox == "take":
        due = [message for message in machine.state.inbox if not message.get("idle")]
        arguments["inject"] = due
        token.data["taken"] = [message["id"] for message in due]
    carrier = machine.mapped(token, "carrier", node.carrier, names)
    if carrier not in ("local", "remote"):
        raise ExpressionError(f"the carrier of `{token.node}` is {carrier!r}; it can be local or remote")
    timeout = seconds_of(machine.mapped(token, "timeout", node.timeout, names), f"the timeout of `{token.node}`")
    if not timeout:
        raise ExpressionError(f"the timeout of `{token.node}` is {timeout}; it is more than nothing")
    token.status = RUNNING
    machine.command(
        RunActivity(
            at=token.at,
            activity=node.activity,
            arguments=arguments,
            carries=node.events == "carry",
            carrier=carrier,
            timeout=timeout,
            heartbeat=float(node.heartbeat) if isinstance(node.heartbeat, (int, float)) else None,
            retry=(node.retry.attempts, node.retry.initial, node.retry.backoff, node.retry.longest),
        )
    )


def seconds_of(value: Any, what: str) -> float | None:
    """Read a time that a graph computes: a number of seconds, a duration such as ``4h``, or null for never.

    Raises:
        ExpressionError: It is something else, negative, or over ten years.
    """
    if value is None or value == "never":
        return None
    try:
        seconds = parse_duration(value) if isinstance(value, str) else value
    except ValueError as error:
        raise ExpressionError(f"{what}: {error}") from None
    if not isinstance(seconds, (int, float)) or isinstance(seconds, bool) or not 0 <= seconds <= LONGEST:
        raise ExpressionError(f"{what} is {str(value)[:60]}; write seconds, or a duration such as 90s, 5m or 4h")
    return float(seconds)


def _enter_approval(machine: "Machine", token: Token, node: Approval, names: dict[str, Any]) -> None:
    request = machine.mapped(token, "request", node.approval.request, names)
    turn = machine.state.turn.turn_counter if machine.state.turn else 0
    name = approval_id(machine.job, turn, token.at, request)
    deadline = None
    if node.deadline is not None:
        after = seconds_of(
            machine.mapped(token, "deadline", node.deadline.after, names), f"the deadline of `{token.node}`"
        )
        deadline = None if after is None else machine.state.last + after
    token.status = WAITING
    token.data = {"id": name, "deadline": deadline, "request": request, "since": machine.state.last}
    machine.emit(
        "approval_requested",
        approval_id=name,
        tool=request.get("tool", "") if isinstance(request, dict) else "",
        node=token.at,
        request=request,
        choices=list(node.approval.choices),
        expires_at=deadline,
    )
    at = f"~announce/{token.at}"
    machine.side_work[at] = None
    arguments = {"approval_id": name, "request": request}
    machine.command(RunActivity(at=at, activity=ANNOUNCE, arguments=arguments, timeout=30.0))
    if deadline is not None:
        machine.command(StartTimer(at=token.at, when=deadline))


def _enter_recurse(machine: "Machine", token: Token, node: Recurse, names: dict[str, Any]) -> None:
    state = machine.state
    if state.turn is None:
        raise ExpressionError(f"`{token.node}` recurses, but this job has no turns")
    if token.frame:
        raise ExpressionError(f"`{token.node}` recurses inside a map; only a whole turn can")
    policy = machine.mapped(token, "policy", node.recurse.policy, names)
    machine.leave_phase()
    state.turn = state.turn.next_turn()
    if node.recurse.idle:
        state.inbox = [{**message, "idle": False} for message in state.inbox]
    machine.emit("recursion")
    root = state.frames[""].graph
    state.tokens.clear()
    state.frames = {"": Frame(root)}
    state.flushes = 0
    state.decided = []
    machine.place("", machine.plan.graphs[root].start)
    machine.at_boundary = True
    machine.command(TurnEnded(policy=str(policy)))


def _enter_end(machine: "Machine", token: Token, node: End, names: dict[str, Any]) -> None:
    machine.end_frame(token, machine.mapped(token, "end", node.end, names))


def _enter_fail(machine: "Machine", token: Token, node: Fail, names: dict[str, Any]) -> None:
    code, message, details = (
        machine.mapped(token, slot, getattr(node.fail, slot), names) for slot in ("code", "message", "details")
    )
    frame = machine.state.frames[token.frame]
    if frame.parent:
        machine.state.tokens.pop(token.at, None)
        map_item_failed(machine, machine.state.tokens[frame.parent], str(code), str(message))
    else:
        end(machine, ["fail", str(code), str(message), details])


ENTER: dict[str, Callable[..., None]] = {
    "branch": _enter_branch,
    "activity": _enter_activity,
    "map": enter_map,
    "approval": _enter_approval,
    "recurse": _enter_recurse,
    "end": _enter_end,
    "fail": _enter_fail,
}
