"""A question in memory, decided by people with and without keys, whose verifications end when a test says so."""

from collections.abc import Callable
from typing import Any

from loom_dsl.machine.state import MachineState
from loom_dsl.simulation.in_memory import Simulation
from tests.support.signing import key_of, public_key, verifier
from tests.support.simulated import JOB, SYSTEM, approvals, check_state, decision, of_type, plan_of

KEYS = {name: key_of(name) for name in ("ann", "bob", "cyd")}
KNOWN = {key.name: public_key(key) for key in KEYS.values()}
ASKED = "a" * 64
Payload = dict[str, Any]


def asked(policy: dict[str, Any] | None = None, **how: Any) -> Simulation:
    """A job that has asked, and goes on to wait for an event when that is decided."""
    request = {"tool": "send", "requester": "agent a", "arguments": ASKED, "risk": "high"}
    choices = ["approve", "edit", "reject", "respond", "terminate"]
    nodes = {
        "ask": {"approval": {"request": request, "policy": policy or {}, "choices": choices}, "next": "more"},
        "more": {"event": {"name": "go"}, "next": "z"},
        "z": {"end": "${nodes.ask}"},
    }
    handlers = {**SYSTEM, "loom.approval.verify": verifier(KNOWN, JOB), "loom.signal.time": lambda c: {"sent": None}}
    sim = Simulation(plan_of(nodes), MachineState(starter="eve"), {**handlers, **how}, job=JOB)
    settle(sim)
    return sim


def settle(sim: Simulation, pick: Callable[[int], int] = lambda most: 0) -> None:
    """Do what is to be done without time passing. Verifications end in the order that is picked."""
    while sim.work:
        others = [index for index, work in enumerate(sim.work) if not _verifies(work)]
        sim.step(others[0] if others else pick(len(sim.work)))
    check_state(sim.machine.state)


def _verifies(work: Any) -> bool:
    return bool(work.activity == "loom.approval.verify")


def signed(sim: Simulation, by: str, choice: str = "approve", **more: Any) -> Payload:
    """A decision, signed as it should be."""
    message = {"message": "the result"} if choice == "respond" else {}
    payload = {"approval_id": approvals(sim)[0][1], "choice": choice, "digest": ASKED, **message, **more}
    return KEYS[by].sign(payload, job=JOB, tool="send", requester="agent a", now=sim.now)


def unsigned(sim: Simulation, by: str, choice: str = "approve", **more: Any) -> Payload:
    """A decision of a sender that gives it a name."""
    return decision(approvals(sim)[0][1], choice, **{"by": by, "id": f"{by}-1", **more})


def verify(sim: Simulation, number: int) -> None:
    """Let one of the verifications under way end, the first one being 0; and what else is to be done."""
    sim.step([index for index, work in enumerate(sim.work) if _verifies(work)][number])
    while rest := [index for index, work in enumerate(sim.work) if not _verifies(work)]:
        sim.step(rest[0])


def decided(sim: Simulation) -> list[tuple[str, str]]:
    """What was decided, and by whom."""
    return [(event["choice"], event["by"]) for event in of_type(sim.outcome, "approval_decided")]


def refusals(sim: Simulation) -> list[str]:
    """The verdicts of what was refused."""
    return [event["verdict"] for event in of_type(sim.outcome, "warning")]
