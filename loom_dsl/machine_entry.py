"""What holds a token up before a node: a condition, the order of a map's items, a lock; and for how long it may."""

from typing import TYPE_CHECKING, Any

from loom_dsl.commands import StartTimer
from loom_dsl.errors import ExpressionError
from loom_dsl.machine_ends import drop, issue_flush
from loom_dsl.machine_maps import admitted
from loom_dsl.machine_state import Token
from loom_dsl.machine_waits import deadline_of
from loom_dsl.nodes_flow import Recurse
from loom_dsl.parts import Node
from loom_dsl.plan import condition

if TYPE_CHECKING:
    from loom_dsl.machine_moves import Moves as Machine


def may_enter(machine: "Machine", token: Token) -> bool:
    """Whether a token may enter its node now. If so, it has what it needs: its lock, and its place among the items."""
    node = machine.node(token)
    if not token.frame and isinstance(node, Recurse):
        # The turn ends for all of it. What is in flight reports first: its name comes again in the next turn.
        for other in machine.state.in_order():
            if other is not token and other.at in machine.state.tokens:
                drop(machine, other)
        return not machine.at_work() and _is_light(machine)
    try:
        if node.only_while is not None and not condition(node.only_while).evaluate(machine.names(token)):
            set_deadline(machine, token, node, machine.names(token))
            return False
        if not admitted(machine, token):
            return False
        if not _unlocked(machine, token, node):
            set_deadline(machine, token, node, machine.names(token))
            return False
        return True
    except ExpressionError as error:
        machine.fail_node(token, error.code, error.message)
        return False


def _is_light(machine: "Machine") -> bool:
    """Whether what waits to be told can go through to the next turn; otherwise it is stored first."""
    if not machine.state.outbox.is_heavy():
        return True
    issue_flush(machine)
    return False


def _unlocked(machine: "Machine", token: Token, node: Node) -> bool:
    """Whether nobody else is where the node's mutex is held; if so, this token holds it."""
    if node.mutex is None:
        return True
    holder = machine.state.locks.get(node.mutex)
    if holder is not None and holder != token.at and holder in machine.state.tokens:
        return False
    machine.state.locks = {**machine.state.locks, node.mutex: token.at}
    return True


def set_deadline(machine: "Machine", token: Token, node: Node, names: dict[str, Any]) -> None:
    """Start the timer of a node that is not done at once; an approval has started its own."""
    if token.data.get("deadline") is not None:
        return
    due = deadline_of(machine, token, node, names)
    if due is not None:
        token.data["deadline"] = due
        machine.command(StartTimer(at=token.at, when=due))
