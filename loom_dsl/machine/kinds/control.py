"""Nodes that are over in the same moment: they lead tokens, write values, and end a graph or a turn."""

from dataclasses import replace
from typing import Any

from loom_dsl.errors import ExpressionError
from loom_dsl.graph.edges import Node
from loom_dsl.graph.nodes import Cancel, End, Fail, Recurse, Set
from loom_dsl.machine.commands import TurnEnded
from loom_dsl.machine.state import Token
from loom_dsl.machine.tokens.ending import drop
from loom_dsl.machine.tokens.moves import Moves, NodeHandler
from loom_dsl.text.canonical import canonical_json


class BranchHandler(NodeHandler[Node]):
    """A node without work of its own: its edges say where it goes on."""

    def enter(self, machine: Moves, token: Token, node: Node, names: dict[str, Any]) -> None:
        """Go on."""
        machine.pass_on(token)


class SetHandler(NodeHandler[Set]):
    """Variables or fields of the turn are written."""

    def enter(self, machine: Moves, token: Token, node: Set, names: dict[str, Any]) -> None:
        """Write the values, and go on."""
        values = machine.mapped(token, "set", node.set, names)
        machine.write_values(token, values)
        machine.complete(token, values)


class CancelHandler(NodeHandler[Cancel]):
    """What stands at other nodes of the graph is taken away."""

    def enter(self, machine: Moves, token: Token, node: Cancel, names: dict[str, Any]) -> None:
        """Take the others away, and go on."""
        for other in machine.state.in_order():
            if other is not token and other.frame == token.frame and other.node in node.cancel:
                drop(machine, other)
        machine.pass_on(token)


class RecurseHandler(NodeHandler[Recurse]):
    """The turn is over, and the graph begins anew in the next one."""

    def enter(self, machine: Moves, token: Token, node: Recurse, names: dict[str, Any]) -> None:
        """End the turn, and begin the next one."""
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
        before = state.frames[""]
        state.tokens.clear()
        state.frames = {"": replace(before, outputs={}, visits={}, joins={}, result=None)}
        state.flushes = 0
        state.decided = []
        machine.place("", machine.plan.bodies[before.graph].start)
        machine.at_boundary = True
        machine.command(TurnEnded(policy=str(policy)))


class EndHandler(NodeHandler[End]):
    """A way through the graph is at its end, with a result."""

    def enter(self, machine: Moves, token: Token, node: End, names: dict[str, Any]) -> None:
        """Keep the result, and end the token, or the whole graph."""
        result = machine.mapped(token, "end", node.end, names)
        machine.state.frames[token.frame].result = result
        if node.terminate:
            return machine.end_frame(token.frame)
        machine.state.tokens.pop(token.at, None)
        return machine.frame_may_end(token.frame)


class FailHandler(NodeHandler[Fail]):
    """The graph fails with what the node says."""

    def enter(self, machine: Moves, token: Token, node: Fail, names: dict[str, Any]) -> None:
        """Fail the graph."""
        code, message, details = (
            machine.mapped(token, slot, getattr(node.fail, slot), names) for slot in ("code", "message", "details")
        )
        if not isinstance(code, str | int) or isinstance(code, bool) or code == "":
            raise ExpressionError(f"the code of `{token.node}` is {str(code)[:60]!r}; a code is text")
        text = message if isinstance(message, str) else canonical_json(message)
        machine.fail_frame(token, str(code), text, details)
