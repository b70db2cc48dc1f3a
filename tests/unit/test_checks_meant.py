"""Text that another language would compute is told, where it names something that there is, and nowhere else."""

import json
from typing import Any

import pytest

from loom_dsl.errors import Diagnostic
from loom_dsl.graph.compiler import check_text

HEAD: dict[str, Any] = {"loom": 1, "kind": "graph", "name": "g", "input": {"repo": "str", "rows": "list"}}


def found(text: Any, **head: Any) -> list[Diagnostic]:
    """What is told of a graph whose last node gives a function this text."""
    nodes = {
        "draft": {"activity": "a.draft", "write": {"note": "${result}"}, "next": "use"},
        "use": {"activity": "a.use", "with": {"x": text, "y": "${state.note}"}, "next": "done"},
        "done": {"end": None},
    }
    return check_text(json.dumps({**HEAD, "state": {"note": "str"}, **head, "nodes": nodes}), "g.yaml")


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("{{input.repo}}", "input.repo"),
        ("a {{ input.repo }} b", "input.repo"),
        ("{{ $.input.repo }}", "input.repo"),
        ("{{ .input.repo }}", "input.repo"),
        ("{{ repo | upper }}", "input.repo"),
        ("{{repo}}", "input.repo"),
        ("{{{repo}}}", "input.repo"),
        ("{{nodes.draft.text}}", "nodes.draft.text"),
        ("{{draft}}", "nodes.draft"),
        ("{{state.note}}", "state.note"),
        ("{{note}}", "state.note"),
        ("{{result}}", "result"),
        ("{input.repo}", "input.repo"),
        ("{repo}", "input.repo"),
        ("{rows[0].name}", "input.rows[0].name"),
        ("{draft.text}", "nodes.draft.text"),
        ("{input}", "input"),
        ("$.repo", "input.repo"),
        ("$.input.repo", "input.repo"),
        ("$.nodes.draft.text", "nodes.draft.text"),
        ("$.draft.text", "nodes.draft.text"),
        ("$input.repo", "input.repo"),
        ("$run.id", "run.id"),
        ({"deep": ["{repo} and ${input.repo}"]}, "input.repo"),
    ],
)
def test_what_names_something_that_there_is_is_told_with_what_to_write(text: Any, meant: str) -> None:
    told = found(text)
    assert [(one.code, one.severity) for one in told] == [("L133", "warning")]
    assert told[0].fix == f"write `${{{meant}}}` when its value is meant"
    assert found(f"${{{meant}}}") == [], "what is proposed is an expression that reads what there is"


@pytest.mark.parametrize(
    "text",
    [
        "${input.repo}",
        "$${input.repo}",
        "${'{repo}'}",
        "{draft}",  # as often a word
        "{other} {{other}} $.other $other",
        "{input.repos} {{input.repos}} {{nodes.drafts}} $.nodes.drafts.x {state.other}",
        "{result} {run} {index} {{run}} {{event.x}}",
        "$repo costs $5, see $HOME and $1",
        "{item.name} {{item}} {turn.counter}",  # nothing runs this graph by a map
        '{"repo": 1} {repo: 1} {repo, rows}',
        "s/${'x'}$/{/",
        "awk '{print $1}'",
    ],
)
def test_other_braces_and_dollars_are_just_text(text: str) -> None:
    assert found(text) == []


def test_an_item_counts_where_a_map_runs_the_graph() -> None:
    part = {"nodes": {"a": {"activity": "a.f", "with": {"x": "{item}, {{item.name}}"}, "next": "b"}, "b": {"end": 1}}}
    nodes = {"each": {"map": {"over": "input.rows", "do": "part"}, "next": "done"}, "done": {"end": None}}
    told = check_text(json.dumps({**HEAD, "nodes": nodes, "graphs": {"part": part}}), "g.yaml")
    assert [one.fix.split("`")[1] for one in told] == ["${item}", "${item.name}"]


def test_one_mistake_in_a_text_is_told_once_and_a_mistake_elsewhere_does_not_hide_it() -> None:
    (told,) = found("{repo} {repo} {repo}")
    assert told.message == "`{repo}` is plain text here, and nothing is put in its place"
    assert [one.code for one in found("{repo}", versoin="1")] == ["L002", "L133"]
