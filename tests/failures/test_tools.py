"""Tools that fail in every way that their authors can think of, or not: the model is told, and the worker goes on."""

import re
from typing import Any

import pytest

from loom_client.records import ApprovalRecord
from loom_dsl.observe.events import EventType
from tests.durability.reading import of
from tests.failures.bad_tools import LONG, NAMES, called
from tests.failures.stand import Stand
from tests.support.waiting import eventually

pytestmark = [pytest.mark.server, pytest.mark.asyncio(loop_scope="module")]


def calling(name: str, **arguments: Any) -> dict[str, Any]:
    """A model that makes one call and then tells its result."""
    return {"steps": [{"calls": [{"tool": name, "args": arguments}]}, {"say": "It says: {last}"}]}


RETURNED: dict[str, str] = {
    "bytes": "plain bytes",
    "nan": '{"mean":NaN}',
    "pair": '{"left":1,"right":"2026-05-04"}',
    "surrogate": "half ? a pair, and \x00 nothing",
    "keys": '{"1":"one","2,3":"pair"}',
    "set": '["a"]',
    "print": "printed",
    "credential": "the key is [redacted:api-key], keep it",
    "known": '{"value":"${secret:SHELF}"}',
}
RAISED: dict[str, tuple[str, str]] = {
    "binary": ("unreadable_result", "it returned 256 bytes that are not text"),
    "object": ("unreadable_result", "it returned an object of the type Opaque, which cannot be written as JSON"),
    "raise": ("tool_error", "ValueError: the shelf is empty"),
    "raise told": ("tool_error", "ask for a smaller shelf"),
    "raise long": ("tool_error", "long long long"),
    "raise untold": ("tool_error", "Untold"),
    "raise timeout": ("tool_error", "TimeoutError: the database did not answer"),
    "raise stop": ("tool_error", "StopIteration: no more|RuntimeError: .*StopIteration"),
    "raise cancelled": ("tool_error", "CancelledError"),
    "raise interrupt": ("tool_error", "KeyboardInterrupt"),
    "raise group": ("tool_error", "ExceptionGroup: two things"),
    "raise deep": ("tool_error", "RecursionError"),
    "exit": ("tool_error", "SystemExit: 3"),
    "raise credential": ("tool_error", r"RuntimeError: 401 for \[redacted:api-key\]"),
    "raise known": ("tool_error", r"cannot log in with \$\{secret:SHELF\}"),
}
IN_A_COROUTINE = ("none", "bytes", "object", "raise", "raise stop", "raise cancelled", "raise interrupt", "exit")
LATE = {"slow_sync": 0.5, "slow_async": 0.5, "stubborn": 0.5, "blocking": 1.0}
CARELESS = ("keyless", "long_key", "unsummarised", "unseen", "hung_key", "hung_words")
AGAIN = {
    "fickle": (3, r"did x"),
    "hopeless": (3, r"Error \(tool_error\): OSError: no line, 3 times"),
    "decided": (1, r"Error \(tool_error\): ask for a smaller shelf, 1 times"),
    "waiting": (1, r"Error \(timeout\): the tool waiting did not end within 3 s"),
}
"""How often a tool's function is called that is tried again, and what the model is told at last."""
PREVIEWS = {
    "unseen": "LookupError: the author did not think of this",
    "hung_words": "it did not end within 3 s",
}

CASES: dict[str, dict[str, Any]] = {
    **{what: calling("plain", what=what) for what in ("none", "huge", *RETURNED, *RAISED)},
    **{f"async {what}": calling("plain_async", what=what) for what in IN_A_COROUTINE},
    **{
        name: calling(name, text="x")
        for name in (*LATE, *CARELESS, *AGAIN, "whisper", "uncertain", "absent", "undecided", "chatty")
    },
    **{
        f"ask {name}": {**calling(name, text="x"), "agent": {"permissions": {"ask": list(NAMES)}}, "later": True}
        for name in CARELESS
    },
}


@pytest.mark.parametrize("what", RETURNED)
async def test_what_a_tool_returns_is_told_as_text(stand: Stand, what: str) -> None:
    found = await stand.outcome(what)
    assert found.tool()["content"] == RETURNED[what]
    assert found.results()[0]["status"] == "success"
    assert found.result.status == "completed"


@pytest.mark.parametrize("what", [*RAISED, *(f"async {what}" for what in IN_A_COROUTINE if what in RAISED)])
async def test_what_a_tool_raises_is_told_to_the_model(stand: Stand, what: str) -> None:
    code, words = RAISED[what.removeprefix("async ")]
    found = await stand.outcome(what)
    told = found.tool()["content"]
    assert re.match(rf"Error \({code}\): ({words})", told), told[:300]
    assert "o not repeat th" in told
    assert len(told) < 11_000
    assert (found.results()[0]["status"], found.results()[0]["code"]) == ("error", code)
    assert found.result.status == "completed"
    assert len(of(found.told, EventType.TOOL_START)) == 1, "the tool ran a second time"


@pytest.mark.parametrize("what", ["none", "async none"])
async def test_nothing_is_told_as_nothing(stand: Stand, what: str) -> None:
    found = await stand.outcome(what)
    assert found.tool()["content"] == "The tool ran and gave no output."
    assert (found.results()[0]["status"], found.results()[0]["code"]) == ("warning", "empty_response")


async def test_five_megabytes_are_cut_in_the_middle(stand: Stand) -> None:
    found = await stand.outcome("huge")
    told = found.tool()["content"]
    assert len(told) <= 10_000
    assert told.startswith("0123456789")
    assert told.endswith("0123456789")
    assert re.search(r"\[\.\.\. 49\d{5} characters left out \.\.\.\]", told)


@pytest.mark.parametrize("name", LATE)
async def test_a_tool_that_takes_too_long_is_left_behind(stand: Stand, name: str) -> None:
    found = await stand.outcome(name)
    assert found.tool()["content"].startswith(f"Error (timeout): the tool {name} did not end within {LATE[name]:g} s")
    assert ("it may have had its effect" in found.tool()["content"]) == (name == "slow_sync")
    assert found.result.status == "completed"
    # A coroutine that blocks its event loop has one of its own, and so reports to nobody else's harm.
    assert found.results()[0]["ms"] < 1000 * LONG, "its end was waited for"


@pytest.mark.parametrize("name", AGAIN)
async def test_a_function_that_raises_is_called_again_as_its_tool_says(stand: Stand, name: str) -> None:
    times, told = AGAIN[name]
    found = await stand.outcome(name)
    assert re.match(told, found.tool()["content"])
    assert called[found.job.id] == times
    said = [data["content"] for data in of(found.told, EventType.PROGRESS)]
    assert len(said) <= times  # of two in quick succession the last is told
    if name == "fickle":
        busy = "OSError: the line to [redacted:api-key] is busy"
        assert said[-1] == f"attempt 2 of 3 failed ({busy}); the next one in 0.02 s"


@pytest.mark.parametrize("name", CARELESS)
async def test_what_describes_a_call_may_fail_and_the_call_runs(stand: Stand, name: str) -> None:
    assert (await stand.outcome(name)).tool()["content"] == "did x"


@pytest.mark.parametrize("name", CARELESS)
async def test_what_describes_a_call_may_fail_and_an_approver_is_asked(stand: Stand, name: str) -> None:
    job = await stand.start(f"ask {name}", agent=CASES[f"ask {name}"]["agent"])

    async def asked() -> list[ApprovalRecord]:
        return await stand.loom.approvals(job.id)

    rows: list[ApprovalRecord] = await eventually(asked)
    (row,) = rows
    assert row.summary == f'{name}({{"text":"x"}})'
    if name in PREVIEWS:
        preview = await stand.loom.store.read(lambda tx: tx.get_blob(row.details["preview"]))
        assert preview.decode() == f"(no preview: {PREVIEWS[name]})"
    await job.decide(row.id, "approve", by="me")
    assert (await stand.unharmed(job)).tool()["content"] == "did x"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("absent", "the tool absent is not available now"),
        ("uncertain", "could not be found out .* LookupError"),
        ("undecided", "could not be found out .*: its is_available gave no answer within 3 s"),
    ],
)
async def test_a_tool_that_is_not_there_is_told_as_such(stand: Stand, name: str, words: str) -> None:
    found = await stand.outcome(name)
    assert re.match(rf"Error \(tool_unavailable\): .*{words}", found.tool()["content"])


async def test_progress_holds_no_secret(stand: Stand) -> None:
    found = await stand.outcome("whisper")
    assert [data["content"] for data in of(found.told, EventType.PROGRESS)] == [
        "using ${secret:SHELF} and [redacted:api-key]"
    ]


async def test_of_a_flood_of_progress_the_last_is_told_before_the_result(stand: Stand) -> None:
    found = await stand.outcome("chatty")
    said = [data["content"] for data in of(found.told, EventType.PROGRESS)]
    assert said[-1] == "x 19999"
    assert len(said) < 1_000
    kinds = [event.type for event in found.told if event.type in (EventType.PROGRESS, EventType.TOOL_RESULT)]
    assert kinds[-1] == EventType.TOOL_RESULT
