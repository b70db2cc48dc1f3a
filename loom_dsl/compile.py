"""From documents to a plan: every check that can be made before anything runs."""

import difflib
from collections.abc import Iterator, Mapping

from loom_dsl.agent import Agent
from loom_dsl.document import Document, load_document, validate_model
from loom_dsl.errors import Diagnostic, DocumentError
from loom_dsl.graph import Activity, Approval, End, Fail, Graph, Map, Node, Recurse
from loom_dsl.library import NAMES, shipped
from loom_dsl.plan import Plan

Place = tuple[str | int, ...]
Finding = tuple[str, str, Place, str]
"""Code, message, place in the document, and advice."""


def compile_agent(agent: Agent) -> Plan:
    """Give the plan of a job of one agent: the tail recursion ``loom.tt`` with this agent in it."""
    return Plan("loom.tt", {name: shipped(name) for name in NAMES}, agent.to_plan_data())


def compile_graph(text: str | bytes, source: str) -> Plan:
    """Compile a graph document.

    Raises:
        DocumentError: The document is not a graph, or a check fails; it carries every finding.
    """
    document = load_document(text, source, kinds=("graph",))
    graph = validate_model(document, Graph)
    library = {name: shipped(name) for name in NAMES}
    findings = [_at_place(document, *finding) for finding in check_graph(graph, library)]
    if findings:
        raise DocumentError(findings)
    used = {name: library[name] for name in sorted(_reached(graph, library))}
    return Plan(graph.name, {**used, graph.name: graph}, {})


def _at_place(document: Document, code: str, message: str, path: Place, fix: str) -> Diagnostic:
    return document.diagnostic(code, message, path, fix=fix)


def _reached(graph: Graph, library: Mapping[str, Graph]) -> set[str]:
    found: set[str] = set()
    queue = [graph]
    while queue:
        for node in queue.pop().nodes.values():
            if isinstance(node, Map) and node.map.do in library and node.map.do not in found:
                found.add(node.map.do)
                queue.append(library[node.map.do])
    return found


def check_graph(graph: Graph, library: Mapping[str, Graph]) -> Iterator[Finding]:
    """Check one graph: code, message, place in the document and advice of every finding."""
    if graph.start not in graph.nodes:
        yield "L101", f"start is `{graph.start}`, which is not a node", ("start",), _did_you_mean(graph.start, graph)
    if graph.on_abort is not None and graph.on_abort not in graph.nodes:
        yield "L102", f"there is no node `{graph.on_abort}`", ("on_abort",), _did_you_mean(graph.on_abort, graph)
    for key, node in graph.nodes.items():
        for target in dict.fromkeys(node.targets()):
            if target not in graph.nodes:
                fix = _did_you_mean(target, graph)
                yield "L102", f"`{key}` goes to `{target}`, which is not a node", ("nodes", key), fix
        yield from _check_node(key, node, library)
    seen = _reachable(graph)
    for key in graph.nodes:
        if key not in seen:
            yield "L104", f"nothing leads to `{key}`", ("nodes", key), "lead an edge to it or remove it"


def _check_node(key: str, node: Node, library: Mapping[str, Graph]) -> Iterator[Finding]:
    ends = isinstance(node, (End, Fail, Recurse))
    if not ends and not node.next.targets():
        yield "L105", f"`{key}` leads nowhere", ("nodes", key), "give it a `next`, or make it an `end`"
    edges = node.next.first
    if edges and all(edge.when is not None for edge in edges):
        yield "L109", f"`{key}` has no way out when no condition holds", ("nodes", key, "next"), "add `{to: NODE}` last"
    for index, edge in enumerate(edges[:-1]):
        if edge.when is None:
            place: Place = ("nodes", key, "next", index)
            yield "L109", f"the edges of `{key}` after this one are never taken", place, "put it last"
    if isinstance(node, Map) and node.map.do not in library:
        near = difflib.get_close_matches(node.map.do, library, 1)
        fix = f"did you mean `{near[0]}`?" if near else f"known graphs: {', '.join(sorted(library))}"
        yield "L102", f"`{key}` runs the graph `{node.map.do}`, which is not known", ("nodes", key, "map", "do"), fix
    if isinstance(node, Activity) and not node.activity.strip():
        yield "L150", f"`{key}` names no activity", ("nodes", key, "activity"), "give the registered name of one"
    yield from _check_waiting(key, node)


def _check_waiting(key: str, node: Node) -> Iterator[Finding]:
    if node.deadline is not None and not isinstance(node, Approval):
        fix = "an activity has a `timeout`" if isinstance(node, Activity) else "remove it"
        yield "L146", f"`{key}` has a deadline, but only an approval waits for one", ("nodes", key, "deadline"), fix
    if node.exhausted is not None and node.max_visits is None:
        place: Place = ("nodes", key, "exhausted")
        yield "L147", f"`{key}` says where to go when it is exhausted, but not when it is", place, "add `max_visits`"
    if isinstance(node, (End, Fail, Recurse)) and node.next.targets():
        yield "L105", f"`{key}` ends the graph, so its `next` is never taken", ("nodes", key, "next"), "remove it"


def _did_you_mean(name: str, graph: Graph) -> str:
    near = difflib.get_close_matches(name, graph.nodes, 1)
    return f"did you mean `{near[0]}`?" if near else f"the nodes are {', '.join(graph.nodes)}"


def _reachable(graph: Graph) -> set[str]:
    seen: set[str] = set()
    queue = [name for name in (graph.start, graph.on_abort) if name in graph.nodes]
    while queue:
        key = queue.pop()
        if key not in seen:
            seen.add(key)
            queue += [target for target in graph.nodes[key].targets() if target in graph.nodes]
    return seen
