"""What a debug replay begins with and what it gives.

It begins with what a job of an agent left behind: answers, results and decisions by turn, and what the machine told.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from loom_dsl.agent.turn import TurnState
from loom_dsl.graph.plan import Plan
from loom_dsl.observe.events import EventType

TOLD: Mapping[str, tuple[str, ...]] = {
    EventType.ITERATION_START: (),
    EventType.PHASE_START: ("name",),
    EventType.STATE: ("state",),
    EventType.TOOL_CALLS_START: ("tool_names",),
    EventType.TOOL_CALLS_COMPLETE: ("results_count",),
    EventType.APPROVAL_REQUESTED: ("tool",),
    EventType.APPROVAL_DECIDED: ("choice", "by"),
    EventType.RECURSION: (),
    EventType.MAX_ITERATIONS_REACHED: ("turn_counter", "max_iterations"),
    EventType.AGENT_FINISH: ("turn_counter", "total_llm_calls"),
    EventType.ERROR: ("error",),
    EventType.ABORTED: (),
    EventType.EXECUTION_CANCELLED: (),
}
"""What the machine tells of a turn that must come again, and the fields by which it is compared. What activities tell
comes from the record itself; when something waits, is paused or asked depends on the clock and on people."""
_BY_TIME = frozenset({"awaiting_human"})
"""States whose order among parallel calls is a matter of time."""
OF_ABORT = "aborted", "execution_cancelled", "state aborted", "approval_decided cancelled"
"""How lines begin that tell of a job's end by an abort."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedQuestion:
    """What a call asked people, and what came of it.

    Attributes:
        request: What was asked.
        decision: What was decided, as the event tells it; empty while nobody has.
    """

    request: Mapping[str, Any]
    decision: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class TurnRecord:
    """One turn.

    Attributes:
        answer: What the model's activity gave: ``entries``, ``usage``, ``cost`` and ``calls``; None: no answer counted.
        context: How many entries the model was given.
        end: How many entries there were when the turn was over.
        results: What became of tool calls, by their ids.
        questions: What was asked about calls, by their ids.
        injected: Messages that the turn took: ``{"id", "text", "by"}``.
        asked: Whether the model was asked.
        compressions: In order: what each ``gave``, and ``overflow``: whether the model had refused the conversation.
        events: What the machine told.
    """

    answer: dict[str, Any] | None = None
    context: int = 0
    end: int = 0
    results: dict[str, dict[str, Any]] = field(default_factory=dict)
    questions: dict[str, RecordedQuestion] = field(default_factory=dict)
    injected: list[dict[str, str]] = field(default_factory=list)
    asked: bool = False
    compressions: list[dict[str, Any]] = field(default_factory=list)
    events: list[Mapping[str, Any]] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Record:
    """A job.

    Attributes:
        job: Its id.
        first: The state of its first turn.
        turns: Its turns by number, from 0; of a fork from that of its first one.
        status: ``running``, ``completed``, ``failed`` or ``aborted``.
        code: Of the error that it ended with, or empty.
        message: That error in words.
        content: Digest of its answer.
        abort: Who asked it to end, and why.
    """

    job: str
    first: TurnState
    turns: dict[int, TurnRecord]
    status: str
    code: str = ""
    message: str = ""
    content: str = ""
    abort: dict[str, str] = field(default_factory=dict)

    def under(self, plan: Plan) -> "Record":
        """Give the record with the number of turns that another agent allows: the first turn's state holds it.

        Args:
            plan: That agent's.
        """
        allowed = self.first.turn_counter + int(plan.agent["limits"]["max_iterations"])
        return replace(self, first=self.first.model_copy(update={"max_iterations": allowed}))


@dataclass(slots=True, kw_only=True)
class ReplayedTurn:
    """One turn of a replay.

    Attributes:
        number: From 0.
        steps: What the machine did with what was recorded, in order.
        missing: What it told then and not now.
        added: What it told now and not then.
    """

    number: int
    steps: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    added: list[str] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Replayed:
    """A replay.

    Attributes:
        turns: In order.
        status: How it ended: ``completed``, ``failed``, ``aborted``, or ``stopped`` where the record has nothing more.
        code: Of the error, or empty.
        stopped: Why it stopped; empty otherwise.
        differs: Whether the machine did anything else than it did then, as far as it came.
    """

    turns: list[ReplayedTurn]
    status: str
    code: str = ""
    stopped: str = ""
    differs: bool = False


def told_lines(events: Iterable[Mapping[str, Any]]) -> "Counter[str]":
    """Give what the machine told of one turn as lines that can be compared; their order is left out.

    Args:
        events: In the store's form.
    """
    lines: Counter[str] = Counter()
    for event in events:
        fields = TOLD.get(str(event.get("t")))
        if fields is None or event.get("state") in _BY_TIME:
            continue
        line = " ".join([str(event["t"]), *(_shown(event.get(name)) for name in fields)])
        if event["t"] == EventType.STATE:
            lines[line] = 1  # a turn goes back to a state as often as people are quick
        else:
            lines[line] += 1
    return lines


def _shown(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
