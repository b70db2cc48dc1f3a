"""Whether the results of a map can be read when it is done: told before its first item is started."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from loom_dsl.expr.cost import fewest_steps
from loom_dsl.expr.values import MAX_STEPS
from loom_dsl.fields import DocumentPath
from loom_dsl.graph.checks.expressions import expressions_of
from loom_dsl.graph.checks.slots import Slot, slots_of
from loom_dsl.graph.graph import Body
from loom_dsl.graph.nodes import Map

FEW = 20
"""Items with which no expression of a few nested comprehensions comes to its limit."""
ADVICE = (
    "go through the results once, compare them by sorted(…) or unique(…), let the items' own graph compute more, "
    "or give them to an activity"
)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An expression that cannot go through the results of a map.

    Attributes:
        node: The node that it is in.
        place: Where in that node.
        source: The expression.
        steps: The fewest steps that it takes.
    """

    node: str
    place: DocumentPath
    source: str
    steps: int

    def message(self, key: str, count: int) -> str:
        """Say what is wrong with the map `key` of so many items."""
        where = f"`{self.node}.{'.'.join(map(str, self.place))}`"
        takes = f"`{self.source}` takes at least {self.steps:,} steps, and an expression may take {MAX_STEPS:,}"
        return f"{where} cannot read the {count:,} results of `{key}`: {takes}"


def unreadable(body: Body, key: str, count: int, names: Mapping[str, Any]) -> Iterator[Unreadable]:
    """Give the expressions that must go through a map's results and cannot, by the number of results alone.

    Args:
        body: The graph.
        key: The map.
        count: How many results it will have.
        names: What is known when the map is entered: the lengths of what `input` and `nodes` hold.
    """
    node = body.nodes[key]
    if count <= FEW or not isinstance(node, Map) or node.map.detach:
        return
    for name, other in body.nodes.items():
        for slot in slots_of(other):
            if not _is_looked_at(slot, of_map=name == key):
                continue
            here = name == key or (not slot.after and name in node.next.targets())
            results = _Results(key, count, names, here)
            for place, reading in expressions_of(slot):
                if any(results.are_at(ref.path) for ref in reading.references):
                    steps = fewest_steps(reading.source, results.length)
                    if steps > MAX_STEPS and (name == key or _is_sure(body, key, name)):
                        yield Unreadable(name, place, reading.source, steps)


@dataclass(frozen=True, slots=True)
class _Results:
    """What is known of the lengths of lists when a map is entered; `here`: whether `result` is what the map gives."""

    key: str
    count: int
    names: Mapping[str, Any]
    here: bool

    def are_at(self, path: tuple[str, ...]) -> bool:
        """Whether the map's results are what stands at a path."""
        return path == ("nodes", self.key) or (self.here and path == ("result",))

    def length(self, path: tuple[str, ...]) -> int:
        """The length of what stands at a path; 0 where it is not known yet."""
        if self.are_at(path):
            return self.count
        value: Any = self.names if path[0] in ("input", "nodes") else None
        for part in path:
            value = value.get(part) if isinstance(value, Mapping) else None
        return len(value) if isinstance(value, list | dict) else 0


def _is_looked_at(slot: Slot, *, of_map: bool) -> bool:
    """Whether the expressions of a slot are evaluated whenever its node is done, and with the map's results."""
    if of_map and slot.place == ("map", "done_when"):
        return True
    if slot.items or slot.place[0] == "compensate" or (of_map and not slot.after):
        return False
    return slot.place[:2] != ("next", "first") or slot.place[2] == 0


def _is_sure(body: Body, key: str, wanted: str) -> bool:
    """Whether every way from a map leads to a node, unless something fails or takes too long."""
    nodes = body.nodes
    sure = {name: bool(node.next.targets()) or name == wanted for name, node in nodes.items()}
    changed = True
    while changed:
        changed = False
        for name, node in nodes.items():
            if sure[name] and name != wanted:
                ways = [sure.get(target, False) for target in node.next.targets()]
                sure[name] = any(ways) and node.next.times is None if node.next.all else all(ways)
                changed = changed or not sure[name]
    return sure[key]
