"""What the checks let pass does not deadlock: random graphs are checked, and then run in memory."""

import json
import random
from typing import Any

import pytest

from loom_dsl.graph.checks import check_graph
from loom_dsl.graph.compiler import check_text
from loom_dsl.graph.graph import Graph
from loom_dsl.graph.plan import Plan
from loom_dsl.machine.commands import RunActivity
from tests.support.simulated import Broken, run

DEADLOCK = {"L111", "L112", "L113"}
"""Codes of joins that wait for ever."""


def ways(source: random.Random, names: list[str]) -> Any:
    """The ways out of a node: one, a choice, a multi-choice or a split."""
    some = source.sample(names, min(len(names), source.choice([1, 2, 2, 3])))
    edges = [{"if": f"result.v > {source.random():.2f}", "to": name} for name in some[:-1]]
    kind = source.randrange(5)
    if kind == 0:
        return [*edges, {"to": some[-1]}]
    if kind == 1 and len(some) > 1:
        return {"each": [*edges, {"to": some[-1]}]}
    if kind in (2, 3):
        return some
    return some[0]


def random_graph(source: random.Random, *, cycles: bool) -> dict[str, Any]:
    """A graph of nodes that choose, split, join, fail and end; each leads forward, or anywhere."""
    count = source.randint(4, 9)
    names = [f"n{index}" for index in range(count)] + ["done"]
    nodes: dict[str, Any] = {}
    for index, name in enumerate(names[:-1]):
        ahead = names[index + 1 :]
        targets = names if cycles and source.random() < 0.2 else ahead
        following = ways(source, targets)
        if source.random() < 0.35:
            mode = source.choice(["all", "all", "taken"])
            # A join's result is a mapping of others, so its choices are made by a node behind it.
            nodes[name] = {"join": mode, "next": source.choice(ahead)}
        else:
            nodes[name] = {"activity": "draw", "next": following}
            if source.random() < 0.15:
                nodes[name]["catch"] = {"any": source.choice(targets)}
        if cycles:
            nodes[name]["max_visits"] = 4
    nodes["done"] = {"end": None}
    if source.random() < 0.3:
        nodes["n1"] = {"fail": "no"} if source.random() < 0.5 else {"end": 1, "terminate": True}
    return nodes


def reachable(nodes: dict[str, Any]) -> dict[str, Any]:
    """Only what a token can come to, so that the joins have no other edges."""
    graph = Graph.model_validate({"name": "main", "nodes": nodes})
    lost = {f.place[1] for f in check_graph(graph, {}) if f.code == "L104"}
    return {key: node for key, node in nodes.items() if key not in lost}


def drawing(source: random.Random) -> Any:
    def draw(command: RunActivity) -> Any:
        if source.random() < 0.1:
            raise Broken("it broke")
        return {"v": source.random()}

    return draw


@pytest.mark.parametrize("cycles", [False, True])
def test_a_graph_without_findings_never_deadlocks_at_a_join(cycles: bool) -> None:
    source = random.Random(19)
    sound = deadlocked = flagged = 0
    for _ in range(500):
        nodes = reachable(random_graph(source, cycles=cycles))
        text = json.dumps({"loom": 1, "kind": "graph", "name": "main", "nodes": nodes})
        codes = {finding.code for finding in check_text(text, "x.yaml")}
        if codes - DEADLOCK:
            continue  # with L114, tokens multiply, and a join may see any number of them
        plan = Plan("main", {"main": Graph.model_validate({"name": "main", "nodes": nodes})}, {})
        failures = set()
        for seed in range(10):
            failure = run(plan, handlers={"draw": drawing(random.Random(seed))}).failure
            failures.add(failure.code if failure else "")
        joined = any("join" in node for node in nodes.values())
        if not codes:
            assert "join_deadlock" not in failures, json.dumps(nodes)
            sound += joined
        else:
            flagged += 1
            deadlocked += "join_deadlock" in failures
    assert sound > 200
    # And they do not cry wolf: most of what they refuse stands still within these few runs.
    assert flagged > 15
    assert deadlocked > flagged * 0.7
