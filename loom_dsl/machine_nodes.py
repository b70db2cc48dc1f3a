"""What each kind of node does when a token enters it. A new kind is a function and a row in `ENTER`."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from loom_dsl.approval import approval_id
from loom_dsl.commands import RunActivity, StartTimer, TurnEnded
from loom_dsl.errors import ExpressionError
from loom_dsl.graph import Activity, Approval, Barrier, End, Fail, Map, Node, Recurse
from loom_dsl.machine_state import MAPPING, RUNNING, WAITING, Frame, Token
from loom_dsl.plan import condition

if TYPE_CHECKING:
    from loom_dsl.machine import Machine

ANNOUNCE = "loom.approval.announce"
"""Stores the request and tells whoever is to decide. Remote, so that it is tried again when it fails."""
MOST_ITEMS = 1_000
"""Items of one map inside a workflow; more belong in child workflows."""


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
    timeout = machine.mapped(token, "timeout", node.timeout, names)
    token.status = RUNNING
    machine.command(
        RunActivity(
            at=token.at,
            activity=node.activity,
            arguments=arguments,
            carries=node.events == "carry",
            carrier=carrier,
            timeout=float(timeout),
            heartbeat=float(node.heartbeat) if isinstance(node.heartbeat, (int, float)) else None,
            retry=(node.retry.attempts, node.retry.initial, node.retry.backoff, node.retry.longest),
        )
    )


def _enter_map(machine: "Machine", token: Token, node: Map, names: dict[str, Any]) -> None:
    items = condition(node.map.over).evaluate(names)
    if not isinstance(items, list) or len(items) > MOST_ITEMS:
        found = f"{len(items)} items" if isinstance(items, list) else "something that is not a list"
        raise ExpressionError(f"`{node.map.over}` gives {found}; a map goes over a list of at most {MOST_ITEMS}")
    if not items:
        return machine.complete(token, [])
    token.status = MAPPING
    token.data = {"items": items, "results": [None] * len(items), "done": [], "next": 0, "past": []}
    return _fill_window(machine, token, node)


def _fill_window(machine: "Machine", token: Token, node: Map) -> None:
    data = token.data
    while data["next"] < len(data["items"]) and data["next"] - len(data["done"]) < node.map.window:
        index = data["next"]
        data["next"] += 1
        key = f"{token.at}[{index}]"
        machine.state.frames[key] = Frame(node.map.do, parent=token.at, index=index)
        machine.place(key, machine.plan.graphs[node.map.do].start)


def map_item_done(machine: "Machine", token: Token, index: int, result: Any) -> None:
    """An item of a map ended with a result."""
    data = token.data
    data["results"][index] = result
    data["done"].append(index)
    node = machine.node(token)
    assert isinstance(node, Map)
    if len(data["done"]) == len(data["items"]):
        machine.complete(token, data["results"])
    elif "failed" not in data:
        _fill_window(machine, token, node)


def map_item_failed(machine: "Machine", token: Token, code: str, message: str) -> None:
    """An item of a map failed: stop the others, and fail the map when the last of them has reported."""
    token.data.setdefault("failed", [code, message])
    for key in [key for key, frame in machine.state.frames.items() if frame.parent == token.at]:
        machine.drop_frame(key)
    if not any(frame.parent == token.at for frame in machine.state.frames.values()):
        machine.fail_node(token, *token.data["failed"])


def _enter_approval(machine: "Machine", token: Token, node: Approval, names: dict[str, Any]) -> None:
    request = machine.mapped(token, "request", node.approval.request, names)
    turn = machine.state.turn.turn_counter if machine.state.turn else 0
    name = approval_id(machine.job, turn, token.at, request)
    deadline = None
    if node.deadline is not None:
        after = machine.mapped(token, "deadline", node.deadline.after, names)
        if isinstance(after, (int, float)) and not isinstance(after, bool):
            deadline = machine.state.last + max(0.0, float(after))
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
    policy = machine.mapped(token, "policy", node.recurse.policy, names)
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
        machine.end(["fail", str(code), str(message), details])


ENTER: dict[str, Callable[..., None]] = {
    "branch": _enter_branch,
    "activity": _enter_activity,
    "map": _enter_map,
    "approval": _enter_approval,
    "recurse": _enter_recurse,
    "end": _enter_end,
    "fail": _enter_fail,
}


def barrier_at(machine: "Machine", token: Token) -> Barrier | None:
    """The barrier that the token stands before or runs behind: its map's, when this is the barrier's node."""
    frame = machine.state.frames[token.frame]
    if not frame.parent:
        return None
    node = machine.node(machine.state.tokens[frame.parent])
    barrier = node.map.barrier if isinstance(node, Map) else None
    return barrier if barrier is not None and barrier.at == token.node else None


def admitted(machine: "Machine", token: Token) -> bool:
    """Whether the order among a map's items lets this one go on; if so, it is past the barrier.

    An item waits for every earlier one that is not done and conflicts with it. Two items conflict when one
    of them is exclusive and their keys are equal or one of them has none.
    """
    barrier = barrier_at(machine, token)
    if barrier is None:
        return True
    frame = machine.state.frames[token.frame]
    owner = machine.state.tokens[frame.parent]
    data, done = owner.data, set(owner.data["done"])
    if frame.index in data["past"]:
        return True
    limit = machine.mapped(owner, "barrier.limit", barrier.limit)
    if len([index for index in data["past"] if index not in done]) >= int(limit):
        return False
    exclusive, key = condition(barrier.exclusive), condition(barrier.key)

    def traits(index: int) -> tuple[bool, Any]:
        names = {"item": data["items"][index], "index": index}
        return bool(exclusive.evaluate(names)), key.evaluate(names)

    alone, own = traits(frame.index)
    for earlier in range(frame.index):
        if earlier not in done:
            other_alone, other = traits(earlier)
            if (alone or other_alone) and (own is None or other is None or own == other):
                return False
    data["past"].append(frame.index)
    return True
