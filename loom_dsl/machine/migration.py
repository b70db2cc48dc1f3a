"""Moving a job that waits to another plan: only when every token has a home there."""

import copy
from collections.abc import Mapping

from loom_dsl.graph.nodes import Map, kind_of
from loom_dsl.graph.plan import Plan
from loom_dsl.graph.state import initial
from loom_dsl.machine.records import ApprovalRecord, MapRecord
from loom_dsl.machine.state import READY, TIMING, MachineState, Token


def moved(
    state: MachineState, old: Plan, new: Plan, names: Mapping[str, str], *, anew: bool = False
) -> tuple[MachineState, list[str]]:
    """Give a job's state under another plan, and why it cannot go there.

    Args:
        state: Where the job stands. It is not changed. What is in flight has to be over before the job goes on.
        old: The plan that it runs.
        new: The plan that it is to run.
        names: Old node → new node, where a node was renamed.
        anew: Whether tokens before a node have begun nothing of it, so that it may be of another kind now.

    Returns:
        The state under the new plan, and what stands in the way, a sentence each; the state is of use only if nothing
        does.
    """
    other = copy.deepcopy(state)
    problems: list[str] = []
    if (old.agent == {}) != (new.agent == {}):
        problems.append("one of the plans is an agent's and the other is not")
    for frame in other.frames.values():
        graph = _renamed_graph(frame.graph, old, new)
        if graph not in new.bodies:
            problems.append(f"the graph `{frame.graph}` is under way, and the new plan does not have it")
            continue
        frame.graph = graph
        frame.outputs = {names.get(name, name): value for name, value in frame.outputs.items()}
        frame.visits = _visits(frame.visits, names)
        frame.joins = {names.get(n, n): [names.get(via, via) for via in came] for n, came in frame.joins.items()}
        if frame.state is not None:
            problems += _missing_state(frame.state, new, graph)
            frame.state = {**initial(new.bodies[graph].state), **frame.state}
    for token in state.in_order():
        problems += _home(token, state, old, new, names, anew=anew)
    problems += _move_undo(other, old, new, names)
    for token in other.tokens.values():
        token.source, token.via = names.get(token.source, token.source), names.get(token.via, token.via)
        token.node = names.get(token.node, token.node)
        if token.retry is not None:  # what a step is given that waits for its next try is for the new plan to say
            token.retry.call = None
        if not problems and token.status != TIMING and _is_without_deadline(new, other, token):
            token.deadline = None
    return other, list(dict.fromkeys(problems))


def _move_undo(state: MachineState, old: Plan, new: Plan, names: Mapping[str, str]) -> list[str]:
    """Give what is done the new names of its nodes; what it lacks to be taken back under the new plan."""
    problems = []
    for entry in state.undo:
        if "do" in entry:  # a child job's: it says itself how it is taken back
            continue
        entry["graph"] = _renamed_graph(entry["graph"], old, new)
        entry["node"] = names.get(entry["node"], entry["node"])
        body = new.bodies.get(entry["graph"])
        if body is None or entry["node"] not in body.nodes or body.nodes[entry["node"]].compensate is None:
            problems.append(f"`{entry['at']}` is done, and the new plan does not say how it is taken back")
    return problems


def _visits(visits: Mapping[str, int], names: Mapping[str, str]) -> dict[str, int]:
    """How often nodes were entered. A name that another node has now is not given to a second execution."""
    counts = dict(visits)
    for name, count in visits.items():
        new = names.get(name, name)
        counts[new] = max(counts.get(new, 0), count)
    return counts


def _is_without_deadline(new: Plan, state: MachineState, token: Token) -> bool:
    """Whether a deadline is running that the node does not have any more."""
    if isinstance(token.record, ApprovalRecord) and "expires" in token.record.policy:
        return False  # the question itself says how long it stays open, and goes on as it was asked
    deadline = new.node(state.frames[token.frame].graph, token.node).deadline
    return token.deadline is not None and (deadline is None or deadline.to is None)


def _renamed_graph(graph: str, old: Plan, new: Plan) -> str:
    """A document's graphs are found again also when the document has another name now."""
    document, slash, inner = graph.partition("/")
    return f"{new.root}{slash}{inner}" if document == old.root else graph


def _missing_state(held: Mapping[str, object], new: Plan, graph: str) -> list[str]:
    declared = new.bodies[graph].state
    return [f"the new plan's state has no `{name}`, which the job has written" for name in held if name not in declared]


def _home(
    token: Token, state: MachineState, old: Plan, new: Plan, names: Mapping[str, str], *, anew: bool
) -> list[str]:
    before = state.frames[token.frame].graph
    graph = _renamed_graph(before, old, new)
    if graph not in new.bodies:
        return []  # told with the graph
    name = names.get(token.node, token.node)
    nodes = new.bodies[graph].nodes
    if name not in nodes:
        return [
            f"a token is at `{token.at}`, and the new plan has no node `{name}`; name its new home: {token.node}=NODE"
        ]
    was, now = kind_of(old.node(before, token.node)), kind_of(nodes[name])
    if was != now and not (anew and token.status == READY):
        return [f"a token is at `{token.at}`, which is {was}; in the new plan `{name}` is {now}"]
    node = nodes[name]
    if isinstance(token.record, MapRecord) and isinstance(node, Map):
        changed = ["barrier"] if (token.record.past is not None) is not (node.map.barrier is not None) else []
        changed += ["open"] if token.record.open and node.map.open is None else []
        return [f"the map `{token.at}` is under way, and the new plan changes its `{key}`" for key in changed]
    return []
