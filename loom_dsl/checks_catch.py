"""L119: a `catch` names a code that no error can have."""

import builtins
import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from loom_dsl.checks_unit import Checked, Finding, Unit
from loom_dsl.error_codes import CLASSES, CODES
from loom_dsl.errors import FunctionFailed
from loom_dsl.nodes_flow import Fail
from loom_dsl.nodes_work import Activity, AgentNode, Loop, Map, Subgraph, Tool
from loom_dsl.parts import Node

ANY = "any"
_CODE = re.compile(r"[a-z][a-z0-9_.-]{0,63}")
_GRAPHS = (Map, Loop, Subgraph)
_CALLS = (Activity, Tool, AgentNode, *_GRAPHS)
"""Nodes below which code of users runs, whose errors may have codes of their own."""
_EVERY = frozenset({"*", "all", "default", "else", "error", "States.ALL", "Exception", "BaseException"})
"""How other languages say "any error"."""
_NEAR, _VERY_NEAR = 0.85, 0.92
"""How like a known code another must be to be taken for it, where codes of users are known and where they are not."""


def check_catches(unit: Unit, checked: Checked) -> Iterator[Finding]:
    """Check one graph."""
    if checked.shipped:
        return
    codes: _Codes | None = None
    for key, node in unit.body.nodes.items():
        for name in node.catch if not _anything(node) else ():
            codes = codes or _codes_of(checked)
            if name != ANY and codes.wrong(name, node):
                message = f"`{key}` catches `{name}`, and no error has that code"
                yield Finding("L119", message, unit.at(key, "catch", name), codes.advice(name, node), True)


def _anything(node: Node) -> bool:
    """Whether the node may fail with a code that nobody knows: that of a `fail` in a graph not yet written."""
    return isinstance(node, Subgraph) and not node.called


@dataclass(frozen=True)
class _Codes:
    """What is known of the codes in a document.

    Attributes:
        failing: Those of its `fail` nodes.
        computed: Whether one of these is computed, so that it may be anything.
        raised: Codes of the classes of users' errors, empty where a class has none, by its name.
        asked: Whether users' modules were looked at.
    """

    failing: frozenset[str]
    computed: bool
    raised: Mapping[str, str]
    asked: bool

    def wrong(self, name: str, node: Node) -> bool:
        if name in self.known(node) or (self.computed and isinstance(node, _GRAPHS)):
            return False
        if not isinstance(node, _CALLS) or not _CODE.fullmatch(name):
            return True
        return bool(self.near(name, node, _NEAR if self.asked else _VERY_NEAR))

    def known(self, node: Node) -> set[str]:
        own = {code for code in self.raised.values() if code} if isinstance(node, _CALLS) else set()
        return {*CODES, ANY, *own, *(self.failing if isinstance(node, _GRAPHS) else ())}

    def near(self, name: str, node: Node, cutoff: float) -> str:
        plain = {_plain(code): code for code in sorted(self.known(node))}
        found = difflib.get_close_matches(_plain(name), plain, 1, cutoff)
        return plain[found[0]] if found else ""

    def advice(self, name: str, node: Node) -> str:
        if name in _EVERY:
            return f"write `{ANY}`, which stands for every error"
        if name == "deadline":
            return "a time that is over has an edge of its own: `deadline: {after: 4h, to: NODE}`"
        code = self.raised.get(name) or CLASSES.get(name)
        if code:
            return f"write `{code}`, which is the code of `{name}`"
        plain = FunctionFailed.code
        if name in self.raised:
            return f'give the class an attribute, such as `code = "{_snake(name)}"`, or catch `{plain}`'
        if _is_exception(name):
            return f"an exception without an attribute `code` has the code `{plain}`; catch that, or `{ANY}`"
        near = self.near(name, node, 0.75)
        if near:
            return f"did you mean `{near}`?"
        own = f"`{plain}`, " if isinstance(node, _CALLS) else ""
        return f"codes are small letters, digits, `_`, `-` and `.`; such as {own}`timeout`, or `{ANY}` for all"


def _codes_of(checked: Checked) -> _Codes:
    nodes = [node for unit in checked.units.values() for node in unit.body.nodes.values()]
    fails = [node.fail.code for node in nodes if isinstance(node, Fail)]
    raised: dict[str, str] = {}
    asked = False
    for node in nodes:
        contract = checked.contract(node)
        if contract is not None and contract.raises is not None:
            raised |= contract.raises
            asked = True
    literal = {str(code) for code in fails if "${" not in str(code)}
    return _Codes(frozenset(literal), len(literal) < len(set(map(str, fails))), raised, asked)


def _is_exception(name: str) -> bool:
    found = getattr(builtins, name, None)
    return (isinstance(found, type) and issubclass(found, BaseException)) or name.endswith(("Error", "Exception"))


def _plain(name: str) -> str:
    """A code as its letters and digits alone, so that `FunctionFailed` is like `function_failed`."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
