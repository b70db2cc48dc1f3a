"""Sessions, ids, limits and places of jobs: what cannot be done is refused by name, and what ends a job says so."""

import asyncio
import shutil
import uuid
from pathlib import Path
from typing import Any

import pytest

from loom_dsl.agent.run import RunInput
from loom_dsl.errors import ConflictError, JobExists, LoomError, NotFoundError, SessionBusy, UserError
from loom_dsl.observe.events import EventType
from tests.durability.reading import of
from tests.failures.bad_tools import NAMES
from tests.failures.stand import Stand
from tests.support.waiting import eventually, longer

pytestmark = [pytest.mark.server, pytest.mark.asyncio(loop_scope="module")]

LOOKING: list[dict[str, Any]] = [{"say": "I look.", "repeat": 20, "calls": [{"tool": "look", "args": {"text": "{n}"}}]}]
THREE = [{"say": "I look.", "calls": [{"tool": "look", "args": {"text": str(n)}} for n in range(3)]}, *LOOKING]
SLOW = [{"repeat": 400, "say": "I look.", "before": "1s", "calls": [{"tool": "look", "args": {"text": "{n}"}}]}]
ASKING = [{"calls": [{"tool": "look", "args": {"text": "x"}}]}, {"say": "It says: {last}"}]
ASKED = {"permissions": {"ask": list(NAMES)}}

LIMITS: dict[str, tuple[list[dict[str, Any]], dict[str, Any], str, str, int]] = {
    # steps, limits, code, words, tool calls made
    "tool calls": (LOOKING, {"max_tool_calls": 3}, "max_tool_calls", "tool calls", 3),
    "tool calls at once": (THREE, {"max_tool_calls": 2}, "max_tool_calls", "tool calls", 0),
    "tool rounds": (THREE, {"max_tool_rounds": 2}, "max_tool_rounds", "tool rounds", 4),
    "cost": (LOOKING, {"max_cost_usd": 0.0001}, "max_cost", "cost", 2),
    "time": (SLOW, {"max_run_duration": "8s"}, "max_run_duration", "time", 1),
    "iterations": (LOOKING, {"max_iterations": 2}, "max_iterations", "2 iterations", 2),
}
CASES: dict[str, dict[str, Any]] = {
    **{
        f"limit {name}": {"steps": steps, "agent": {"limits": limits, "model": "gpt-4.1-mini"}}
        for name, (steps, limits, *_) in LIMITS.items()
    },
    **{
        name: {"steps": ASKING, "later": True}
        for name in (
            "busy",
            "twice",
            "ended",
            "aborted",
            "goes on",
            "other place",
            "other tools",
            "no declaration",
            "surrogates",
            "forgotten",
        )
    },
}


@pytest.mark.parametrize("name", LIMITS)
async def test_a_limit_ends_the_job_with_its_code_and_what_there_is(stand: Stand, name: str) -> None:
    _, _, code, words, calls = LIMITS[name]
    found = await stand.outcome(f"limit {name}")
    for seconds in longer(30):  # on a slow machine a job may not come to its first call in the time that it has
        if name != "time" or found.result.usage.tool_calls >= calls:
            break
        agent = {**CASES["limit time"]["agent"], "limits": {"max_run_duration": f"{seconds:g}s"}}
        found = await stand.unharmed(await stand.start("limit time", agent=agent))
    error = found.result.error
    assert error is not None
    assert (found.result.status, error.code, found.result.partial) == ("failed", code, True)
    assert words in error.message
    assert found.result.answer == "I look."
    last = found.result.final_message
    assert last is not None
    assert last.keys() == {"role", "content", "tool_calls"}
    assert (last["role"], last["content"]) == ("assistant", "I look.")
    if name == "time":
        assert found.result.usage.tool_calls >= calls
    else:
        assert found.result.usage.tool_calls == calls
    assert found.result.usage.model_calls - found.result.recursion_stats.max_depth in (0, 1)
    assert len(found.result.recursion_stats.recursion_events) == found.result.recursion_stats.max_depth
    assert of(found.told, EventType.ERROR)[-1]["error"] == code
    row = await stand.loom.store.read(lambda tx: tx.job(found.job.id))
    assert row is not None
    assert (row["status"], row["result"]["error"]["code"]) == ("failed", code)


async def test_a_session_takes_one_job_at_a_time_and_then_the_next(stand: Stand) -> None:
    shared = f"shared-{stand.tries}"
    first = await stand.start("busy", agent=ASKED, session=shared)
    other = f"second-{uuid.uuid4().hex[:8]}"
    with pytest.raises(SessionBusy, match=f"'{shared}' is in use by job '{first.id}'; wait for it, abort it, or fork"):
        await stand.start("busy", session=shared, job=other)
    with pytest.raises(NotFoundError):
        await stand.loom.find(other)
    await first.decide(await asked(stand, first.id), "approve", by="me")
    before = await stand.unharmed(first)
    second = await stand.unharmed(await stand.start("goes on", session=shared))
    assert second.messages[: len(before.messages)] == before.messages
    assert second.messages[len(before.messages)]["content"] == "case <goes on>"
    assert second.result.status == "completed"
    asked_for = [kept for kept in stand.model.requests if kept.headers.get("x-loom-run") == second.job.id]
    assert asked_for[-1].messages == 1 + len(second.messages) - 1


async def test_the_session_of_an_aborted_job_can_be_gone_on_with(stand: Stand) -> None:
    session = f"given-up-{stand.tries}"
    job = await stand.start("aborted", agent=ASKED, session=session)
    await asked(stand, job.id)
    await job.abort(by="me")
    first = await stand.unharmed(job)
    assert first.messages[-1]["role"] == "tool"
    second = await stand.unharmed(await stand.start("goes on", session=session))
    assert second.result.status == "completed"


async def test_an_id_stands_for_one_job(stand: Stand) -> None:
    name = f"the-one-{stand.tries}"
    first = await stand.start("twice", agent=ASKED, job=name)
    again = await stand.start("twice", agent=ASKED, job=name)
    assert again.id == first.id
    with pytest.raises(JobExists, match=f"'{name}' exists already with another task; take another id"):
        await stand.loom.start(stand.agent(**ASKED), "something else", workdir=stand.place("twice"), job=name)
    with pytest.raises(JobExists, match=r"another .*plan"):
        await stand.start("twice", job=name)
    await first.decide(await asked(stand, first.id), "reject", by="me", message="no")
    found = await stand.unharmed(first)
    assert [message["role"] for message in found.messages] == ["user", "assistant", "tool", "assistant"]
    assert found.tool()["content"].startswith("The call was rejected by me: no")
    with pytest.raises(ConflictError, match=r"has ended \(completed\); take another id"):
        await stand.start("twice", agent=ASKED, job=name)


@pytest.mark.parametrize(
    ("given", "kind", "words"),
    [
        pytest.param({"task": "  "}, UserError, "the task is empty", id="no task"),
        pytest.param({"workdir": "/no/such/place"}, UserError, "/no/such/place does not exist", id="no directory"),
        pytest.param({"job": "a b/c"}, UserError, "cannot be the id of a job", id="strange id"),
        pytest.param({"job": "x" * 2_000}, UserError, "cannot be the id of a job", id="long id"),
        pytest.param({"session": "../x"}, UserError, "cannot be the id of a session", id="strange session"),
        pytest.param(
            {"task": RunInput.of_text("x", session_id="nowhere", auto_create_session=False)},
            NotFoundError,
            "there is no session 'nowhere'",
            id="no session",
        ),
        pytest.param(
            {"task": RunInput.of_text("x", allowed_tools=("loook",))},
            UserError,
            "names `loook`.*did you mean `look`",
            id="no tool",
        ),
    ],
)
async def test_what_cannot_be_started_is_refused_and_leaves_nothing(
    stand: Stand, tmp_path: Path, given: dict[str, Any], kind: type[LoomError], words: str
) -> None:
    refused = tmp_path / "refused"  # the stand's own jobs begin meanwhile
    refused.mkdir()
    with pytest.raises(kind, match=words):
        await stand.loom.start(stand.agent(), **{"task": "do it", "workdir": refused, **given})
    assert str(given.get("workdir", refused)) not in [row.workdir for row in await stand.loom.jobs(1_000)]


async def test_a_place_outside_the_workers_root_is_refused(stand: Stand, tmp_path: Path) -> None:
    found = await stand.unharmed(await stand.start("other place", workdir=tmp_path))
    assert found.result.error is not None
    assert found.result.error.code == "permission_denied"
    assert f"not under this worker's root {stand.folder}" in found.result.error.message
    assert "--root" in found.result.error.message


@pytest.mark.parametrize(
    ("name", "tool", "code", "words"),
    [
        ("other tools", "lookup", "unknown_tool", "the module 'tests.failures.bad_tools' has no tool 'lookup'"),
        (
            "no declaration",
            "unannotated",
            "tool_declaration",
            r"unannotated \(.*bad_tools\.py:\d+\): parameter 'text' has no annotation",
        ),
    ],
)
async def test_a_tool_that_no_worker_can_offer_ends_the_job(
    stand: Stand, name: str, tool: str, code: str, words: str
) -> None:
    found = await stand.unharmed(await stand.start(name, agent={"tools": [f"tests.failures.bad_tools:{tool}"]}))
    assert found.result.error is not None
    assert found.result.error.code == code
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(found.result.error.message)
    assert [message["role"] for message in found.messages] == ["user"]


async def test_half_a_character_in_a_task_is_replaced(stand: Stand) -> None:
    stand.place("surrogates").mkdir()
    task = "case <surrogates> \udcff and \x00"
    job = await stand.loom.start(stand.agent(tools=[]), task, workdir=stand.place("surrogates"))
    assert (await job.result()).status == "completed"
    (request, *_) = [kept for kept in stand.model.requests if kept.headers.get("x-loom-run") == job.id]
    assert request.json["messages"][-1]["content"] == "case <surrogates> \ufffd\ufffd\ufffd and \x00"


async def test_a_directory_that_is_gone_is_told_to_the_model(stand: Stand) -> None:
    job = await stand.start("forgotten", agent=ASKED)
    approval = await asked(stand, job.id)
    await asyncio.to_thread(shutil.rmtree, stand.place("forgotten"))
    await job.decide(approval, "approve", by="me")
    found = await stand.unharmed(job)
    assert found.result.status == "completed"
    assert "the working directory" in found.tool()["content"]
    assert "cannot be opened" in found.tool()["content"]


async def asked(stand: Stand, job: str) -> str:
    """Wait for a job's approval request, and give its id."""

    async def waiting() -> str:
        return next((row.id for row in await stand.loom.approvals(job)), "")

    return await eventually(waiting)
