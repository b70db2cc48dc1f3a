"""Joins: several tokens become one. A token waits at its join; which joins fire is decided when nothing moves."""

from typing import Any

from loom_dsl.errors import ExpressionError
from loom_dsl.graph.nodes import Join
from loom_dsl.machine.records import JoinRecord, MapRecord
from loom_dsl.machine.state import JOINING, OWNING, Token
from loom_dsl.machine.tokens.checkpoint import keep_stuck
from loom_dsl.machine.tokens.ending import drop
from loom_dsl.machine.tokens.moves import Moves, NodeHandler

DEADLOCK = "join_deadlock"
"""Why a join fails that waits for ever."""


class JoinHandler(NodeHandler[Join]):
    """Tokens wait for one another; one of them goes on with what all came with."""

    def enter(self, machine: Moves, token: Token, node: Join, names: dict[str, Any]) -> None:
        """Come to a join, and wait there with what the token came with."""
        token.reset(JOINING, JoinRecord(names["result"]))


def fire_joins(machine: Moves) -> bool:
    """Fire the joins that have what they wait for, at most one in each graph. False when nothing happened."""
    fired = False
    for frame, inside in _by_frame(machine):
        for key in dict.fromkeys(token.node for token in inside if token.status == JOINING and not token.doomed):
            waiting = [token for token in inside if token.node == key and token.status == JOINING and not token.doomed]
            if frame in machine.state.frames and _try(machine, key, waiting, inside):
                fired = True
                break
    return fired


def stuck_join(machine: Moves) -> Token | None:
    """Give a token that waits for ever: in its graph all wait at joins, and none of these can fire any more.

    The others that wait at its join are taken away: it fails once for all of them.
    """
    for _, inside in _by_frame(machine):
        if all(token.status == JOINING and token.deadline is None for token in inside):
            first = inside[0]
            keep_stuck(machine, first, DEADLOCK)
            for token in inside[1:]:
                if token.node == first.node:
                    drop(machine, token)
            return first
    return None


def why_stuck(machine: Moves, token: Token) -> str:
    """Say what a join waits for that cannot come."""
    missing = ", ".join(name for name in _edges(machine, token) if name != token.via) or "more tokens"
    return f"the join `{token.node}` waits for {missing}, from where no token can come any more"


def _by_frame(machine: Moves) -> list[tuple[str, list[Token]]]:
    """The tokens of the graphs in which one waits at a join."""
    frames = {token.frame for token in machine.state.tokens.values() if token.status == JOINING}
    if not frames:
        return []
    inside: dict[str, list[Token]] = {}
    for token in machine.state.in_order():
        if token.frame in frames:
            inside.setdefault(token.frame, []).append(token)
    return list(inside.items())


def _edges(machine: Moves, token: Token) -> tuple[str, ...]:
    return machine.plan.sources(machine.state.frames[token.frame].graph, token.node)


def _try(machine: Moves, key: str, waiting: list[Token], inside: list[Token]) -> bool:
    node = machine.node(waiting[0])
    assert isinstance(node, Join)
    spec = node.join
    try:
        if spec.threads is not None:
            count = _number(machine, waiting[0], "threads", spec.threads)
            return len(waiting) >= count and _fire(machine, waiting[:count], as_list=True)
        if spec.need is not None:
            return _try_need(machine, node, waiting, inside)
    except ExpressionError as error:
        machine.fail_node(waiting[0], error.code, error.message)
        return True
    if spec.mode == "taken":
        return not _may_come(machine, key, inside) and _fire(machine, waiting)
    firsts = _firsts(waiting)
    return set(firsts) >= set(_edges(machine, waiting[0])) and _fire(machine, list(firsts.values()))


def _number(machine: Moves, token: Token, slot: str, value: Any) -> int:
    given = machine.mapped(token, slot, value)
    if not isinstance(given, int) or isinstance(given, bool) or given < 1:
        raise ExpressionError(f"the join `{token.node}` is to wait for {str(given)[:60]} tokens; give a number from 1")
    return given


def _firsts(waiting: list[Token]) -> dict[str, Token]:
    """The first token that came over each edge, in the order in which they came."""
    firsts: dict[str, Token] = {}
    for token in waiting:
        firsts.setdefault(token.via, token)
    return firsts


def _try_need(machine: Moves, node: Join, waiting: list[Token], inside: list[Token]) -> bool:
    """A join that needs some of its edges: it fires, and then waits for the rest before it starts again."""
    frame, key = waiting[0].frame, waiting[0].node
    firsts = _firsts(waiting)
    if key in machine.state.frames[frame].joins:
        return _take_rest(machine, firsts, waiting[0], inside)
    need = _number(machine, waiting[0], "need", node.join.need)
    if len(firsts) < need:
        return False
    taken = list(firsts.values())[:need]
    if node.join.rest == "cancel":
        before = machine.plan.before(machine.state.frames[frame].graph, key)
        for token in inside:
            if (token.node in before or token in waiting) and token not in taken:
                drop(machine, token)
    else:
        machine.state.frames[frame].joins[key] = [token.via for token in taken]
    return _fire(machine, taken)


def _take_rest(machine: Moves, firsts: dict[str, Token], one: Token, inside: list[Token]) -> bool:
    """Swallow what comes to a join after it has fired. It starts again when all edges, or all that can, have come."""
    fired = machine.state.frames[one.frame].joins
    late = [token for via, token in firsts.items() if via not in fired[one.node]]
    for token in late:
        drop(machine, token)
    fired[one.node] = fired[one.node] + [token.via for token in late]
    rest = set(_edges(machine, one)) - set(fired[one.node])
    again = not rest or not _may_come(machine, one.node, inside)
    if again:
        del fired[one.node]
    if late:
        machine.frame_may_end(one.frame)
    return bool(late) or again


def _may_come(machine: Moves, key: str, inside: list[Token]) -> bool:
    """Whether another token of the graph can still come to a join.

    One that waits at a join before it can, if that join may fire yet: because something can come to it in turn, or
    because it waits only as long as something can.
    """
    graph = machine.state.frames[inside[0].frame].graph
    here = [token for token in inside if not token.doomed and not _goes_nowhere(token)]
    live = {token.node for token in here if token.status != JOINING}
    stopped = {token.node for token in here if token.status == JOINING} - {key}
    while True:
        revived = {name for name in stopped - live if _ends(machine, graph, name) or live & _to(machine, graph, name)}
        if not revived:
            return bool(live & _to(machine, graph, key))
        live |= revived


def _to(machine: Moves, graph: str, key: str) -> frozenset[str]:
    """The node itself, where a token may stand that has not entered it yet, and those before it."""
    return machine.plan.before(graph, key) | {key}


def _ends(machine: Moves, graph: str, key: str) -> bool:
    node = machine.plan.node(graph, key)
    return isinstance(node, Join) and node.join.mode == "taken"


def _goes_nowhere(token: Token) -> bool:
    """Whether it only stays with the items of a map that has gone on already."""
    record = token.record
    return token.status == OWNING and isinstance(record, MapRecord) and (record.detached or record.left)


def _fire(machine: Moves, taken: list[Token], *, as_list: bool = False) -> bool:
    """Let the last of the tokens go on, with what all of them came with."""
    came = [token.kept(JoinRecord).came for token in taken]
    result = came if as_list else {token.via: value for token, value in zip(taken, came, strict=True)}
    *others, last = taken
    for token in others:
        drop(machine, token)
    machine.complete(last, result)
    return True
