import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_dsl.agent.messages import call_ids, close_orphans, legal_groups, legal_order, render, unique_calls

SYSTEM = {"role": "system", "content": "s"}
USER = {"role": "user", "content": "u"}


def calling(*ids: str) -> dict[str, Any]:
    calls = [{"id": i, "type": "function", "function": {"name": "f", "arguments": "{}"}} for i in ids]
    return {"role": "assistant", "tool_calls": calls}


def answer(call: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call, "content": "r"}


LEGAL = [
    [],
    [SYSTEM, USER],
    [SYSTEM, USER, calling("a", "b"), answer("a"), answer("b"), SYSTEM, calling("a"), answer("a")],
    [USER, calling("a", "b"), answer("b"), answer("a"), USER, {"role": "assistant", "content": "done"}],
]
ILLEGAL = [
    ([USER, calling("a")], "call 'a' of message 1 has no tool message before the end"),
    ([USER, calling("a", "b"), answer("a"), SYSTEM, answer("b")], "call 'b' of message 1 has no tool message before"),
    ([USER, calling("a"), SYSTEM, answer("a")], "message 3 answers call 'a', which the assistant message before it"),
    ([USER, answer("a")], "message 1 answers call 'a', which"),
    ([USER, calling("a"), answer("a"), answer("a")], "message 3 answers call 'a' a second time"),
    ([USER, calling("a", "a"), answer("a"), answer("a")], "message 1 has the call id 'a' more than once"),
    ([USER, calling(""), answer("")], "message 1 has a tool call without an id"),
    ([{"role": "robot", "content": "x"}], "message 0 has the role 'robot'"),
]
SESSIONS = st.lists(
    st.sampled_from([SYSTEM, USER, {"role": "assistant", "content": "x"}])
    | st.lists(st.sampled_from("abc"), min_size=1, max_size=3, unique=True).map(lambda ids: calling(*ids)),
    max_size=6,
).map(lambda turns: [m for turn in turns for m in (turn, *map(answer, call_ids(turn)))])


@pytest.mark.parametrize("messages", LEGAL)
def test_a_legal_order_has_no_problem(messages: list[dict[str, Any]]) -> None:
    assert legal_order(messages) == []


@pytest.mark.parametrize(("messages", "problem"), ILLEGAL)
def test_an_illegal_order_is_named(messages: list[dict[str, Any]], problem: str) -> None:
    assert any(found.startswith(problem) for found in legal_order(messages)), legal_order(messages)


@given(SESSIONS, st.integers(0, 30))
def test_a_session_that_stopped_anywhere_is_legal_after_closing_its_orphans(
    session: list[dict[str, Any]], at: int
) -> None:
    stopped = session[:at]

    assert legal_order(stopped + close_orphans(stopped)) == []


def test_orphans_are_closed_in_call_order_and_only_what_is_missing() -> None:
    closing = close_orphans([USER, calling("a", "b", "c"), answer("b")])

    assert [head["tool_call_id"] for head in closing] == ["a", "c"]
    assert all(head["role"] == "tool" and head["content"].startswith("cancelled") for head in closing)
    assert close_orphans([USER]) == close_orphans([]) == []


def test_a_message_is_rendered_with_the_content_from_the_store() -> None:
    head = {"role": "tool", "tool_call_id": "a"}

    assert json.loads(render(head, 'é "quoted"\n')) == {**head, "content": 'é "quoted"\n'}
    assert render(head, "é") == '{"role":"tool","tool_call_id":"a","content":"é"}'
    assert "content" not in head


def test_an_assistant_message_that_only_calls_has_null_content() -> None:
    assert json.loads(render(calling("a"), None)) == {**calling("a"), "content": None}
    assert json.loads(render({"role": "assistant", "content": "x"}, None))["content"] == "x"


def test_a_head_that_carries_its_content_keeps_it() -> None:
    assert json.loads(render(USER, None)) == USER


@pytest.mark.parametrize(
    ("given_ids", "unique"),
    [
        (["a", "b"], ["a", "b"]),
        (["a", "a", "a"], ["a", "a#2", "a#3"]),
        (["a", "a", "a#2"], ["a", "a#3", "a#2"]),
        ([None, "", "x"], ["call_0", "call_1", "x"]),
        ([None, "call_0"], ["call_0#2", "call_0"]),
    ],
)
def test_duplicate_and_missing_call_ids_become_unique(given_ids: list[str | None], unique: list[str]) -> None:
    assert [call["id"] for call in unique_calls([{"id": i, "type": "function"} for i in given_ids])] == unique


@given(st.lists(st.sampled_from(["a", "a#2", "a#3", "call_0", "call_1", "", None]), max_size=8))
def test_unique_ids_are_unique_stable_and_keep_the_first_of_each(ids: list[str | None]) -> None:
    first = [str(call["id"]) for call in unique_calls([{"id": i} for i in ids])]

    assert len(set(first)) == len(ids)
    assert [call["id"] for call in unique_calls([{"id": i} for i in first])] == first
    assert {i for i in ids if i} <= set(first)


@given(SESSIONS)
def test_groups_cover_all_messages_and_each_is_legal_alone(session: list[dict[str, Any]]) -> None:
    groups = legal_groups(session)

    assert [index for start, end in groups for index in range(start, end)] == list(range(len(session)))
    assert all(legal_order(session[start:end]) == [] for start, end in groups)
