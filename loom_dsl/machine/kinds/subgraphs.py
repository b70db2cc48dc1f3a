"""Graphs inside graphs: a node that owns frames, and what becomes of it when they end."""

import re
from typing import TYPE_CHECKING, Any

from loom_dsl.errors import ExpressionError, PlanError
from loom_dsl.graph.generated import Written, refusal, text_of, too_large
from loom_dsl.graph.nodes import Loop, Subgraph, Tool
from loom_dsl.graph.plan import condition
from loom_dsl.graph.state import fits, initial
from loom_dsl.machine.checkpoint import keep_owner
from loom_dsl.machine.commands import StartChild
from loom_dsl.machine.core import drop_frame, sweep
from loom_dsl.machine.retry import wait_over
from loom_dsl.machine.scope import input_of
from loom_dsl.machine.state import CHILD, OWNING, Frame, Token
from loom_dsl.text.canonical import digest

if TYPE_CHECKING:
    from loom_dsl.machine.moves import Moves as Machine


_UNSAFE = re.compile(r"[^A-Za-z0-9_]+")
TOOL_GRAPH = "loom.tool_node"
LONGEST_ID = 190
"""Characters of a child job's id: it and its session's are ids as users write them, which have at most 200."""
DEEPEST = 60
"""Graphs inside one another, of whatever names."""


def new_frame(
    machine: "Machine", graph: str, *, parent: str = "", index: int = 0, given: Any = None, inherits: bool = True
) -> Frame:
    """Make the frame of a graph that starts, with its variables and its input.

    Raises:
        ExpressionError: The input is not what the graph declares.
    """
    body = machine.plan.bodies[graph]
    frame = Frame(graph, parent=parent, index=index)
    if not inherits:
        frame.own["input"] = given
    if body.input:
        taken = given if not inherits else input_of(machine.state, frame)
        frame.own["input"] = declared(graph, body.input, taken)
    if body.state:
        frame.own["state"] = initial(body.state)
    return frame


def declared(graph: str, fields: Any, given: Any) -> dict[str, Any]:
    """Check what a graph is started with, and fill in what is left out.

    Raises:
        ExpressionError: A value is missing, is not declared, or is of another type.
    """
    values = given if isinstance(given, dict) else {}
    unknown = sorted(set(values) - set(fields))
    if unknown or not isinstance(given, dict | None):
        what = ", ".join(unknown) or "something that is not a mapping"
        raise ExpressionError(f"`{graph}` is given {what}; its input has {', '.join(fields)}")
    filled = {}
    for name, field in fields.items():
        if name in values:
            if not fits(field.type, values[name]) and not (values[name] is None and field.optional):
                raise ExpressionError(f"`input.{name}` of `{graph}` is {str(values[name])[:60]!r}, not {field.type}")
            filled[name] = values[name]
        elif field.default is None and not field.optional:
            raise ExpressionError(f"`{graph}` needs `input.{name}` ({field.type})")
        else:
            filled[name] = field.default
    return filled


def open_frame(machine: "Machine", token: Token, name: str, index: int, mapping: Any, names: dict[str, Any]) -> None:
    """Start a graph below a token."""
    try:
        graph = machine.plan.find(machine.state.frames[token.frame].graph, name)
    except PlanError as error:
        raise ExpressionError(error.message) from None
    key = f"{token.at}[{index}]"
    if key.count("/") >= DEEPEST:
        raise ExpressionError(f"`{token.node}` would be more than {DEEPEST} graphs deep")
    inherits = mapping is None
    given = None if inherits else machine.mapped(token, "input", mapping, names)
    frame = new_frame(machine, graph, parent=token.at, index=index, given=given, inherits=inherits)
    machine.state.frames[key] = frame
    machine.place(key, machine.plan.bodies[graph].start)


def enter_subgraph(machine: "Machine", token: Token, node: Subgraph, names: dict[str, Any]) -> None:
    """Run a graph once."""
    if isinstance(node.graph, Written):
        return _enter_written(machine, token, node, node.graph, names)
    graph = machine.plan.find(machine.state.frames[token.frame].graph, node.graph)
    depth = sum(1 for frame in _above(machine, token) if frame.graph == graph)
    if depth >= node.max_depth:
        raise ExpressionError(f"`{token.node}`: the graph `{node.graph}` stands {depth} times inside itself already")
    if node.child:
        mapped = None if node.with_ is None else machine.mapped(token, "input", node.with_, names)
        given = input_of(machine.state, machine.state.frames[token.frame]) if node.with_ is None else mapped
        return start_child(machine, token, given, graph=graph)
    token.data, token.status = {"sub": 1}, OWNING
    return open_frame(machine, token, node.graph, 0, node.with_, names)


def _enter_written(machine: "Machine", token: Token, node: Subgraph, written: Written, names: dict[str, Any]) -> None:
    """Have a graph looked at that something wrote, and run it as a job if it may run."""
    text = text_of(machine.mapped(token, "graph.from", written.from_, names))
    given = {} if node.with_ is None else machine.mapped(token, "input", node.with_, names)
    size = len((text or "").encode("utf-8", "surrogatepass"))
    if text is None or size > written.allow.max_bytes:  # what is too long must not travel
        why = refusal(["there is no text"]) if text is None else too_large(size, written.allow.max_bytes)
        return machine.fail_node(token, why.code, why.message)
    graph = machine.state.frames[token.frame].graph
    place = {"text": text, "graph": graph, "node": token.node}
    return start_child(machine, token, given, written=place)


def start_child(
    machine: "Machine",
    token: Token,
    arguments: Any,
    *,
    agent: str = "",
    graph: str = "",
    written: dict[str, str] | None = None,
) -> None:
    """Start a job below this one, whose end is the node's."""
    turn = f"{machine.state.turn.turn_counter}." if machine.state.turn else ""
    child = _child_id(f"{machine.job}.{turn}{id_part(token.at)}")
    token.status, token.data = CHILD, {"child": child}
    machine.command(
        StartChild(at=token.at, child=child, agent=agent, graph=graph, arguments=arguments, written=written)
    )


def id_part(at: str) -> str:
    """Write an execution's name as a part of a job's id."""
    return _UNSAFE.sub(".", at).strip(".")


def _child_id(full: str) -> str:
    """A job's id that says where it came from; what is too long for an id is cut, and stays one of its own."""
    return full if len(full) <= LONGEST_ID else f"{full[: LONGEST_ID - 17]}.{digest(full)[:16]}"


def _above(machine: "Machine", token: Token) -> list[Frame]:
    found, frame = [], machine.state.frames[token.frame]
    while True:
        found.append(frame)
        if not frame.parent:
            return found
        frame = machine.state.frames[machine.state.tokens[frame.parent].frame]


def enter_tool(machine: "Machine", token: Token, node: Tool, names: dict[str, Any]) -> None:
    """Run one tool call through its pipeline."""
    arguments = machine.mapped(token, "with", node.with_, names)
    turn = f"{machine.state.turn.turn_counter}." if machine.state.turn else ""
    item = {"id": turn + token.at.replace("/", "."), "name": node.tool, "arguments": arguments}
    token.data, token.status = {"items": [item]}, OWNING
    open_frame(machine, token, TOOL_GRAPH, 0, None, names)


def enter_loop(machine: "Machine", token: Token, node: Loop, names: dict[str, Any]) -> None:
    """Start the first round of a loop."""
    token.data, token.status = {"round": 0, "last": None}, OWNING
    _next_round(machine, token, node)


def _next_round(machine: "Machine", token: Token, node: Loop) -> None:
    data = token.data
    names = {**machine.names(token), "result": data["last"], "item": data["last"], "index": data["round"]}
    if node.loop.while_ is not None and not condition(node.loop.while_).evaluate(names):
        return machine.complete(token, data["last"])
    if data["round"] >= node.loop.max:
        return machine.fail_node(token, "max_rounds", f"`{token.node}` would need more than {node.loop.max} rounds")
    return open_frame(machine, token, node.loop.do, data["round"], node.loop.with_, names)


def round_done(machine: "Machine", token: Token, index: int, result: Any) -> None:
    """A round of a loop ended."""
    node = machine.node(token)
    assert isinstance(node, Loop)
    token.data["last"] = result
    token.data["round"] = index + 1
    names = {**machine.names(token), "result": result, "item": result, "index": index}
    if node.loop.until is not None and condition(node.loop.until).evaluate(names):
        return machine.complete(token, result)
    return _next_round(machine, token, node)


def loop_again(machine: "Machine", token: Token, node: Loop) -> None:
    """A loop goes on in another job: find out, where no round is under way, whether there is another."""
    if frames_of(machine, token):
        return
    try:
        round_done(machine, token, token.data["round"] - 1, token.data["last"])
    except ExpressionError as error:
        machine.fail_node(token, error.code, error.message)


def body_done(machine: "Machine", token: Token, index: int, result: Any) -> None:
    """The one graph of a node ended."""
    machine.complete(token, result)


def frames_of(machine: "Machine", token: Token) -> list[str]:
    """The keys of the frames that a token owns."""
    return [key for key, frame in machine.state.frames.items() if frame.parent == token.at]


def owner_failed(machine: "Machine", token: Token, code: str, message: str) -> None:
    """A frame of a node failed: stop the others, and fail the node when the last of them has reported."""
    keep_owner(machine, token, code)
    token.data.setdefault("failed", [code, message])
    for key in frames_of(machine, token):
        drop_frame(machine, key)
    if not frames_of(machine, token):
        machine.fail_node(token, *token.data["failed"])


def doomed_is_gone(machine: "Machine", token: Token) -> None:
    """The work of a token that was taken away has reported."""
    wait_over(machine, token)
    del machine.state.tokens[token.at]
    for frame in sweep(machine):
        if not frame.own.get("dropped"):
            machine.frame_done(frame.parent, frame.index, frame.own.get("result"))
    for owner in machine.state.in_order():
        # One failing node may take others away, so each is looked up again.
        if owner.at in machine.state.tokens and owner.status == OWNING and "failed" in owner.data:
            owner_failed(machine, owner, *owner.data["failed"])
    machine.frames_may_go_on(token)
