"""What the names of an expression mean where a token stands."""

from typing import TYPE_CHECKING, Any

from loom_dsl.machine_state import MachineState, Token

if TYPE_CHECKING:
    from loom_dsl.machine import Machine


def names_at(machine: "Machine", token: Token) -> dict[str, Any]:
    """Give the roots of expressions; item, index and turn only where there are any."""
    state, frame = machine.state, machine.state.frames[token.frame]
    names: dict[str, Any] = {
        "input": state.input,
        "nodes": frame.outputs,
        "result": frame.outputs.get(token.source) if token.source else token.value,
        "agent": machine.plan.agent_names,
        "limits": machine.plan.agent_names.get("limits", {}),
        "run": run_names(machine.job, state),
    }
    if frame.parent:
        names["item"] = state.tokens[frame.parent].data["items"][frame.index]
        names["index"] = frame.index
    if state.turn is not None:
        names["turn"] = {
            **state.turn.model_dump(mode="json"),
            "counter": state.turn.turn_counter,
            "cost_usd": state.turn.cost_microusd / 1e6,
        }
    return names


def run_names(job: str, state: MachineState) -> dict[str, Any]:
    """Give what `run` holds: the job's id, the time in seconds, whether it is aborted, how many messages wait."""
    turn = state.turn
    return {
        "id": job,
        "now": state.last,
        "aborted": state.abort is not None,
        "abort_reason": (state.abort or {}).get("reason", ""),
        "waiting": len(state.inbox),
        "active_seconds": turn.active_ms / 1000 if turn else 0.0,
        "correlation_id": turn.metadata.get("correlation_id", job) if turn else job,
    }
