"""What each kind of node does when a token enters it. A new kind is a function and a row in `ENTER`."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from loom_dsl.errors import ExpressionError
from loom_dsl.graph.edges import Node
from loom_dsl.graph.nodes import Activity, AgentNode, Cancel, End, Fail, Llm, Recurse, Set
from loom_dsl.machine.commands import RunActivity, TurnEnded
from loom_dsl.machine.compensation import activity_of
from loom_dsl.machine.core import drop
from loom_dsl.machine.kinds.approvals import enter_approval
from loom_dsl.machine.kinds.joins import enter_join
from loom_dsl.machine.kinds.maps import enter_map
from loom_dsl.machine.kinds.subgraphs import enter_loop, enter_subgraph, enter_tool, start_child
from loom_dsl.machine.kinds.waits import enter_event, enter_race, enter_timer, seconds_of
from loom_dsl.machine.state import RUNNING, Frame, Token

if TYPE_CHECKING:
    from loom_dsl.machine.moves import Moves as Machine


LLM_RETRY = (4, 1.0, 2.0, 60.0)
"""Tries of a model that answers with what cannot be used."""


def _enter_branch(machine: "Machine", token: Token, node: Node, names: dict[str, Any]) -> None:
    machine.pass_on(token)


def _enter_activity(machine: "Machine", token: Token, node: Activity, names: dict[str, Any]) -> None:
    arguments = machine.mapped(token, "with", node.with_, names)
    if node.inbox == "take":
        due = [message for message in machine.state.inbox if not message.get("idle")]
        arguments["inject"] = due
        token.data["taken"] = [message["id"] for message in due]
    carrier = _one_of(machine, token, "carrier", node.carrier, ("local", "remote"), names)
    events = _one_of(machine, token, "events", node.events, ("carry", "leave"), names)
    timeout = seconds_of(machine.mapped(token, "timeout", node.timeout, names), f"the timeout of `{token.node}`")
    if not timeout:
        raise ExpressionError(f"the timeout of `{token.node}` is {timeout}; it is more than nothing")
    name, arguments = activity_of(node.activity, arguments, timeout)
    _run(
        machine,
        token,
        name,
        arguments,
        carries=events == "carry",
        carrier=carrier,
        timeout=timeout,
        heartbeat=float(node.heartbeat) if isinstance(node.heartbeat, (int, float)) else None,
        retry=(node.retry.attempts, node.retry.initial, node.retry.backoff, node.retry.longest),
        **_outage(machine, token, node, names),
    )


def _outage(machine: "Machine", token: Token, node: Activity | Llm, names: dict[str, Any]) -> dict[str, Any]:
    if node.max_outage is None:
        return {}
    given = machine.mapped(token, "max_outage", node.max_outage, names)
    return {"max_outage": seconds_of(given, f"the max_outage of `{token.node}`"), "waits": True}


def _one_of(
    machine: "Machine", token: Token, slot: str, value: str, known: tuple[str, ...], names: dict[str, Any]
) -> str:
    given = machine.mapped(token, slot, value, names)
    if given not in known:
        raise ExpressionError(f"the {slot} of `{token.node}` is {given!r}; it can be {' or '.join(known)}")
    return str(given)


def _run(machine: "Machine", token: Token, activity: str, arguments: dict[str, Any], **how: Any) -> None:
    token.status = RUNNING
    if (known := token.data.get("retry")) is not None:  # of tries before this one
        how |= {"before": known["attempts"], "tries": known.get("tries", 0)}
    machine.command(RunActivity(at=token.at, activity=activity, arguments=arguments, **how))


def _enter_llm(machine: "Machine", token: Token, node: Llm, names: dict[str, Any]) -> None:
    given = {
        slot: machine.mapped(token, slot, getattr(node.llm, slot), names) for slot in ("model", "prompt", "system")
    }
    arguments = {"parameters": node.llm.parameters, **given}
    outage = _outage(machine, token, node, names)
    _run(machine, token, "loom.llm.call", arguments, timeout=1800.0, heartbeat=5.0, retry=LLM_RETRY, **outage)


def _enter_agent(machine: "Machine", token: Token, node: AgentNode, names: dict[str, Any]) -> None:
    arguments = machine.mapped(token, "with", node.with_, names)
    start_child(machine, token, arguments, agent=node.agent)


def _enter_set(machine: "Machine", token: Token, node: Set, names: dict[str, Any]) -> None:
    values = machine.mapped(token, "set", node.set, names)
    machine.write_values(token, values)
    machine.complete(token, values)


def _enter_cancel(machine: "Machine", token: Token, node: Cancel, names: dict[str, Any]) -> None:
    for other in machine.state.in_order():
        if other is not token and other.frame == token.frame and other.node in node.cancel:
            drop(machine, other)
    machine.pass_on(token)


def _enter_recurse(machine: "Machine", token: Token, node: Recurse, names: dict[str, Any]) -> None:
    state = machine.state
    if state.turn is None:
        raise ExpressionError(f"`{token.node}` recurses, but this job has no turns")
    if token.frame:
        raise ExpressionError(f"`{token.node}` recurses inside a map; only a whole turn can")
    policy = machine.mapped(token, "policy", node.recurse.policy, names)
    compacted = machine.mapped(token, "compacted", node.recurse.compacted, names)
    machine.leave_phase()
    state.turn = state.turn.next_turn(compacted=compacted is True)
    if node.recurse.idle:
        state.inbox = [{**message, "idle": False} for message in state.inbox]
    machine.emit("recursion")
    root = state.frames[""].graph
    state.tokens.clear()
    own = {key: value for key, value in state.frames[""].own.items() if key != "result"}
    state.frames = {"": Frame(root, own=own)}
    state.flushes = 0
    state.decided = []
    machine.place("", machine.plan.bodies[root].start)
    machine.at_boundary = True
    machine.command(TurnEnded(policy=str(policy)))


def _enter_end(machine: "Machine", token: Token, node: End, names: dict[str, Any]) -> None:
    result = machine.mapped(token, "end", node.end, names)
    machine.state.frames[token.frame].own["result"] = result
    if node.terminate:
        return machine.end_frame(token.frame)
    machine.state.tokens.pop(token.at, None)
    return machine.frame_may_end(token.frame)


def _enter_fail(machine: "Machine", token: Token, node: Fail, names: dict[str, Any]) -> None:
    code, message, details = (
        machine.mapped(token, slot, getattr(node.fail, slot), names) for slot in ("code", "message", "details")
    )
    machine.fail_frame(token, str(code), str(message), details)


ENTER: dict[str, Callable[..., None]] = {
    "branch": _enter_branch,
    "activity": _enter_activity,
    "tool": enter_tool,
    "agent": _enter_agent,
    "llm": _enter_llm,
    "approval": enter_approval,
    "event": enter_event,
    "timer": enter_timer,
    "join": enter_join,
    "map": enter_map,
    "loop": enter_loop,
    "graph": enter_subgraph,
    "race": enter_race,
    "set": _enter_set,
    "cancel": _enter_cancel,
    "recurse": _enter_recurse,
    "end": _enter_end,
    "fail": _enter_fail,
}
