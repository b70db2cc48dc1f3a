"""Maps: a graph run once for every item of a list, and the order among the items."""

from typing import Any

from loom_dsl.errors import ExpressionError
from loom_dsl.graph.checks.map_results import ADVICE, unreadable
from loom_dsl.graph.nodes import Barrier, Map
from loom_dsl.graph.plan import MAX_CHUNKS_AT_ONCE, condition
from loom_dsl.machine.records import MapRecord
from loom_dsl.machine.state import OWNING, Token
from loom_dsl.machine.tokens.compensation import confirm
from loom_dsl.machine.tokens.ending import drop_frame
from loom_dsl.machine.tokens.frames import frames_of, open_frame
from loom_dsl.machine.tokens.moves import Moves, NodeHandler
from loom_dsl.machine.tokens.node_events import ended
from loom_dsl.machine.tokens.scope import input_of
from loom_dsl.text.canonical import canonical_json

MAX_ITEMS, CHUNK_SIZE, MAX_CHUNKED = 1_000, 200, 20_000
"""Items of one map inside a workflow; of more, so many at a time go to a child job; and the most in all."""


class MapHandler(NodeHandler[Map]):
    """A graph runs for every item of a list; the results, in the order of the items, are the node's."""

    def enter(self, machine: Moves, token: Token, node: Map, names: dict[str, Any]) -> None:
        """Start the items of a map."""
        items = condition(node.map.over).evaluate(names)
        if not isinstance(items, list) or len(items) > MAX_CHUNKED:
            found = f"{len(items)} items" if isinstance(items, list) else "something that is not a list"
            raise ExpressionError(f"`{node.map.over}` gives {found}; a map goes over a list of at most {MAX_CHUNKED}")
        body = machine.plan.bodies[machine.state.frames[token.frame].graph]
        for one in unreadable(body, token.node, len(items), names):
            raise ExpressionError(f"{one.message(token.node, len(items))}; {ADVICE}")
        if len(items) > MAX_ITEMS:
            return _enter_chunks(machine, token, node, items, names)
        if not items and node.map.open is None:
            return machine.complete(token, [])
        record = MapRecord(items, [None] * len(items), open=node.map.open is not None, detached=node.map.detach)
        # The next turn of the same run has a map of the same name, with other items.
        machine.free_items.pop(token.at, None)
        if node.map.barrier is not None:
            record.limit = _count(machine, token, "barrier.limit", node.map.barrier.limit, names)
            record.past = []
        if node.map.need is not None:
            record.need = _count(machine, token, "need", node.map.need, names)
        if node.map.first != 0:
            record.first = machine.mapped(token, "first", node.map.first, names)
        token.reset(OWNING, record)
        if node.map.detach:
            _go_on(machine, token, None)
        _fill_window(machine, token, node)
        _take_buffered(machine, token, node)
        return None

    def frame_done(self, machine: Moves, token: Token, index: int, result: Any) -> None:
        """An item of a map ended with a result."""
        record = token.kept(MapRecord)
        record.results[index] = result
        record.done.append(index)
        if record.past is not None and index in record.past:
            record.past.remove(index)
        node = machine.node(token)
        assert isinstance(node, Map)
        _look(machine, token, node)

    def frame_failed(self, machine: Moves, token: Token, frame: str, code: str, message: str) -> None:
        """An item failed, and so does the map, unless it has gone on without that item."""
        if not token.kept(MapRecord).left:
            return machine.fail_owner(token, code, message)
        drop_frame(machine, frame)
        return _may_finish(machine, token)

    def frames_gone(self, machine: Moves, token: Token) -> None:
        """Work that was cancelled has reported: a map that had enough may be done now."""
        _may_finish(machine, token)

    def event(self, machine: Moves, token: Token, event: dict[str, Any]) -> bool:
        """Take an event that is meant for the map."""
        node = machine.node(token)
        return isinstance(node, Map) and token.status == OWNING and _take_event(machine, token, node, event)

    def awaits(self, node: Map, name: str) -> bool:
        """Whether the map may take an event of this name."""
        named = {node.map.complete}
        return name in (named | {node.map.open.add, node.map.open.close} if node.map.open else named)

    def again(self, machine: Moves, token: Token) -> None:
        """The map goes on in another job: start the item that could not be started, and look whether all is done."""
        node = machine.node(token)
        assert isinstance(node, Map)
        record = token.kept(MapRecord)
        begun = {machine.state.frames[key].index for key in frames_of(machine, token)} | set(record.done)
        record.next = max(begun, default=-1) + 1
        try:
            _look(machine, token, node)
        except ExpressionError as error:
            machine.fail_node(token, error.code, error.message)


def _enter_chunks(machine: Moves, token: Token, node: Map, items: list[Any], names: dict[str, Any]) -> None:
    """Give the items of a long list to child jobs, some to each: one history could not hold them all."""
    spec = node.map
    used = [name for name in ("barrier", "need", "done_when", "open", "complete") if getattr(spec, name) is not None]
    if used or spec.detach:
        raise ExpressionError(
            f"`{token.node}` has {len(items)} items, and over {MAX_ITEMS} a map has no `{(used or ['detach'])[0]}`"
        )
    shared = input_of(machine.state, machine.state.frames[token.frame])
    chunks = []
    for first in range(0, len(items), CHUNK_SIZE):
        part = items[first : first + CHUNK_SIZE]
        given = shared
        if spec.with_ is not None:
            inner = [{**names, "item": item, "index": first + index} for index, item in enumerate(part)]
            given = [machine.mapped(token, "input", spec.with_, each) for each in inner]
        chunks.append({"items": part, "first": first, "given": given})
    token.reset(OWNING, MapRecord(chunks, [None] * len(chunks), chunked=True))
    _fill_window(machine, token, node)


def _count(machine: Moves, token: Token, slot: str, value: Any, names: dict[str, Any]) -> int:
    given = machine.mapped(token, slot, value, names)
    if not isinstance(given, int) or isinstance(given, bool) or given < 1:
        raise ExpressionError(f"the {slot} of `{token.node}` is {str(given)[:60]}; it is a whole number from 1")
    return given


def _go_on(machine: Moves, token: Token, result: Any) -> None:
    """Let a new token go on while items of a map run; the map's own token stays with them."""
    node = machine.node(token)
    came_with = token.source, token.value
    machine.set_output(token, result)
    token.status = OWNING
    if token.kept(MapRecord).left:
        confirm(machine, token, node, result)
        machine.write(token, node)
    targets = machine.ways_out(token, node)
    token.source, token.value = came_with  # items that start later have before them what the map came with
    machine.let_go(token)
    for target in targets:
        machine.place(token.frame, target, source=token.node, via=token.node)


def _fill_window(machine: Moves, token: Token, node: Map) -> None:
    record, do, mapping, window = token.kept(MapRecord), node.map.do, node.map.with_, node.map.window
    if record.chunked:
        do, mapping = machine.plan.chunk(machine.state.frames[token.frame].graph, token.node), None
        window = min(MAX_CHUNKS_AT_ONCE, window)
    names = None if mapping is None else machine.names(token)
    while record.next < len(record.items) and record.next - len(record.done) < window:
        index = record.next
        record.next += 1
        at = index + record.first
        inner = {} if names is None else {**names, "item": record.items[index], "index": at}
        open_frame(machine, token, do, index, mapping, inner)


def _take_buffered(machine: Moves, token: Token, node: Map) -> None:
    """Give a map the events that came before it started."""
    for event in list(machine.state.events):
        if token.at in machine.state.tokens and token.status == OWNING and _take_event(machine, token, node, event):
            machine.state.events.remove(event)


def _take_event(machine: Moves, token: Token, node: Map, event: dict[str, Any]) -> bool:
    """Take an event that is meant for a map: one more item, no more items, or enough."""
    record, name = token.kept(MapRecord), event["name"]
    if token.is_over:
        return False
    if node.map.complete is not None and name == node.map.complete:
        _enough(machine, token, node)
        return True
    if not record.open or node.map.open is None:
        return False
    if name == node.map.open.add:
        if len(record.items) >= MAX_ITEMS:
            return False
        record.items = [*record.items, event.get("data")]
        record.results = [*record.results, None]
        machine.free_items.pop(token.at, None)
        _fill_window(machine, token, node)
        return True
    if name == node.map.open.close:
        record.open = False
        _look(machine, token, node)
        return True
    return False


def _look(machine: Moves, token: Token, node: Map) -> None:
    """Find out whether a map is done."""
    record = token.kept(MapRecord)
    if token.is_over:
        return _may_finish(machine, token)
    everything = len(record.done) == len(record.items) and not record.open
    suffices = record.need is not None and len(record.done) >= record.need
    if not suffices and node.map.done_when is not None:
        names = {**machine.names(token), "result": record.results}
        suffices = bool(condition(node.map.done_when).evaluate(names))
    if everything:
        _finish(machine, token)
    elif suffices:
        _enough(machine, token, node)
    else:
        _fill_window(machine, token, node)
    return None


def _enough(machine: Moves, token: Token, node: Map) -> None:
    """End a map with what there is. Items that are left to end unheard stay with a detached token of the map."""
    record = token.kept(MapRecord)
    if node.map.rest == "ignore" and frames_of(machine, token):
        record.left = True
        if not record.detached:
            _go_on(machine, token, list(record.results))
        return
    record.closing = True
    for key in frames_of(machine, token):
        drop_frame(machine, key)
    _may_finish(machine, token)  # unless what is cancelled has to report first


def _finish(machine: Moves, token: Token) -> None:
    record = token.kept(MapRecord)
    if record.detached or record.left:
        if not record.left:
            confirm(machine, token, machine.node(token), record.results)
        ended(machine, token, "done")
        machine.let_go(token)
        machine.state.tokens.pop(token.at, None)
        machine.frame_may_end(token.frame)
        return
    results = record.results
    if record.chunked:
        results = [result for part in results for result in part]
    machine.complete(token, results)


def _may_finish(machine: Moves, token: Token) -> None:
    """Finish a map that had enough, when the last of the items that are cancelled, or not heard any more, is gone."""
    record = token.record
    enough = token.status == OWNING and isinstance(record, MapRecord) and (record.closing or record.left)
    if enough and not frames_of(machine, token):
        _finish(machine, token)


def barrier_at(machine: Moves, token: Token) -> Barrier | None:
    """The barrier that the token stands before or runs behind: its map's, when this is the barrier's node."""
    frame = machine.state.frames[token.frame]
    if not frame.parent:
        return None
    node = machine.node(machine.state.tokens[frame.parent])
    barrier = node.map.barrier if isinstance(node, Map) else None
    return barrier if barrier is not None and barrier.at == token.node else None


def admitted(machine: Moves, token: Token) -> bool:
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
    record = owner.kept(MapRecord)
    past = record.past
    assert past is not None
    if frame.index in past:
        return True
    if len(past) >= record.limit or frame.index not in _free(machine, owner, barrier):
        return False
    past.append(frame.index)
    return True


def _free(machine: Moves, owner: Token, barrier: Barrier) -> set[int]:
    """The items that wait for no earlier one. That changes only when an item is done, so it is kept until then."""
    record = owner.kept(MapRecord)
    done = record.done
    known = machine.free_items.get(owner.at)
    if known is not None and known[0] == len(done):
        return known[1]
    settled, free = set(done), set[int]()
    earlier, alone = _Keys(), _Keys()
    for index, item in enumerate(record.items[: record.next]):
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
