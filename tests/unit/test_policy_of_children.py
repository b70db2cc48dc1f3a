"""A job that another one starts cannot do what that one may not."""

import json
from typing import Any

import pytest

from loom_dsl.agent.definition import Agent
from loom_dsl.graph.compiler import compile_graph
from loom_dsl.graph.plan import Plan
from loom_dsl.permissions.decide import Verdict, decide
from loom_dsl.permissions.function import strictest
from loom_dsl.permissions.policy import Permissions
from loom_dsl.permissions.traits import ToolTraits


def child(outer: dict[str, Any], inner: dict[str, Any]) -> Plan:
    """The plan of an agent's job below a graph's."""
    agents = {"boss": {"model": "large", "tools": ["write_file"], "permissions": inner}}
    nodes = {"a": {"agent": "boss", "with": {"task": "x"}, "next": "done"}, "done": {"end": None}}
    graph = {"loom": 1, "kind": "graph", "name": "job", "agents": agents, "permissions": outer, "nodes": nodes}
    return compile_graph(json.dumps(graph), "job.yaml").child("boss")


WRITE = ToolTraits(name="write_file", read_only=False, builtin=True, paths=("a",))


def test_a_policy_that_says_nothing_changes_no_plan() -> None:
    plan = child({"allow": ["*"]}, {"allow": ["write_file"]})
    assert Agent.from_plan_data(plan.agent).permissions.within == ()


@pytest.mark.parametrize(
    ("outer", "inner", "decision", "layer"),
    [
        ({"deny": ["write_file"]}, {"allow": ["write_file"]}, "deny", "parent"),
        ({"deny": ["write_file"]}, {"enabled": False}, "deny", "parent"),
        ({"ask": ["write_file"]}, {"allow": ["*"]}, "ask", "parent"),
        ({"default": "deny"}, {"allow": ["*"]}, "deny", "parent"),
        ({"default": "deny", "allow": ["write_file(a)"]}, {"allow": ["*"]}, "allow", "agent"),
        ({"default": "deny", "allow": ["*"]}, {}, "ask", "built-in"),
        ({"mode": "plan"}, {"allow": ["*"]}, "deny", "mode"),
        ({"mode": "dont_ask"}, {}, "deny", "built-in"),
        ({"allow": ["*"]}, {}, "ask", "built-in"),
        ({"enabled": False, "deny": ["*"]}, {"allow": ["*"]}, "allow", "agent"),
    ],
)
def test_a_child_is_held_to_the_policy_above_it(
    outer: dict[str, Any], inner: dict[str, Any], decision: str, layer: str
) -> None:
    permissions = Agent.from_plan_data(child(outer, inner).agent).permissions
    found = decide(permissions, WRITE, {})
    assert (found.decision, found.layer) == (decision, layer)


def test_policies_add_up_over_generations() -> None:
    grandparent, parent = Permissions(deny=["delete_file"]), Permissions(ask=["write_file"])
    found = Permissions(allow=["*"]).below(parent.below(grandparent))
    assert [policy.deny or policy.ask for policy in found.within] == [["delete_file"], ["write_file"]]
    assert all(policy.within == () for policy in found.within)


def says(decision: str) -> Verdict:
    return Verdict.model_validate({"decision": decision, "rule": "m:f", "layer": "function", "reason": ""})


def test_of_two_functions_the_stricter_one_counts() -> None:
    allow, ask, deny = says("allow"), says("ask"), says("deny")
    assert strictest([]) is None
    assert strictest([allow]) == allow
    assert strictest([allow, ask]) == ask
    assert strictest([deny, None]) == deny
    assert strictest([allow, None]) is None
