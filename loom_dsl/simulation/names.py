"""How a scenario names what runs, and whether the graph has it.

One execution is ``each#1[2]/tests#1``. A scenario may name it so, without visits (``each[2]/tests``), without items
(``each/tests``), or by the node alone (``tests``, ``tests#2``). Work can also be named by what it runs: a function, a
tool, an agent, a model.
"""

import re

from loom_dsl.graph.edges import Node
from loom_dsl.graph.generated import GeneratedGraph
from loom_dsl.graph.library import NAMES
from loom_dsl.graph.nodes import Activity, AgentNode, EventNode, LlmNode, Map, Subgraph, ToolCallNode
from loom_dsl.graph.plan import CHUNK, Plan, runs
from loom_dsl.machine.commands import RunActivity, StartChild
from loom_dsl.machine.tokens.compensation import FUNCTION

_VISIT, _INDEX = re.compile(r"#\d+"), re.compile(r"\[\d+\]")
MAX_CHILD_DEPTH = 20


def aliases(at: str) -> list[str]:
    """The names of an execution, the most exact one first."""
    without = _VISIT.sub("", at)
    last = at.rpartition("/")[2]
    return list(dict.fromkeys([at, without, _INDEX.sub("", without), last, _VISIT.sub("", last)]))


def frame_of(at: str) -> str:
    """The branch that an execution is in; ``main`` for the graph itself."""
    return at.rpartition("/")[0] or "main"


def work_name(command: RunActivity | StartChild) -> str:
    """What a command runs: a function, an agent, a graph, a model or an activity."""
    if isinstance(command, StartChild):
        return command.agent or command.graph
    if command.activity == FUNCTION:
        return str(command.arguments["function"])
    return str(command.arguments["model"]) if command.activity == "loom.llm.call" else command.activity


def user_graphs(plan: Plan) -> list[str]:
    """The graphs of a plan that are no part of Loom; if all are, all of them."""
    own = [name for name in plan.bodies if CHUNK not in name and name.partition("/")[0] not in NAMES]
    return own or [name for name in plan.bodies if CHUNK not in name]


def nodes_named(plan: Plan, name: str) -> list[Node]:
    """The nodes that a scenario means by a name."""
    path = _INDEX.sub("", _VISIT.sub("", name)).split("/")
    if len(path) == 1:
        bodies = (plan.bodies[graph] for graph in user_graphs(plan))
        return [body.nodes[path[0]] for body in bodies if path[0] in body.nodes]
    found = _walk(plan, plan.root, path)
    return [found] if found is not None else []


def _walk(plan: Plan, graph: str, path: list[str]) -> Node | None:
    *above, last = path[:MAX_CHILD_DEPTH]
    for part in above:
        node = plan.bodies[graph].nodes.get(part)
        inner = runs(plan, graph, node) if node is not None else None
        if inner is None:
            return None
        graph = inner
    return plan.bodies[graph].nodes.get(last)


def written_below(plan: Plan, name: str) -> bool:
    """Whether a name is one of a graph that is written while the job runs: nobody knows its nodes before."""
    path = _INDEX.sub("", _VISIT.sub("", name)).split("/")
    above = [_walk(plan, plan.root, path[:depth]) for depth in range(1, len(path[:MAX_CHILD_DEPTH]))]
    if any(isinstance(node, Subgraph) and not node.called for node in above):
        return True
    nodes = [node for graph in user_graphs(plan) for node in plan.bodies[graph].nodes.values()]
    written = [
        node.graph.allow for node in nodes if isinstance(node, Subgraph) and isinstance(node.graph, GeneratedGraph)
    ]
    functions = {name, name.partition(":")[0]} if ":" in name else set()
    return any(
        name in (*allow.tools, *allow.agents, *allow.models) or functions & set(allow.functions) for allow in written
    )


def node_names(plan: Plan) -> list[str]:
    """The ids of all nodes."""
    return list(dict.fromkeys(key for graph in user_graphs(plan) for key in plan.bodies[graph].nodes))


def runs_something(node: Node) -> bool:
    """Whether a scenario gives the node's result: it does work, or runs a job of its own."""
    return isinstance(node, Activity | ToolCallNode | AgentNode | LlmNode) or (
        isinstance(node, Subgraph) and (node.child or not node.called)
    )


def work_names(plan: Plan) -> list[str]:
    """What the nodes run, and what takes it back: functions, tools, agents, models."""
    found: dict[str, None] = {}
    for graph in user_graphs(plan):
        for node in plan.bodies[graph].nodes.values():
            found |= dict.fromkeys(_named_by(node))
            if node.compensate is not None:
                found[node.compensate.activity] = None
    return list(found)


def _named_by(node: Node) -> list[str]:
    match node:
        case Activity():
            return [node.activity]
        case ToolCallNode():
            return [node.tool]
        case AgentNode():
            return [node.agent]
        case LlmNode():
            return [node.llm.model]
        case Subgraph() if node.child:
            return [node.called]
        case _:
            return []


def event_names(plan: Plan) -> list[str]:
    """The events that something in the graph waits for."""
    found: dict[str, None] = {}
    for graph in user_graphs(plan):
        for node in plan.bodies[graph].nodes.values():
            if isinstance(node, EventNode):
                found[node.event.name] = None
            elif isinstance(node, Map):
                opened = [node.map.open.add, node.map.open.close] if node.map.open else []
                found |= dict.fromkeys([*opened, *([node.map.complete] if node.map.complete else [])])
    return list(found)
