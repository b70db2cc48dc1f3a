"""The machine: a plan, a state, and ``feed(input) -> commands``. No clock, no I/O, no randomness.

Two drivers run it: a Temporal workflow, and a loop in memory. The machine never depends on the order in
which activities finish, except where the graph says so: tokens are worked on in the order in which it is written.
"""

from collections.abc import Mapping
from typing import Any

from loom_dsl.agent.states import RunState
from loom_dsl.errors import ExpressionError, IllegalTransition
from loom_dsl.expr.values import MAX_STEPS as MAX_STEPS_OF_EXPRESSIONS
from loom_dsl.graph.edges import Node
from loom_dsl.graph.nodes import Map, Recurse
from loom_dsl.graph.plan import Plan, condition
from loom_dsl.machine.commands import (
    ActivityDone,
    ActivityFailed,
    CancelTimer,
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
from loom_dsl.machine.kinds.approvals import wake
from loom_dsl.machine.kinds.joins import DEADLOCK, fire_joins, stuck_join, why_stuck
from loom_dsl.machine.kinds.maps import admitted
from loom_dsl.machine.kinds.table import HANDLERS
from loom_dsl.machine.kinds.work import activity_done, activity_failed, child_ended
from loom_dsl.machine.records import MapRecord
from loom_dsl.machine.signals import receive
from loom_dsl.machine.state import (
    BACKING_OFF,
    CHILD,
    HALTED,
    JOINING,
    LISTENING,
    READY,
    RUNNING,
    TIMING,
    WAITING,
    Frame,
    MachineState,
    Token,
)
from loom_dsl.machine.tokens.compensation import never_began, push
from loom_dsl.machine.tokens.deadlines import deadline_of
from loom_dsl.machine.tokens.ending import (
    abort,
    drop,
    end,
    flush,
    issue_flush,
    keep_outputs,
    place_abort,
    place_ending,
)
from loom_dsl.machine.tokens.frames import new_frame
from loom_dsl.machine.tokens.moves import Moves, NodeHandler
from loom_dsl.machine.tokens.node_events import began, begins
from loom_dsl.machine.tokens.retry import EARLY, is_due, pause_over, run_again, wake_up

# How long an agent's job may be active: a timer of the run ends the turn that is under way.


AT, CODE = "~time", "max_run_duration"


def watch(machine: "Machine") -> None:
    """Start the run's timer where time counts, and stop it where it does not: one for all turns of a run."""
    left = _left(machine)
    counts = left is not None and not machine.idle() and machine.state.abort is None and machine.state.ending is None
    if machine.between_runs() or machine.over or counts is machine.watched:
        return
    machine.watched = counts
    if left is not None and counts:
        machine.command(StartTimer(at=AT, when=machine.state.last + max(left, 0.001)))
    else:
        machine.command(CancelTimer(at=AT))


def time_is_up(machine: "Machine") -> None:
    """The timer fired: settle the turn as an abort does, and fail the job with what it has come to."""
    if not machine.watched:
        return
    machine.watched = False
    left = _left(machine)
    if machine.between_runs() or left is None or left > 0:
        return  # the next run looks itself; and what is left is waited for once more
    abort(machine, {"by": "", "reason": "", "code": CODE})


def _left(machine: "Machine") -> float | None:
    """Seconds that the job may still be active; None where there is no limit."""
    most = machine.plan.agent_names.get("limits", {}).get(CODE)
    turn = machine.state.turn
    return None if most is None or turn is None else float(most) - turn.active_ms / 1000


# What holds a token up before a node: a condition, the order of a map's items, a lock; and for how long it may.


def may_enter(machine: "Machine", token: Token) -> bool:
    """Whether a token may enter its node now. If so, it has what it needs: its lock, and its place among the items."""
    node = machine.node(token)
    if not token.frame and isinstance(node, Recurse):
        # The turn ends for all of it. What is in flight reports first: its name comes again in the next turn.
        for other in machine.state.in_order():
            if other is not token and other.at in machine.state.tokens:
                drop(machine, other)
        return not machine.at_work() and _is_light(machine)
    try:
        if node.only_while is not None and not condition(node.only_while).evaluate(machine.names(token)):
            set_deadline(machine, token, node, machine.names(token))
            return False
        if not admitted(machine, token):
            return False
        if not _unlocked(machine, token, node):
            set_deadline(machine, token, node, machine.names(token))
            return False
        return True
    except ExpressionError as error:
        machine.fail_node(token, error.code, error.message)
        return False


def _is_light(machine: "Machine") -> bool:
    """Whether what waits to be told can go through to the next turn; otherwise it is stored first."""
    if not machine.state.outbox.is_heavy():
        return True
    issue_flush(machine)
    return False


def _unlocked(machine: "Machine", token: Token, node: Node) -> bool:
    """Whether nobody else is where the node's mutex is held; if so, this token holds it."""
    if node.mutex is None:
        return True
    lock = _lock_of(machine, token, node.mutex)
    holder = machine.state.locks.get(lock)
    if holder is not None and holder != token.at and holder in machine.state.tokens:
        return False
    machine.state.locks = {**machine.state.locks, lock: token.at}
    return True


def _lock_of(machine: "Machine", token: Token, mutex: str) -> str:
    """The name of the lock that a token needs now.

    Raises:
        ExpressionError: It cannot be computed, or is no text.
    """
    lock = machine.mapped(token, "mutex", mutex)
    if not isinstance(lock, str) or not lock:
        raise ExpressionError(f"the mutex of `{token.node}` is {str(lock)[:60]!r}; a lock's name is text")
    return lock


def set_deadline(machine: "Machine", token: Token, node: Node, names: dict[str, Any]) -> None:
    """Start the timer of a node that is not done at once; an approval has started its own."""
    if token.deadline is not None:
        return
    due = deadline_of(machine, token, node, names)
    if due is not None:
        token.deadline = due
        machine.command(StartTimer(at=token.at, when=due))


# The beginning of a job that goes on where another one failed.


def begin_again(machine: "Machine") -> None:
    """Begin a job that goes on where another one failed. Deadlines of what is under way begin anew."""
    state = machine.state
    if state.turn is not None or state.run_state != RunState.IDLE.value:
        return
    machine.enter_state(RunState.RUNNING)
    for token in state.in_order():
        if token.at not in state.tokens or token.status == READY:
            continue
        node = machine.node(token)
        began(machine, token, node)
        if not token.anew:
            continue
        token.anew = False
        try:
            due = deadline_of(machine, token, node, machine.names(token))
        except ExpressionError as error:
            machine.fail_node(token, error.code, error.message)
            continue
        if due is not None:
            token.deadline = due


# Finds tokens that wait for what can never come, and fails them, so that no job hangs without a word.


_MAY_GO_ON = frozenset({RUNNING, CHILD, WAITING, LISTENING, TIMING, BACKING_OFF, HALTED})


def fail_stuck(machine: "Machine") -> bool:
    """Fail a token that waits for ever. False when there is none."""
    join = stuck_join(machine)
    if join is not None:
        machine.fail_node(join, DEADLOCK, why_stuck(machine, join))
        return True
    blocked = [token for token in machine.state.in_order() if token.status in (READY, JOINING)]
    if not blocked or machine.draining or machine.side_work:
        return False
    if any(_may_go_on(machine, token) for token in machine.state.tokens.values()):
        return False
    if blocked[0].status == JOINING:
        machine.fail_node(blocked[0], DEADLOCK, why_stuck(machine, blocked[0]))
    else:
        machine.fail_node(blocked[0], "deadlock", _why_blocked(machine, blocked[0]))
    return True


def _may_go_on(machine: "Machine", token: Token) -> bool:
    """Whether something can come that lets a token go on: a result, a time, an event, a decision."""
    if token.status in _MAY_GO_ON or token.deadline is not None:
        return True
    node, record = machine.node(token), token.record
    return isinstance(record, MapRecord) and isinstance(node, Map) and bool(record.open or node.map.complete)


def _why_blocked(machine: "Machine", token: Token) -> str:
    node = machine.node(token)
    lock = _lock_waited_for(machine, token, node)
    if lock is not None and machine.state.locks.get(lock) not in (None, token.at):
        held = f"`{lock}`, which `{machine.state.locks[lock]}` holds"
    else:
        held = f"`{node.only_while}`" if node.only_while else "the other items of its map"
    return f"`{token.node}` waits for {held}, and nothing that is left can change that"


def _lock_waited_for(machine: "Machine", token: Token, node: Node) -> str | None:
    try:
        return None if node.mutex is None else _lock_of(machine, token, node.mutex)
    except ExpressionError:
        return None


WORK = frozenset({"activity", "llm", "agent", "approval", "recurse"})
"""Kinds of nodes that give the driver work. While it drains a run they wait; all others go on, so that what is not
needed any more is cancelled, and what comes first counts as first."""
STEPS_AT_ONCE = 1_000
"""Nodes entered for one input: a workflow task must end soon. The rest follows after a moment."""
MAX_STEPS = 1_000_000
"""Nodes entered while nothing happens outside. A graph that needs more goes round in circles without doing anything."""


class Machine(Moves):
    """Interprets a plan: takes one input after the other, and lets tokens go on as far as they can."""

    def __init__(
        self, plan: Plan, state: MachineState, job: str, handlers: Mapping[str, NodeHandler[Any]] = HANDLERS
    ) -> None:
        super().__init__(plan, state, job, handlers)

    def feed(self, happened: Input) -> list[Command]:
        """Take one input and give the commands that follow from it, in an order that replays."""
        self.commands = []
        self.meter.used = 0
        self.tick(happened.now)
        try:
            self._take(happened)
            self._settle()
        except IllegalTransition as error:
            self._end_of_defect(error)
        return self.commands

    def _end_of_defect(self, error: IllegalTransition) -> None:
        """End the job with what is wrong, and not with its result: raised, it would fail this task again and again.

        From every state a run may fail, so that this cannot come here once more.
        """
        ending = ["fail", error.code, error.message, None]
        if self.state.ending is not None:
            self.state.ending = ending
        end(self, ending)
        self._settle()

    def _take(self, happened: Input) -> None:
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
                time_is_up(self) if at == AT else self._timer_fired(at)
            case SignalReceived():
                receive(self, happened)

    def _timer_fired(self, at: str) -> None:
        """A timer fired: a question is told again, passed on or expires; what else waits is over."""
        token = self.state.tokens.get(at)
        if token is None or token.doomed:
            return None
        self.spun = 0
        due = token.deadline
        if token.status == WAITING:  # a question has several times, and looks itself which of them it is
            return self.handler(token).deadline(self, token)
        if token.status == BACKING_OFF and (due is None or due - self.state.last > EARLY):
            return pause_over(self, token)
        if due is None:
            return None
        if due - self.state.last > EARLY:
            return self.command(StartTimer(at=at, when=due))  # it was set for what had this name in the turn before
        return self.handler(token).deadline(self, token)

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
                if steps >= STEPS_AT_ONCE or self.meter.used > MAX_STEPS_OF_EXPRESSIONS:
                    return self._yield()
                steps, moved = steps + 1, True
                self.spun += 1
                if self.spun > MAX_STEPS:
                    why = f"over {MAX_STEPS} nodes were entered while nothing happened outside"
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

    def _enter_state_of(self, token: Token, state: RunState) -> None:
        """Change the run's state to that of a node.

        Raises:
            IllegalTransition: The table has no such change; the graph is to be mended.
        """
        try:
            self.enter_state(state)
        except IllegalTransition as error:
            raise IllegalTransition(f"{error.message}; change the `state` of the node `{token.node}`") from None

    def _run_again(self, token: Token) -> None:
        """A step's pause is over. Where its arguments were too large to be kept, its node says them once more."""
        if run_again(self, token):
            return None
        try:
            node = self.node(token)
            self.handlers[node.kind].enter(self, token, node, self.names(token))
            if (due := token.deadline) is not None and token.at in self.state.tokens:
                self.command(StartTimer(at=token.at, when=due))
        except ExpressionError as error:
            return self.fail_node(token, error.code, error.message)
        return None

    def _enter(self, token: Token) -> None:
        if is_due(token):
            return self._run_again(token)
        node = self.node(token)
        if token.full is not None:
            return self.fail_node(token, "max_visits", f"`{token.node}` was entered over {token.full} times")
        if not token.frame and node.phase and node.phase != self.state.phase:
            self.enter_phase(node.phase)
        if node.state is not None:
            self._enter_state_of(token, node.state)
        try:
            names = self.names(token)
            for kind, data in node.emit.items():
                self.emit(kind, **self.mapped(token, f"emit.{kind}", data, names))
            # Before anything is begun, or a deadline that cannot be told would leave work behind that nobody waits for.
            due_before = token.deadline
            due = deadline_of(self, token, node, names) if due_before is None else due_before
            push(self, token, node, names)
            begins(self, token, node)
            self.handlers[node.kind].enter(self, token, node, names)
            began(self, token, node)
        except ExpressionError as error:
            never_began(self, token)
            return self.fail_node(token, error.code, error.message)
        if due is not None and token.at in self.state.tokens and token.status not in (READY, WAITING, TIMING):
            token.deadline = due
            if due_before is None:
                self.command(StartTimer(at=token.at, when=due))
        return None
