"""Tool nodes of graphs: a question's rules are remembered for the job, and what counts when nobody answers."""

from typing import Any

import pytest

from loom_dsl.graph.library import shipped
from loom_dsl.graph.plan import Plan
from loom_dsl.machine.commands import RunActivity
from loom_dsl.machine.status import status_of
from loom_dsl.simulation.in_memory import Simulation
from tests.support.simulated import approvals, decision, graph, of_type, simulate

TWICE = {
    "one": {"tool": "send", "next": "two"},
    "two": {"tool": "send", "next": "inner"},
    "inner": {"graph": "below", "next": "z"},
    "z": {"end": "${nodes}"},
}
BELOW = {"nodes": {"three": {"tool": "send", "next": "z"}, "z": {"end": "${nodes.three}"}}}


def started(policy: str = "deny", expires: float | None = None, rules: Any = ("send(*)",), **how: Any) -> Simulation:
    """A graph that calls the same tool three times; its policy asks."""

    def authorize(command: RunActivity) -> Any:
        if command.arguments["approved"] or set(rules) & set(command.arguments["remembered"]):
            return {"decision": "allow"}
        request = {"tool": "send", "rules": list(rules), "at": command.at}
        return {"decision": "ask", "request": request, "policy": {"expires": expires, "on_expiry": policy}}

    def formatted(command: RunActivity) -> Any:
        outcome = command.arguments["outcome"]
        code = outcome.get("code") or f"was {outcome.get('choice')}"
        return {
            "ok": bool(outcome.get("ok")) or outcome.get("choice") == "respond",
            "output": "o",
            "code": code,
            "message": "",
        }

    handlers = {
        "loom.tool.prepare": lambda c: {"quick": False, "timeout": 5},
        "loom.tool.discover": lambda c: {"ok": True},
        "loom.tool.validate": lambda c: {"ok": True, "arguments": None},
        "loom.tool.authorize": authorize,
        "loom.tool.check_cancel": lambda c: {"ok": True},
        "loom.tool.execute": lambda c: {"ok": True},
        "loom.tool.format": formatted,
        "loom.tool.output": lambda c: "sent",
    }
    main = graph(TWICE, graphs={"below": BELOW})
    plan = Plan("main", {"main": main, "loom.tool_node": shipped("loom.tool_node")}, {})
    return simulate(plan, handlers=handlers, **how)


@pytest.mark.parametrize("steps", [None, 1])
def test_a_rule_that_is_remembered_for_the_job_holds_for_all_of_its_tool_nodes(steps: int | None) -> None:
    sim = started(steps_per_run=steps)
    sim.run()
    sim.signal("loom.decision", decision(approvals(sim)[0][1], "approve", remember="job"))
    outcome = sim.run()
    assert outcome.result == {"one": "sent", "two": "sent", "inner": "sent"}
    assert len(of_type(outcome, "approval_requested")) == 1
    assert of_type(outcome, "warning") == []


def test_an_approval_that_is_not_to_be_remembered_counts_once() -> None:
    sim = started()
    for _ in range(3):
        sim.run()
        sim.signal("loom.decision", decision(approvals(sim)[0][1], "approve"))
    assert len(of_type(sim.run(), "approval_requested")) == 3


def test_rules_without_end_are_not_remembered_and_that_is_told() -> None:
    sim = started(rules=["send(" + "x" * 20_000 + ")"])
    sim.run()
    sim.signal("loom.decision", decision(approvals(sim)[0][1], "approve", remember="job"))
    sim.run()
    assert len(approvals(sim)) == 1
    assert [event["code"] for event in of_type(sim.outcome, "warning")] == ["not_remembered"]


@pytest.mark.parametrize(("policy", "code"), [("deny", "was expired"), ("allow", None)])
def test_what_nobody_answers_counts_as_the_graphs_policy_says(policy: str, code: str | None) -> None:
    outcome = started(policy, expires=60.0).run()
    assert (outcome.failure and outcome.failure.code) == code
    assert outcome.over


def test_a_policy_that_halts_keeps_the_question_open_until_somebody_decides() -> None:
    sim = started("halt", expires=60.0)
    sim.run()
    assert [step["cause"] for step in status_of(sim.machine)["halted"]] == ["approval_expired"]
    sim.signal("loom.decision", decision(approvals(sim)[0][1], "approve", remember="job"))
    assert sim.run().result == {"one": "sent", "two": "sent", "inner": "sent"}


def test_an_answer_stands_for_the_tools_output() -> None:
    sim = started()
    sim.run()
    sim.signal("loom.decision", decision(approvals(sim)[0][1], "respond", message="no need"))
    sim.run()
    assert len(approvals(sim)) == 1
    assert sim.machine.state.frames[""].outputs == {"one": "sent"}


def test_who_decides_a_tool_nodes_question_may_end_the_job() -> None:
    sim = started()
    sim.run()
    sim.signal("loom.decision", decision(approvals(sim)[0][1], "terminate"))
    assert sim.run().result["status"] == "aborted"
