"""Decisions come from anything that can signal a workflow, in time or too late, and mean what they say."""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2
import pytest

from loom_cli.dev.server import DevServer
from loom_cli.dev.temporal_cli import find_temporal
from loom_client.job import Job
from loom_dsl.errors import DecisionRefused
from loom_dsl.observe.events import EventType
from tests.durability.conftest import House, Opener
from tests.durability.reading import account, effects_of, events, of
from tests.durability.test_worker_killed import calling
from tests.support.waiting import eventually, longer

pytestmark = pytest.mark.server

Sender = Callable[[DevServer, Job, dict[str, Any]], Awaitable[None]]
STRANGER = """
import asyncio, json, sys
from temporalio.client import Client

async def main(address, job, decision):
    client = await Client.connect(address)
    await client.get_workflow_handle(job).signal("loom.decision", json.loads(decision))
    assert not [name for name in sys.modules if name.startswith(("loom_", "activities", "workflows"))]

asyncio.run(main(*sys.argv[1:]))
# Not the interpreter's own ending: there the SDK's native part aborts now and then.
import os
os._exit(0)
"""


async def run(*command: str) -> None:
    """Run a program to its end; it must succeed."""
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()


async def by_temporal_cli(server: DevServer, job: Job, decision: dict[str, Any]) -> None:
    program = str(await asyncio.to_thread(find_temporal))
    where = ["--address", server.address, "--workflow-id", job.id]
    await run(program, "workflow", "signal", *where, "--name", "loom.decision", "--input", json.dumps(decision))


async def by_bare_client(server: DevServer, job: Job, decision: dict[str, Any]) -> None:
    await run(sys.executable, "-I", "-c", STRANGER, server.address, job.id, json.dumps(decision))


async def by_http(server: DevServer, job: Job, decision: dict[str, Any]) -> None:
    url = f"http://{server.http_address}/api/v1/namespaces/default/workflows/{job.id}/signal/loom.decision"
    async with httpx2.AsyncClient() as client:
        answer = await client.post(url, json={"input": [decision]})
    assert answer.status_code == 200, answer.text


async def by_update(server: DevServer, job: Job, decision: dict[str, Any]) -> None:
    answer = await job.decide(decision["approval_id"], decision["choice"], by=decision["by"])
    assert answer.verdict == "recorded"


@pytest.mark.parametrize("send", [by_temporal_cli, by_bare_client, by_http, by_update])
async def test_a_decision_comes_from_anywhere(house: Opener, dev_server: DevServer, send: Sender) -> None:
    opened = await house(calling("send"))
    async with opened.inside():
        job = await opened.start(opened.agent(permissions={"ask": ["send"]}))
        approval = await opened.approval(job)
        await send(dev_server, job, {"approval_id": approval, "choice": "approve", "by": "somebody"})
        found = await account(opened.loom.store, job)
    assert found.status == "completed"
    assert effects_of(opened.workdir(job)) == ["0/call_1_0 one"]
    (decided,) = of(await events(job), EventType.APPROVAL_DECIDED)
    assert (decided["choice"], decided["by"]) == ("approve", "somebody")
    (row,) = await opened.loom.approvals(job.id, status=None)
    assert (row.status, row.by) == ("approved", "somebody")


def writing(*paths: str) -> list[dict[str, Any]]:
    """A model that writes one file in each turn."""
    steps = [{"calls": [{"tool": "write_file", "args": {"path": path, "content": "hello"}}]} for path in paths]
    return [*steps, {"say": "bye"}]


def careful(house: House) -> Any:
    """An agent that asks before it writes, and never writes below `secret`."""
    permissions = {"ask": ["write_file"], "deny": ["write_file(secret/**)"]}
    return house.agent(tools=["write_file"], permissions=permissions)


async def ask_and_decide(house: House, steps_agent: Any, **decision: Any) -> tuple[Job, Any]:
    """Run a job with one approval that is decided so."""
    async with house.inside():
        job = await house.start(steps_agent)
        await job.decide(await house.approval(job), by="me", **decision)
        return job, await account(house.loom.store, job)


async def test_edited_arguments_are_what_runs(house: Opener) -> None:
    opened = await house(writing("a.txt"))
    edited = {"path": "b.txt", "content": "edited"}
    job, found = await ask_and_decide(opened, careful(opened), choice="edit", edited_arguments=edited)
    assert not (opened.workdir(job) / "a.txt").exists()
    assert (opened.workdir(job) / "b.txt").read_text() == "edited"
    assert len(of(await events(job), EventType.APPROVAL_REQUESTED)) == 1
    assert "b.txt" in found.messages[2]["content"]


@pytest.mark.parametrize(
    ("edited", "code"),
    [
        pytest.param({"path": "secret/b.txt", "content": "x"}, "permission_denied", id="denied by a rule"),
        pytest.param({"path": "b.txt"}, "validation_error", id="not valid"),
        pytest.param({"path": "../b.txt", "content": "x"}, "permission_denied", id="outside"),
    ],
)
async def test_edited_arguments_are_checked_like_the_models(house: Opener, edited: dict[str, Any], code: str) -> None:
    opened = await house(writing("a.txt"))
    async with opened.inside():
        job = await opened.start(careful(opened))
        # By signal: whoever sends one has held it against nothing.
        decision = {"approval_id": await opened.approval(job), "choice": "edit", "edited_arguments": edited}
        await job.handle.signal("loom.decision", decision)
        found = await account(opened.loom.store, job)
    assert list(opened.workdir(job).iterdir()) == []
    assert found.status == "completed"
    (result,) = of(await events(job), EventType.TOOL_RESULT)
    assert (result["status"], result["code"]) == ("error", code)


async def test_who_edits_is_told_at_once_what_does_not_fit_and_the_question_stays_open(house: Opener) -> None:
    opened = await house(writing("a.txt"))
    async with opened.inside():
        job = await opened.start(careful(opened))
        name = await opened.approval(job)
        with pytest.raises(DecisionRefused, match=r"write_file.*'content'") as caught:
            await job.decide(name, "edit", edited_arguments={"path": "b.txt"}, by="me")
        assert caught.value.verdict == "invalid"
        (row,) = await opened.loom.approvals(job.id)
        assert (row.id, row.status) == (name, "pending")
        await job.decide(name, "edit", edited_arguments={"path": "b.txt", "content": "x"}, by="me")
        assert (await account(opened.loom.store, job)).status == "completed"
    assert (opened.workdir(job) / "b.txt").read_text() == "x"
    assert of(await events(job), EventType.WARNING) == []


async def test_a_rejection_tells_the_model_why(house: Opener) -> None:
    opened = await house(writing("a.txt"))
    job, found = await ask_and_decide(opened, careful(opened), choice="reject", message="not on a Friday")
    assert list(opened.workdir(job).iterdir()) == []
    assert "not on a Friday" in found.messages[2]["content"]
    assert found.status == "completed"
    assert await opened.loom.store.read(lambda tx: tx.effects(job.id)) == []


async def test_what_is_to_be_remembered_is_not_asked_again_in_this_job(house: Opener) -> None:
    opened = await house(writing("a.txt", "a.txt", "b.txt"))
    async with opened.inside():
        job = await opened.start(careful(opened))
        await job.decide(await opened.approval(job), "approve", remember="job")
        # The second request is for b.txt: a.txt was not asked for again.
        await job.decide(await opened.approval(job, 1), "approve")
        await account(opened.loom.store, job)
    summaries = [data["request"]["summary"] for data in of(await events(job), EventType.APPROVAL_REQUESTED)]
    assert len(summaries) == 2
    assert "a.txt" in summaries[0]
    assert "b.txt" in summaries[1]


async def test_a_second_decision_is_told_that_the_first_counts(house: Opener) -> None:
    opened = await house(calling("send"))
    async with opened.inside():
        job = await opened.start(opened.agent(permissions={"ask": ["send"]}), hold=True)
        approval = await opened.approval(job)
        await job.decide(approval, "approve", by="me")
        with pytest.raises(DecisionRefused, match="already decided") as caught:
            await job.decide(approval, "reject", by="you")
        assert caught.value.verdict == "already_decided"
        opened.release(job)
        assert (await account(opened.loom.store, job)).status == "completed"
    assert effects_of(opened.workdir(job)) == ["0/call_1_0 one"]


@pytest.mark.parametrize(
    ("on_expiry", "status", "effects"),
    [
        pytest.param("deny", "completed", [], id="deny"),
        pytest.param("allow", "completed", ["0/call_1_0 one"], id="allow"),
    ],
)
async def test_an_approval_that_nobody_decides_expires(
    house: Opener, on_expiry: str, status: str, effects: list[str]
) -> None:
    opened = await house(calling("send"))
    approvals = {"expires": "300ms", "on_expiry": on_expiry}
    async with opened.inside():
        job = await opened.start(opened.agent(permissions={"ask": ["send"]}, approvals=approvals))
        found = await account(opened.loom.store, job)
    assert found.status == status
    assert effects_of(opened.workdir(job)) == effects
    assert found.messages[2]["role"] == "tool"
    (decided,) = of(await events(job), EventType.APPROVAL_DECIDED)
    assert decided["choice"] == "expired"


@pytest.mark.parametrize("in_time", [pytest.param(True, id="in time"), pytest.param(False, id="too late")])
async def test_when_a_decision_was_sent_counts_and_not_when_a_worker_takes_it(house: Opener, in_time: bool) -> None:
    opened = await house(calling("send"))
    for seconds in longer(2.0):
        agent = opened.agent(permissions={"ask": ["send"]}, approvals={"expires": f"{seconds:g}s"})
        async with opened.inside():
            job = await opened.start(agent)
            approval = await opened.approval(job)
        (request,) = of(await events(job), EventType.APPROVAL_REQUESTED)
        decision = {"approval_id": approval, "choice": "approve", "by": "me"}
        if in_time:
            await job.handle.signal("loom.decision", decision)
        if time.time() < request["expires_at"]:  # nobody is at work now, and it has not expired before
            break
    await eventually(lambda: time.time() > request["expires_at"] + 0.3)
    if not in_time:
        await job.handle.signal("loom.decision", decision)
    async with opened.inside():
        found = await account(opened.loom.store, job)
    told = await events(job)
    assert [data["choice"] for data in of(told, EventType.APPROVAL_DECIDED)] == ["approve" if in_time else "expired"]
    assert effects_of(opened.workdir(job)) == (["0/call_1_0 one"] if in_time else [])
    assert found.status == "completed"
    late = [data for data in of(told, EventType.WARNING) if data.get("verdict") == "expired"]
    assert len(late) == (0 if in_time else 1)


async def test_an_answer_in_the_tools_place_is_what_the_model_reads(house: Opener) -> None:
    opened = await house(calling("send"))
    job, found = await ask_and_decide(
        opened, opened.agent(permissions={"ask": ["send"]}), choice="respond", message="It was sent by hand."
    )
    assert effects_of(opened.workdir(job)) == []
    assert found.messages[2]["content"] == "It was sent by hand."
    (result,) = of(await events(job), EventType.TOOL_RESULT)
    assert result["status"] == "success"
    (row,) = await opened.loom.approvals(job.id, status=None)
    assert row.status == "answered"


async def test_who_decides_may_end_the_job_and_the_conversation_stays_legal(house: Opener) -> None:
    opened = await house(calling("send"))
    job, found = await ask_and_decide(
        opened, opened.agent(permissions={"ask": ["send"]}), choice="terminate", message="not tonight"
    )
    assert found.status == "aborted"
    assert effects_of(opened.workdir(job)) == []
    assert [message["role"] for message in found.messages] == ["user", "assistant", "tool"]
    assert (await opened.loom.approvals(job.id, status=None))[0].status == "terminated"


async def test_a_halted_job_is_picked_up_by_a_decision_after_its_worker_was_gone(house: Opener) -> None:
    opened = await house(calling("send"))
    agent = opened.agent(permissions={"ask": ["send"]}, approvals={"expires": "300ms", "on_expiry": "halt"})

    async def halted(job: Job) -> bool:
        row = await opened.loom.store.read(lambda tx: tx.job(job.id))
        return bool(row and row["halted"])

    async with opened.inside():
        job = await opened.start(agent)
        approval = await opened.approval(job)
        await eventually(lambda: halted(job))
    async with opened.inside():
        await job.decide(approval, "approve", by="me")
        found = await account(opened.loom.store, job)
    assert found.status == "completed"
    assert effects_of(opened.workdir(job)) == ["0/call_1_0 one"]
    assert not await halted(job)


async def test_a_quorum_of_approvers_decides_by_update_and_signal_and_refusals_have_names(house: Opener) -> None:
    opened = await house(calling("send"))
    policy = {"approvers": ["ann", "bob"], "quorum": 2, "four_eyes": True}
    async with opened.inside():
        job = await opened.start(opened.agent(permissions={"ask": ["send"]}, approvals=policy), by="bob")
        approval = await opened.approval(job)
        for by, digest, verdict in (
            ("eve", "", "not_allowed"),
            ("bob", "", "not_allowed"),
            ("ann", "0" * 64, "wrong_digest"),
        ):
            with pytest.raises(DecisionRefused) as caught:
                await job.decide(approval, "approve", by=by, digest=digest)
            assert caught.value.verdict == verdict
        assert (await job.decide(approval, "approve", by="ann")).message == "approve recorded: 1 of 2 (ann)"
        (row,) = await opened.loom.approvals(job.id)
        assert row.policy == {"approvers": ["ann", "bob"], "quorum": 2, "four_eyes": True}
        # Nobody else is left who may: the one who started it can only be told so.
        await job.handle.signal("loom.decision", {"approval_id": approval, "choice": "approve", "by": "bob"})
        await job.decide(approval, "reject", by="ann", message="alone")
        found = await account(opened.loom.store, job)
    assert found.status == "completed"
    assert effects_of(opened.workdir(job)) == []
    refused = [data["verdict"] for data in of(await events(job), EventType.WARNING) if data["code"] == "signal_refused"]
    assert refused == ["not_allowed", "not_allowed", "wrong_digest", "not_allowed"]


async def test_a_rule_that_is_kept_holds_in_later_jobs_here_until_it_is_taken_back(house: Opener) -> None:
    opened = await house(writing("a.txt"))
    agent, workdir = careful(opened), opened.folder / "project"
    elsewhere = opened.folder / "elsewhere"
    workdir.mkdir()
    elsewhere.mkdir()
    async with opened.inside():

        async def has_asked_or_ended(job: Job, ended: "asyncio.Task[Any]") -> bool:
            return ended.done() or bool(of(await events(job), EventType.APPROVAL_REQUESTED))

        async def asks(place: Any, remember: str = "no") -> bool:
            job = await opened.loom.start(agent, "do it", workdir=place)
            opened.workdirs[job.id] = place
            ended = asyncio.create_task(account(opened.loom.store, job))
            await eventually(lambda: has_asked_or_ended(job, ended))
            asked = not ended.done() and bool(of(await events(job), EventType.APPROVAL_REQUESTED))
            if asked:
                await job.decide(await opened.approval(job), "approve", by="ann", remember=remember)
            assert (await ended).status == "completed"
            return asked

        assert await asks(workdir, "rule")
        (rule,) = await opened.loom.store.read(lambda tx: tx.all_rules())
        assert (rule.rule, rule.agent, rule.workdir, rule.kept_by) == (
            "write_file(a.txt)", "tester", str(workdir), "ann",
        )  # fmt: skip
        assert not await asks(workdir)
        assert await asks(elsewhere)
        assert await opened.loom.store.write(lambda tx: tx.revoke_rule(rule.id, "bob"))
        assert await asks(workdir)
