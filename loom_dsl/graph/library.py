"""The graphs that Loom ships, read from the package."""

from functools import cache
from importlib.resources import files

from loom_dsl.documents.document import load_document
from loom_dsl.documents.validation import validate_model
from loom_dsl.graph.graph import Graph

NAMES = ("loom.tt", "loom.tool_call", "loom.tool_node")
TURN = ("loom.tt", "loom.tool_call")
"""The graphs of an agent's plan."""
TOOL_NODE = "loom.tool_node"
"""The graph that a tool node runs."""


def source_of(name: str) -> str:
    """The YAML text of a shipped graph.

    Raises:
        KeyError: No graph of that name is shipped.
    """
    if name not in NAMES:
        raise KeyError(name)
    return files("loom_dsl").joinpath("plans", f"{name}.yaml").read_text(encoding="utf-8")


@cache
def shipped(name: str) -> Graph:
    """A shipped graph.

    Raises:
        KeyError: No graph of that name is shipped.
    """
    return validate_model(load_document(source_of(name), name, kinds=("graph",)), Graph)
