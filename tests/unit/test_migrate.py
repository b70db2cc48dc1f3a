"""Moving a waiting job to another plan."""

from typing import Any

import pytest

from loom_dsl.graph.compiler import compile_graph
from loom_dsl.graph.plan import Plan
from loom_dsl.machine.commands import TimerFired
from loom_dsl.machine.interpreter import Machine
from loom_dsl.machine.migration import moved
from loom_dsl.machine.records import ApprovalRecord
from loom_dsl.machine.state import MachineState
from loom_dsl.simulation.in_memory import Simulation

ASKS = """
loom: 1
kind: graph
name: asks
nodes:
  ask: {approval: {ask: "Go on?"}, deadline: never, next: work}
  work: {activity: "m:f", with: {n: 1}, next: done}
  done: {end: "${result}"}
"""
SYSTEM: dict[str, Any] = {"loom.events.flush": lambda c: None, "loom.approval.announce": lambda c: None}


def plan(text: str) -> Plan:
    """Compile a graph."""
    return compile_graph(text, "asks.yaml")


def waiting(text: str = ASKS) -> Simulation:
    """A job that waits for its approval."""
    simulation = Simulation(plan(text), MachineState(), {"loom.function.call": lambda c: c.arguments["with"], **SYSTEM})
    simulation.run()
    return simulation


def waiting_until(text: str) -> Simulation:
    """A job that waits for its approval, whose deadline has not come."""
    handlers = {"loom.function.call": lambda c: c.arguments["with"], **SYSTEM}
    simulation = Simulation(plan(text), MachineState(), handlers)
    while simulation.work:
        simulation.step()
    return simulation


def go_on(simulation: Simulation, new: Plan, names: dict[str, str]) -> Any:
    """Move the job, approve, and give its result."""
    state, problems = moved(simulation.machine.state, simulation.plan, new, names)
    assert problems == []
    simulation.plan, simulation.machine = new, Machine(new, MachineState.from_json(state.to_json()), simulation.job)
    (token,) = simulation.machine.state.tokens.values()
    simulation.signal("loom.decision", {"approval_id": token.kept(ApprovalRecord).id, "choice": "approve"})
    return simulation.run().result


@pytest.mark.parametrize(
    ("old", "new", "names", "result"),
    [
        ("{n: 1}", "{n: 2}", {}, {"n": 2}),
        ("name: asks", "name: other", {}, {"n": 1}),
        ("work", "labour", {}, {"n": 1}),
        ("ask: {approval", "question: {approval", {"ask": "question"}, {"n": 1}),
    ],
)
def test_a_waiting_job_goes_on_under_the_new_plan(old: str, new: str, names: dict[str, str], result: Any) -> None:
    assert ASKS.count(old) >= 1
    text = (
        ASKS.replace(old, new)
        if old != "ask:"
        else ASKS.replace("  ask: {approval: {ask:", "  question: {approval: {ask:")
    )
    assert go_on(waiting(), plan(text), names) == result


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            ASKS.replace("  ask: {approval", "  question: {approval"),
            "the new plan has no node `ask`; name its new home",
        ),
        (
            ASKS.replace('ask: {approval: {ask: "Go on?"}, deadline: never,', "ask: {event: go, deadline: never,"),
            "a token is at `ask#1`, which is approval; in the new plan `ask` is event",
        ),
    ],
)
def test_a_token_without_a_home_is_told(text: str, told: str) -> None:
    simulation = waiting()
    _, problems = moved(simulation.machine.state, simulation.plan, plan(text), {})
    assert any(told in problem for problem in problems)


def test_what_is_at_work_needs_a_home_too_and_its_result_counts_there() -> None:
    simulation = waiting()
    (token,) = simulation.machine.state.tokens.values()
    simulation.signal("loom.decision", {"approval_id": token.kept(ApprovalRecord).id, "choice": "approve"})
    assert moved(simulation.machine.state, simulation.plan, plan(ASKS), {})[1] == []
    other = plan(ASKS.replace("next: work}", "next: job}").replace("  work:", "  job:"))
    _, problems = moved(simulation.machine.state, simulation.plan, other, {})
    assert problems == ["a token is at `work#1`, and the new plan has no node `work`; name its new home: work=NODE"]
    assert moved(simulation.machine.state, simulation.plan, other, {"work": "job"})[1] == []


def test_what_was_written_must_have_a_place() -> None:
    text = ASKS.replace("nodes:\n", "state: {seen: int}\nnodes:\n  first: {set: {seen: 1}, next: ask}\n")
    simulation = waiting(text)
    _, problems = moved(simulation.machine.state, simulation.plan, plan(ASKS), {})
    assert problems == ["the new plan's state has no `seen`, which the job has written"]


def test_a_question_that_expires_by_its_own_policy_expires_under_the_new_plan_too() -> None:
    text = ASKS.replace('{ask: "Go on?"}, deadline: never,', '{ask: "Go on?", policy: {expires: 1h}},')
    simulation = waiting_until(text)
    (token,) = simulation.machine.state.tokens.values()
    state, problems = moved(simulation.machine.state, simulation.plan, plan(text), {})
    assert problems == []
    assert state.tokens[token.at].deadline == token.deadline is not None


def test_a_deadline_that_the_new_plan_does_not_have_does_not_run_on() -> None:
    simulation = waiting_until(ASKS.replace("deadline: never", "deadline: {after: 1h, to: done}"))
    assert go_on(simulation, plan(ASKS), {}) == {"n": 1}
    assert simulation.now < 1_700_000_000.0 + 3600
    later = waiting_until(ASKS.replace("deadline: never", "deadline: {after: 1h, to: done}"))
    state, _ = moved(later.machine.state, later.plan, plan(ASKS), {})
    machine = Machine(plan(ASKS), state, later.job)
    machine.feed(TimerFired(now=later.now + 7200, at="ask#1"))
    assert list(machine.state.tokens) == ["ask#1"]


def test_a_node_that_takes_over_a_name_does_not_take_over_its_executions() -> None:
    text = """
loom: 1
kind: graph
name: asks
nodes:
  question: {approval: {ask: "Go on?"}, deadline: never, next: ask}
  ask: {activity: "m:f", with: {n: 7}, next: done}
  done: {end: "${result}"}
"""
    simulation = waiting()
    assert go_on(simulation, plan(text), {"ask": "question"}) == {"n": 7}
    assert [at for at, _ in simulation.outcome.trace] == ["0/ask#2"]


def test_variables_that_are_new_have_their_first_value() -> None:
    old = ASKS.replace("nodes:\n", "state: {seen: {type: int, reduce: add}}\nnodes:\n")
    new = old.replace("state: {", "state: {also: {type: int, reduce: add}, ").replace(
        'done: {end: "${result}"}', 'done: {end: "${state}"}'
    )
    new = new.replace("next: done}", "write: {also: 2}, next: done}")
    assert go_on(waiting(old), plan(new), {}) == {"also": 2, "seen": 0}


@pytest.mark.parametrize(
    ("had", "has"), [("", "open: {add: more, close: enough}, "), ("open: {add: more, close: enough}, ", "")]
)
def test_a_map_that_is_open_stays_open(had: str, has: str) -> None:
    text = """
loom: 1
kind: graph
name: maps
nodes:
  each: {map: {OPENover: "[1]", do: one}, next: done}
  done: {end: "${result}"}
graphs:
  one: {nodes: {ask: {approval: {ask: "Go on?"}, deadline: never, next: end}, end: {end: 1}}}
"""
    simulation = waiting(text.replace("OPEN", had))
    _, problems = moved(simulation.machine.state, simulation.plan, plan(text.replace("OPEN", has)), {})
    assert problems == (["the map `each#1` is under way, and the new plan changes its `open`"] if had else [])
