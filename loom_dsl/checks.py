"""Every check of a graph that is made before it runs. `docs/reference/checks.md` has a paragraph on each code."""

from collections.abc import Iterator, Mapping

from loom_dsl.checks_arguments import check_arguments_given
from loom_dsl.checks_catch import check_catches
from loom_dsl.checks_data import check_data, check_use
from loom_dsl.checks_durability import check_durability
from loom_dsl.checks_expressions import check_expressions
from loom_dsl.checks_locks import check_lock_order, check_locks
from loom_dsl.checks_meant import check_meant
from loom_dsl.checks_operands import check_operands
from loom_dsl.checks_registry import check_registry
from loom_dsl.checks_results import check_results
from loom_dsl.checks_shapes import check_shapes
from loom_dsl.checks_structure import check_recursion, check_structure
from loom_dsl.checks_tokens import check_tokens
from loom_dsl.checks_unit import Checked, Contracts, Finding, Resolve
from loom_dsl.graph import Graph

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
    checked = Checked(graph, library, resolve, contracts)
    for unit in checked.units.values():
        yield from check_structure(unit, checked)
        yield from check_tokens(unit)
        yield from check_data(unit, checked)
        yield from check_expressions(unit, checked)
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
