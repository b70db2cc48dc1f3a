"""Every check of a graph that is made before it runs. `docs/reference/checks.md` has a paragraph on each code."""

from collections.abc import Iterator, Mapping

from loom_dsl.graph.checks.data import check_data, check_use
from loom_dsl.graph.checks.durability import check_durability, check_lock_order, check_locks
from loom_dsl.graph.checks.expressions import check_expressions, check_meant, check_operands, check_results
from loom_dsl.graph.checks.literals import check_literals
from loom_dsl.graph.checks.references import check_arguments_given, check_registry
from loom_dsl.graph.checks.shapes import check_shapes
from loom_dsl.graph.checks.structure import check_catches, check_recursion, check_structure
from loom_dsl.graph.checks.tokens import check_tokens
from loom_dsl.graph.checks.unit import CheckContext, Contracts, Finding, Resolve
from loom_dsl.graph.graph import Graph

STRUCTURE = frozenset({"L101", "L102", "L104", "L105", "L109", "L110", "L140", "L141", "L145", "L146", "L147"})
"""Codes that can be told of a document parts of which cannot be read."""


def check_graph(
    graph: Graph, library: Mapping[str, Graph], resolve: Resolve | None = None, contracts: Contracts | None = None
) -> Iterator[Finding]:
    """Check a graph, and the graphs inside it.

    Args:
        graph: The document.
        library: Graphs that it may run besides its own, by name.
        resolve: Says what is wrong with a name: ``resolve("tool", "glob")`` gives None when there is such a tool, else
            a sentence. It is asked for tools, models and activities; without it those names are not checked.
        contracts: Gives what a tool or an activity takes and gives; without it that is not checked.
    """
    checked = CheckContext(graph, library, resolve, contracts)
    for unit in checked.units.values():
        yield from check_structure(unit, checked)
        yield from check_tokens(unit)
        yield from check_data(unit, checked)
        yield from check_expressions(unit, checked)
        yield from check_literals(unit, checked)
        yield from check_operands(unit, checked)
        yield from check_meant(unit, checked)
        yield from check_results(unit)
        yield from check_shapes(unit, checked)
        yield from check_arguments_given(unit, checked)
        yield from check_catches(unit, checked)
        yield from check_durability(unit, checked)
        yield from check_locks(unit, checked)
        yield from check_registry(unit, checked)
    yield from check_lock_order(checked)
    yield from check_recursion(checked)
    yield from check_use(checked)
