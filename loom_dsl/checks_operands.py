"""L123, L126 and L131 inside expressions: operators and fields that the types of what they are given do not have."""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from loom_dsl.checks_expressions import expressions_of
from loom_dsl.checks_reading import Reading, alone, type_of
from loom_dsl.checks_slots import Slot, slots_of
from loom_dsl.checks_types import EVERY, Kinds, kinds_of_path, kinds_of_type, words
from loom_dsl.checks_unit import Checked, Finding, Unit

Wrong = tuple[str, str, str]
"""Code, message, what to do."""
_NUMBER, _TEXT, _LIST = frozenset({"integer", "number"}), frozenset({"string"}), frozenset({"array"})
_ORDERED = (_NUMBER | {"boolean"}, _TEXT, _LIST)
_INDEXED = _TEXT | _LIST
_LENGTHS = ("length", "size", "count")
_WHOLE = (("join", "need"), ("join", "threads"), ("map", "need"), ("map", "barrier", "limit"), ("next", "times"))
"""Slots that take a whole number."""


def check_operands(unit: Unit, checked: Checked) -> Iterator[Finding]:
    """Check one graph: what fails, or is always the same, whatever the values are."""
    for key, node in unit.body.nodes.items():
        for slot in slots_of(node):
            for place, reading in expressions_of(slot):
                if not reading.constant:  # whether a constant has a value is tried out
                    for code, message, fix in dict.fromkeys(_Operands(unit, checked, key, slot, reading).wrong()):
                        yield Finding(code, message, unit.at(key, *place), fix)


@dataclass(frozen=True)
class _Operands:
    """One expression and where it stands."""

    unit: Unit
    checked: Checked
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
            yield (
                "L123",
                f"`{self.slot.place[-1]}` takes a whole number, and `{self.reading.source}` gives {gives}",
                fix,
            )

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
                yield "L126", f"`{target}` is {words(kinds)}, which has no items", f"read `{target}` itself"

    def _field(self, target: ast.expr, name: str, bound: frozenset[str]) -> Iterator[Wrong]:
        kinds = self.kinds(target, bound)
        path = alone(target, bound)
        if "object" in kinds or (path is not None and self._soft((*path, name))):
            return
        shown = ast.unparse(target)
        fix = f"write `len({shown})`" if name in _LENGTHS and kinds & _INDEXED else f"read `{shown}` itself"
        fix += ", or an item of it" if kinds & _LIST and name not in _LENGTHS else ""
        yield "L126", f"`{shown}` is {words(kinds)}, and `{self.key}` reads the field `{name}` of it", fix

    def _binop(self, node: ast.BinOp, bound: frozenset[str]) -> Iterator[Wrong]:
        left, right = self.kinds(node.left, bound), self.kinds(node.right, bound)
        work = (_NUMBER, _TEXT, _LIST) if isinstance(node.op, ast.Add) else (_NUMBER,)
        if any(left & kinds and right & kinds for kinds in work):
            return
        text = isinstance(node.op, ast.Add) and "string" in left | right
        fix = "write str(…) around what is no text" if text else "give it values of one type"
        message = f"`{ast.unparse(node)}` computes with {words(left)} and {words(right)}, which always fails"
        yield "L123", message, fix if isinstance(node.op, ast.Add) else "compute with numbers, such as int(…) gives"

    def _compare(self, node: ast.Compare, bound: frozenset[str]) -> Iterator[Wrong]:
        parts = [node.left, *node.comparators]
        for operator, one, other in zip(node.ops, parts, parts[1:], strict=False):
            left, right = self.kinds(one, bound), self.kinds(other, bound)
            told = f"{words(left)} with {words(right)}"
            if isinstance(operator, ast.Eq | ast.NotEq):
                if not left & right:
                    message = f"`{ast.unparse(node)}` compares {told}, so it is always the same"
                    yield "L131", message, "compare values of one type"
            elif isinstance(operator, ast.In | ast.NotIn):
                if not right & (_INDEXED | {"object"}):
                    yield "L123", f"`{ast.unparse(node)}` looks into {words(right)}, which always fails", "give a list"
            elif not any(left & kinds and right & kinds for kinds in _ORDERED):
                message = f"`{ast.unparse(node)}` compares {told}, which always fails"
                yield "L123", message, "compare values of one type"

    def _comprehension(self, node: ast.ListComp | ast.GeneratorExp, bound: frozenset[str]) -> Iterator[Wrong]:
        over = node.generators[0].iter
        kinds = self.kinds(over, bound)
        if "array" not in kinds:
            fix = "write keys(…), values(…) or items(…)" if "object" in kinds else "give it a list, such as split(…)"
            yield "L123", f"`{ast.unparse(over)}` is {words(kinds)}, and a list is made from the items of a list", fix


_LOOKS: dict[type[ast.AST], Callable[..., Iterator[Wrong]]] = {
    ast.Attribute: _Operands._attribute,
    ast.Subscript: _Operands._subscript,
    ast.BinOp: _Operands._binop,
    ast.Compare: _Operands._compare,
    ast.ListComp: _Operands._comprehension,
    ast.GeneratorExp: _Operands._comprehension,
}
