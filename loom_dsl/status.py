"""What a job answers when it is asked where it stands."""

from typing import Any

from loom_dsl.machine import Machine
from loom_dsl.machine_state import RUNNING, WAITING


def status_of(machine: Machine) -> dict[str, Any]:
    """Give the run's state, its turn, open approvals, what runs and what waits, as JSON."""
    state = machine.state
    tokens = state.in_order()
    approvals = [
        {
            "approval_id": token.data["id"],
            "node": token.at,
            "since": token.data.get("since"),
            "expires_at": token.data.get("deadline"),
            "request": token.data.get("request"),
        }
        for token in tokens
        if token.status == WAITING
    ]
    return {
        "state": state.run_state,
        "phase": state.phase,
        "turn": state.turn.to_dict() if state.turn else None,
        "paused": state.paused,
        "abort": state.abort,
        "approvals": approvals,
        "running": [token.at for token in tokens if token.status == RUNNING],
        "tokens": [token.at for token in tokens],
        "waiting_messages": len(state.inbox),
        "plan": machine.plan.hash,
    }
