"""Roles: who may do what, in the policy's file and at the decision itself."""

from typing import Any

import pytest

from loom_dsl.errors import DocumentError
from loom_dsl.machine.kinds.approvals import PIPELINES
from loom_dsl.machine.state import MachineState
from loom_dsl.permissions.deployment import read_policy
from loom_dsl.permissions.roles import is_known, may, may_decide, may_start, who_may_decide
from loom_dsl.simulation.in_memory import Simulation
from tests.support.simulated import JOB, SYSTEM, approvals, decision, of_type, plan_of

POLICY = """
loom: 1
kind: policy
roles:
  lead: {who: [ann, bob], start: "*", directories: ["site-*"], approve: high, abort: true, pause: true, inject: true}
  helper: {who: carl, start: [scribe, "report-*"], approve: low, inject: true}
  guest: {who: carl, directories: "*"}
  notifier: {who: [bot], links: true}
"""
ROLES = read_policy(POLICY, "policy.yaml")[0].roles


@pytest.mark.parametrize(
    ("name", "risks"),
    [
        ("ann", ["low", "medium", "high"]),
        ("  ANN ", ["low", "medium", "high"]),
        ("carl", ["low"]),
        ("bot", []),
        ("eve", []),
        ("", []),
        ("аnn", []),  # Cyrillic
    ],
)
def test_who_may_decide_depends_on_the_risk(name: str, risks: list[str]) -> None:
    assert [risk for risk in ("low", "medium", "high") if may_decide(ROLES, name, risk)] == risks
    assert may_decide(ROLES, name, "") == may_decide(ROLES, name, "no risk") == ("high" in risks)


def test_rights_are_those_of_all_of_a_persons_roles() -> None:
    assert [may(ROLES, "carl", right) for right in ("abort", "pause", "inject", "links")] == [False, False, True, False]
    assert (may(ROLES, "bot", "links"), is_known(ROLES, "bot"), is_known(ROLES, "eve")) == (True, True, False)
    assert who_may_decide(ROLES, "low") == ["ann", "bob", "carl"]
    assert who_may_decide(ROLES, "high") == ["ann", "bob"]


@pytest.mark.parametrize(
    ("name", "what", "directory", "may_it"),
    [
        ("ann", "anything", None, True),
        ("ANN", "anything", "site-1", True),
        ("ann", "anything", "private", False),
        ("carl", "scribe", None, True),
        ("carl", "report-2", None, True),
        ("carl", "scribes", None, False),
        ("carl", "scribe", "site-1", False),  # one role starts it, another one would have the directory
        ("bot", "scribe", None, False),
        ("eve", "scribe", None, False),
        ("", "scribe", None, False),
    ],
)
def test_who_may_start_depends_on_the_agent_and_the_directory(
    name: str, what: str, directory: str | None, may_it: bool
) -> None:
    assert may_start(ROLES, name, what, directory) is may_it


@pytest.mark.parametrize(
    ("role", "wrong"),
    [
        ("{who: []}", "roles.r.who"),
        ("{approve: low}", "who"),
        ("{who: ann, approve: huge}", "approve"),
        ("{who: ann, abort: 'yes'}", "abort"),
        ("{who: ann, admin: true}", "admin"),
        ("{who: ann, start: ['']}", "start"),
        ("{who: ann, start: true}", "start"),
    ],
)
def test_a_role_that_is_none_is_told_with_its_place(role: str, wrong: str) -> None:
    with pytest.raises(DocumentError) as caught:
        read_policy(f"loom: 1\nkind: policy\nroles:\n  r: {role}\n", "policy.yaml")
    assert wrong in str(caught.value)
    assert "policy.yaml:4" in str(caught.value)


def put(graph: str, deciders: Any) -> Simulation:
    """A question of a graph of this name, for which the policy lets these people decide."""
    request = {"summary": "go?", "risk": "high", **({} if deciders is None else {"deciders": deciders})}
    inner = {"ask": {"approval": {"request": request, "choices": ["approve", "reject"]}, "next": "z"}, "z": {"end": 1}}
    outer = {"a": {"graph": graph, "next": "z"}, "z": {"end": 1}}
    sim = Simulation(plan_of(outer, **{graph: inner}), MachineState(), SYSTEM, job=JOB)
    while sim.work:
        sim.step()
    return sim


def said(sim: Simulation, by: str) -> str:
    sim.signal("loom.decision", decision(approvals(sim)[0][1], "approve", by=by), answer_to="u")
    while sim.work:
        sim.step()
    return sim.outcome.answers.pop("u")


@pytest.mark.parametrize("graph", sorted(PIPELINES))
def test_a_decision_of_somebody_without_the_role_is_refused_and_told(graph: str) -> None:
    sim = put(graph, ["ann", "bob"])
    for nobody in ("carl", "", "аnn"):
        assert said(sim, nobody) == "not_allowed"
    assert [event["verdict"] for event in of_type(sim.outcome, "warning")] == ["not_allowed"] * 3
    assert "has no role that may decide this" in of_type(sim.outcome, "warning")[0]["message"]
    assert said(sim, "Bob") == "recorded"


def test_where_nobody_has_the_role_nobody_decides() -> None:
    assert said(put("loom.tool_call", []), "ann") == "not_allowed"


def test_what_a_users_own_graph_writes_into_its_request_gives_nobody_a_role() -> None:
    assert said(put("mine", ["eve"]), "ann") == "recorded"
    assert said(put("loom.tool_call", None), "ann") == "recorded"
