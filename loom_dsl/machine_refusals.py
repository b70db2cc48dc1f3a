"""Signals and updates that change nothing, and what is told of them."""

from typing import TYPE_CHECKING

from loom_dsl.commands import SignalReceived

if TYPE_CHECKING:
    from loom_dsl.machine_moves import Moves as Machine

DECISION = "loom.decision"


def refuse(machine: "Machine", signal: SignalReceived, verdict: str, why: str) -> None:
    """Do nothing about a signal or an update, and say so: in an event, and to the update."""
    sent = "signal" if signal.answer_to is None else "update"
    said = _said(signal)
    told = {"signal": signal.name[:100], "sent": sent, **said, "verdict": verdict, "message": why[:500]}
    machine.emit("warning", code="signal_refused", **told)
    machine.answer(signal.answer_to, verdict, why)


def _said(signal: SignalReceived) -> dict[str, str]:
    """What a refused decision says of itself, as far as it can be read: about what, what, who, and by which key."""
    payload = signal.payload
    if signal.name != DECISION or not isinstance(payload, dict):
        return {}
    signature = payload.get("signature")
    key = signature.get("key") if isinstance(signature, dict) else None
    said = {**{name: payload.get(name) for name in ("approval_id", "choice", "by")}, "key": key}
    return {name: value[:200] for name, value in said.items() if isinstance(value, str) and value}
