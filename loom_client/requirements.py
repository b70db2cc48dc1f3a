"""What a worker needs for a job: the Python modules that its tools and functions are in."""

from collections.abc import Iterator, Mapping
from typing import Any

from loom_client.settings import worker_command
from loom_dsl.graph.edges import Node
from loom_dsl.graph.plan import Plan
from loom_dsl.tools.tool import is_of_python
from loom_store.transaction import Transaction


def modules_of(plan: Plan) -> tuple[str, ...]:
    """Give the modules that a plan names, in alphabetical order; what Loom itself has is in none,
    and one of Python's own is nothing that a worker should offer."""
    references = {*_tools_of(plan.agent), *(name for agent in plan.agents.values() for name in _tools_of(agent))}
    for body in plan.bodies.values():
        references.update(name for node in body.nodes.values() for name in _functions_of(node))
    modules = {name.rpartition(":")[0] for name in references if ":" in name}
    return tuple(sorted(module for module in modules if not is_of_python(module)))


def start_worker(tx: Transaction, row: Mapping[str, Any], task_queue: str) -> str:
    """Give the command that starts a worker which has what a job needs."""
    modules = modules_of(Plan.load(tx.get_blob(row["plan"]).decode()))
    return " ".join([worker_command(task_queue), *(f"--tools {module}" for module in modules)])


def _tools_of(agent: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(name) for name in agent.get("tools") or ())


def _functions_of(node: Node) -> Iterator[str]:
    yield str(getattr(node, "activity", ""))
    yield str(getattr(node, "tool", ""))
    if node.compensate is not None:
        yield node.compensate.activity
