"""What arrives from outside: signals, updates, and the plan that a job is to go on with."""

from collections.abc import Sequence
from dataclasses import dataclass

from temporalio import workflow
from temporalio.common import RawValue

with workflow.unsafe.imports_passed_through():
    from loom_dsl.errors import LoomError
    from loom_dsl.graph.plan import Plan, PlanText
    from loom_dsl.machine.commands import SignalReceived
    from loom_dsl.machine.payloads import read_payload
    from loom_dsl.machine.signals import CHILD, MAX_PAYLOAD, MAX_REPORT


@dataclass(frozen=True, slots=True)
class Move:
    """The plan that a job is to go on with, and its nodes' new names."""

    plan: PlanText
    names: dict[str, str]


def read_move(args: Sequence[RawValue]) -> tuple[Move | None, str]:
    """Read what the update ``loom.migrate`` carries: a plan, and a mapping of old nodes to new ones."""
    if len(args) != 2 or args[0].payload.metadata.get("encoding") != b"json/loom-plan":
        return None, "it takes a plan, which the store of this worker must hold, and the nodes' new names"
    try:
        plan = Plan.load(args[0].payload.data.decode())
    except (LoomError, UnicodeDecodeError) as error:
        return None, f"the plan cannot be read: {error}"
    names, problem = read_payload(args[1].payload.data, "json/plain", MAX_PAYLOAD)
    if problem or not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        return None, problem or "the nodes' new names are a mapping of text to text"
    return Move(PlanText(plan.text), names), ""


def read_signal(name: str, args: Sequence[RawValue], slot: str | None = None) -> SignalReceived:
    """Read a signal, or an update whose slot waits for an answer; what is wrong with it is part of what is read."""
    now = workflow.time()
    if len(args) != 1:
        problem = f"it takes one argument, and {len(args)} came"
        return SignalReceived(now=now, name=name, payload=None, problem=problem, answer_to=slot)
    payload = args[0].payload
    encoding = payload.metadata.get("encoding", b"").decode("ascii", "replace")
    value, problem = read_payload(payload.data, encoding, MAX_REPORT if name == CHILD else MAX_PAYLOAD)
    return SignalReceived(now=now, name=name, payload=value, problem=problem, answer_to=slot)
