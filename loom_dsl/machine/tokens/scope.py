"""What the names of an expression mean where a token stands."""

from collections.abc import Iterator
from typing import Any

from loom_dsl.agent.turn import TurnState
from loom_dsl.expr.values import METER, Meter
from loom_dsl.graph.plan import Plan
from loom_dsl.machine.records import LoopRecord, MapRecord, ToolRecord
from loom_dsl.machine.state import Frame, MachineState, Token


def names_at(
    plan: Plan, state: MachineState, token: Token, *, job: str, meter: Meter, turn: dict[str, Any] | None
) -> dict[str, Any]:
    """Give the roots of expressions; item, index and turn only where there are any.

    Args:
        plan: What is interpreted.
        state: Where it stands.
        token: Where the expression is evaluated.
        job: The job's id.
        meter: Counts what the expression costs.
        turn: What `turn` holds; None in a graph without turns.
    """
    frame = state.frames[token.frame]
    names: dict[str, Any] = {
        "input": input_of(state, frame),
        "nodes": frame.outputs,
        "result": frame.outputs.get(token.source) if token.source else token.value,
        "agent": plan.agent_names,
        "limits": plan.agent_names.get("limits", {}),
        "run": run_names(job, state),
        METER: meter,
    }
    holder = state_frame(state, frame)
    if holder is not None:
        names["state"] = holder.state
    for inner, owner in _owners(state, frame):
        record = owner.record
        if isinstance(record, MapRecord):
            names["item"], names["index"] = record.items[inner.index], inner.index + record.first
            break
        if isinstance(record, ToolRecord | LoopRecord):
            names["item"] = record.call if isinstance(record, ToolRecord) else record.last
            names["index"] = inner.index
            break
    if turn is not None:
        names["turn"] = turn
    return names


def turn_names(turn: TurnState) -> dict[str, Any]:
    """What `turn` holds."""
    told = {"counter": turn.turn_counter, "cost_usd": turn.cost_microusd / 1e6}
    return {**turn.model_dump(mode="json"), **told}


def _owners(state: MachineState, frame: Frame) -> Iterator[tuple[Frame, Token]]:
    """Give each frame around this one, itself first, with the token that owns it."""
    while frame.parent in state.tokens:
        owner = state.tokens[frame.parent]
        yield frame, owner
        frame = state.frames[owner.frame]


def _around(state: MachineState, frame: Frame) -> Iterator[Frame]:
    yield frame
    for _, owner in _owners(state, frame):
        yield state.frames[owner.frame]


def input_of(state: MachineState, frame: Frame) -> Any:
    """What a graph was started with: its own, or that of the graph around it."""
    return next((around.input for around in _around(state, frame) if around.has_input), state.input)


def state_frame(state: MachineState, frame: Frame, field: str | None = None) -> Frame | None:
    """The innermost frame that has variables; with a name, that has this one."""
    holders = (around for around in _around(state, frame) if around.state is not None)
    return next((holder for holder in holders if field is None or field in (holder.state or {})), None)


def run_names(job: str, state: MachineState) -> dict[str, Any]:
    """Give what `run` holds; `RUN` says what each is."""
    turn = state.turn
    return {
        "id": job,
        "now": state.last,
        "aborted": state.abort is not None,
        "abort_reason": (state.abort or {}).get("reason", ""),
        "abort_code": (state.abort or {}).get("code", ""),
        "remembered": list(turn.remembered if turn else state.remembered),
        "waiting": len(state.inbox),
        "active_seconds": turn.active_ms / 1000 if turn else 0.0,
        "correlation_id": turn.metadata.get("correlation_id", job) if turn else job,
    }
