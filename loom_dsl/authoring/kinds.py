"""The colours of the kinds of nodes: a light fill by family, with a darker line. The shape tells the kind by itself.

Text on every fill has a contrast above 7:1 (WCAG AAA), and every line one above 4.5:1 on white. Fill and ink are always
written together, so a drawing reads the same on a dark page as on a light one.
"""

from typing import NamedTuple


class Colour(NamedTuple):
    """How the nodes of a family look: what fills them, and the line round them."""

    family: str
    fill: str
    line: str


INK, PAPER = "#202124", "#ffffff"
"""Text, and what is behind a picture that has a ground of its own."""
HERE, BEEN = "#b45309", "#137333"
"""The border of a node with a token, and that of one that was visited."""
WARNING = "#a50e0e"
"""Ways of deadlines, caught errors and used-up counts."""

_FAMILIES = {
    "work": ("#e8f0fe", "#1a56c4", ("activity", "tool")),
    "model": ("#f3e8fd", "#7627bb", ("agent", "llm")),
    "wait": ("#fef3cd", "#8a5a00", ("approval", "event", "timer")),
    "choice": ("#f1f3f4", "#4d5156", ("branch", "race", "join")),
    "inner": ("#d9f2f4", "#0b6470", ("map", "loop", "graph", "recurse")),
    "data": ("#ffffff", "#4d5156", ("set",)),
    "done": ("#dff3e3", "#137333", ("end",)),
    "stop": ("#fce8e6", "#a50e0e", ("fail", "cancel")),
}
KINDS = {kind: Colour(name, fill, line) for name, (fill, line, kinds) in _FAMILIES.items() for kind in kinds}
"""The colour of each kind of node."""
