"""Graphs that run below a token: how one is started, and which a token owns."""

from typing import Any

from loom_dsl.errors import ExpressionError, PlanError
from loom_dsl.graph.graph import filled_input
from loom_dsl.graph.state import initial
from loom_dsl.machine.state import Frame, Token
from loom_dsl.machine.tokens.core import Core
from loom_dsl.machine.tokens.scope import input_of

MAX_FRAME_DEPTH = 60
"""Graphs inside one another, of whatever names."""


def new_frame(
    machine: Core, graph: str, *, parent: str = "", index: int = 0, given: Any = None, inherits: bool = True
) -> Frame:
    """Make the frame of a graph that starts, with its variables and its input.

    Raises:
        ExpressionError: The input is not what the graph declares.
    """
    body = machine.plan.bodies[graph]
    frame = Frame(graph, parent=parent, index=index)
    if not inherits:
        frame.has_input, frame.input = True, given
    if body.input:
        taken = given if not inherits else input_of(machine.state, frame)
        frame.has_input, frame.input = True, filled_input(graph, body.input, taken)
    if body.state:
        frame.state = initial(body.state)
    return frame


def open_frame(machine: Core, token: Token, name: str, index: int, mapping: Any, names: dict[str, Any]) -> None:
    """Start a graph below a token."""
    try:
        graph = machine.plan.find(machine.state.frames[token.frame].graph, name)
    except PlanError as error:
        raise ExpressionError(error.message) from None
    key = f"{token.at}[{index}]"
    if key.count("/") >= MAX_FRAME_DEPTH:
        raise ExpressionError(f"`{token.node}` would be more than {MAX_FRAME_DEPTH} graphs deep")
    inherits = mapping is None
    given = None if inherits else machine.mapped(token, "input", mapping, names)
    frame = new_frame(machine, graph, parent=token.at, index=index, given=given, inherits=inherits)
    machine.state.frames[key] = frame
    machine.place(key, machine.plan.bodies[graph].start)


def frames_of(machine: Core, token: Token) -> list[str]:
    """The keys of the frames that a token owns."""
    return [key for key, frame in machine.state.frames.items() if frame.parent == token.at]
