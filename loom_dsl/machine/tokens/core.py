"""What every part of the machine uses: its state, its commands, what it tells, and how the run's state changes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from loom_dsl.agent.states import STAYS, RunState, transition
from loom_dsl.agent.turn import TurnState
from loom_dsl.errors import ExpressionError
from loom_dsl.expr.values import Meter
from loom_dsl.graph.edges import Node
from loom_dsl.graph.plan import Plan
from loom_dsl.machine.commands import ActivityFailed, Command, RunActivity, UpdateAnswer
from loom_dsl.machine.pending_decision import PendingDecision
from loom_dsl.machine.state import BACKING_OFF, CHILD, HALTED, OWNING, RUNNING, TIMING, WAITING, MachineState, Token
from loom_dsl.machine.tokens.scope import names_at, turn_names


def rests(token: Token) -> bool:
    """Whether a token waits for what is not the job's own work: a person, or the end of an outage."""
    return token.status == HALTED or (
        token.status == BACKING_OFF and token.retry is not None and token.retry.outage is not None
    )


def order_of(plan: Plan, state: MachineState, token: Token) -> tuple[int, ...]:
    """Say where a token's work stands in the order written: by its node, its visit, and those of what it runs in."""
    order: list[int] = []
    at, key, node = token.at, token.frame, token.node
    while True:
        frame = state.frames[key]
        visit = at.rpartition("#")[2]
        order += [int(visit) if visit.isdecimal() else 0, plan.rank(frame.graph, node)]
        if not frame.parent:
            return tuple(reversed(order))
        order.append(frame.index)
        at = frame.parent
        key, _, name = at.rpartition("/")
        node = state.tokens[at].node if at in state.tokens else name.partition("#")[0]


ENDED = frozenset({RunState.COMPLETED, RunState.FAILED, RunState.ABORTED})
SideWork = Callable[[Any, ActivityFailed | None], None]
"""Takes the result of an activity that belongs to no token, or its failure."""


class Core:
    """A plan, a state, and the commands that follow from an input.

    Attributes:
        plan: What to interpret.
        state: Where it stands; JSON through `MachineState.to_json`.
        job: The job's id.
    """

    def __init__(self, plan: Plan, state: MachineState, job: str) -> None:
        self.plan, self.state, self.job = plan, state, job
        self.commands: list[Command] = []
        self.issued: dict[str, RunActivity] = {}
        """What tokens' activities in flight were commanded with, by execution; nothing is in flight between runs."""
        self.side_work: dict[str, SideWork | None] = {}
        """Activities in flight that belong to no token, such as flushes, and who takes their results."""
        self.pending_decisions: dict[str, list[PendingDecision]] = {}
        """Decisions that are not settled, by approval, in the order in which they came."""
        self.turn_told: tuple[TurnState | None, dict[str, Any]] = (None, {})
        """A turn, and what expressions may read of it; kept because a machine enters many nodes in one turn."""
        self.free_items: dict[str, tuple[int, set[int]]] = {}
        """What `admitted` has found out about maps in progress; derived, so not part of the state."""
        self.draining = self.holding = False
        self.at_boundary = False
        self.yielded = False
        self.watched = False
        """Whether a timer runs for the time that the job may be active."""
        self.spun = 0
        """Nodes entered in this run since anything happened outside."""
        self.over = False
        self.meter = Meter()
        """What the expressions cost that were evaluated for the input in hand."""
        for token in state.tokens.values():
            token.order = order_of(plan, state, token)

    def in_flight(self) -> bool:
        """Whether an activity is running."""
        return bool(self.side_work) or any(token.status == RUNNING for token in self.state.tokens.values())

    def at_work(self) -> bool:
        """Whether an activity or a child job is running."""
        return self.in_flight() or any(token.status == CHILD for token in self.state.tokens.values())

    def between_runs(self) -> bool:
        """Whether this run is about to end, so that nothing new may be issued."""
        return self.draining or self.at_boundary

    def command(self, command: Command) -> None:
        """Issue a command; an activity takes the events that wait for a carrier along."""
        if isinstance(command, RunActivity) and command.carries:
            command.events.extend(self.state.outbox.attach(command.at))
        if isinstance(command, RunActivity) and command.at in self.state.tokens:
            self.issued[command.at] = command
        self.commands.append(command)

    def emit(self, kind: str, /, **data: Any) -> None:
        """Tell observers something; the event travels with the next activity."""
        turn = self.state.turn.turn_counter if self.state.turn else 0
        self.state.outbox.add({"t": kind, "n": turn, **data})

    def named(self, **which: Any) -> dict[str, Any]:
        """Give what tells an event from another of the same words, where there is something."""
        return which if all(which.values()) else {}

    def answer(self, to: str | None, verdict: str, message: str = "") -> None:
        """Answer an update; a signal has nobody to answer to."""
        if to is not None:
            self.command(UpdateAnswer(to=to, verdict=verdict, message=message))

    def node(self, token: Token) -> Node:
        """The node that a token is at."""
        return self.plan.node(self.state.frames[token.frame].graph, token.node)

    def names(self, token: Token) -> dict[str, Any]:
        """What an expression at this token may read."""
        turn = self.state.turn
        told = None if turn is None else self._turn_names(turn)
        return names_at(self.plan, self.state, token, job=self.job, meter=self.meter, turn=told)

    def _turn_names(self, turn: TurnState) -> dict[str, Any]:
        """What `turn` holds; a copy, which whoever gets it may change."""
        if self.turn_told[0] is not turn:
            self.turn_told = turn, turn_names(turn)
        return dict(self.turn_told[1])

    def mapped(self, token: Token, slot: str, value: Any, names: dict[str, Any] | None = None) -> Any:
        """Evaluate a mapping of a token's node.

        Raises:
            ExpressionError: It fails.
        """
        template = self.plan.template(self.state.frames[token.frame].graph, token.node, slot, value)
        with self.slot(slot):
            return template.evaluate(names or (self.names(token) if template.expressions else {}))

    @contextmanager
    def slot(self, name: str) -> Iterator[None]:
        """Name the slot of a node in the error of an expression there. An agent's own graph is not its user's.

        Raises:
            ExpressionError: The same one, with the slot.
        """
        try:
            yield
        except ExpressionError as error:
            if self.state.turn is not None:
                raise
            raise ExpressionError(f"{error.message}, in its `{name}`", error.column) from None

    def place(
        self, frame_key: str, target: str, source: str = "", value: Any = None, *, via: str = "", race: str = ""
    ) -> None:
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
            via, target = target, node.exhausted
        frame.visits[target] = visit
        at = f"{frame_key}/{target}#{visit}" if frame_key else f"{target}#{visit}"
        token = Token(at, frame_key, target, source=source, value=value, via=via, race=race)
        token.order = order_of(self.plan, self.state, token)
        self.state.tokens[at] = token
        if target in full:
            token.full = node.max_visits

    def leave_phase(self) -> None:
        """Tell that the phase is over in which the last token was."""
        if self.state.phase:
            self.emit("phase_end", name=self.state.phase)
            self.state.phase = ""

    def enter_phase(self, phase: str) -> None:
        """Tell that another phase begins."""
        self.leave_phase()
        self.state.phase = phase
        self.emit("phase_start", name=phase)

    def update_state(self) -> None:
        """Find out the run's state from where the tokens are (mission B1)."""
        if self.between_runs():
            return
        now = RunState(self.state.run_state)
        waiting = any(token.status == WAITING for token in self.state.tokens.values())
        running = any(token.status == RUNNING for token in self.state.tokens.values())
        running = running or any(token.status in (CHILD, TIMING, BACKING_OFF) for token in self.state.tokens.values())
        at_work = RunState.RUNNING if self.state.turn is None else RunState.TOOL_RUNNING
        if now is at_work and waiting and not running:
            self.enter_state(RunState.AWAITING_HUMAN)
        elif now is RunState.AWAITING_HUMAN and (running or not waiting) and not self.state.ending:
            self.enter_state(at_work)

    def enter_state(self, new: RunState) -> None:
        """Change the run's state as the table says; tell observers.

        Raises:
            IllegalTransition: The table has no such change.
        """
        old = RunState(self.state.run_state)
        if new is old or new in STAYS.get(old, ()):
            return
        self.state.run_state = transition(old, new).value
        # The frames go with the job, so its last event of all keeps which way it went.
        visits = {"visits": self.state.frames[""].visits} if new in ENDED and self._tells_visits() else {}
        self.emit("state", **{"from": old.value, "state": new.value}, **visits)

    def _tells_visits(self) -> bool:
        return self.state.turn is None and "" in self.state.frames

    def tick(self, now: float) -> None:
        """Time has passed; a turn counts it unless the job is paused or only waits for people."""
        state = self.state
        if state.turn is not None and state.last and not self.idle() and now > state.last:
            passed = round((now - state.last) * 1000)
            state.turn = state.turn.model_copy(update={"active_ms": state.turn.active_ms + passed})
        state.last = max(now, state.last)

    def idle(self) -> bool:
        """Whether the job is paused, or only waits for people or for an outage to end: that time does not count."""
        if self.state.paused is not None or self.state.run_state == RunState.AWAITING_HUMAN:
            return True
        tokens = self.state.tokens.values()
        if not any(rests(token) for token in tokens):
            return False
        return all(rests(token) or token.status in (OWNING, WAITING) for token in tokens)
