"""What nodes and graphs write: fields of `state`, their own and those of the graphs around them."""

from collections.abc import Iterator
from typing import Any

from loom_dsl.checks_unit import Checked, Place, Unit
from loom_dsl.nodes_flow import Set
from loom_dsl.parts import Node


def writes_of(node: Node) -> Iterator[tuple[str, tuple[str, ...], Any]]:
    """Every state field that a node writes: name, path below the node, value."""
    for name, value in node.write.items():
        yield name, ("write", name), value
    for name, value in node.set.items() if isinstance(node, Set) else ():
        yield name, ("set", name), value


def written_outside(unit: Unit, checked: Checked) -> dict[str, Place]:
    """The fields of graphs around it that a graph writes, with a place where it does."""
    if not checked.written:
        for one in checked.units.values():
            own = ((w[0], one.at(key, *w[1])) for key, node in one.body.nodes.items() for w in writes_of(node))
            checked.written[one.name] = {name: place for name, place in own if name not in one.body.state}
        while any([_hand_out(one, checked) for one in checked.units.values()]):
            pass
    return checked.written[unit.name]


def _hand_out(unit: Unit, checked: Checked) -> bool:
    """Add to what a graph writes outside what those write that it runs; whether that was news."""
    known, news = checked.written[unit.name], dict[str, Place]()
    for called in (checked.find(call.name) for call in unit.calls()):
        if called is not None:
            news |= checked.written[called.name]
    news = {name: place for name, place in news.items() if name not in known and name not in unit.body.state}
    known.update(news)
    return bool(news)
