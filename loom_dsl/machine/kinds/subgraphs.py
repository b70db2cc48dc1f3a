"""Graphs inside graphs: run once, in rounds, or as the pipeline of a tool call."""

from typing import Any

from loom_dsl.errors import ExpressionError
from loom_dsl.graph.generated import GeneratedGraph, refusal, text_of, too_large
from loom_dsl.graph.nodes import Loop, Subgraph, ToolCallNode
from loom_dsl.graph.plan import condition
from loom_dsl.machine.records import LoopRecord, ToolRecord
from loom_dsl.machine.state import OWNING, Frame, Token
from loom_dsl.machine.tokens.children import start_child
from loom_dsl.machine.tokens.frames import frames_of, open_frame
from loom_dsl.machine.tokens.moves import Moves, NodeHandler
from loom_dsl.machine.tokens.scope import input_of

TOOL_GRAPH = "loom.tool_node"


class SubgraphHandler(NodeHandler[Subgraph]):
    """A graph runs below the node, or as a job of its own; its result is the node's."""

    def enter(self, machine: Moves, token: Token, node: Subgraph, names: dict[str, Any]) -> None:
        """Run a graph once."""
        if isinstance(node.graph, GeneratedGraph):
            return _enter_written(machine, token, node, node.graph, names)
        graph = machine.plan.find(machine.state.frames[token.frame].graph, node.graph)
        depth = sum(1 for frame in _above(machine, token) if frame.graph == graph)
        if depth >= node.max_depth:
            raise ExpressionError(
                f"`{token.node}`: the graph `{node.graph}` stands {depth} times inside itself already"
            )
        if node.child:
            mapped = None if node.with_ is None else machine.mapped(token, "input", node.with_, names)
            given = input_of(machine.state, machine.state.frames[token.frame]) if node.with_ is None else mapped
            return start_child(machine, token, given, graph=graph)
        token.reset(OWNING)
        return open_frame(machine, token, node.graph, 0, node.with_, names)


def _enter_written(
    machine: Moves, token: Token, node: Subgraph, written: GeneratedGraph, names: dict[str, Any]
) -> None:
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


def _above(machine: Moves, token: Token) -> list[Frame]:
    found, frame = [], machine.state.frames[token.frame]
    while True:
        found.append(frame)
        if not frame.parent:
            return found
        frame = machine.state.frames[machine.state.tokens[frame.parent].frame]


class ToolHandler(NodeHandler[ToolCallNode]):
    """A tool call goes through its pipeline, which is a graph; the pipeline's result is the node's."""

    def enter(self, machine: Moves, token: Token, node: ToolCallNode, names: dict[str, Any]) -> None:
        """Run one tool call through its pipeline."""
        arguments = machine.mapped(token, "with", node.with_, names)
        turn = f"{machine.state.turn.turn_counter}." if machine.state.turn else ""
        call = {"id": turn + token.at.replace("/", "."), "name": node.tool, "arguments": arguments}
        token.reset(OWNING, ToolRecord(call))
        open_frame(machine, token, TOOL_GRAPH, 0, None, names)


class LoopHandler(NodeHandler[Loop]):
    """A graph runs round after round, each with the result of the one before."""

    def enter(self, machine: Moves, token: Token, node: Loop, names: dict[str, Any]) -> None:
        """Start the first round of a loop."""
        token.reset(OWNING, LoopRecord())
        _next_round(machine, token, node)

    def frame_done(self, machine: Moves, token: Token, index: int, result: Any) -> None:
        """A round of a loop ended."""
        node = machine.node(token)
        assert isinstance(node, Loop)
        token.record = LoopRecord(index + 1, result)
        names = {**machine.names(token), "result": result, "item": result, "index": index}
        if node.loop.until is not None and condition(node.loop.until).evaluate(names):
            return machine.complete(token, result)
        return _next_round(machine, token, node)

    def again(self, machine: Moves, token: Token) -> None:
        """A loop goes on in another job: find out, where no round is under way, whether there is another."""
        if frames_of(machine, token):
            return
        try:
            record = token.kept(LoopRecord)
            self.frame_done(machine, token, record.round - 1, record.last)
        except ExpressionError as error:
            machine.fail_node(token, error.code, error.message)


def _next_round(machine: Moves, token: Token, node: Loop) -> None:
    record = token.kept(LoopRecord)
    names = {**machine.names(token), "result": record.last, "item": record.last, "index": record.round}
    if node.loop.while_ is not None and not condition(node.loop.while_).evaluate(names):
        return machine.complete(token, record.last)
    if record.round >= node.loop.max:
        return machine.fail_node(token, "max_rounds", f"`{token.node}` would need more than {node.loop.max} rounds")
    return open_frame(machine, token, node.loop.do, record.round, node.loop.with_, names)
