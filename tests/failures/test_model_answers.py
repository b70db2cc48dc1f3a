"""Models that answer nonsense in the right form: the model is told, the conversation stays legal, the job goes on."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.durability.reading import watched
from tests.failures.stand import Stand

pytestmark = [pytest.mark.server, pytest.mark.asyncio(loop_scope="module")]


def call(tool: str = "look", **fields: Any) -> dict[str, Any]:
    return {"tool": tool, **fields}


def then(*calls: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
    """A model that makes these calls, and then tells the last result."""
    return [{"calls": list(calls), "chunk": 50_000, **fields}, {"say": "It says: {last}"}]


TOLD: dict[str, tuple[dict[str, Any], str, str]] = {
    # call, code, words of the tool message
    "cut JSON": (call(raw='{"text": "on'), "validation_error", r"not valid JSON: .*line 1, column 10"),
    "no JSON": (call(raw="text=one"), "validation_error", r"not valid JSON"),
    "list": (call(raw='["one"]'), "validation_error", r"must be one JSON object, got array"),
    "number": (call(raw="7"), "validation_error", r"must be one JSON object, got"),
    "nothing": (call(raw=""), "validation_error", r"'text'.*(missing|required)"),
    "twice": (call(raw='{"text": "a", "text": "b"}'), "validation_error", r"'text' is given twice"),
    "NaN": (call("typed", raw='{"count": NaN}'), "validation_error", r"NaN is not JSON"),
    "too large": (call("typed", raw='{"count": 1e999}'), "validation_error", r"too large"),
    "many digits": (
        call("typed", raw='{"count": ' + "7" * 5_000 + "}"),
        "validation_error",
        r"not valid JSON|too large",
    ),
    "deep": (call(raw="[" * 100_000), "validation_error", r"nested too deeply|not valid JSON"),
    "wrong types": (
        call("typed", args={"count": "5", "names": [1]}),
        "validation_error",
        r"'count'.*integer.*string(.|\n)*'names",
    ),
    "missing": (call("typed", args={"flag": True}), "validation_error", r"'count'"),
    "misspelt": (call(args={"text": "a", "txet": "b"}), "validation_error", r"'txet'.*did you mean 'text'"),
    "half a pair": (call(raw='{"text": "\\ud800"}'), "validation_error", r"Invalid JSON: .*hex escape"),
    "half a pair in a name": (call(raw='{"\\udfff": 1}'), "validation_error", r"is not an argument"),
    "long unknown name": (call(args={"t" * 1_000_000: 1}), "validation_error", r"'text' is missing"),
    "unknown": (call("loook"), "tool_not_found", r"no tool 'loook'; did you mean `look`"),
    "unlike any": (call("zzzzzzzz"), "tool_not_found", r"the tools are .*look"),
    "strange name": (call("functions.no such/tool?é"), "tool_not_found", r"no tool 'functions_no_such_tool__'"),
    "no name": (call(""), "tool_not_found", r"no tool 'unnamed'"),
    "long name": (call("n" * 100_000), "tool_not_found", r"no tool 'n{64}'"),
    "absolute path": (
        call("read_file", args={"path": "/etc/passwd"}),
        "permission_denied",
        r"outside the working directory",
    ),
    "path upwards": (
        call("read_file", args={"path": "../secret"}),
        "permission_denied",
        r"outside the working directory",
    ),
    "link outwards": (
        call("read_file", args={"path": "link"}),
        "permission_denied",
        r"leaves the working directory through a symbolic link",
    ),
    "write upwards": (
        call("write_file", args={"path": "a/../../x", "content": ""}),
        "permission_denied",
        r"outside the working directory",
    ),
    "write through a link": (
        call("write_file", args={"path": "link", "content": ""}),
        "permission_denied",
        r"outside|symbolic link|leads out",
    ),
    "NUL in a path": (call("read_file", args={"path": "a\0b"}), "permission_denied", r"outside the working directory"),
    "not UTF-8": (call("read_file", args={"path": "binary"}), "tool_error", r"text|UTF-8|binary"),
    "no such file": (call("read_file", args={"path": "nothing"}), "tool_error", r"no such file|does not exist"),
}

ANSWERED: dict[str, tuple[list[dict[str, Any]], int]] = {
    # calls, number of them: each is answered once, with success
    "the same id twice": ([call(id="x", args={"text": "a"}), call(id="x", args={"text": "b"})], 2),
    "no ids": ([call(id="", args={"text": "a"}), call(id="", args={"text": "b"})], 2),
    "ids that look numbered": ([call(id=i, args={"text": i}) for i in ("x", "x#2", "x", "x")], 4),
    "a long id": ([call(id="i" * 200_000, args={"text": "a"})], 1),
    "spaces around a name": ([call(" look ", args={"text": "a"})], 1),
    "a hundred": ([call(args={"text": str(n)}) for n in range(100)], 100),
    "a megabyte of arguments": ([call(args={"text": "x" * 1_000_000})], 1),
    "control characters": ([call(args={"text": "a\x00b\x1b[31m\u2028\ufeff"})], 1),
    "a fenced object": ([call(raw='```json\n{"text": "a"}\n```')], 1),
    "a large file": ([call("read_file", args={"path": "large"})], 1),
}


def large(place: Path) -> None:
    (place / "large").write_text("0123456789\n" * 1_000_000)


def files(place: Path) -> None:
    (place / "binary").write_bytes(bytes(range(256)) * 10)
    (place / "link").symlink_to("/etc/passwd")


WIDE = {"limits": {"max_context_tokens": 1_000_000}}
CASES: dict[str, dict[str, Any]] = {
    **{name: {"steps": then(made), "prepare": files, "agent": WIDE} for name, (made, *_) in TOLD.items()},
    **{name: {"steps": then(*made, say="Look."), "agent": WIDE} for name, (made, _) in ANSWERED.items()},
    "a large file": {"steps": then(call("read_file", args={"path": "large"})), "prepare": large},
    "no tools": {"steps": then(call("look")), "agent": {"tools": []}},
    "too many": {"steps": then(*[{"tool": "look"}] * 1_001)},
    "empty": {"steps": [{"empty": True}]},
    "empty at last": {"steps": [{"say": "Done with it.", "calls": [call(args={"text": "a"})]}, {"empty": True}]},
    "blank": {"steps": [{"say": " \n"}]},
    "cut": {"steps": [{"say": "I was about to", "finish": "length"}]},
    "cut in a call": {"steps": then(call(raw='{"text": "I was'), finish="length")},
    "cut after a call": {"steps": then(call(args={"text": "a"}), finish="length")},
    "filtered after a call": {"steps": then(call(args={}), finish="content_filter")},
    "ten megabytes": {"steps": [{"big": 10_000_000}]},
    "strange text": {"steps": [{"say": "a\x00b\x1b[31mred\u2028\ufeff \U0001f600", "chunk": 1}]},
    "unheard reason": {"steps": [{"say": "well", "finish": "because"}]},
}


@pytest.mark.parametrize("name", TOLD)
async def test_the_model_is_told_and_goes_on(stand: Stand, name: str) -> None:
    _, code, words = TOLD[name]
    found = await stand.outcome(name)
    assert found.result.status == "completed", found.result.error
    told = found.tool()["content"]
    assert told.startswith(f"Error ({code}): ")
    assert re.search(words, told), told[:600]
    assert len(told) < 11_000
    (result,) = found.results()
    assert (result["status"], result["code"]) == ("error", code)
    assert found.result.answer.startswith("It says: Error")


@pytest.mark.parametrize("name", ANSWERED)
async def test_every_call_is_answered_once(stand: Stand, name: str) -> None:
    _, count = ANSWERED[name]
    found = await stand.outcome(name)
    assert found.result.status == "completed", found.result.error
    made = found.messages[1]["tool_calls"]
    assert len({each["id"] for each in made}) == len(made) == count
    assert [message["tool_call_id"] for message in found.messages[2:-1]] == [each["id"] for each in made]
    assert {result["status"] for result in found.results()} == {"success"}
    assert len(found.results()) == count


async def test_ids_are_made_unique_without_taking_one_that_was_given(stand: Stand) -> None:
    found = await stand.outcome("ids that look numbered")
    assert [each["id"] for each in found.messages[1]["tool_calls"]] == ["x", "x#2", "x#3", "x#4"]
    assert [message["content"] for message in found.messages[2:-1]] == ["saw x", "saw x#2", "saw x", "saw x"]


async def test_an_agent_without_tools_says_so(stand: Stand) -> None:
    found = await stand.outcome("no tools")
    assert "there are no tools" in found.tool()["content"]
    assert found.result.status == "completed"


async def test_more_calls_than_a_turn_takes_fail_the_job_and_leave_no_call_open(stand: Stand) -> None:
    found = await stand.outcome("too many")
    assert found.result.error is not None
    assert found.result.error.code == "model_protocol"
    assert "1001 tool calls" in found.result.error.message
    assert [message["role"] for message in found.messages] == ["user"]


async def test_an_empty_answer_completes_with_a_warning(stand: Stand) -> None:
    found = await stand.outcome("empty")
    assert (found.result.status, found.result.answer) == ("completed", "")
    assert found.warnings() == ["empty_answer"]
    assert found.messages[-1] == {"role": "assistant", "content": ""}


async def test_a_model_that_ends_with_nothing_has_answered_before(stand: Stand) -> None:
    found = await stand.outcome("empty at last")
    assert (found.result.status, found.result.answer, found.result.partial) == ("completed", "Done with it.", False)
    assert found.warnings() == ["empty_answer"]


async def test_an_answer_at_the_limit_of_tokens_is_partial(stand: Stand) -> None:
    found = await stand.outcome("cut")
    assert (found.result.status, found.result.answer, found.result.partial) == ("completed", "I was about to", True)
    assert found.warnings() == ["answer_cut"]


async def test_a_call_at_the_limit_of_tokens_is_told_as_such(stand: Stand) -> None:
    found = await stand.outcome("cut in a call")
    assert found.warnings() == ["answer_cut"]
    assert "cut off at the limit of output tokens" in found.tool()["content"]
    assert (found.result.status, found.result.partial) == ("completed", False)


@pytest.mark.parametrize(
    ("name", "code"), [("cut after a call", "answer_cut"), ("filtered after a call", "answer_filtered")]
)
async def test_no_call_of_a_cut_answer_runs_and_the_model_goes_on(stand: Stand, name: str, code: str) -> None:
    found = await stand.outcome(name)
    assert found.warnings() == [code]
    assert [result["status"] for result in found.results()] == ["error"]
    assert "none of its calls was run" in found.tool()["content"]
    assert (found.result.status, found.result.partial) == ("completed", False)


async def test_ten_megabytes_are_an_answer(stand: Stand) -> None:
    found = await stand.outcome("ten megabytes")
    assert found.result.status == "completed"
    assert len(found.messages[-1]["content"]) == 10_000_000
    assert found.result.answer.startswith("xxxx")
    assert [len(text) for text in watched(found.told).values()] == [10_000_000]


@pytest.mark.parametrize(
    ("name", "text"),
    [("strange text", "a\x00b\x1b[31mred\u2028\ufeff \U0001f600"), ("blank", " \n"), ("unheard reason", "well")],
)
async def test_text_stays_as_it_is(stand: Stand, name: str, text: str) -> None:
    found = await stand.outcome(name)
    assert (found.result.status, found.result.answer) == ("completed", text)
    assert json.loads(found.result.model_dump_json())["answer"] == text
