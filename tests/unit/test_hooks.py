"""Where a hook may do what."""

from pathlib import Path

import pytest

from loom_cli.project.validate import check_file, load_tools
from loom_dsl.agent.definition import Agent
from loom_dsl.tools.hook_points import HOOK_POINTS
from loom_dsl.tools.hooks import HookAnswer, misuse

WANTS = {
    "deny": HookAnswer(deny="no"),
    "arguments": HookAnswer(arguments={}),
    "output": HookAnswer(output=""),
    "note": HookAnswer(note="seen"),
}
ALLOWED = {
    "deny": [point for point in HOOK_POINTS if not point.endswith("_format")],
    "arguments": ["after_validate"],
    "output": ["after_execute"],
    "note": list(HOOK_POINTS),
}


@pytest.mark.parametrize("what", WANTS)
def test_arguments_are_changed_before_approval_and_results_before_they_are_kept(what: str) -> None:
    assert [point for point in HOOK_POINTS if not misuse(point, WANTS[what])] == ALLOWED[what]


def test_an_agent_names_hooks_by_points_that_there_are() -> None:
    agent = Agent(name="a", model="m", hooks={"before_execute": "my_tools:guard"})
    assert agent.hooks == {"before_execute": "my_tools:guard"}
    with pytest.raises(ValueError, match="before_run"):
        Agent(name="a", model="m", hooks={"before_run": "my_tools:guard"})
    with pytest.raises(ValueError, match="module:function"):
        Agent(name="a", model="m", hooks={"before_execute": "guard"})


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("tests.support.hook_functions:guard", ""),
        ("tests.support.hook_functions:gard", "did you mean tests.support.hook_functions:guard"),
        ("elsewhere:guard", "check it with --tools elsewhere"),
        ("guard", "write `module:function`"),
    ],
)
def test_a_hook_that_is_not_there_is_told_with_its_line(tmp_path: Path, reference: str, words: str) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(f"loom: 1\nkind: agent\nname: a\nmodel: m\nhooks:\n  before_execute: {reference}\n")
    tools, _ = load_tools(["tests.support.hook_functions"])
    _, findings = check_file(file, tools, {})
    told = [str(found) for found in findings]
    assert bool(told) is bool(words), told
    assert all(words in text for text in told)
    assert all(found.line in {5, 6} for found in findings)


GRAPH = """loom: 1
kind: graph
name: g
hooks:
  before_check_cancel: {reference}
nodes:
  a: {{tool: calculator, with: {{expression: "1"}}, next: done}}
  done: {{end: null}}
"""


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("tests.support.hook_functions:guard", ""),
        ("tests.support.hook_functions:gard", "did you mean tests.support.hook_functions:guard"),
        ("guard", "write `module:function`"),
    ],
)
def test_a_graph_names_hooks_for_its_tool_nodes(tmp_path: Path, reference: str, words: str) -> None:
    file = tmp_path / "g.yaml"
    file.write_text(GRAPH.format(reference=reference))
    tools, _ = load_tools(["tests.support.hook_functions"])
    _, findings = check_file(file, tools, {})
    told = [str(found) for found in findings if found.severity == "error"]
    assert bool(told) is bool(words), told
    assert all(words in text for text in told)
    assert all(found.line in {4, 5} for found in findings if found.severity == "error")
