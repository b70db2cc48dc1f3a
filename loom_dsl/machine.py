"""The machine: a plan, a state, and ``feed(input) -> commands``. No clock, no I/O, no randomness.

Two drivers run it: a Temporal workflow, and a loop in memory. The machine never depends on the order in
which activities finish, except where the graph says so: tokens are worked on in the order of their names.
"""

from typing import Any

from loom_dsl.commands import (
    ActivityDone,
    ActivityFailed,
    Answer,
    Command,
    Drain,
    Drained,
    Input,
    Proceed,
    RunActivity,
    SignalReceived,
    Started,
    StartTimer,
    TimerFired,
)
from loom_dsl.errors import ExpressionError
from loom_dsl.graph import Node, Recurse
from loom_dsl.machine_ends import (
    MOST_DECIDED,
    drop,
    drop_frame,
    end,
    flush,
    place_abort,
    place_ending,
)
from loom_dsl.machine_maps import admitted, doomed_is_gone, map_item_done, map_item_failed
from loom_dsl.machine_nodes import ENTER
from loom_dsl.machine_state import READY, RUNNING, WAITING, Frame, MachineState, Token
from loom_dsl.plan import Plan, condition
from loom_dsl.scope import names_at
from loom_dsl.states import TRANSITIONS, RunState
from loom_dsl.steering import deadline_passed, late_check_done, receive
from loom_dsl.writes import written

MOST_STEPS = 10_000
"""Nodes entered for one input. A graph that needs more goes round in circles without doing anything."""


class Machine:
    """Interprets a plan.

    Attributes:
        plan: What to interpret.
        state: Where it stands; JSON through `MachineState.to_json`.
        job: The job's id.
    """

    def __init__(self, plan: Plan, state: MachineState, job: str) -> None:
        self.plan, self.state, self.job = plan, state, job
        self.commands: list[Command] = []
        self.side_work: dict[str, Any] = {}
        """Activities in flight that belong to no token (flushes, looking up a signal's time)."""
        self.free_items: dict[str, tuple[int, set[int]]] = {}
        """What `admitted` has found out about maps in progress; derived, so not part of the state."""
        self.draining = False
        self.at_boundary = False
        self.over = False

    # -- the one entry -----------------------------------------------------------------------------

    def feed(self, happened: Input) -> list[Command]:
        """Take one input and give the commands that follow from it, in an order that replays."""
        self.commands = []
        self._tick(happened.now)
        match happened:
            case Started():
                self._start()
            case Proceed():
                self.at_boundary = False
            case Drain():
                self.draining = True
            case ActivityDone(at=at, result=result):
                self._activity_done(at, result)
            case ActivityFailed():
                self._activity_failed(happened)
            case TimerFired(at=at):
                deadline_passed(self, at)
            case SignalReceived():
                receive(self, happened)
        self._settle()
        return self.commands

    def in_flight(self) -> bool:
        """Whether an activity is running."""
        return bool(self.side_work) or any(token.status == RUNNING for token in self.state.tokens.values())

    # -- what node kinds use -----------------------------------------------------------------------

    def command(self, command: Command) -> None:
        """Issue a command; an activity takes the events that wait for a carrier along."""
        if isinstance(command, RunActivity) and command.carries:
            command.events.extend(self.state.outbox.attach(command.at))
        self.commands.append(command)

    def emit(self, kind: str, **data: Any) -> None:
        """Tell observers something; the event travels with the next activity."""
        turn = self.state.turn.turn_counter if self.state.turn else 0
        self.state.outbox.add({"t": kind, "n": turn, **data})

    def answer(self, to: str | None, verdict: str, message: str = "") -> None:
        """Answer an update; a signal has nobody to answer to."""
        if to is not None:
            self.command(Answer(to=to, verdict=verdict, message=message))

    def node(self, token: Token) -> Node:
        """The node that a token is at."""
        return self.plan.node(self.state.frames[token.frame].graph, token.node)

    def names(self, token: Token) -> dict[str, Any]:
        """What an expression at this token may read."""
        return names_at(self, token)

    def mapped(self, token: Token, slot: str, value: Any, names: dict[str, Any] | None = None) -> Any:
        """Evaluate a mapping of a token's node.

        Raises:
            ExpressionError: It fails.
        """
        graph = self.state.frames[token.frame].graph
        return self.plan.template(graph, token.node, slot, value).evaluate(names or self.names(token))

    def complete(self, token: Token, result: Any) -> None:
        """The token's node gave its result: write it, and go on."""
        node = self.node(token)
        self.set_output(token, result)
        try:
            self._write(token, node)
            self.move(token, self._ways_out(token, node))
        except ExpressionError as error:
            self.fail_node(token, error.code, error.message)

    def pass_on(self, token: Token) -> None:
        """Leave a node that has no result of its own."""
        try:
            self.move(token, self._ways_out(token, self.node(token)))
        except ExpressionError as error:
            self.fail_node(token, error.code, error.message)

    def move(self, token: Token, targets: list[str], *, value: Any = None) -> None:
        """Put the token (and its copies) before the targets. With a value, that is the result there."""
        self.state.tokens.pop(token.at, None)
        source = "" if value is not None else token.source
        carried = value if value is not None else token.value
        for target in targets:
            self.place(token.frame, target, source, carried)
        if not targets:
            self._frame_may_end(token.frame)

    def place(self, frame_key: str, target: str, source: str = "", value: Any = None) -> None:
        """Put a new token before a node, or where that one sends it when it has been entered often enough."""
        frame, full = self.state.frames[frame_key], set[str]()
        while True:
            node = self.plan.node(frame.graph, target)
            visit = frame.visits.get(target, 0) + 1
            if node.max_visits is None or visit <= node.max_visits:
                break
            full.add(target)
            if node.exhausted is None or node.exhausted in full:
                break
            target = node.exhausted
        frame.visits[target] = visit
        at = f"{frame_key}/{target}#{visit}" if frame_key else f"{target}#{visit}"
        self.state.tokens[at] = Token(at, frame_key, target, source=source, value=value)
        if target in full:
            self.state.tokens[at].data["full"] = node.max_visits

    def fail_node(self, token: Token, code: str, message: str) -> None:
        """The token's node failed: take the way that `catch` gives, or fail what contains it."""
        node = self.node(token)
        target = node.catch.get(code) or node.catch.get("any")
        if target:
            token.source = ""
            return self.move(token, [target], value={"ok": False, "code": code, "message": message})
        frame = self.state.frames[token.frame]
        if not frame.parent:
            return end(self, ["fail", code, message, None])
        self.state.tokens.pop(token.at, None)
        return map_item_failed(self, self.state.tokens[frame.parent], code, message)

    def end_frame(self, token: Token, result: Any) -> None:
        """The token reached an end: its frame is done."""
        frame = self.state.frames[token.frame]
        if not frame.parent:
            return end(self, ["finish", result])
        self.state.tokens.pop(token.at, None)
        drop_frame(self, token.frame)
        return map_item_done(self, self.state.tokens[frame.parent], frame.index, result)

    def close_approval(self, token: Token, **decision: Any) -> None:
        """An approval needs no decision any more; tell how it ended, and know it when another decision comes."""
        self.state.decided = [*self.state.decided, token.data["id"]][-MOST_DECIDED:]
        self.emit("approval_decided", approval_id=token.data["id"], **decision)

    def set_output(self, token: Token, result: Any) -> None:
        """Write the result of a token's node. Who still has the node's earlier result before them keeps that one."""
        outputs = self.state.frames[token.frame].outputs
        for other in self.state.tokens.values():
            if other is not token and other.frame == token.frame and other.source == token.node:
                other.source, other.value = "", outputs.get(token.node)
        outputs[token.node] = result
        token.source, token.value, token.status = token.node, None, READY

    def leave_phase(self) -> None:
        """Tell that the phase is over in which the last token was."""
        if self.state.phase:
            self.emit("phase_end", name=self.state.phase)
            self.state.phase = ""

    def update_state(self) -> None:
        """Find out the run's state from where the tokens are (mission B1)."""
        if self.between_runs():
            return
        now = RunState(self.state.run_state)
        waiting = any(token.status == WAITING for token in self.state.tokens.values())
        running = any(token.status == RUNNING for token in self.state.tokens.values())
        if now is RunState.TOOL_RUNNING and waiting and not running:
            self.enter_state(RunState.AWAITING_HUMAN)
        elif now is RunState.AWAITING_HUMAN and (running or not waiting) and not self.state.ending:
            self.enter_state(RunState.TOOL_RUNNING)

    def enter_state(self, new: RunState) -> None:
        """Change the run's state where the table has that change; tell observers."""
        old = RunState(self.state.run_state)
        if new in TRANSITIONS[old]:
            self.state.run_state = new.value
            self.emit("state", **{"from": old.value, "state": new.value})

    # -- inputs ------------------------------------------------------------------------------------

    def _start(self) -> None:
        if not self.state.frames:
            root = self.plan.root
            self.state.frames[""] = Frame(root)
            self.place("", self.plan.graphs[root].start)
        for token in self.state.in_order():
            if token.status == WAITING and token.data.get("deadline") is not None:
                self.command(StartTimer(at=token.at, when=token.data["deadline"]))

    def _activity_done(self, at: str, result: Any) -> None:
        self.state.outbox.acknowledge(at)
        if at in self.side_work:
            late_check_done(self, self.side_work.pop(at), result)
            return
        token = self.state.tokens.get(at)
        if token is None or token.status != RUNNING:
            self.emit("warning", code="stray_result", message=f"a result came for {at}, where nothing runs")
            return
        taken = set(token.data.get("taken", ()))
        self.state.inbox = [message for message in self.state.inbox if message["id"] not in taken]
        if token.doomed:
            doomed_is_gone(self, token)
        else:
            self.complete(token, result)

    def _activity_failed(self, failed: ActivityFailed) -> None:
        self.state.outbox.take_back(failed.at)
        if failed.at in self.side_work:
            late_check_done(self, self.side_work.pop(failed.at), None)
            return
        token = self.state.tokens.get(failed.at)
        if token is None or token.status != RUNNING:
            self.emit("warning", code="stray_result", message=f"a failure came for {failed.at}, where nothing runs")
        elif token.doomed:
            doomed_is_gone(self, token)
        else:
            token.status = READY
            self.fail_node(token, failed.code, failed.message)

    # -- after every input -------------------------------------------------------------------------

    def _settle(self) -> None:
        place_abort(self)
        self._advance()
        self.update_state()
        place_ending(self)
        flush(self)
        if self.draining and not self.in_flight() and not self.over and not self.at_boundary:
            self.command(Drained())

    def between_runs(self) -> bool:
        """Whether this run is about to end, so that nothing new may be issued."""
        return self.draining or self.at_boundary

    def _held(self) -> bool:
        state = self.state
        return bool(
            self.between_runs()
            or state.ending
            or state.paused
            or (state.abort is not None and not state.abort.get("placed"))
        )

    def _advance(self) -> None:
        steps, moved = 0, True
        while moved and not self._held():
            moved = False
            for token in self.state.in_order():
                if token.at not in self.state.tokens or token.status != READY or self._held():
                    continue
                if not self._may_enter(token):
                    moved = moved or token.at not in self.state.tokens
                    continue
                steps, moved = steps + 1, True
                if steps > MOST_STEPS:
                    return end(
                        self, ["fail", "endless_loop", f"over {MOST_STEPS} nodes were entered in one step", None]
                    )
                self._enter(token)
        return None

    def _may_enter(self, token: Token) -> bool:
        if not token.frame and isinstance(self.node(token), Recurse):
            # The turn ends for all of it. What is in flight reports first: its name comes again in the next turn.
            for other in self.state.in_order():
                if other is not token:
                    drop(self, other)
            return not self.in_flight()
        try:
            return admitted(self, token)
        except ExpressionError as error:
            self.fail_node(token, error.code, error.message)
            return False

    def _enter(self, token: Token) -> None:
        node = self.node(token)
        if "full" in token.data:
            return self.fail_node(token, "max_visits", f"`{token.node}` was entered over {token.data['full']} times")
        if not token.frame and node.phase and node.phase != self.state.phase:
            self._change_phase(node.phase)
        if node.state is not None:
            self.enter_state(node.state)
        try:
            names = self.names(token)
            for kind, data in node.emit.items():
                self.emit(kind, **self.mapped(token, f"emit.{kind}", data, names))
            ENTER[node.kind](self, token, node, names)
        except ExpressionError as error:
            return self.fail_node(token, error.code, error.message)
        return None

    def _change_phase(self, phase: str) -> None:
        self.leave_phase()
        self.state.phase = phase
        self.emit("phase_start", name=phase)

    def _ways_out(self, token: Token, node: Node) -> list[str]:
        if node.next.all:
            return list(node.next.all)
        if not node.next.first:
            return []
        names = self.names(token)
        for edge in node.next.first:
            if edge.when is None or condition(edge.when).evaluate(names):
                return [edge.to]
        raise ExpressionError(f"no way out of `{token.node}` is open; give it an edge without a condition")

    def _write(self, token: Token, node: Node) -> None:
        if not node.write or self.state.turn is None:
            return
        self.state.turn = written(self.state.turn, self.mapped(token, "write", node.write))

    def _frame_may_end(self, key: str) -> None:
        if any(token.frame == key for token in self.state.tokens.values()):
            return
        frame = self.state.frames[key]
        if not frame.parent:
            return end(self, ["finish", None])
        drop_frame(self, key)
        return map_item_done(self, self.state.tokens[frame.parent], frame.index, None)

    # -- time ----------------------------------------------------------------------------

    def _tick(self, now: float) -> None:
        state = self.state
        idle = state.paused is not None or state.run_state == RunState.AWAITING_HUMAN
        if state.turn is not None and state.last and not idle and now > state.last:
            passed = round((now - state.last) * 1000)
            state.turn = state.turn.model_copy(update={"active_ms": state.turn.active_ms + passed})
        state.last = max(now, state.last)
