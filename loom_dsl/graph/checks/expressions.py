"""Checks of expressions: what they read is there, conditions are conditions, secrets stay out."""

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_
from typing import NamedTuple

from loom_dsl.agent.turn import TurnState
from loom_dsl.errors import ExpressionError
from loom_dsl.expr.expression import ROOTS, compile_expression
from loom_dsl.expr.template import literal_texts
from loom_dsl.fields import DocumentPath
from loom_dsl.graph.checks.flow import ControlFlow, FlowEdge
from loom_dsl.graph.checks.slots import Reading, Reference, Slot, alone, read, readings, slots_of, texts_of, type_of
from loom_dsl.graph.checks.structure import did_you_mean
from loom_dsl.graph.checks.types import EVERY, Kinds, kinds_of, kinds_of_path, kinds_of_type, words
from loom_dsl.graph.checks.unit import CheckContext, Finding, Unit
from loom_dsl.graph.edges import Node
from loom_dsl.graph.nodes import Activity, Approval, Branch, End, Fail, Join, Race, Recurse, ToolCallNode
from loom_dsl.graph.plan import RUN
from loom_dsl.tools.secret_references import REFERENCE

WITHOUT_RESULT = (Branch, Race, End, Fail, Recurse)
_TURN_NAMES = frozenset({*TurnState.model_fields, "counter", "cost_usd"})


def expressions_of(slot: Slot) -> Iterator[tuple[DocumentPath, Reading]]:
    """Every expression in a slot, with its path below the node."""
    if slot.kind != "mapping":
        yield slot.place, read(slot.value)
        return
    for place, text in texts_of(slot.value, slot.place):
        for reading in readings(text):
            yield place, reading


def check_expressions(unit: Unit, checked: CheckContext) -> Iterator[Finding]:
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
                        yield Finding("L121", found[0], unit.at(key, *place), found[1], about=reference.path[:2])


def _failure(reading: Reading) -> str:
    """Why an expression that reads nothing has no value; its work is bounded, so it can be tried."""
    if not reading.constant:
        return ""
    try:
        compile_expression(reading.source).evaluate({})
    except ExpressionError as error:
        return error.message
    return ""


def _condition(place: DocumentPath, reading: Reading, kinds: Kinds) -> Iterator[Finding]:
    if "boolean" not in kinds:
        message = f"`{reading.source}` gives {words(kinds)}, not true or false"
        yield Finding("L132", message, place, "compare it with something, such as `len(x) > 0`")
    elif reading.constant:
        message = f"`{reading.source}` reads nothing, so it is always the same"
        yield Finding("L131", message, place, "leave the condition out, or compare what the graph knows")


def _listed(place: DocumentPath, key: str, reading: Reading, kinds: Kinds) -> Iterator[Finding]:
    if "array" not in kinds:
        message = f"`{key}` maps over `{reading.source}`, which gives {words(kinds)}, not a list"
        yield Finding("L123", message, place, "give it a list, such as `range(n)` or `[x]`")


def _secrets(unit: Unit, checked: CheckContext, key: str, slot: Slot) -> Iterator[Finding]:
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


def _left_as_text(node: Node, checked: CheckContext, place: DocumentPath) -> tuple[str, str] | None:
    """Who would get the reference in the place of the secret, and what to do; None where that is not so, or not known.

    Loom's own tools and engines' activities are not judged: what they take is their own affair.
    """
    called = node.compensate.activity if node.compensate is not None and place[0] == "compensate" else ""
    if isinstance(node, Activity) and place[0] == "with":
        called = node.activity
    if ":" in called:
        message = f"the function `{called}` would get the reference as text: a secret is given to tools only"
        return message, "make it a tool that takes it, `@tool(secrets=[…])`, and call it by a node `tool:`"
    contract = checked.contract(node) if isinstance(node, ToolCallNode) and place[0] == "with" else None
    if contract is None or contract.secrets is None or (len(place) == 2 and place[1] in contract.secrets):
        return None
    listed = ", ".join(sorted(contract.secrets)) or "none"
    message = f"the tool would get the reference in `{place[1]}` as text; its arguments that take secrets: {listed}"
    return message, f"declare it where the tool is: `@tool(secrets=['{place[1]}'])`"


def unknown(unit: Unit, checked: CheckContext, slot: Slot, reference: Reference) -> tuple[str, str] | None:
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


def _names(unit: Unit, checked: CheckContext, root: str) -> Iterable[str] | None:
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
    unit: Unit, checked: CheckContext, known: dict[str, frozenset[str] | None] | None = None
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


# L133: text in which an expression of another language stands, such as `{{x}}`, where this one has `${x}`.


_PATH = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*|\[\d+\])*"
_FOREIGN = re.compile(
    rf"\{{\{{\s*(?:\$?\.)?(?P<two>{_PATH})\s*(?:\|[^{{}}]*)?\}}\}}"  # Jinja, mustache, Go, Argo
    rf"|(?<!\{{)\{{(?P<one>{_PATH})\}}(?!\}})"  # Python's format
    rf"|(?<![\w$])\$\.(?P<json>{_PATH})"  # JSONPath
    rf"|(?<![\w$])\$(?P<shell>{_PATH})"
)
_ALONE = {"one": ("input", "item"), "two": ("input", "item", "index", "result", "state"), "json": (), "shell": ()}
"""The roots that count without a key behind them; the others are words of plain text, too."""


def check_meant(unit: Unit, checked: CheckContext) -> Iterator[Finding]:
    """Check one graph. Only what names something that there is counts: other braces and dollars are just text."""
    for key, node in unit.body.nodes.items():
        for slot in slots_of(node):
            if slot.kind != "mapping":
                continue
            for place, text in texts_of(slot.value, slot.place):
                for shown, path in dict.fromkeys(_foreign(unit, checked, slot, text)):
                    message = f"`{shown}` is plain text here, and nothing is put in its place"
                    yield Finding("L133", message, unit.at(key, *place), f"write `${{{path}}}` when its value is meant")


def _foreign(unit: Unit, checked: CheckContext, slot: Slot, text: str) -> Iterator[tuple[str, str]]:
    """What looks like an expression, and the path that it names."""
    try:
        pieces = list(literal_texts(text)) if "{" in text or "$" in text else []
    except ExpressionError:  # data that is no template, as `slots.readings` has it
        return
    for piece in pieces:
        for found in _FOREIGN.finditer(piece):
            style = str(found.lastgroup)
            path = _named(unit, checked, slot, found[style], style)
            if path:
                yield found[0], path


def _named(unit: Unit, checked: CheckContext, slot: Slot, path: str, style: str) -> str:
    """The path as this language has it, of something that there is; else nothing."""
    root, *keys = re.findall(r"[A-Za-z_]\w*", path)
    if root in ROOTS:
        there = (bool(keys) or root in _ALONE[style]) and unknown(unit, checked, slot, Reference((root, *keys))) is None
        return path if there else ""
    if style == "shell":
        return ""  # a variable of a shell, or a price
    if root in (input_names(unit, checked) or ()):
        return f"input.{path}"
    if root in checked.state_names(unit.name):
        return f"state.{path}"
    node = unit.body.nodes.get(root)
    # A node's id alone in single braces is as often a word of a prompt.
    there = node is not None and not isinstance(node, WITHOUT_RESULT) and (bool(keys) or style != "one")
    return f"nodes.{path}" if there else ""


# L123, L126 and L131 inside expressions: operators and fields that the types of what they are given do not have.


class Wrong(NamedTuple):
    """What cannot work: code, message, what to do, and what it is about, as the path that names it."""

    code: str
    message: str
    fix: str
    about: tuple[str, ...] = ()


_NUMBER, _TEXT, _LIST = frozenset({"integer", "number"}), frozenset({"string"}), frozenset({"array"})
_ORDERED = (_NUMBER | {"boolean"}, _TEXT, _LIST)
_INDEXED = _TEXT | _LIST
_LENGTHS = ("length", "size", "count")
_WHOLE = (("join", "need"), ("join", "threads"), ("map", "need"), ("map", "barrier", "limit"), ("next", "times"))
"""Slots that take a whole number."""


def check_operands(unit: Unit, checked: CheckContext) -> Iterator[Finding]:
    """Check one graph: what fails, or is always the same, whatever the values are."""
    for key, node in unit.body.nodes.items():
        for slot in slots_of(node):
            for place, reading in expressions_of(slot):
                if not reading.constant:  # whether a constant has a value is tried out
                    for wrong in dict.fromkeys(_Operands(unit, checked, key, slot, reading).wrong()):
                        yield Finding(wrong.code, wrong.message, unit.at(key, *place), wrong.fix, about=wrong.about)


@dataclass(frozen=True)
class _Operands:
    """One expression and where it stands."""

    unit: Unit
    checked: CheckContext
    key: str
    slot: Slot
    reading: Reading

    def wrong(self) -> Iterator[Wrong]:
        """Everything in it that cannot work."""
        tree = ast.parse(self.reading.source.strip(), mode="eval").body
        yield from self._in(tree, frozenset())
        if self.slot.place in _WHOLE:
            yield from self._whole(tree)

    def _whole(self, tree: ast.expr) -> Iterator[Wrong]:
        divided = isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.Div)
        kinds = self.kinds(tree, frozenset())
        if divided or "integer" not in kinds:
            gives = "a number that is not whole" if divided else words(kinds)
            fix = "divide with `//`" if divided else "give it a whole number, such as len(…)"
            message = f"`{self.slot.place[-1]}` takes a whole number, and `{self.reading.source}` gives {gives}"
            yield Wrong("L123", message, fix)

    def _in(self, node: ast.AST, bound: frozenset[str]) -> Iterator[Wrong]:
        if isinstance(node, ast.ListComp | ast.GeneratorExp):
            clause = node.generators[0]
            yield from self._in(clause.iter, bound)
            bound |= {name.id for name in ast.walk(clause.target) if isinstance(name, ast.Name)}
            parts: list[ast.AST] = [*clause.ifs, node.elt]
        else:
            parts = list(ast.iter_child_nodes(node))
        for part in parts:
            yield from self._in(part, bound)
        look: Callable[..., Iterator[Wrong]] | None = _LOOKS.get(type(node))
        if look is not None:
            yield from look(self, node, bound)

    def kinds(self, node: ast.AST, bound: frozenset[str]) -> Kinds:
        """The types of what a part of the expression gives."""
        path = alone(node, bound)
        if path is not None:
            return EVERY if self._soft(path) else kinds_of_path(self.unit, self.checked, self.key, self.slot, path)
        if isinstance(node, ast.IfExp):
            return self.kinds(node.body, bound) | self.kinds(node.orelse, bound)
        if isinstance(node, ast.BoolOp):
            return frozenset[str]().union(*(self.kinds(value, bound) for value in node.values))
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            both = self.kinds(node.left, bound) & self.kinds(node.right, bound)
            return frozenset(both & (_NUMBER | _TEXT | _LIST)) or EVERY
        return kinds_of_type(type_of(node) or "any")

    def _soft(self, path: tuple[str, ...]) -> bool:
        """Whether the expression says itself that what stands there may be absent."""
        return any(ref.soft and path[: len(ref.path)] == ref.path for ref in self.reading.references)

    def _attribute(self, node: ast.Attribute, bound: frozenset[str]) -> Iterator[Wrong]:
        yield from self._field(node.value, node.attr, bound)

    def _subscript(self, node: ast.Subscript, bound: frozenset[str]) -> Iterator[Wrong]:
        key = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if isinstance(key, str):
            yield from self._field(node.value, key, bound)
        elif isinstance(node.slice, ast.Slice) or isinstance(key, int):
            kinds = self.kinds(node.value, bound)
            if not kinds & _INDEXED:
                target = ast.unparse(node.value)
                message = f"`{target}` is {words(kinds)}, which has no items"
                yield Wrong("L126", message, f"read `{target}` itself", alone(node.value, bound) or ())

    def _field(self, target: ast.expr, name: str, bound: frozenset[str]) -> Iterator[Wrong]:
        kinds = self.kinds(target, bound)
        path = alone(target, bound)
        if "object" in kinds or (path is not None and self._soft((*path, name))):
            return
        shown = ast.unparse(target)
        fix = f"write `len({shown})`" if name in _LENGTHS and kinds & _INDEXED else f"read `{shown}` itself"
        fix += ", or an item of it" if kinds & _LIST and name not in _LENGTHS else ""
        yield Wrong(
            "L126", f"`{shown}` is {words(kinds)}, and `{self.key}` reads the field `{name}` of it", fix, path or ()
        )

    def _binop(self, node: ast.BinOp, bound: frozenset[str]) -> Iterator[Wrong]:
        left, right = self.kinds(node.left, bound), self.kinds(node.right, bound)
        work = (_NUMBER, _TEXT, _LIST) if isinstance(node.op, ast.Add) else (_NUMBER,)
        if any(left & kinds and right & kinds for kinds in work):
            return
        text = isinstance(node.op, ast.Add) and "string" in left | right
        fix = "write str(…) around what is no text" if text else "give it values of one type"
        message = f"`{ast.unparse(node)}` computes with {words(left)} and {words(right)}, which always fails"
        yield Wrong(
            "L123", message, fix if isinstance(node.op, ast.Add) else "compute with numbers, such as int(…) gives"
        )

    def _compare(self, node: ast.Compare, bound: frozenset[str]) -> Iterator[Wrong]:
        parts = [node.left, *node.comparators]
        for operator, one, other in zip(node.ops, parts, parts[1:], strict=False):
            left, right = self.kinds(one, bound), self.kinds(other, bound)
            told = f"{words(left)} with {words(right)}"
            if isinstance(operator, ast.Eq | ast.NotEq):
                if not left & right:
                    message = f"`{ast.unparse(node)}` compares {told}, so it is always the same"
                    yield Wrong("L131", message, "compare values of one type")
            elif isinstance(operator, ast.In | ast.NotIn):
                if not right & (_INDEXED | {"object"}):
                    yield Wrong(
                        "L123", f"`{ast.unparse(node)}` looks into {words(right)}, which always fails", "give a list"
                    )
            elif not any(left & kinds and right & kinds for kinds in _ORDERED):
                message = f"`{ast.unparse(node)}` compares {told}, which always fails"
                yield Wrong("L123", message, "compare values of one type")

    def _comprehension(self, node: ast.ListComp | ast.GeneratorExp, bound: frozenset[str]) -> Iterator[Wrong]:
        over = node.generators[0].iter
        kinds = self.kinds(over, bound)
        if "array" not in kinds:
            fix = "write keys(…), values(…) or items(…)" if "object" in kinds else "give it a list, such as split(…)"
            yield Wrong(
                "L123", f"`{ast.unparse(over)}` is {words(kinds)}, and a list is made from the items of a list", fix
            )


_LOOKS: dict[type[ast.AST], Callable[..., Iterator[Wrong]]] = {
    ast.Attribute: _Operands._attribute,
    ast.Subscript: _Operands._subscript,
    ast.BinOp: _Operands._binop,
    ast.Compare: _Operands._compare,
    ast.ListComp: _Operands._comprehension,
    ast.GeneratorExp: _Operands._comprehension,
}


# L122: an expression reads the result of a node that may not have run when it is looked at.


def check_results(unit: Unit) -> Iterator[Finding]:
    """Check one graph."""
    bits = {key: 1 << index for index, key in enumerate(unit.body.nodes)}
    known = {key for key, node in unit.body.nodes.items() if not isinstance(node, WITHOUT_RESULT)}
    sure = _sure(unit.flow, bits)
    for key, node in unit.body.nodes.items():
        if key not in unit.flow.reached:
            continue
        for slot in slots_of(node):
            here = sure[key] | bits[key] if slot.after else sure[key]
            for place, reading in expressions_of(slot):
                for reference in reading.references:
                    root, name = reference.path[0], reference.path[1] if len(reference.path) > 1 else ""
                    if root == "nodes" and name in known and not reference.soft and not bits[name] & here:
                        message = f"`{name}` may not have run when `{key}` reads its result"
                        fix = f"lead every way here through `{name}`, or read it with `get(nodes, '{name}')`"
                        yield Finding("L122", message, unit.at(key, *place), fix)


def _sure(flow: ControlFlow, bits: dict[str, int]) -> dict[str, int]:
    """The nodes that have a result whenever a token comes to a node, as bits, by node."""
    everything = (1 << len(bits)) - 1
    sure = dict.fromkeys(bits, everything)
    queue = [key for key in bits if key in flow.reached]
    waiting = set(queue)
    while queue:
        key = queue.pop(0)
        waiting.discard(key)
        now = _arriving(flow, key, sure, bits)
        if now == sure[key]:
            continue
        sure[key] = now
        for way in flow.out[key]:
            if way.target not in waiting:
                waiting.add(way.target)
                queue.append(way.target)
    return sure


def _arriving(flow: ControlFlow, key: str, sure: dict[str, int], bits: dict[str, int]) -> int:
    over: dict[str, int] = {}
    for way in flow.into[key]:
        if way.source in flow.reached:
            found = _carried(flow, way, sure, bits)
            over[way.source] = over[way.source] & found if way.source in over else found
    if key in flow.entries:
        return 0
    node = flow.body.nodes[key]
    if isinstance(node, Join) and (node.join.mode, node.join.need, node.join.threads) == ("all", None, None):
        return reduce(or_, over.values(), 0)
    return reduce(and_, over.values(), (1 << len(bits)) - 1)


def _carried(flow: ControlFlow, way: FlowEdge, sure: dict[str, int], bits: dict[str, int]) -> int:
    """What is sure over an edge: the node that it leaves has a result only where it was done."""
    if way.kind in ("first", "each", "all"):
        return sure[way.source] | bits[way.source]
    # Nobody's answer in time is a result of an approval, too.
    if way.kind == "deadline" and isinstance(flow.body.nodes[way.source], Approval):
        return sure[way.source] | bits[way.source]
    return sure[way.source]
