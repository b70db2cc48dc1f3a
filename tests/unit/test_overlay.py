"""A job's status is laid over the graphs of its plan."""

from typing import Any

import pytest

from loom_dsl.authoring.mermaid import mermaid_plan
from loom_dsl.authoring.overlay import Overlay, graph_at, overlay_of
from loom_dsl.graph.graph import Graph
from loom_dsl.graph.plan import Plan
from loom_dsl.machine.commands import Started
from loom_dsl.machine.interpreter import Machine
from loom_dsl.machine.state import MachineState
from loom_dsl.machine.status import JobStatus, status_of

NODES: dict[str, Any] = {
    "first": {"next": "each"},
    "each": {"map": {"over": "[1, 2, 3]", "do": "inner"}, "next": "done"},
    "done": {"end": None},
}
INNER: dict[str, Any] = {
    "start": "look",
    "nodes": {"look": {"activity": "m:f", "next": "ask"}, "ask": {"approval": "Go?", "next": "out"}, "out": {"end": 1}},
}
GRAPH = Graph.model_validate({"name": "g", "start": "first", "nodes": NODES, "graphs": {"inner": INNER}})
PLAN = Plan("g", {"g": GRAPH}, {})


def test_a_job_under_way_shows_its_visits_and_tokens() -> None:
    machine = Machine(PLAN, MachineState(), "job")
    machine.feed(Started(now=1.0))
    overlay = overlay_of(PLAN, JobStatus.model_validate(status_of(machine)))
    assert overlay.words("g", "first") == ["1 visit"]
    assert overlay.words("g", "each") == ["1 visit", "1 here"]
    assert overlay.words("g/inner", "look") == ["3 visits", "3 running"]
    assert overlay.words("g/inner", "ask") == overlay.words("g", "done") == []


@pytest.mark.parametrize(
    ("frame", "graph"),
    [
        ("", "g"),
        ("each#1[0]", "g/inner"),
        ("each#12[345]", "g/inner"),
        ("first#1[0]", None),
        ("gone#1[0]", None),
        ("each#1[0]/look#1[0]", None),
        ("//", None),
    ],
)
def test_a_frame_is_found_by_the_nodes_that_own_it(frame: str, graph: str | None) -> None:
    assert graph_at(PLAN, frame) == graph


def test_visits_may_be_given_by_graph_and_what_the_plan_does_not_have_is_left_out() -> None:
    status = {
        "state": "running",
        "visits": {"g": {"first": 2}, "": {"first": 1}, "g/inner": {"ask": 4, "gone": 1}, "gone#1[0]": {"look": 7}},
        "tokens": ["gone#1", "each#1[0]/ask#1", "each#1[1]/ask#1", "each#1[2]/look", "first#1[0]/look#1", "??"],
        "approvals": [{"approval_id": "ap_1", "node": "each#1[1]/ask#1"}],
        "running": [],
    }
    overlay = overlay_of(PLAN, JobStatus.model_validate(status))
    assert overlay.visits == {"g": {"first": 3}, "g/inner": {"ask": 4}}
    assert overlay.tokens == {"g/inner": {"ask": {"here": 1, "waiting": 1}, "look": {"here": 1}}}


def test_an_empty_status_is_an_empty_overlay() -> None:
    assert overlay_of(PLAN, JobStatus(state="idle")) == Overlay()


def test_mermaid_colours_what_was_visited_and_where_tokens_are() -> None:
    overlay = Overlay({"g": {"first": 1, "each": 1}, "g/inner": {"look": 3}}, {"g": {"each": {"here": 1}}})
    lines = mermaid_plan(PLAN, overlay=overlay).splitlines()
    assert '        g0_each[["each<br>for each: inner<br>1 visit, 1 here"]]' in lines
    assert "    class g0_first,g1_look been" in lines
    assert "    class g0_each here" in lines
    assert not [line for line in mermaid_plan(PLAN).splitlines() if line.endswith((" been", " here"))]
