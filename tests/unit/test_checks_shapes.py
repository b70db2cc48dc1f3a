"""What results are known to hold, and that this is what the machine really gives."""

from typing import Any

import pytest

from loom_dsl.graph.checks.shapes import APPROVAL, FAILED
from loom_dsl.graph.compiler import check_text, compile_graph
from loom_dsl.simulation.run import play_scenario
from loom_dsl.simulation.scenario import Scenario

HEAD = (
    "loom: 1\nkind: graph\nname: g\ninput: {t: str}\nagents: {r: {model: m, instructions: x}}\n"
    "graphs: {inner: {nodes: {i: {end: {one: 1, two: '${input.t}'}}}}}\nnodes:\n"
)
ASK = "  ask: {approval: Go?, deadline: {after: 1h, to: late}, next: n}\n  late: {end: '${result.choice}'}\n"


def told(nodes: str) -> list[tuple[str, str]]:
    return [(one.code, one.message) for one in check_text(HEAD + nodes, "g.yaml") if one.code != "L124"]


@pytest.mark.parametrize(
    ("nodes", "field"),
    [
        (ASK + "  n: {end: '${nodes.ask.typo}'}\n", "typo"),
        (ASK + "  n: {end: '${result.typo}'}\n", "typo"),
        # through nodes that only choose
        (ASK + "  n: {next: [{if: result.typo, to: m}, {to: m}]}\n  m: {end: 1}\n", "typo"),
        ("  a: {agent: r, with: {task: x}, next: n}\n  n: {end: '${result.anser}'}\n", "anser"),
        ("  a: {llm: {model: m, prompt: x}, next: n}\n  n: {end: '${nodes.a.answer}'}\n", "answer"),
        ("  a: {graph: inner, next: n}\n  n: {end: '${nodes.a.three}'}\n", "three"),
        (
            "  s: {next: [a, b]}\n  a: {activity: x, next: j}\n  b: {activity: x, next: j}\n"
            "  j: {join: all, next: n}\n  n: {end: '${result.a} ${result.bb}'}\n",
            "bb",
        ),
        # on the way of a failure
        ("  a: {activity: x, catch: {any: n}, next: m}\n  n: {end: '${result.error}'}\n  m: {end: 1}\n", "error"),
        (
            "  a: {activity: x, deadline: {after: 1h, to: n}, next: m}\n  n: {end: '${result.by}'}\n  m: {end: 1}\n",
            "by",
        ),
    ],
)
def test_a_field_that_a_result_never_has_is_told(nodes: str, field: str) -> None:
    found = [message for code, message in told(nodes) if code == "L126"]
    assert len(found) == 1
    assert f"`{field}`" in found[0]


@pytest.mark.parametrize(
    "nodes",
    [
        ASK + "  n: {end: '${result.message} ${get(result, \"edited\", 1)} ${nodes.ask.by}'}\n",
        "  a: {agent: r, with: {task: x}, next: n}\n  n: {end: '${result.answer} ${result.usage}'}\n",
        "  a: {graph: inner, next: n}\n  n: {end: '${nodes.a.two}'}\n",
        # either of two results comes here, so both are right
        "  a: {agent: r, with: {task: x}, catch: {any: n}, next: n}\n  n: {next: [{if: \"has(result, 'code')\", to: m},"
        " {if: result.answer == '', to: m}, {to: m}]}\n  m: {end: 1}\n",
        "  a: {activity: x, next: n}\n  n: {end: '${result.anything}'}\n",
        "  a: {agent: r, with: {task: x}, next: n}\n  n: {activity: x, next: [{if: result.own, to: m}, {to: m}]}\n"
        "  m: {end: 1}\n",
    ],
)
def test_a_field_that_a_result_may_have_is_not_complained_of(nodes: str) -> None:
    assert told(nodes) == []


@pytest.mark.parametrize("condition", ["result.choice == 'aprove'", "'no' != nodes.ask.choice"])
def test_a_choice_that_an_approval_does_not_offer_is_told(condition: str) -> None:
    nodes = (
        f'  ask: {{approval: Go?, deadline: never, next: [{{if: "{condition}", to: n}}, {{to: n}}]}}\n  n: {{end: 1}}\n'
    )
    assert [code for code, _ in told(nodes)] == ["L131"]
    assert told(nodes.replace("aprove", "approve").replace("'no'", "'reject'")) == []


def _result(nodes: str, **given: Any) -> Any:
    plan = compile_graph(HEAD + nodes, "g.yaml")
    head = {"loom": 1, "kind": "scenario", "name": "s", "input": {"t": "x"}}
    return play_scenario(plan, Scenario.model_validate({**head, **given})).cases[0].result


def test_the_fields_are_those_that_the_machine_gives() -> None:
    ask = "  ask: {approval: {ask: Go?, choices: [approve, edit]}, deadline: {after: 1h, to: n}, next: n}\n"
    whole = "  n: {end: '${result}'}\n"
    edited = {"choice": "edit", "edited_arguments": {"a": 1}}
    assert set(_result(ask + whole, decisions={"ask": edited})) == APPROVAL
    assert set(_result(ask + whole)) <= APPROVAL
    failing = "  a: {activity: x, catch: {any: n}, next: n}\n"
    assert set(_result(failing + whole, results={"a": {"error": "broken"}})) == FAILED
