"""Finds tokens that wait for what can never come, and fails them, so that no job hangs without a word."""

from typing import TYPE_CHECKING

from loom_dsl.machine_joins import DEADLOCK, stuck_join, why_stuck
from loom_dsl.machine_state import (
    BACKING_OFF,
    CHILD,
    HALTED,
    JOINING,
    LISTENING,
    OWNING,
    READY,
    RUNNING,
    TIMING,
    WAITING,
    Token,
)
from loom_dsl.nodes_work import Map

if TYPE_CHECKING:
    from loom_dsl.machine_moves import Moves as Machine

_MAY_GO_ON = frozenset({RUNNING, CHILD, WAITING, LISTENING, TIMING, BACKING_OFF, HALTED})


def fail_stuck(machine: "Machine") -> bool:
    """Fail a token that waits for ever. False when there is none."""
    join = stuck_join(machine)
    if join is not None:
        machine.fail_node(join, DEADLOCK, why_stuck(machine, join))
        return True
    blocked = [token for token in machine.state.in_order() if token.status in (READY, JOINING)]
    if not blocked or machine.draining or machine.side_work:
        return False
    if any(_may_go_on(machine, token) for token in machine.state.tokens.values()):
        return False
    if blocked[0].status == JOINING:
        machine.fail_node(blocked[0], DEADLOCK, why_stuck(machine, blocked[0]))
    else:
        machine.fail_node(blocked[0], "deadlock", _why_blocked(machine, blocked[0]))
    return True


def _may_go_on(machine: "Machine", token: Token) -> bool:
    """Whether something can come that lets a token go on: a result, a time, an event, a decision."""
    if token.status in _MAY_GO_ON or token.data.get("deadline") is not None:
        return True
    node = machine.node(token)
    return token.status == OWNING and isinstance(node, Map) and bool(token.data.get("open") or node.map.complete)


def _why_blocked(machine: "Machine", token: Token) -> str:
    node = machine.node(token)
    if node.mutex is not None and machine.state.locks.get(node.mutex) not in (None, token.at):
        held = f"`{node.mutex}`, which `{machine.state.locks[node.mutex]}` holds"
    else:
        held = f"`{node.only_while}`" if node.only_while else "the other items of its map"
    return f"`{token.node}` waits for {held}, and nothing that is left can change that"
