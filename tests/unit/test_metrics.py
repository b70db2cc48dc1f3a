"""How what happened is put into the few words that attributes of metrics may have."""

from typing import Any

import pytest

from loom_dsl.observe.metrics import CHOICES, Names, choice_label, stage_outcome, tool_label


@pytest.mark.parametrize(
    ("stage", "result", "expected"),
    [
        ("discover", {"ok": True}, "ok"),
        ("discover", {"ok": False, "code": "tool_not_found", "message": "no"}, "failed"),
        ("authorize", {"decision": "allow", "rule": "glob", "layer": "agent"}, "ok"),
        ("authorize", {"decision": "ask", "request": {}, "policy": {}}, "asked"),
        ("authorize", {"decision": "deny", "ok": False, "code": "permission_denied", "message": "no"}, "denied"),
        ("authorize", {"decision": "deny", "ok": False, "code": "tool_error", "message": "no"}, "failed"),
        ("execute", {"ok": False, "code": "permission_denied", "message": "no", "ms": 1}, "denied"),
        ("execute", {"ok": False, "code": "tool_error", "message": "no", "ms": 1}, "failed"),
        ("format", {"status": "error", "code": "tool_error"}, "ok"),
        ("format", {"status": "error", "code": "tool_error", "ok": False}, "ok"),
    ],
)
def test_what_a_stage_gave_is_one_word(stage: str, result: dict[str, Any], expected: str) -> None:
    assert stage_outcome(stage, result) == expected


@pytest.mark.parametrize(
    ("name", "declared", "expected"),
    [
        ("glob", ["glob"], "glob"),
        ("count", ["count"], "count"),
        ("my_tools:count", ["my_tools:count"], "count"),
        ("rm -rf /", ["glob"], "unknown"),
        ("glob", [], "unknown"),
        ("mcp__git__log", ["mcp__git__*"], "mcp__git__*"),
        ("mcp__git__log", ["mcp__git__log"], "mcp__git__log"),
        ("mcp__github__log", ["mcp__git__*"], "unknown"),
        ("mcp__", ["mcp__git__*"], "unknown"),
    ],
)
def test_a_tool_has_the_name_that_somebody_declared(name: str, declared: list[str], expected: str) -> None:
    assert tool_label(name, {one: one for one in declared}) == expected


def test_choices_of_a_graphs_own_are_one() -> None:
    assert {choice_label(choice) for choice in CHOICES} == CHOICES
    assert choice_label("ship it on Monday") == choice_label(None) == choice_label(["approve"]) == "other"


def test_only_so_many_names_are_told_apart() -> None:
    names = Names(most=2)
    assert [names.bounded(name) for name in ("a", "b", "c", "a", "d", "b")] == ["a", "b", "other", "a", "other", "b"]
