"""A plan is its text: equal content has one hash, and no other text is a plan."""

import json
from typing import Any

import pytest

from loom_dsl.errors import PlanError
from loom_dsl.graph.compiler import compile_graph
from loom_dsl.graph.graph import Graph
from loom_dsl.graph.library import shipped, source_of
from loom_dsl.graph.plan import ENGINE, Plan
from loom_dsl.machine.commands import ChildEnded
from loom_dsl.machine.interpreter import Machine
from loom_dsl.machine.state import CHILD, MachineState
from loom_dsl.text.canonical import canonical_json, digest
from tests.support.simulated import agent_plan, plan_of, simulate

YAML = """\
loom: 1
kind: graph
name: main
start: a
nodes:
  a: {activity: echo, timeout: 1m, with: {x: "${run.id}"}, next: b}
  b: {next: [{if: result.x > 1, to: c}, {to: c}]}
  c: {end: "${result}"}
"""
NODES: dict[str, Any] = {
    "a": {"activity": "echo", "timeout": 60.0, "with": {"x": "${run.id}"}, "next": {"first": [{"to": "b"}]}},
    "b": {"next": {"first": [{"if": "result.x > 1", "to": "c"}, {"to": "c"}]}},
    "c": {"end": "${result}"},
}


def test_yaml_and_python_give_the_same_plan() -> None:
    assert compile_graph(YAML, "x.yaml").hash == plan_of(NODES).hash


def test_the_order_of_a_nodes_fields_and_what_has_its_default_do_not_change_the_hash() -> None:
    other = {key: {"doc": "", "catch": {}, **dict(reversed(node.items()))} for key, node in NODES.items()}
    assert plan_of(other).hash == plan_of(NODES).hash


def test_the_order_of_nodes_is_part_of_the_plan_and_of_its_hash() -> None:
    other = {key: NODES[key] for key in reversed(NODES)}
    graph = Graph.model_validate({"name": "main", "start": "a", "nodes": other})
    turned = Plan("main", {"main": graph}, {})
    assert turned.hash != plan_of(NODES).hash
    assert list(Plan.load(turned.text).graphs["main"].nodes) == ["c", "b", "a"]


@pytest.mark.parametrize(
    ("nodes", "order"),
    [
        ({"z": {"next": "b"}, "b": {"end": 1}, "a": {"end": 1}}, "zba"),
        ({"s": {"next": ["z", "m", "a"]}, "a": {"end": 1}, "m": {"end": 1}, "z": {"end": 1}}, "szma"),
        ({"s": {"next": ["z", "a"]}, "a": {"next": "b"}, "b": {"end": 1}, "z": {"end": 1}}, "szba"),
        ({"s": {"race": ["z", "a"]}, "a": {"event": "a"}, "z": {"event": "z"}}, "sza"),
        ({"s": {"next": {"each": [{"to": "z", "if": "true"}, {"to": "a"}]}}, "a": {"end": 1}, "z": {"end": 1}}, "sza"),
        ({"s": {"next": [{"to": "z", "if": "input"}, {"to": "a"}]}, "a": {"end": 1}, "z": {"end": 1}}, "saz"),
    ],
)
def test_work_starts_in_the_order_of_the_document_and_that_of_a_split_in_the_order_of_its_list(
    nodes: dict[str, Any], order: str
) -> None:
    plan = plan_of(nodes)
    assert "".join(sorted(nodes, key=lambda name: plan.rank("main", name))) == order


@pytest.mark.parametrize(
    "change",
    [
        {"a": {**NODES["a"], "timeout": 61}},
        {"a": {**NODES["a"], "with": {"x": "${input.y}"}}},
        {"b": {"next": "c"}},
        {"c": {"end": "${ result }"}},
    ],
)
def test_a_change_of_anything_that_counts_changes_the_hash(change: dict[str, Any]) -> None:
    assert plan_of({**NODES, **change}).hash != plan_of(NODES).hash


def test_the_hash_covers_the_graphs_of_maps_and_the_agent() -> None:
    inner = {"a": {"end": 1}}
    nodes = {"m": {"map": {"over": "[1]", "do": "inner"}, "next": "e"}, "e": {"end": None}}
    assert plan_of(nodes, inner=inner).hash != plan_of(nodes, inner={"a": {"end": 2}}).hash
    assert agent_plan().hash != agent_plan(max_iterations=6).hash


@pytest.mark.parametrize("plan", [plan_of(NODES), agent_plan()], ids=["graph", "agent"])
def test_a_plan_that_is_read_again_is_the_same(plan: Plan) -> None:
    again = Plan.load(plan.text)
    assert (again.text, again.hash, again.root, again.agent) == (plan.text, plan.hash, plan.root, plan.agent)
    assert again.graphs == plan.graphs
    assert again.hash == digest(plan.text)


def changed(**fields: Any) -> str:
    return canonical_json({**json.loads(agent_plan().text), **fields})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (changed(engine=ENGINE + 1), f"the plan is for engine {ENGINE + 1}; this worker has engine {ENGINE}"),
        (changed(engine=None), "the plan is for engine None"),
        (agent_plan().text + " ", "not in normal form"),
        (json.dumps(json.loads(agent_plan().text)), "not in normal form"),
        (changed(more=1), "not in normal form"),
        (changed(graphs={"g": {"nodes": {}}}), "not a plan"),
        (changed(graphs=[]), "not a plan"),
        (changed(agent=None), "not a plan"),
        ("{}", "not a plan"),
        ("[]", "not a plan"),
        ("null", "not a plan"),
        ("", "not a plan"),
        ("[" * 100_000, "not a plan"),
    ],
)
def test_another_text_is_not_a_plan(text: str, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        Plan.load(text)


def test_durations_of_the_agent_are_seconds_in_expressions() -> None:
    plan = agent_plan(approvals={"expires": "never", "on_expiry": "deny"}, max_run_duration="1h30m")
    assert plan.agent_names["limits"]["max_run_duration"] == 5400.0
    assert plan.agent_names["approvals"]["expires"] is None
    assert plan.agent["limits"]["max_run_duration"] == "1h30m"


def test_a_shipped_graph_is_known_by_its_name_only() -> None:
    assert shipped("loom.tt").name == "loom.tt"
    with pytest.raises(KeyError):
        source_of("../plan")


def test_a_worker_that_has_just_read_the_plan_knows_the_graphs_of_a_long_map_under_way() -> None:
    def fresh() -> Plan:
        nodes = {"each": {"map": {"over": "input.items", "do": "one"}, "next": "done"}, "done": {"end": "${result}"}}
        return plan_of(nodes, one={"done": {"end": "${item + 1}"}})

    begun = simulate(fresh(), input={"items": list(range(1_200))})
    before = list(begun.plan.bodies)
    state = json.loads(canonical_json(begun.machine.state.to_json()))
    later = Machine(fresh(), MachineState.from_json(state), begun.job)
    child = next(token for token in later.state.in_order() if token.status == CHILD)
    later.feed(ChildEnded(now=begun.now, at=child.at, result=[1] * 200))
    assert child.at not in later.state.tokens
    assert begun.run().result == list(range(1, 1_201))
    assert list(begun.plan.bodies) == before == list(later.plan.bodies)
    assert "main~nobody" not in later.plan.bodies
    assert "main~done.part" not in later.plan.bodies
