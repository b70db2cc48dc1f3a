"""The beginning of a job that goes on where another one failed."""

from typing import TYPE_CHECKING

from loom_dsl.errors import ExpressionError
from loom_dsl.machine_kept import ANEW
from loom_dsl.machine_state import READY
from loom_dsl.machine_told import began
from loom_dsl.machine_waits import deadline_of
from loom_dsl.states import RunState

if TYPE_CHECKING:
    from loom_dsl.machine_moves import Moves as Machine


def begin_again(machine: "Machine") -> None:
    """Begin a job that goes on where another one failed. Deadlines of what is under way begin anew."""
    state = machine.state
    if state.turn is not None or state.run_state != RunState.IDLE.value:
        return
    machine.enter_state(RunState.RUNNING)
    for token in state.in_order():
        if token.at not in state.tokens or token.status == READY:
            continue
        node = machine.node(token)
        began(machine, token, node)
        if not token.data.pop(ANEW, False):
            continue
        try:
            due = deadline_of(machine, token, node, machine.names(token))
        except ExpressionError as error:
            machine.fail_node(token, error.code, error.message)
            continue
        if due is not None:
            token.data["deadline"] = due
