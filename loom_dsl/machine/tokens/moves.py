"""How tokens go from node to node, and what becomes of a graph when they end."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

from loom_dsl.errors import ExpressionError
from loom_dsl.graph.edges import MAX_THREADS, Node
from loom_dsl.graph.plan import Plan, condition
from loom_dsl.graph.state import FIELDS, reduced, written
from loom_dsl.machine.commands import CancelTimer
from loom_dsl.machine.payloads import MAX_RESULT, size_of
from loom_dsl.machine.state import OWNING, READY, MachineState, Token
from loom_dsl.machine.tokens.checkpoint import keep, keep_owner
from loom_dsl.machine.tokens.compensation import confirm
from loom_dsl.machine.tokens.core import Core
from loom_dsl.machine.tokens.ending import drop, drop_frame, end, keep_outputs, sweep
from loom_dsl.machine.tokens.frames import frames_of
from loom_dsl.machine.tokens.node_events import blamed, ended
from loom_dsl.machine.tokens.retry import wait_over
from loom_dsl.machine.tokens.scope import state_frame

"""Tokens that one node may send out."""
N = TypeVar("N", bound=Node, contravariant=True)


class NodeHandler(Protocol[N]):
    """What a kind of node does when something happens to a token that stands at one.

    Everything but `enter` has a default, which is right for kinds to which it does not happen. A method may raise an
    ExpressionError; the node fails with it, unless the method says that it does not.
    """

    @abstractmethod
    def enter(self, machine: "Moves", token: Token, node: N, names: dict[str, Any]) -> None:
        """A token enters the node: do what is to be done, or begin it.

        Args:
            machine: The machine.
            token: What enters.
            node: What the graph says of the node.
            names: What the node's expressions may read.
        """

    def frame_done(self, machine: "Moves", token: Token, index: int, result: Any) -> None:
        """A graph that the node started ended with a result. Of a node with one graph it is the node's result."""
        machine.complete(token, result)

    def frame_failed(self, machine: "Moves", token: Token, frame: str, code: str, message: str) -> None:
        """A graph that the node started failed, and so does the node. Raises nothing."""
        machine.fail_owner(token, code, message)

    def frames_gone(self, machine: "Moves", token: Token) -> None:
        """Work that was cancelled somewhere in the job has reported. Raises nothing."""
        return

    def event(self, machine: "Moves", token: Token, event: dict[str, Any]) -> bool:
        """An event came from outside. True: the node has taken it."""
        return False

    def awaits(self, node: N, name: str) -> bool:
        """Whether a node that no token has entered yet may take an event of this name. Raises nothing."""
        return False

    def deadline(self, machine: "Moves", token: Token) -> None:
        """The token's time is over: it goes where its node's `deadline` sends it. Raises nothing."""
        machine.time_over(token)

    def again(self, machine: "Moves", token: Token) -> None:
        """The node owned graphs in a job that failed, and goes on with them in another one. Raises nothing."""
        return


class Moves(Core):
    """What the kinds of nodes use: completing, failing, moving on.

    Attributes:
        handlers: Who handles each kind of node, by its name.
    """

    def __init__(self, plan: Plan, state: MachineState, job: str, handlers: Mapping[str, NodeHandler[Any]]) -> None:
        super().__init__(plan, state, job)
        self.handlers = handlers

    def handler(self, token: Token) -> NodeHandler[Any]:
        """Who handles the node that a token is at."""
        return self.handlers[self.node(token).kind]

    def complete(self, token: Token, result: Any) -> None:
        """The token's node gave its result: write it, and go on."""
        wait_over(self, token)
        node = self.node(token)
        self.set_output(token, result)
        try:
            confirm(self, token, node, result)
            self.write(token, node)
            ways = self.ways_out(token, node)
            ended(self, token, "done")
            self.move(token, ways)
        except ExpressionError as error:
            token.gave = True
            self.fail_node(token, error.code, error.message)

    def pass_on(self, token: Token) -> None:
        """Leave a node that has no result of its own."""
        try:
            self.move(token, self.ways_out(token, self.node(token)))
        except ExpressionError as error:
            self.fail_node(token, error.code, error.message)

    def move(self, token: Token, targets: list[str], *, value: Any = None) -> None:
        """Put the token (and its copies) before the targets. With a value, that is the result there."""
        # While the token is still there: its graph must not count as empty when what the others started is swept away.
        self.let_go(token)
        self.state.tokens.pop(token.at, None)
        source = "" if value is not None else token.source
        carried = value if value is not None else token.value
        for target in targets:
            self.place(token.frame, target, source, carried, via=token.node)
        if not targets:
            self.frame_may_end(token.frame)

    def let_go(self, token: Token) -> None:
        """A token is done with its node: no deadline holds any more, and the race that it was in is won."""
        if token.deadline is not None:
            token.deadline = None
            self.command(CancelTimer(at=token.at))
        if token.race:
            self._win_race(token)

    def _win_race(self, winner: Token) -> None:
        """The first arm is done: take the others away."""
        for token in self.state.in_order():
            if token is not winner and token.race == winner.race and token.frame == winner.frame and not token.doomed:
                drop(self, token)

    def time_over(self, token: Token) -> None:
        """A node was not done in time: what it does is taken away, and its `deadline` says where it goes on."""
        if token.is_over:
            return None
        node = self.node(token)
        assert node.deadline is not None
        assert node.deadline.to is not None
        late = {"ok": False, "code": "deadline", "message": f"`{token.node}` was not done in time"}
        ended(self, token, "failed", code="deadline", message="it was not done in time", to=node.deadline.to)
        self.let_go(token)
        self.place(token.frame, node.deadline.to, value=late, via=token.node)
        return drop(self, token)

    def fail_node(self, token: Token, code: str, message: str) -> None:
        """The token's node failed: take the way that `catch` gives, or fail what contains it."""
        if token.status == OWNING and frames_of(self, token):
            return self.fail_owner(token, code, message)
        wait_over(self, token)
        node = self.node(token)
        target = node.catch.get(code) or node.catch.get("any")
        ended(self, token, "failed", code=code, message=message, to=target or "")
        if target:
            token.source = ""
            return self.move(token, [target], value={"ok": False, "code": code, "message": message})
        keep_outputs(self, token.frame, code)
        # What failed inside it says where that was; what is behind a tool node has no name for users.
        inside = token.failed is not None and node.kind != "tool"
        return self.fail_frame(token, code, message if inside else blamed(self, token, message))

    def fail_frame(self, token: Token, code: str, message: str, details: Any = None) -> None:
        """The graph in which the token is fails, and with it the node that started it, or the job."""
        frame = self.state.frames[token.frame]
        keep(self, token, code)
        if not frame.parent:
            return end(self, ["fail", code, message, details])
        self.state.tokens.pop(token.at, None)
        owner = self.state.tokens[frame.parent]
        return self.handler(owner).frame_failed(self, owner, token.frame, code, message)

    def fail_owner(self, token: Token, code: str, message: str) -> None:
        """A node that owns graphs fails: stop these, and fail the node when the last of them has reported."""
        keep_owner(self, token, code)
        token.failed = token.failed or (code, message)
        for key in frames_of(self, token):
            drop_frame(self, key)
        if not frames_of(self, token):
            self.fail_node(token, *token.failed)

    def cancelled_reported(self, token: Token) -> None:
        """The work of a token that was taken away has reported."""
        wait_over(self, token)
        del self.state.tokens[token.at]
        for frame in sweep(self):
            if not frame.dropped:
                self.frame_done(frame.parent, frame.index, frame.result)
        for owner in self.state.in_order():
            # One failing node may take others away, so each is looked up again.
            if owner.at in self.state.tokens and owner.status == OWNING and owner.failed is not None:
                self.fail_owner(owner, *owner.failed)
        self.frames_may_go_on(token)

    def frame_may_end(self, key: str) -> None:
        """End a graph in which no token is left."""
        abort = self.state.abort
        if not key and abort is not None and not abort.get("placed"):
            return  # what settles the abort comes first
        if key not in self.state.frames or any(token.frame == key for token in self.state.tokens.values()):
            return
        self.end_frame(key)

    def end_frame(self, key: str) -> None:
        """A graph is done; its result is that of the end that was reached last."""
        frame = self.state.frames[key]
        result = frame.result
        if not frame.parent:
            if size_of(result) > MAX_RESULT:
                keep_outputs(self, key, "result_too_large")
            return end(self, ["finish", result])
        frame.over = True
        drop_frame(self, key)
        if key in self.state.frames:
            return None  # what was cancelled reports first
        return self.frame_done(frame.parent, frame.index, result)

    def frames_may_go_on(self, gone: Token) -> None:
        """The work of a token that was taken away has reported: what waited for that goes on."""
        self.frame_may_end(gone.frame)
        for owner in self.state.in_order():
            if owner.at in self.state.tokens:
                self.handler(owner).frames_gone(self, owner)

    def frame_done(self, parent: str, index: int, result: Any) -> None:
        """A graph that a node started ended with a result."""
        owner = self.state.tokens.get(parent)
        if owner is None or owner.status != OWNING or owner.failed is not None:
            return
        try:
            self.handler(owner).frame_done(self, owner, index, result)
        except ExpressionError as error:
            self.fail_node(owner, error.code, error.message)

    def set_output(self, token: Token, result: Any) -> None:
        """Write the result of a token's node. Who still has the node's earlier result before them keeps that one."""
        outputs = self.state.frames[token.frame].outputs
        for other in self.state.tokens.values():
            if other is not token and other.frame == token.frame and other.source == token.node:
                other.source, other.value = "", outputs.get(token.node)
        outputs[token.node] = result
        token.source, token.value, token.status = token.node, None, READY

    def write(self, token: Token, node: Node) -> None:
        """Write what the node's result is to change.

        Raises:
            ExpressionError: A value does not fit.
        """
        if node.write:
            self.write_values(token, self.mapped(token, "write", node.write))

    def write_values(self, token: Token, values: dict[str, Any]) -> None:
        """Write fields of the turn, or variables of the graph.

        Raises:
            ExpressionError: A value does not fit, or there is no such field.
        """
        turn = self.state.turn
        turn_fields = {name: value for name, value in values.items() if turn and name in FIELDS}
        if turn_fields and turn is not None:
            turn = written(turn, turn_fields)
        changes = []
        for name, value in values.items():
            if name in turn_fields:
                continue
            frame = state_frame(self.state, self.state.frames[token.frame], name)
            if frame is None or frame.state is None:
                raise ExpressionError(f"`{token.node}` writes `{name}`, which the graph's `state` does not have")
            field = self.plan.bodies[frame.graph].state[name]
            changes.append((frame, name, reduced(name, field, frame.state[name], value)))
        # All of it or nothing: what a node wrote that then failed would be there on the way that catches the failure.
        self.state.turn = turn
        for frame, name, value in changes:
            frame.state = {**(frame.state or {}), name: value}

    def ways_out(self, token: Token, node: Node) -> list[str]:
        """The nodes that follow.

        Raises:
            ExpressionError: A condition fails, or no way is open.
        """
        if node.next.times is not None:
            return list(node.next.all) * self._times(token, node)
        if node.next.all or not node.next.edges():
            return list(node.next.all)
        names = self.names(token)
        with self.slot("next"):
            for edge in node.next.first:
                if edge.when is None or condition(edge.when).evaluate(names):
                    return [edge.to]
            taken = [edge.to for edge in node.next.each if edge.when and condition(edge.when).evaluate(names)]
        taken = taken or [edge.to for edge in node.next.each if edge.when is None]
        if not taken:
            raise ExpressionError(f"no way out of `{token.node}` is open; give it an edge without a condition")
        return taken

    def _times(self, token: Token, node: Node) -> int:
        given = self.mapped(token, "times", node.next.times)
        if not isinstance(given, int) or isinstance(given, bool) or not 0 <= given <= MAX_THREADS:
            raise ExpressionError(f"`{token.node}` is to go on {str(given)[:60]} times; give 0 to {MAX_THREADS}")
        return given
