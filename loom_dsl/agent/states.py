"""The states of a run, and every way from one to another.

The table is the only place that says what may follow what: the machine makes no other change, the tests walk it and
the picture in the documentation is drawn from it. Being paused is not a state but a flag beside it.
"""

from enum import StrEnum

from loom_dsl.errors import IllegalTransition


class RunState(StrEnum):
    """Where a run stands. `phrase` says it for people."""

    phrase: str

    def __new__(cls, value: str, phrase: str = "") -> "RunState":  # noqa: D102
        member = str.__new__(cls, value)
        member._value_ = value
        member.phrase = phrase
        return member

    IDLE = "idle", "not started"
    PREPARING = "preparing", "building the context"
    MODEL_RUNNING = "model_running", "waiting for the model"
    TOOL_RUNNING = "tool_running", "running tools"
    RUNNING = "running", "running its nodes"
    AWAITING_HUMAN = "awaiting_human", "waiting for a decision"
    COMPLETED = "completed", "done"
    FAILED = "failed", "failed"
    ABORTED = "aborted", "ended by a person"

    @property
    def is_final(self) -> bool:
        """Whether nothing follows."""
        return not TRANSITIONS[self]


TRANSITIONS: dict[RunState, dict[RunState, str]] = {
    RunState.IDLE: {RunState.PREPARING: "an agent's run starts", RunState.RUNNING: "a graph's run starts"},
    RunState.RUNNING: {
        RunState.AWAITING_HUMAN: "an approval is open and nothing else is running",
        RunState.COMPLETED: "no branch is left",
        RunState.FAILED: "a node fails",
        RunState.ABORTED: "somebody aborts",
    },
    RunState.PREPARING: {
        RunState.MODEL_RUNNING: "the context is built",
        RunState.FAILED: "the context cannot be built",
        RunState.ABORTED: "somebody aborts",
    },
    RunState.MODEL_RUNNING: {
        RunState.COMPLETED: "the answer has no tool calls",
        RunState.TOOL_RUNNING: "the answer has tool calls",
        RunState.FAILED: "the model fails, or a limit is reached",
        RunState.ABORTED: "somebody aborts",
    },
    RunState.TOOL_RUNNING: {
        RunState.AWAITING_HUMAN: "a call needs approval and no other is running",
        RunState.MODEL_RUNNING: "all calls are settled",
        RunState.FAILED: "the store fails, or a limit is reached",
        RunState.ABORTED: "somebody aborts",
    },
    RunState.AWAITING_HUMAN: {
        RunState.TOOL_RUNNING: "approved",
        RunState.RUNNING: "a graph's approval is decided",
        RunState.MODEL_RUNNING: "rejected, and all calls are settled",
        RunState.FAILED: "nobody answers in time, and the graph has no way for that",
        RunState.ABORTED: "somebody aborts",
    },
    RunState.COMPLETED: {},
    RunState.FAILED: {},
    RunState.ABORTED: {},
}
"""State to the states that may follow it, each with what triggers the change."""


STAYS: dict[RunState, dict[RunState, str]] = {
    RunState.IDLE: {
        RunState.FAILED: "it fails before it has begun",
        RunState.ABORTED: "somebody aborts it before it has begun",
    },
    RunState.MODEL_RUNNING: {RunState.PREPARING: "the next turn begins"},
    RunState.TOOL_RUNNING: {RunState.PREPARING: "the next turn begins"},
    RunState.AWAITING_HUMAN: {RunState.PREPARING: "the next turn begins"},
    RunState.COMPLETED: {RunState.FAILED: "its result cannot be given"},
    RunState.ABORTED: {RunState.FAILED: "its result cannot be given"},
}
"""State to the states that a run may come to without leaving it: observers are told nothing, and nothing changes."""


def transition(old: RunState, new: RunState) -> RunState:
    """Give the new state if it may follow the old one. Staying where one is changes nothing and is always allowed.

    Raises:
        IllegalTransition: The table has no such way.
    """
    if new is old or new in TRANSITIONS[old]:
        return new
    allowed = ", ".join(TRANSITIONS[old]) or "nothing, because it has ended"
    raise IllegalTransition(f"a run that is {old} cannot become {new}; what may follow is {allowed}")


def mermaid() -> str:
    """Draw the table as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", f"    [*] --> {RunState.IDLE}"]
    for old, followers in TRANSITIONS.items():
        lines += [f"    {old} --> {new}: {trigger}" for new, trigger in followers.items()]
        if not followers:
            lines.append(f"    {old} --> [*]")
    return "\n".join(lines) + "\n"
