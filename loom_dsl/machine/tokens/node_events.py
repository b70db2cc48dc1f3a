"""What observers of a graph are told of its nodes, and how the place of a failure is named.

An agent's job tells its own story by turns, so only graphs of users tell of nodes. What is over in the same moment
(a branch, a set, a join) is left out, and so is the pipeline of stages behind a tool node.
"""

from typing import Any

from loom_dsl.graph.edges import Node
from loom_dsl.graph.plan import CHUNK, PART
from loom_dsl.machine.records import ChildRecord, EventRecord, MapRecord
from loom_dsl.machine.state import BACKING_OFF, CHILD, HALTED, LISTENING, OWNING, RUNNING, TIMING, Token
from loom_dsl.machine.tokens.core import Core

BY_ITSELF = frozenset({"activity", "llm"})
"""Kinds whose activity takes along that it begins."""
OWNERS = frozenset({"map", "loop", "graph", "tool"})
TOLD = BY_ITSELF | OWNERS | {"agent", "event", "timer"}
"""Kinds that take time. An approval has events of its own."""
UNDER_WAY = frozenset({RUNNING, CHILD, OWNING, LISTENING, TIMING, BACKING_OFF, HALTED})
OWN_GRAPHS = "loom."
"""What the names of graphs begin with that Loom ships."""
MAX_ITEM = 40
"""Characters of an item that is told beside its number."""


def begins(machine: Core, token: Token, node: Node) -> None:
    """Tell that a node's activity is about to begin; the event travels with it."""
    if node.kind in BY_ITSELF and _is_told(machine, token, node):
        machine.emit("node_start", node=token.at, kind=node.kind, at=machine.state.last)


def began(machine: Core, token: Token, node: Node) -> None:
    """Tell that a node has begun which waits, or for which something else is at work now."""
    there = token.at in machine.state.tokens and token.status in UNDER_WAY
    if not there or node.kind in BY_ITSELF or not _is_told(machine, token, node):
        return
    machine.emit("node_start", node=token.at, kind=node.kind, at=machine.state.last, **_more(token))


def _more(token: Token) -> dict[str, Any]:
    """What is told of a node that has begun, beside its name: for what it waits."""
    match token.record:
        case MapRecord(items=items, chunked=chunked):
            return {"items": sum(len(part["items"]) for part in items) if chunked else len(items)}
        case ChildRecord(child=child):
            return {"child": child}
        case EventRecord(name=name):
            return {"event": name}
    return {"until": token.deadline} if token.status == TIMING else {}


def ended(machine: Core, token: Token, outcome: str, **why: str) -> None:
    """Tell how a node ended: ``done``, ``failed`` (with code, message and where it goes on) or ``cancelled``."""
    node = machine.node(token)
    failed_inside = node.kind not in TOLD and outcome == "failed" and bool(token.frame or why.get("to"))
    if _is_told(machine, token, node) or (failed_inside and _is_users(machine, token)):
        told = {name: text for name, text in why.items() if text}
        machine.emit("node_end", node=token.at, outcome=outcome, at=machine.state.last, **told)


def retried(machine: Core, token: Token, **why: Any) -> None:
    """Tell that a node's activity will be tried again: ``attempt`` (its number), ``code`` and ``message``."""
    node = machine.node(token)
    if node.kind in BY_ITSELF and _is_told(machine, token, node):
        machine.emit("node_retry", node=token.at, at=machine.state.last, **why)


def cancelled(machine: Core, token: Token) -> None:
    """Tell that a node was under way that is taken away."""
    if token.status in UNDER_WAY:
        ended(machine, token, "cancelled")


def blamed(machine: Core, token: Token, message: str) -> str:
    """Say at which node, and for which item, something went wrong that leaves the node's graph."""
    if machine.state.turn is not None or not _is_users(machine, token):
        return message
    if CHUNK in machine.state.frames[token.frame].graph:
        return message  # what a child job says of its part of a long list has been told there
    places = _places(machine, token)
    if f"`{token.node}`" not in message:
        places.insert(0, f"node `{token.node}`")
    return f"{', '.join(places)}: {message}" if places else message


def _places(machine: Core, token: Token) -> list[str]:
    """The items and rounds in which a token is, the nearest first."""
    found, frame = [], machine.state.frames[token.frame]
    while frame.parent:
        owner = machine.state.tokens[frame.parent]
        kind, record = machine.node(owner).kind, owner.record
        if isinstance(record, MapRecord) and not record.chunked:
            item = record.items[frame.index]
            short = f" ({repr(item)[:MAX_ITEM]})" if isinstance(item, str | int | float) else ""
            above, chunk, key = machine.state.frames[owner.frame].graph.removesuffix(PART).rpartition(CHUNK)
            name = key if above and chunk else owner.node
            found.append(f"item {frame.index + record.first}{short} of `{name}`")
        elif kind == "loop":
            found.append(f"round {frame.index + 1} of `{owner.node}`")
        elif kind == "graph":
            found.append(f"in `{owner.node}`")
        frame = machine.state.frames[owner.frame]
    return found


def _is_told(machine: Core, token: Token, node: Node) -> bool:
    return machine.state.turn is None and node.kind in TOLD and _is_users(machine, token)


def _is_users(machine: Core, token: Token) -> bool:
    """Whether the node is one that a user wrote."""
    return not machine.state.frames[token.frame].graph.startswith(OWN_GRAPHS)
