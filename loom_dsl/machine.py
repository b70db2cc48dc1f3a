"""The machine: a plan, a state, and ``feed(input) -> commands``. No clock, no I/O, no randomness.

Two drivers run it: a Temporal workflow, and a loop in memory. The machine never depends on the order in
which activities finish, except where the graph says so: tokens are worked on in the order of their names.
"""

from loom_dsl.commands import (
    ActivityDone,
    ActivityFailed,
    ChildEnded,
    Command,
    Drain,
    Drained,
    GoOn,
    Input,
    Proceed,
    SignalReceived,
    Started,
    StartTimer,
    TimerFired,
    TooLarge,
    Yielded,
)
from loom_dsl.decisions import deadline_passed
from loom_dsl.errors import ExpressionError
from loom_dsl.expr_values import MOST_STEPS as MOST_STEPS_OF_EXPRESSIONS
from loom_dsl.machine_approvals import wake
from loom_dsl.machine_clock import AT as TIME
from loom_dsl.machine_clock import time_is_up, watch
from loom_dsl.machine_ends import end, flush, place_abort, place_ending
from loom_dsl.machine_entry import may_enter
from loom_dsl.machine_frames import new_frame
from loom_dsl.machine_joins import fire_joins
from loom_dsl.machine_moves import Moves
from loom_dsl.machine_nodes import ENTER
from loom_dsl.machine_outputs import keep_outputs
from loom_dsl.machine_reports import activity_done, activity_failed, child_ended
from loom_dsl.machine_resume import begin_again
from loom_dsl.machine_retry import is_due, run_again, wake_up
from loom_dsl.machine_state import BACKING_OFF, READY, TIMING, WAITING, Frame, Token
from loom_dsl.machine_stuck import fail_stuck
from loom_dsl.machine_told import began, begins
from loom_dsl.machine_undo import never_began, push
from loom_dsl.machine_waits import deadline_of
from loom_dsl.states import RunState
from loom_dsl.steering import receive

WORK = frozenset({"activity", "llm", "agent", "approval", "recurse"})
"""Kinds of nodes that give the driver work. While it drains a run they wait; all others go on, so that what is not
needed any more is cancelled, and what comes first counts as first."""
STEPS_AT_ONCE = 1_000
"""Nodes entered for one input: a workflow task must end soon. The rest follows after a moment."""
MOST_STEPS = 1_000_000
"""Nodes entered while nothing happens outside. A graph that needs more goes round in circles without doing anything."""


class Machine(Moves):
    """Interprets a plan: takes one input after the other, and lets tokens go on as far as they can."""

    def feed(self, happened: Input) -> list[Command]:
        """Take one input and give the commands that follow from it, in an order that replays."""
        self.commands = []
        self.meter.used = 0
        self.tick(happened.now)
        if isinstance(happened, ActivityDone | ActivityFailed | ChildEnded | SignalReceived):
            self.spun = 0
        match happened:
            case Started():
                self._start()
            case Proceed() | GoOn() | Drain() | TooLarge():
                self._heed(happened)
            case ActivityDone(at=at, result=result):
                activity_done(self, at, result)
            case ActivityFailed():
                activity_failed(self, happened)
            case ChildEnded():
                child_ended(self, happened)
            case TimerFired(at=at):
                time_is_up(self) if at == TIME else deadline_passed(self, at)
            case SignalReceived():
                receive(self, happened)
        self._settle()
        return self.commands

    def _heed(self, driver: Proceed | GoOn | Drain | TooLarge) -> None:
        match driver:
            case Proceed():
                self.at_boundary = False
            case GoOn():
                self.yielded = False
            case Drain(hold=hold):
                self.draining, self.holding = True, self.holding or hold
            case TooLarge(size=size, most=most):
                self.draining = self.holding = self.at_boundary = False
                why = f"the job's state has {size} bytes, and {most} can be carried on"
                keep_outputs(self, "", "state_too_large")
                advice = "keep large results in files, or in child jobs that give back less"
                end(self, ["fail", "state_too_large", f"{why}; {advice}", None])

    def _start(self) -> None:
        if not self.state.frames:
            self._begin()
        else:
            begin_again(self)
        for token in self.state.in_order():
            if token.status == BACKING_OFF:
                wake_up(self, token)
            elif not token.doomed and (when := wake(token)) is not None:
                self.command(StartTimer(at=token.at, when=when))

    def _begin(self) -> None:
        root = self.plan.root
        if self.state.turn is None:
            self.enter_state(RunState.RUNNING)
        try:
            self.state.frames[""] = new_frame(self, root, given=self.state.input, inherits=self.state.turn is not None)
        except ExpressionError as error:
            self.state.frames[""] = Frame(root)
            return end(self, ["fail", "invalid_input", error.message, None])
        return self.place("", self.plan.bodies[root].start)

    def _settle(self) -> None:
        place_abort(self)
        self._advance()
        self.update_state()
        place_ending(self)
        flush(self)
        watch(self)
        if self.draining and not self.in_flight() and not self.over and not self.at_boundary:
            self.command(Drained())

    def _held(self) -> bool:
        state = self.state
        return bool(
            self.at_boundary
            or self.holding
            or state.ending
            or state.paused
            or (state.abort is not None and not state.abort.get("placed"))
        )

    def _advance(self) -> None:
        steps, moved = 0, True
        while (moved or self._joined()) and not self._held():
            moved = False
            for token in self.state.in_order():
                if token.at not in self.state.tokens or token.status != READY or self._held():
                    continue
                if self.draining and self.node(token).kind in WORK:
                    continue
                if not is_due(token) and not may_enter(self, token):
                    moved = moved or token.at not in self.state.tokens
                    continue
                if steps >= STEPS_AT_ONCE or self.meter.used > MOST_STEPS_OF_EXPRESSIONS:
                    return self._yield()
                steps, moved = steps + 1, True
                self.spun += 1
                if self.spun > MOST_STEPS:
                    why = f"over {MOST_STEPS} nodes were entered while nothing happened outside"
                    return end(self, ["fail", "endless_loop", why, None])
                self._enter(token)
        return None

    def _yield(self) -> None:
        if not self.yielded:
            self.yielded = True
            self.command(Yielded())

    def _joined(self) -> bool:
        """Let joins fire, now that nothing moves any more."""
        if self._held():
            return False
        return fire_joins(self) or fail_stuck(self)

    def _run_again(self, token: Token) -> None:
        """A step's pause is over. Where its arguments were too large to be kept, its node says them once more."""
        if run_again(self, token):
            return None
        try:
            node = self.node(token)
            ENTER[node.kind](self, token, node, self.names(token))
            if (due := token.data.get("deadline")) is not None and token.at in self.state.tokens:
                self.command(StartTimer(at=token.at, when=due))
        except ExpressionError as error:
            return self.fail_node(token, error.code, error.message)
        return None

    def _enter(self, token: Token) -> None:
        if is_due(token):
            return self._run_again(token)
        node = self.node(token)
        if "full" in token.data:
            return self.fail_node(token, "max_visits", f"`{token.node}` was entered over {token.data['full']} times")
        if not token.frame and node.phase and node.phase != self.state.phase:
            self.enter_phase(node.phase)
        if node.state is not None:
            self.enter_state(node.state)
        try:
            names = self.names(token)
            for kind, data in node.emit.items():
                self.emit(kind, **self.mapped(token, f"emit.{kind}", data, names))
            # Before anything is begun, or a deadline that cannot be told would leave work behind that nobody waits for.
            due_before = token.data.get("deadline")
            due = deadline_of(self, token, node, names) if due_before is None else due_before
            push(self, token, node, names)
            begins(self, token, node)
            ENTER[node.kind](self, token, node, names)
            began(self, token, node)
        except ExpressionError as error:
            never_began(self, token)
            return self.fail_node(token, error.code, error.message)
        if due is not None and token.at in self.state.tokens and token.status not in (READY, WAITING, TIMING):
            token.data["deadline"] = due
            if due_before is None:
                self.command(StartTimer(at=token.at, when=due))
        return None
