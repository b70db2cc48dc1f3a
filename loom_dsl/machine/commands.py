"""What goes into the machine and what comes out of it. Time always comes in; nothing here reads a clock.

`at` names one execution: ``node#visit``, and inside a map ``node#visit[item]/node#visit``.
"""

from dataclasses import dataclass, field
from typing import Any

from loom_dsl.fields import MAX_OUTAGE


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """Something happened.

    Attributes:
        now: When, in seconds since the epoch.
    """

    now: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Started(Input):
    """A run of the machine begins: the first one, or one that carries on after continue-as-new."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proceed(Input):
    """The driver stays in this run after `TurnEnded`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain(Input):
    """The driver wants to continue as new soon: issue nothing more.

    Attributes:
        hold: Enter no node at all: what follows is for another plan to say.
    """

    hold: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TooLarge(Input):
    """The driver cannot carry the state into another run, so the job has to end in this one.

    Attributes:
        size: Bytes of the state.
        most: Bytes that it may have.
    """

    size: int
    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GoOn(Input):
    """The driver had its moment after `Yielded`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityDone(Input):
    """An activity gave its result."""

    at: str
    result: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityFailed(Input):
    """An activity ended with a failure that somebody answered, or was cancelled.

    What nobody answered (a worker that died or was stopped, a store that is away) never comes here: the engine tries
    that again without an end.

    Attributes:
        code: Stable code of the failure; what `catch` matches.
        again: Whether the same may go better later, so that the machine counts it and tries again.
        outage: Whether the party is away for a time: then time counts, not tries.
        halts: Whether a person can put it right, so that the step waits for that.
        retry_after: Seconds that the party asks to wait, or None.
        action: What the person is to do.
        attempt: Number of the engine's attempt that was answered, from 1, over all tries.
        tries: How many of the node's tries it took.
    """

    at: str
    code: str
    message: str
    cancelled: bool = False
    again: bool = False
    outage: bool = False
    halts: bool = False
    retry_after: float | None = None
    action: str = ""
    attempt: int = 1
    tries: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerFired(Input):
    """A deadline has passed."""

    at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildEnded(Input):
    """A child job ended, or could not be started.

    Attributes:
        result: Its result where it completed.
        code: Why it did not, or empty.
        undo: How what it did is taken back, oldest first, as `Finish` has it.
    """

    at: str
    result: Any = None
    code: str = ""
    message: str = ""
    undo: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalReceived(Input):
    """A signal or an update arrived.

    Attributes:
        name: Such as ``loom.decision``.
        payload: Its JSON value, whatever it is.
        problem: Why the payload could not be read, or empty.
        answer_to: Name of the slot that waits for an `UpdateAnswer`, or None for a signal.
    """

    name: str
    payload: Any
    problem: str = ""
    answer_to: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunActivity:
    """Run one activity.

    Attributes:
        arguments: Its mapped ``with``.
        events: Batches of observer events that the activity stores before anything else, as ``Outbox`` has them.
        carries: Whether events travel with it.
        carrier: ``local`` or ``remote``.
        timeout: Seconds for one attempt.
        heartbeat: Seconds, or None.
        retry: attempts, initial, backoff, longest: of what is answered. What nobody answers is tried without an end.
        max_outage: Seconds for which an outage of whoever is asked is waited for; None: without an end.
        waits: Whether the node says so itself; then a `catch: any` is for what no wait can mend.
        before: Attempts of the engine in the tries before this one.
        tries: Answered tries before this one that count.
    """

    at: str
    activity: str
    arguments: dict[str, Any]
    events: list[Any] = field(default_factory=list)
    carries: bool = True
    carrier: str = "remote"
    timeout: float = 60.0
    heartbeat: float | None = None
    retry: tuple[int, float, float, float] = (3, 1.0, 2.0, 60.0)
    max_outage: float | None = MAX_OUTAGE
    waits: bool = False
    before: int = 0
    tries: int = 0

    @property
    def is_last(self) -> bool:
        """Whether no try follows this one that is answered with what counts."""
        return self.tries + 1 >= self.retry[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelActivity:
    """Cancel the activity of this execution; it still reports how it ended."""

    at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StartChild:
    """Start a job of an agent or of a graph below this one. It reports how it ended, also to a later run of this job.

    Attributes:
        child: Id of the child job.
        agent: Name in the plan's agents, or empty.
        graph: Name in the plan's graphs, where there is no agent.
        arguments: The node's mapped ``with``: an agent's `task` and what belongs to it, or a graph's input.
        written: ``text`` of a graph that is to be looked at first, and the ``graph`` and ``node`` that say what it may.
    """

    at: str
    child: str
    agent: str = ""
    graph: str = ""
    arguments: Any
    written: dict[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelChild:
    """Abort a child job. It still reports how it ended."""

    at: str
    child: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTimer:
    """Fire at a time, in seconds since the epoch."""

    at: str
    when: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelTimer:
    """The timer is not needed any more."""

    at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnded:
    """The turn is over and the state is that of the next one: continue as new, or feed `Proceed`."""

    policy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """Nothing is in flight: continue as new now, with no await in between."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Yielded:
    """Many nodes were entered at once, and more are to come: feed `GoOn` soon, in another workflow task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateAnswer:
    """The answer to an update."""

    to: str
    verdict: str
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """The graph ended with a result.

    Attributes:
        undo: How what the job did is taken back, oldest first: the job above this one does it, if that fails later.
    """

    result: Any
    undo: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The graph failed."""

    code: str
    message: str
    details: Any = None


Command = (
    RunActivity
    | CancelActivity
    | StartChild
    | CancelChild
    | StartTimer
    | CancelTimer
    | TurnEnded
    | Drained
    | Yielded
    | UpdateAnswer
    | Finish
    | Failure
)
