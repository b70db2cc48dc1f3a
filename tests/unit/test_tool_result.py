"""Whatever happened to a call, the model reads what it was and what to do (mission C2, C4, C6)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_dsl.tools import result
from loom_dsl.tools.result import LIMIT, RECOVERABLE, failure, refusal, success


def test_an_output_is_given_as_it_is() -> None:
    message = success(" a\nb ")
    assert (message.status, message.code, message.content, message.cut) == ("success", "", " a\nb ", False)


@pytest.mark.parametrize("output", ["", " ", "\n\t\n", "\u2003"])
def test_an_empty_output_is_a_warning_that_says_so(output: str) -> None:
    message = success(output)
    assert (message.status, message.code) == ("warning", "empty_response")
    assert "no output" in message.content


@given(st.integers(0, 30_000), st.integers(64, 12_000))
def test_a_long_output_is_cut_to_its_limit_and_keeps_both_ends(length: int, limit: int) -> None:
    output = "a" + "x" * length + "z"
    message = success(output, limit)
    assert len(message.content) <= limit
    assert message.cut == (len(output) > limit)
    assert (message.content[0], message.content[-1]) == ("a", "z")


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        ("validation_error", "Check types and format"),
        ("timeout", "simpler or split it"),
        ("permission_denied", "needs authorization"),
        ("tool_not_found", "the tools that you were given"),
        ("tool_unavailable", "Find another way"),
        ("outcome_unknown", "may have happened or not"),
        ("approval_expired", "was not done"),
        ("aborted", "being ended"),
        ("anything_else", "Do not repeat this call unchanged"),
    ],
)
def test_a_failure_says_its_code_what_happened_and_what_to_do(code: str, advice: str) -> None:
    message = failure(code, "it broke")
    assert (message.status, message.code) == ("error", code)
    assert message.content.startswith(f"Error ({code}): it broke\n")
    assert advice in message.content


def test_only_what_the_model_can_correct_is_recoverable() -> None:
    assert {"validation_error", "timeout"} == RECOVERABLE


def test_every_code_that_has_advice_is_one_that_can_come() -> None:
    from loom_dsl import errors

    classes = [
        value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, errors.LoomError)
    ]
    codes = {known.code for known in classes} | {"approval_expired", "unreadable_result"}
    assert sorted(set(result._ADVICE) - codes) == []


@pytest.mark.parametrize(
    ("decision", "content"),
    [
        ({"choice": "reject"}, "The call was rejected.\nDo not"),
        ({"choice": "reject", "by": "", "message": ""}, "The call was rejected.\nDo not"),
        ({"choice": "reject", "by": "ada", "message": "not now"}, "The call was rejected by ada: not now\nDo not"),
    ],
)
def test_a_rejection_says_by_whom_and_why(decision: dict[str, str], content: str) -> None:
    message = refusal(decision)
    assert (message.status, message.code) == ("error", "rejected")
    assert message.content.startswith(content)


def test_an_expiry_is_not_a_rejection() -> None:
    assert refusal({"choice": "expired", "by": "", "message": "x"}).code == "approval_expired"


@pytest.mark.parametrize("length", [10_000, 100_000])
def test_no_message_is_much_longer_than_the_limit(length: int) -> None:
    reason = {"choice": "reject", "by": "a" * 200, "message": "x" * length}
    for message in (success("x" * length), failure("timeout", "x" * length), refusal(reason)):
        assert len(message.content) < LIMIT + 500
