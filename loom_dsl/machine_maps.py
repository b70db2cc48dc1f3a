"""Maps: a graph run once for every item of a list, and the order among the items."""

from typing import TYPE_CHECKING, Any

from loom_dsl.canonical import canonical_json
from loom_dsl.errors import ExpressionError
from loom_dsl.graph import Barrier, Map
from loom_dsl.machine_ends import drop_frame, sweep
from loom_dsl.machine_state import MAPPING, Frame, Token
from loom_dsl.plan import condition

if TYPE_CHECKING:
    from loom_dsl.machine import Machine

MOST_ITEMS = 1_000
"""Items of one map inside a workflow; more belong in child workflows."""


def enter_map(machine: "Machine", token: Token, node: Map, names: dict[str, Any]) -> None:
    """Start the items of a map."""
    items = condition(node.map.over).evaluate(names)
    if not isinstance(items, list) or len(items) > MOST_ITEMS:
        found = f"{len(items)} items" if isinstance(items, list) else "something that is not a list"
        raise ExpressionError(f"`{node.map.over}` gives {found}; a map goes over a list of at most {MOST_ITEMS}")
    if not items:
        return machine.complete(token, [])
    token.data = {"items": items, "results": [None] * len(items), "done": [], "next": 0}
    # The next turn of the same run has a map of the same name, with other items.
    machine.free_items.pop(token.at, None)
    if node.map.barrier is not None:
        limit = machine.mapped(token, "barrier.limit", node.map.barrier.limit, names)
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
            raise ExpressionError(f"the limit of `{token.node}` is {str(limit)[:60]}; it is a whole number from 1")
        token.data |= {"limit": limit, "past": []}
    token.status = MAPPING
    return _fill_window(machine, token, node)


def _fill_window(machine: "Machine", token: Token, node: Map) -> None:
    data = token.data
    while data["next"] < len(data["items"]) and data["next"] - len(data["done"]) < node.map.window:
        index = data["next"]
        data["next"] += 1
        key = f"{token.at}[{index}]"
        machine.state.frames[key] = Frame(node.map.do, parent=token.at, index=index)
        machine.place(key, machine.plan.graphs[node.map.do].start)


def map_item_done(machine: "Machine", token: Token, index: int, result: Any) -> None:
    """An item of a map ended with a result."""
    data = token.data
    data["results"][index] = result
    data["done"].append(index)
    if index in data.get("past", ()):
        data["past"].remove(index)
    node = machine.node(token)
    assert isinstance(node, Map)
    if len(data["done"]) == len(data["items"]):
        machine.complete(token, data["results"])
    elif "failed" not in data:
        _fill_window(machine, token, node)


def map_item_failed(machine: "Machine", token: Token, code: str, message: str) -> None:
    """An item of a map failed: stop the others, and fail the map when the last of them has reported."""
    token.data.setdefault("failed", [code, message])
    for key in [key for key, frame in machine.state.frames.items() if frame.parent == token.at]:
        drop_frame(machine, key)
    if not any(frame.parent == token.at for frame in machine.state.frames.values()):
        machine.fail_node(token, *token.data["failed"])


def doomed_is_gone(machine: "Machine", token: Token) -> None:
    """The activity of a token that was taken away has reported."""
    del machine.state.tokens[token.at]
    sweep(machine)
    for owner in machine.state.in_order():
        # One failing map may take others away, so each is looked up again.
        if owner.at in machine.state.tokens and owner.status == MAPPING and "failed" in owner.data:
            map_item_failed(machine, owner, *owner.data["failed"])


def barrier_at(machine: "Machine", token: Token) -> Barrier | None:
    """The barrier that the token stands before or runs behind: its map's, when this is the barrier's node."""
    frame = machine.state.frames[token.frame]
    if not frame.parent:
        return None
    node = machine.node(machine.state.tokens[frame.parent])
    barrier = node.map.barrier if isinstance(node, Map) else None
    return barrier if barrier is not None and barrier.at == token.node else None


def admitted(machine: "Machine", token: Token) -> bool:
    """Whether the order among a map's items lets this one go on; if so, it is past the barrier.

    An item waits for every earlier one that is not done and conflicts with it. Two items conflict when one
    of them is exclusive and their keys are equal or one of them has none.

    Raises:
        ExpressionError: The barrier's `exclusive` or `key` cannot be told.
    """
    barrier = barrier_at(machine, token)
    if barrier is None:
        return True
    frame = machine.state.frames[token.frame]
    owner = machine.state.tokens[frame.parent]
    past = owner.data["past"]
    if frame.index in past:
        return True
    if len(past) >= owner.data["limit"] or frame.index not in _free(machine, owner, barrier):
        return False
    past.append(frame.index)
    return True


def _free(machine: "Machine", owner: Token, barrier: Barrier) -> set[int]:
    """The items that wait for no earlier one. That changes only when an item is done, so it is kept until then."""
    done = owner.data["done"]
    known = machine.free_items.get(owner.at)
    if known is not None and known[0] == len(done):
        return known[1]
    settled, free = set(done), set[int]()
    earlier, alone = _Keys(), _Keys()
    for index, item in enumerate(owner.data["items"][: owner.data["next"]]):
        if index in settled:
            continue
        names = {"item": item, "index": index}
        exclusive, key = condition(barrier.exclusive).evaluate(names), condition(barrier.key).evaluate(names)
        named = None if key is None else canonical_json(key)
        if not (earlier if exclusive else alone).conflict(named):
            free.add(index)
        earlier.add(named)
        if exclusive:
            alone.add(named)
    machine.free_items[owner.at] = (len(done), free)
    return free


class _Keys:
    """Keys of earlier items; None conflicts with every key."""

    def __init__(self) -> None:
        self.names: set[str | None] = set()

    def add(self, name: str | None) -> None:
        self.names.add(name)

    def conflict(self, name: str | None) -> bool:
        return bool(self.names) and (name is None or None in self.names or name in self.names)
