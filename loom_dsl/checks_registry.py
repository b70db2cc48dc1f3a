"""L150: names of agents, tools, models and activities that are not known."""

from collections.abc import Iterator

from loom_dsl.checks_structure import did_you_mean
from loom_dsl.checks_unit import Checked, Finding, Place, Unit
from loom_dsl.nodes_work import Activity, AgentNode, Llm, Subgraph, Tool
from loom_dsl.parts import Node
from loom_dsl.written import Written


def check_registry(unit: Unit, checked: Checked) -> Iterator[Finding]:
    """Check one graph. Only agents are known by the document itself; for the rest the caller is asked."""
    for key, node in unit.body.nodes.items():
        if isinstance(node, AgentNode) and node.agent not in checked.graph.agents:
            message = f"`{key}` runs the agent `{node.agent}`, which is not in `agents`"
            fix = did_you_mean(node.agent, checked.graph.agents, "agents")
            yield Finding("L150", message, unit.at(key, "agent"), fix)
        if isinstance(node, Subgraph) and isinstance(node.graph, Written):
            for index, name in enumerate(node.graph.allow.agents):
                if name not in checked.graph.agents:
                    message = f"`{key}` allows the agent `{name}`, which is not in `agents`"
                    fix = did_you_mean(name, checked.graph.agents, "agents")
                    yield Finding("L150", message, unit.at(key, "graph", "allow", "agents", index), fix)
        for what, name, place in _names(node):
            if not name.strip():
                yield Finding("L150", f"`{key}` names no {what}", unit.at(key, *place), f"give the name of one {what}")
            elif checked.resolve is not None and "${" not in name:
                wrong = checked.resolve(what, name)
                if wrong is not None:
                    yield Finding("L150", wrong, unit.at(key, *place))


def _names(node: Node) -> Iterator[tuple[str, str, Place]]:
    if isinstance(node, Activity):
        yield "activity", node.activity, ("activity",)
    if isinstance(node, Tool):
        yield "tool", node.tool, ("tool",)
    if isinstance(node, Llm):
        yield "model", node.llm.model, ("llm", "model")
    if isinstance(node, Subgraph) and isinstance(node.graph, Written):
        allow, at = node.graph.allow, ("graph", "allow")
        yield from (("tool", name, (*at, "tools", index)) for index, name in enumerate(allow.tools))
        yield from (("model", name, (*at, "models", index)) for index, name in enumerate(allow.models))
        whole = [(index, name) for index, name in enumerate(allow.functions) if ":" in name]
        yield from (("activity", name, (*at, "functions", index)) for index, name in whole)
    if node.compensate is not None:
        yield "activity", node.compensate.activity, ("compensate", "activity")
