"""How long an agent's job may be active: a timer of the run ends the turn that is under way."""

from typing import TYPE_CHECKING

from loom_dsl.commands import CancelActivity, CancelTimer, StartTimer
from loom_dsl.machine_ends import drop_all

if TYPE_CHECKING:
    from loom_dsl.machine_moves import Moves as Machine

AT, CODE = "~time", "max_run_duration"


def watch(machine: "Machine") -> None:
    """Start the run's timer where time counts, and stop it where it does not: one for all turns of a run."""
    left = _left(machine)
    counts = left is not None and not machine.idle() and machine.state.abort is None and machine.state.ending is None
    if machine.between_runs() or machine.over or counts is machine.watched:
        return
    machine.watched = counts
    if left is not None and counts:
        machine.command(StartTimer(at=AT, when=machine.state.last + max(left, 0.001)))
    else:
        machine.command(CancelTimer(at=AT))


def time_is_up(machine: "Machine") -> None:
    """The timer fired: settle the turn as an abort does, and fail the job with what it has come to."""
    if not machine.watched:
        return
    machine.watched = False
    left = _left(machine)
    if machine.between_runs() or left is None or left > 0:
        return  # the next run looks itself; and what is left is waited for once more
    machine.state.abort = {"by": "", "reason": "", "code": CODE}
    drop_all(machine)
    for at in machine.side_work:
        if at.startswith("~announce/"):
            machine.command(CancelActivity(at=at))


def _left(machine: "Machine") -> float | None:
    """Seconds that the job may still be active; None where there is no limit."""
    most = machine.plan.agent_names.get("limits", {}).get(CODE)
    turn = machine.state.turn
    return None if most is None or turn is None else float(most) - turn.active_ms / 1000
