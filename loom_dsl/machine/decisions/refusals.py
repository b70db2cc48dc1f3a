"""Signals and updates that change nothing, and what is told of them."""

from loom_dsl.machine.commands import SignalReceived
from loom_dsl.machine.tokens.core import Core

DECISION = "loom.decision"


def refuse(machine: Core, signal: SignalReceived, verdict: str, why: str) -> None:
    """Do nothing about a signal or an update, and say so: in an event, and to the update."""
    sent = "signal" if signal.answer_to is None else "update"
    told = {"signal": signal.name[:100], "sent": sent, **_quoted(signal), "verdict": verdict, "message": why[:500]}
    machine.emit("warning", code="signal_refused", **told)
    machine.answer(signal.answer_to, verdict, why)


def _quoted(signal: SignalReceived) -> dict[str, str]:
    """What a refused decision says of itself, as far as it can be read: about what, what, who, and by which key."""
    payload = signal.payload
    if signal.name != DECISION or not isinstance(payload, dict):
        return {}
    signature = payload.get("signature")
    key = signature.get("key") if isinstance(signature, dict) else None
    said = {**{name: payload.get(name) for name in ("approval_id", "choice", "by")}, "key": key}
    return {name: value[:200] for name, value in said.items() if isinstance(value, str) and value}
