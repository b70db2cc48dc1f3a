"""L134: a ``${…}`` where nothing is computed, so that it would be taken for text.

What is computed is said by `slots_of` alone. Every other text of the schema is looked at here, so that a field that is
added to it is either a slot or refuses expressions.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from loom_dsl.errors import ExpressionError
from loom_dsl.expr.expression import compile_expression
from loom_dsl.expr.template import has_holes, hole_sources
from loom_dsl.fields import DocumentPath
from loom_dsl.graph.checks.slots import read, slots_of, texts_of
from loom_dsl.graph.checks.unit import CheckContext, Finding, Unit
from loom_dsl.graph.edges import Node

FOR_PEOPLE = frozenset({"doc"})
"""Fields that nobody but people reads."""
_TARGETS = frozenset({"next", "catch", "deadline", "exhausted", "race", "cancel"})
"""Fields that name nodes of the graph: a name that is not there is told as such (L102, L110)."""
_RUN = frozenset({"activity", "tool", "agent", "graph", "do"})
_CHOOSE = "lead to a node for each by a choice, `next: [{if: CONDITION, to: a}, {to: b}]`, and name what it runs there"
_WRITE_OUT = "write it out"
_DEFAULTS = {
    "input": "let who starts the graph give it, or compute it in a node",
    "state": "leave the default out, and let the first node write it: `set: {FIELD: …}`",
}
_ENVIRONMENT = re.compile(r"(?<!\$)\$\{env:")
_OF_ENVIRONMENT = (
    "give it as `input`, or let a function read it; only an agent's fields are filled from the environment"
)
_OF_AGENTS = "give it with the task, in the `with` of the agent's node"


def check_literals(unit: Unit, checked: CheckContext) -> Iterator[Finding]:
    """Check one graph."""
    if checked.shipped:
        return
    for key, node in unit.body.nodes.items():
        for place in _uncomputed(node):
            fix = _CHOOSE if place[-1] in _RUN else _WRITE_OUT
            yield _finding(f"`{'.'.join(map(str, place))}` of `{key}`", unit.at(key, *place), fix)
        for place, text in texts_of(node.model_dump(by_alias=True, exclude_defaults=True)):
            if _ENVIRONMENT.search(text) and place[0] not in FOR_PEOPLE:
                yield _finding(f"`{text[:60]}` of `{key}`", unit.at(key, *place), _OF_ENVIRONMENT)
    for group, fix in _DEFAULTS.items():
        for name, field in getattr(unit.body, group).items():
            if _has_hole(field.default):
                yield _finding(f"the default of `{name}`", (*unit.place, group, name, "default"), fix)
    if not unit.name:
        yield from _head(checked)


def _finding(what: str, place: DocumentPath, fix: str) -> Finding:
    return Finding("L134", f"{what} is taken as it stands, and the `${{…}}` in it is never computed", place, fix)


def _uncomputed(node: Node) -> Iterator[DocumentPath]:
    """The places of a node's texts that have a ``${…}`` and are no slot."""
    computed = {slot.place for slot in slots_of(node)}
    for place, text in texts_of(node.model_dump(by_alias=True, exclude_defaults=True)):
        free = (
            place[0] in FOR_PEOPLE
            or "${env:" in text
            or (place[0] in _TARGETS and place[-1] not in ("if", "after", "times"))
        )
        if not free and has_holes(text) and not any(place[: len(slot)] == slot for slot in computed):
            yield place


def _has_hole(value: Any) -> bool:
    """Whether a default has an expression; `${HOME}` is none, and may be meant for a shell."""
    return any(reads_something(text) for _, text in texts_of(value))


def _head(checked: CheckContext) -> Iterator[Finding]:
    """What a document says beside its nodes. Rules and instructions may speak of variables of a shell, too."""
    graph = checked.graph
    if has_holes(graph.version):
        yield _finding("`version`", ("version",), _WRITE_OUT)
    parts: Mapping[str, Any] = {
        "agents": graph.agents,
        "permissions": graph.permissions.model_dump(mode="json"),
        "approvals": graph.approvals.model_dump(mode="json"),
    }
    for name, part in parts.items():
        for place, text in texts_of(part, (name,)):
            if reads_something(text):
                fix = _OF_AGENTS if name == "agents" else _WRITE_OUT
                yield _finding(f"`{'.'.join(map(str, place))}`", place, fix)


def reads_something(text: str) -> bool:
    """Whether a text has a ``${…}`` that is an expression of this language and reads what a job knows."""
    return any(_reads(hole) for hole in hole_sources(text))


def _reads(hole: str) -> bool:
    try:
        compile_expression(hole)
    except ExpressionError:
        return False
    return bool(read(hole).references)
