"""Checks of a graph's data: parallel writers, types, fields of an input, what is never used."""

from collections.abc import Iterator, Mapping
from typing import Any

from loom_dsl.fields import DocumentPath
from loom_dsl.graph.checks.expressions import expressions_of, input_names
from loom_dsl.graph.checks.slots import Slot, slots_of, type_of_text
from loom_dsl.graph.checks.structure import did_you_mean
from loom_dsl.graph.checks.types import EVERY, kinds_of_text, kinds_of_type, whole, words
from loom_dsl.graph.checks.unit import CheckContext, Finding, ToolUse, Unit
from loom_dsl.graph.edges import Node
from loom_dsl.graph.generated import GeneratedGraph
from loom_dsl.graph.nodes import AgentNode, LlmNode, Set, Subgraph
from loom_dsl.graph.state import FIELDS, InputField, StateField
from loom_dsl.text.wording import shown, type_name

# What nodes and graphs write: fields of `state`, their own and those of the graphs around them.


def writes_of(node: Node) -> Iterator[tuple[str, tuple[str, ...], Any]]:
    """Every state field that a node writes: name, path below the node, value."""
    for name, value in node.write.items():
        yield name, ("write", name), value
    for name, value in node.set.items() if isinstance(node, Set) else ():
        yield name, ("set", name), value


def written_outside(unit: Unit, checked: CheckContext) -> dict[str, DocumentPath]:
    """The fields of graphs around it that a graph writes, with a place where it does."""
    if not checked.written:
        for one in checked.units.values():
            own = ((w[0], one.at(key, *w[1])) for key, node in one.body.nodes.items() for w in writes_of(node))
            checked.written[one.name] = {name: place for name, place in own if name not in one.body.state}
        while any([_hand_out(one, checked) for one in checked.units.values()]):
            pass
    return checked.written[unit.name]


def _hand_out(unit: Unit, checked: CheckContext) -> bool:
    """Add to what a graph writes outside what those write that it runs; whether that was news."""
    known, news = checked.written[unit.name], dict[str, DocumentPath]()
    for called in (checked.find(call.name) for call in unit.calls()):
        if called is not None:
            news |= checked.written[called.name]
    news = {name: place for name, place in news.items() if name not in known and name not in unit.body.state}
    known.update(news)
    return bool(news)


_REDUCES = {
    "append": ("any", "list"),
    "extend": ("any", "list"),
    "merge": ("any", "dict"),
    "add": ("any", "int", "float", "str", "list"),
    "min": ("any", "int", "float", "str"),
    "max": ("any", "int", "float", "str"),
}
"""The types of fields that a reducer can combine."""


def check_data(unit: Unit, checked: CheckContext) -> Iterator[Finding]:
    """Check one graph: L120, L121 of what is written, L123."""
    yield from _declared(unit)
    yield from _never_begun(unit, checked)
    variables = checked.variables(unit.name)
    for key, node in unit.body.nodes.items():
        for name, place, value in writes_of(node):
            if name in FIELDS and checked.turns:
                continue
            if name not in variables:
                message = f"`{key}` writes `{name}`, which the graph's `state` does not have"
                fix = _declare(name, variables)
                yield Finding("L121", message, unit.at(key, *place), fix, key=True, about=("state", name))
                continue
            wrong = _misfit(variables[name], value)
            if not wrong and variables[name].reduce == "replace":
                slot = Slot(place, value, after=place[0] == "write")
                wrong = _of_another(unit, checked, key, slot, variables[name].type)
            if wrong:
                message = f"`{name}` is {_described(variables[name])}, and `{key}` writes {wrong}"
                yield Finding("L123", message, unit.at(key, *place), "write a value of that type, or change the field")
    for call in unit.calls():
        yield from _given(unit, checked, call)
    yield from _parallel_writers(unit, checked, variables)


def _declare(name: str, variables: Mapping[str, StateField]) -> str:
    if variables:
        return did_you_mean(name, variables, "fields")
    return f"declare it: `state: {{{name}: any}}`"


# -- types -------------------------------------------------------------------------------------------


def _declared(unit: Unit) -> Iterator[Finding]:
    fields: list[tuple[str, str, InputField | StateField]] = [
        *(("input", name, field) for name, field in unit.body.input.items()),
        *(("state", name, field) for name, field in unit.body.state.items()),
    ]
    for group, name, field in fields:
        if field.default is not None and not _fits(field.type, _type(field.default)):
            message = f"`{name}` is {field.type}, and its default is {_what(field.default)}"
            place = (*unit.place, group, name, "default")
            yield Finding("L123", message, place, f"write a {field.type}, or change the type")
        elif isinstance(field, StateField) and field.type not in _REDUCES.get(field.reduce, (field.type,)):
            message = f"`{name}` is {field.type}, which `{field.reduce}` cannot combine"
            fix = f"`{field.reduce}` combines {' or '.join(_REDUCES[field.reduce][1:])}"
            yield Finding("L123", message, (*unit.place, group, name, "reduce"), fix)


def _never_begun(unit: Unit, checked: CheckContext) -> Iterator[Finding]:
    """Fields that are null at first, and of which every written value is computed from the one before."""
    for name, field in unit.body.state.items():
        if field.default is not None or field.reduce != "replace" or field.type in ("list", "dict", "bool"):
            continue
        nodes = [node for other in checked.units.values() for node in other.body.nodes.values()]
        values = [value for node in nodes for written, _, value in writes_of(node) if written == name]
        if values and all(_computes_with(value, ("state", name)) for value in values):
            first = {"int": 0, "float": 0.0, "str": '""'}.get(field.type, 0)
            message = f"`{name}` is null until it is written, and what is written is computed from it"
            fix = f"give it a default: `{name}: {{type: {field.type}, default: {first}}}`"
            yield Finding("L123", message, (*unit.place, "state", name), fix, True)


def _computes_with(value: Any, path: tuple[str, ...]) -> bool:
    reading = whole(value) if isinstance(value, str) else None
    return reading is not None and path in reading.operands


def _type(value: Any) -> str | None:
    """The type of a value of a document, or None when an expression gives it and it cannot be told."""
    if isinstance(value, str):
        return type_of_text(value)
    return "null" if value is None else type(value).__name__


def _fits(wanted: str, found: str | None) -> bool:
    if found is None or wanted in ("any", found):
        return True
    return (found == "number" and wanted in ("int", "float")) or (found == "int" and wanted == "float")


def _what(value: Any) -> str:
    return "an expression of another type" if "${" in str(value) else f"{shown(value)} ({type_name(value)})"


def _described(field: StateField) -> str:
    return field.type if field.reduce == "replace" else f"{field.type} with the reducer `{field.reduce}`"


def _misfit(field: StateField, value: Any) -> str:
    """What is wrong with a value that is written into a field, or nothing."""
    found = _type(value)
    wanted = {"append": "any", "extend": "list", "merge": "dict"}.get(field.reduce, field.type)
    if field.reduce == "add" and field.type == "any" and field.default is None:
        wanted = "float"  # it begins as 0
    fits = _fits(wanted, found) or (found == "null" and field.reduce == "replace")
    return "" if fits else _what(value) if not isinstance(value, str) or "${" not in value else f"a {found}"


def _of_another(unit: Unit, checked: CheckContext, key: str, slot: Slot, type_name: str) -> str:
    """Of which types a value is that is read from elsewhere, where none of them is this one; else nothing."""
    kinds = kinds_of_text(unit, checked, key, slot, slot.value) if isinstance(slot.value, str) else EVERY
    return "" if kinds & kinds_of_type(type_name) else words(kinds)


def _unfit(unit: Unit, checked: CheckContext, key: str, field: InputField, value: Any) -> str:
    """What is wrong with a value that a graph is given, or nothing."""
    if not _fits(field.type, _type(value)):
        return "" if value is None and field.optional else _what(value)
    return _of_another(unit, checked, key, Slot(("with",), value), field.type)


def _given(unit: Unit, checked: CheckContext, call: ToolUse) -> Iterator[Finding]:
    """What a graph is given against what it declares."""
    called = checked.find(call.name)
    body = called.body if called is not None else checked.library.get(call.name)
    if body is None or not body.input or isinstance(call.given, str):
        return
    slot = (*call.place[:-1], "with")
    if call.given is None:
        names = input_names(unit, checked)
        missing = [] if names is None else _missing(body.input, names)
    else:
        missing = _missing(body.input, call.given)
        for name, value in call.given.items():
            if name not in body.input:
                message = f"`{call.key}` gives `{name}`, which the input of `{call.name}` does not have"
                yield Finding("L123", message, (*slot, name), did_you_mean(name, body.input, "fields"), True)
            elif wrong := _unfit(unit, checked, call.key, body.input[name], value):
                message = f"`{name}` of `{call.name}` is {body.input[name].type}, and `{call.key}` gives {wrong}"
                yield Finding("L123", message, (*slot, name), "give a value of that type")
    if missing:
        message = f"`{call.key}` runs `{call.name}` without `{missing[0]}`, which that needs"
        yield Finding("L123", message, slot if call.given is not None else call.place, "give it in `with`")


def _missing(fields: Mapping[str, InputField], given: Any) -> list[str]:
    return [name for name, f in fields.items() if name not in given and f.default is None and not f.optional]


# -- parallel writers ----------------------------------------------------------------------------------


def _parallel_writers(unit: Unit, checked: CheckContext, variables: Mapping[str, StateField]) -> Iterator[Finding]:
    writers = _writers(unit, checked)
    told: set[str] = set()
    for split in unit.splits:
        for name, places in writers.items():
            if name not in variables or variables[name].reduce != "replace" or name in told:
                continue
            inside = [(key, place) for key, place in places if split.branches.get(key)]
            branches = 0
            for key, _ in inside:
                branches |= split.branches[key]
            if branches.bit_count() > 1:
                told.add(name)
                first, (last, place) = inside[0][0], inside[-1]
                who = f"`{first}` and `{last}` write" if first != last else f"several runs of `{first}` write"
                yield _race_of(name, variables[name], f"{who} `{name}` in parallel branches of `{split.key}`", place)
    for call in unit.calls():
        called = checked.find(call.name)
        for name, place in written_outside(called, checked).items() if call.parallel and called is not None else ():
            if name in variables and variables[name].reduce == "replace" and name not in told:
                told.add(name)
                message = f"the items of `{call.key}` run at the same time, and each writes `{name}`"
                yield _race_of(name, variables[name], message, place)


def _race_of(name: str, field: StateField, message: str, place: DocumentPath) -> Finding:
    reducer = {"any": "append", "list": "extend", "dict": "merge", "bool": "", "str": ""}.get(field.type, "add")
    fix = f"give `{name}` a reducer, such as `reduce: {reducer}`, or write it after the branches are joined"
    if not reducer:
        fix = f"write it after the branches are joined, or make `{name}` a list with `reduce: append`"
    return Finding("L120", f"{message}: what the last one writes is kept", place, fix, True)


def _writers(unit: Unit, checked: CheckContext) -> dict[str, list[tuple[str, DocumentPath]]]:
    """The nodes that write each field, themselves or by the graph that they run."""
    found: dict[str, list[tuple[str, DocumentPath]]] = {}
    for key, node in unit.body.nodes.items():
        for name, place, _ in writes_of(node):
            found.setdefault(name, []).append((key, unit.at(key, *place)))
    for call in unit.calls():
        called = checked.find(call.name)
        if called is not None:
            for name in written_outside(called, checked):
                found.setdefault(name, []).append((call.key, unit.at(call.key)))
    return found


# -- what is never used ---------------------------------------------------------------------------------


def check_use(checked: CheckContext) -> Iterator[Finding]:
    """L124: state fields, graphs, agents and answers of models that nothing reads."""
    read = {name: _read(unit) for name, unit in checked.units.items()}
    for name, unit in checked.units.items():
        inside = [inner for inner in checked.units if any(around is unit for around in checked.around(inner))]
        fields = set().union(
            *(read[inner] | _handed_on(checked.units[inner], read[inner]) for inner in {name, *inside})
        )
        for field in unit.body.state:
            if ("state",) not in fields and ("state", field) not in fields:
                message = f"nothing reads `state.{field}`"
                yield Finding("L124", message, (*unit.place, "state", field), "read it, or remove the field", True)
        yield from _unread_answers(unit, read[name])
    for name in checked.graph.graphs:
        if name not in checked.used:
            yield Finding("L124", f"no node runs the graph `{name}`", ("graphs", name), "run it, or remove it", True)
    nodes = [node for unit in checked.units.values() for node in unit.body.nodes.values()]
    named = {node.agent for node in nodes if isinstance(node, AgentNode)}
    for node in nodes:
        if isinstance(node, Subgraph) and isinstance(node.graph, GeneratedGraph):
            named |= set(node.graph.allow.agents)
    for name in checked.graph.agents:
        if name not in named:
            yield Finding("L124", f"no node runs the agent `{name}`", ("agents", name), "run it, or remove it", True)


def _read(unit: Unit) -> set[tuple[str, ...]]:
    """The roots and first keys that a graph reads."""
    return {
        reference.path[:2]
        for node in unit.body.nodes.values()
        for slot in slots_of(node)
        for _, reading in expressions_of(slot)
        for reference in reading.references
    }


def _handed_on(unit: Unit, read: set[tuple[str, ...]]) -> set[tuple[str, ...]]:
    """The state fields whose written values are read as what they are, too: the result of a `set`."""
    found: set[tuple[str, ...]] = set()
    for key, node in unit.body.nodes.items():
        if isinstance(node, Set) and (("nodes",) in read or ("nodes", key) in read or _result_is_read(unit, key)):
            found |= {("state", name) for name in node.set}
    return found


def _result_is_read(unit: Unit, key: str) -> bool:
    node = unit.body.nodes[key]
    return any(_reads_result(follower) for follower in (node, *(unit.body.nodes[w.target] for w in unit.flow.out[key])))


def _unread_answers(unit: Unit, read: set[tuple[str, ...]]) -> Iterator[Finding]:
    if ("nodes",) in read:
        return
    for key, node in unit.body.nodes.items():
        if not isinstance(node, LlmNode) or ("nodes", key) in read:
            continue
        if not _result_is_read(unit, key):
            message = f"nothing reads the answer of `{key}`"
            yield Finding("L124", message, unit.at(key), f"read `nodes.{key}.text`, or remove the node", True)


def _reads_result(node: Node) -> bool:
    if node.kind in ("branch", "join", "race"):  # they hand the result on
        return True
    return any(
        reference.path[0] == "result"
        for slot in slots_of(node)
        for _, reading in expressions_of(slot)
        for reference in reading.references
    )
