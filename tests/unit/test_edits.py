"""What an approver writes in place of a tool's arguments is held against the tool's schema."""

import json
from typing import Any

import pytest

from loom_client.edited_arguments import MAX_SHOWN, problem_with
from loom_dsl.text.canonical import canonical_json
from loom_dsl.tools.tool import tool


@tool
def send(to: str, count: int = 1, tags: list[str] | None = None) -> None:
    """Send it.

    Args:
        to: To whom.
        count: How often.
        tags: Its tags.
    """


SCHEMA = canonical_json(send.parameters)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"to": "ann"}, []),
        ({"to": "ann", "count": 2, "tags": ["a"]}, []),
        ({"to": "ann", "tags": ("a", "b")}, []),  # as JSON it is a list
        ({}, ["'to'"]),
        ({"to": 5}, ["'to'"]),
        ({"to": "ann", "count": "2"}, ["'count'"]),
        ({"to": "ann", "count": True}, ["'count'"]),
        ({"to": "ann", "cuont": 2}, ["'cuont'", "did you mean 'count'"]),
        ({"to": "ann", "tags": ["a", 5]}, ["tags"]),
        ({"count": "2"}, ["'to'", "'count'"]),
    ],
)
def test_every_argument_that_does_not_fit_is_named(arguments: dict[str, Any], named: list[str]) -> None:
    problem = problem_with(SCHEMA, arguments)
    assert bool(problem) is bool(named)
    assert all(name in problem for name in named), problem
    assert "\n" not in problem


def test_many_problems_are_told_in_part() -> None:
    problem = problem_with(SCHEMA, {"to": "ann", **{f"x{number}": 1 for number in range(MAX_SHOWN + 2)}})
    assert problem.endswith("; and 2 more")


@pytest.mark.parametrize("schema", ["", "{}", "no JSON", json.dumps({"type": "object"})])
def test_where_it_cannot_be_told_the_job_decides(schema: str) -> None:
    assert problem_with(schema, {"to": 5}) == ""


@pytest.mark.parametrize("arguments", [{"to": object()}, {"to": float("nan")}])
def test_what_is_no_json_is_left_to_who_sends_it(arguments: dict[str, Any]) -> None:
    assert problem_with(SCHEMA, arguments) == ""
