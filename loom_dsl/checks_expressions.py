"""Checks of expressions: what they read is there, conditions are conditions, secrets stay out."""

from collections.abc import Iterable, Iterator

from loom_dsl.checks_reading import Reading, Reference, read, readings
from loom_dsl.checks_slots import Slot, slots_of, texts_of
from loom_dsl.checks_structure import did_you_mean
from loom_dsl.checks_types import Kinds, kinds_of, words
from loom_dsl.checks_unit import Checked, Finding, Unit
from loom_dsl.errors import ExpressionError
from loom_dsl.expr import compile_expression
from loom_dsl.nodes_flow import Branch, End, Fail, Race, Recurse
from loom_dsl.nodes_work import Activity, Tool
from loom_dsl.parts import Node
from loom_dsl.scope import RUN
from loom_dsl.secret_references import REFERENCE
from loom_dsl.turn import TurnState

Place = tuple[str | int, ...]
WITHOUT_RESULT = (Branch, Race, End, Fail, Recurse)
_TURN_NAMES = frozenset({*TurnState.model_fields, "counter", "cost_usd"})


def expressions_of(slot: Slot) -> Iterator[tuple[Place, Reading]]:
    """Every expression in a slot, with its path below the node."""
    if slot.kind != "mapping":
        yield slot.place, read(slot.value)
        return
    for place, text in texts_of(slot.value, slot.place):
        for reading in readings(text):
            yield place, reading


def check_expressions(unit: Unit, checked: Checked) -> Iterator[Finding]:
    """Check the expressions of one graph: L121, L125, L131, L132."""
    for key, node in unit.body.nodes.items():
        for slot in slots_of(node):
            yield from _secrets(unit, checked, key, slot)
            for place, reading in expressions_of(slot):
                failure = _failure(reading)
                if failure:
                    message = f"this fails whenever it is looked at: {failure}"
                    yield Finding("L130", message, unit.at(key, *place), "compute less, or read what the graph knows")
                elif slot.kind == "condition":
                    yield from _condition(unit.at(key, *place), reading, kinds_of(unit, checked, key, slot, reading))
                elif slot.place == ("map", "over"):
                    yield from _listed(unit.at(key, *place), key, reading, kinds_of(unit, checked, key, slot, reading))
                for reference in reading.references:
                    found = unknown(unit, checked, slot, reference)
                    if found is not None:
                        yield Finding("L121", found[0], unit.at(key, *place), found[1])


def _failure(reading: Reading) -> str:
    """Why an expression that reads nothing has no value; its work is bounded, so it can be tried."""
    if not reading.constant:
        return ""
    try:
        compile_expression(reading.source).evaluate({})
    except ExpressionError as error:
        return error.message
    return ""


def _condition(place: Place, reading: Reading, kinds: Kinds) -> Iterator[Finding]:
    if "boolean" not in kinds:
        message = f"`{reading.source}` gives {words(kinds)}, not true or false"
        yield Finding("L132", message, place, "compare it with something, such as `len(x) > 0`")
    elif reading.constant:
        message = f"`{reading.source}` reads nothing, so it is always the same"
        yield Finding("L131", message, place, "leave the condition out, or compare what the graph knows")


def _listed(place: Place, key: str, reading: Reading, kinds: Kinds) -> Iterator[Finding]:
    if "array" not in kinds:
        message = f"`{key}` maps over `{reading.source}`, which gives {words(kinds)}, not a list"
        yield Finding("L123", message, place, "give it a list, such as `range(n)` or `[x]`")


def _secrets(unit: Unit, checked: Checked, key: str, slot: Slot) -> Iterator[Finding]:
    for place, text in texts_of(slot.value, slot.place):
        secret = REFERENCE.search(text)
        if secret is None:
            continue
        if slot.shown:
            message = f"`{key}` shows a secret: this value is stored, and others see it"
            fix = "give the reference to a tool, in the `with` of its node; only there it is resolved"
            yield Finding("L125", message, unit.at(key, *place), fix)
        elif not secret[1].isidentifier():
            message = f"`{secret[1]}` is not the name of a secret"
            yield Finding("L125", message, unit.at(key, *place), "write `${secret:NAME}`; nothing is computed from it")
        elif found := _left_as_text(unit.body.nodes[key], checked, place):
            yield Finding("L125", found[0], unit.at(key, *place), found[1])


def _left_as_text(node: Node, checked: Checked, place: Place) -> tuple[str, str] | None:
    """Who would get the reference in the place of the secret, and what to do; None where that is not so, or not known.

    Loom's own tools and engines' activities are not judged: what they take is their own affair.
    """
    called = node.compensate.activity if node.compensate is not None and place[0] == "compensate" else ""
    if isinstance(node, Activity) and place[0] == "with":
        called = node.activity
    if ":" in called:
        message = f"the function `{called}` would get the reference as text: a secret is given to tools only"
        return message, "make it a tool that takes it, `@tool(secrets=[…])`, and call it by a node `tool:`"
    contract = checked.contract(node) if isinstance(node, Tool) and place[0] == "with" else None
    if contract is None or contract.secrets is None or (len(place) == 2 and place[1] in contract.secrets):
        return None
    listed = ", ".join(sorted(contract.secrets)) or "none"
    message = f"the tool would get the reference in `{place[1]}` as text; its arguments that take secrets: {listed}"
    return message, f"declare it where the tool is: `@tool(secrets=['{place[1]}'])`"


def unknown(unit: Unit, checked: Checked, slot: Slot, reference: Reference) -> tuple[str, str] | None:
    """What is wrong with what an expression reads there, and what to do; None when it may have a value."""
    root, *keys = reference.path
    if root in ("item", "index") and not (slot.items or checked.shipped or unit.name in checked.with_items):
        return f"`{root}` has no value here: no map or loop runs this graph", "read `input`, or run the graph by a map"
    if root in ("turn", "agent", "limits") and not checked.turns:
        return f"`{root}` has no value here: only the graph of an agent has turns", "read `input`, `state` or `run`"
    if root == "event":
        return "`event` has no value: the data of an event is the result of its node", "read `result` after the node"
    if not keys:
        return None
    name = keys[0]
    if root == "nodes":
        return _node(unit, name)
    known = _names(unit, checked, root)
    if known is None or name in known:
        return None
    fix = did_you_mean(name, known, f"fields of `{root}`") if known else f"declare it: `{root}: {{{name}: any}}`"
    return f"there is no `{root}.{name}`", fix


def _node(unit: Unit, name: str) -> tuple[str, str] | None:
    nodes = unit.body.nodes
    if name not in nodes:
        with_results = [key for key, node in nodes.items() if not isinstance(node, WITHOUT_RESULT)]
        return f"there is no node `{name}` in this graph", did_you_mean(name, with_results, "nodes with results")
    if isinstance(nodes[name], WITHOUT_RESULT):
        what = "only chooses the way" if isinstance(nodes[name], Branch) else f"is of the kind `{nodes[name].kind}`"
        return f"`{name}` {what} and has no result", "read the result of a node before it"
    return None


def _names(unit: Unit, checked: Checked, root: str) -> Iterable[str] | None:
    if root == "turn":
        return _TURN_NAMES
    if root == "run":
        return RUN
    if root == "input":
        return input_names(unit, checked)
    if root == "state" and not checked.shipped:
        return checked.state_names(unit.name)
    return None


def input_names(
    unit: Unit, checked: Checked, known: dict[str, frozenset[str] | None] | None = None
) -> frozenset[str] | None:
    """The names of a graph's `input` as far as the document tells; None when it may have any."""
    if unit.body.input:
        return frozenset(unit.body.input)
    calls = checked.callers[unit.name]
    if not unit.name and not checked.turns:
        return frozenset()
    if not unit.name or not calls:
        return None
    known = {} if known is None else known
    if unit.name in known:
        return known[unit.name]
    known[unit.name] = None  # until it is known, and for graphs that hand their input on in circles
    found: frozenset[str] = frozenset()
    for call in calls:
        if isinstance(call.given, str):
            return None
        outer = checked.units[call.unit]
        names = input_names(outer, checked, known) if call.given is None else frozenset(call.given)
        if names is None:
            return None
        found |= names
    known[unit.name] = found
    return found
