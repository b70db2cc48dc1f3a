"""The plan of a graph, wherever the graph is. Nothing is started here, so nothing that starts jobs is imported."""

import os
from collections.abc import Callable
from pathlib import Path

from loom_dsl.canonical import canonical_json
from loom_dsl.compile import compile_graph
from loom_dsl.diagnostic import Diagnostic
from loom_dsl.errors import NotFoundError
from loom_dsl.graph import Graph
from loom_dsl.plan import Plan


def plan_of(graph: Plan | Graph | str | Path, warned: Callable[[Diagnostic], None] | None = None) -> Plan:
    """Give the plan of a graph: compiled already, made in Python, or in a file.

    Args:
        graph: Any of them.
        warned: Takes what is doubtful about it and does not keep it from running.

    Raises:
        DocumentError: The graph is not valid; carries every finding.
        NotFoundError: The file cannot be read.
    """
    if isinstance(graph, Plan):
        return graph
    if isinstance(graph, Graph):
        made = canonical_json(graph.dump())
        return compile_graph(made, graph.name, read_file=_beside(Path()), env=os.environ, warned=warned)
    try:
        text = Path(graph).read_bytes()
    except OSError as error:
        raise NotFoundError(f"the graph's file {graph} cannot be read: {error.strerror or error}") from None
    return compile_graph(text, str(graph), read_file=_beside(Path(graph).parent), env=os.environ, warned=warned)


def _beside(place: Path) -> Callable[[str], bytes]:
    """Read the files that a document names: their paths are relative to its own."""
    return lambda name: (place / name).read_bytes()
