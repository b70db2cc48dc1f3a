"""L133: text in which an expression of another language stands, such as `{{x}}`, where this one has `${x}`."""

import re
from collections.abc import Iterator

from loom_dsl.checks_expressions import WITHOUT_RESULT, input_names, unknown
from loom_dsl.checks_reading import Reference
from loom_dsl.checks_slots import Slot, slots_of, texts_of
from loom_dsl.checks_unit import Checked, Finding, Unit
from loom_dsl.errors import ExpressionError
from loom_dsl.expr import ROOTS
from loom_dsl.template import literal_texts

_PATH = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*|\[\d+\])*"
_FOREIGN = re.compile(
    rf"\{{\{{\s*(?:\$?\.)?(?P<two>{_PATH})\s*(?:\|[^{{}}]*)?\}}\}}"  # Jinja, mustache, Go, Argo
    rf"|(?<!\{{)\{{(?P<one>{_PATH})\}}(?!\}})"  # Python's format
    rf"|(?<![\w$])\$\.(?P<json>{_PATH})"  # JSONPath
    rf"|(?<![\w$])\$(?P<shell>{_PATH})"
)
_ALONE = {"one": ("input", "item"), "two": ("input", "item", "index", "result", "state"), "json": (), "shell": ()}
"""The roots that count without a key behind them; the others are words of plain text, too."""


def check_meant(unit: Unit, checked: Checked) -> Iterator[Finding]:
    """Check one graph. Only what names something that there is counts: other braces and dollars are just text."""
    for key, node in unit.body.nodes.items():
        for slot in slots_of(node):
            if slot.kind != "mapping":
                continue
            for place, text in texts_of(slot.value, slot.place):
                for shown, path in dict.fromkeys(_foreign(unit, checked, slot, text)):
                    message = f"`{shown}` is plain text here, and nothing is put in its place"
                    yield Finding("L133", message, unit.at(key, *place), f"write `${{{path}}}` when its value is meant")


def _foreign(unit: Unit, checked: Checked, slot: Slot, text: str) -> Iterator[tuple[str, str]]:
    """What looks like an expression, and the path that it names."""
    try:
        pieces = list(literal_texts(text)) if "{" in text or "$" in text else []
    except ExpressionError:  # data that is no template, as `checks_reading.readings` has it
        return
    for piece in pieces:
        for found in _FOREIGN.finditer(piece):
            style = str(found.lastgroup)
            path = _named(unit, checked, slot, found[style], style)
            if path:
                yield found[0], path


def _named(unit: Unit, checked: Checked, slot: Slot, path: str, style: str) -> str:
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
