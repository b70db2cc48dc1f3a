"""Whatever strangers send: no workflow task fails, each refusal is told, and the job goes on."""

from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.common import RawValue

from loom_dsl.observe.events import EventType
from tests.durability.conftest import Opener
from tests.durability.reading import account, effects_of, events, failed_tasks, histories, of
from tests.durability.test_worker_killed import calling
from tests.support.waiting import eventually

pytestmark = pytest.mark.server


def raw(data: bytes, encoding: bytes = b"json/plain") -> RawValue:
    """A payload with exactly these bytes."""
    return RawValue(Payload(metadata={"encoding": encoding}, data=data))


NESTED = b"[" * 50_000 + b"]" * 50_000
DEEP = b'{"approval_id":"x","choice":"edit","edited_arguments":' + b'{"a":' * 600 + b"1" + b"}" * 600 + b"}"
LONG = b'{"op":"inject","text":"' + b"x" * (2 * 1024 * 1024 - 2_000) + b'"}'
SHAPES: list[tuple[str, list[Any]]] = [
    ("no argument", []),
    ("two arguments", [{"approval_id": "x", "choice": "approve"}, 2]),
    ("null", [None]),
    ("a number", [7]),
    ("a text", ["approve"]),
    ("a list", [[{"approval_id": "x"}]]),
    ("no fields", [{}]),
    ("wrong types", [{"approval_id": 1, "choice": True}]),
    ("an unknown field", [{"approval_id": "x", "choice": "approve", "surprise": 1}]),
    ("an unknown approval", [{"approval_id": "ap_none", "choice": "approve"}]),
    ("an unknown operation", [{"op": "explode"}]),
    ("an inject of nothing", [{"op": "inject", "id": "empty"}]),
    ("not JSON", [raw(b"{nothing")]),
    ("not UTF-8", [raw(b'{"op":"\xff"}')]),
    ("a lone surrogate", [raw(b'{"op":"inject","text":"\\ud800"}')]),
    ("NaN", [raw(b'{"approval_id":"x","choice":"edit","edited_arguments":{"a":NaN}}')]),
    ("infinity", [raw(b'{"approval_id":"x","choice":"edit","edited_arguments":{"a":1e999}}')]),
    ("a very long number", [raw(b'{"op":' + b"9" * 6_000 + b"}")]),
    ("huge nesting", [raw(NESTED)]),
    ("deep arguments", [raw(DEEP)]),
    ("nearly 2 MB", [raw(LONG)]),
    ("no encoding", [RawValue(Payload(data=b"{}"))]),
    ("another encoding", [raw(b"\x00\x01", b"binary/protobuf")]),
    ("an encoding that is no text", [raw(b"{}", b"\xff\xfe")]),
    ("an encrypted payload", [raw(b"\x00", b"binary/encrypted")]),
    ("a plan's claim that is none", [raw(b"nothing", b"loom/plan-claim")]),
    ("a claim of a plan that nobody has", [raw(b'{"plan":"' + b"0" * 64 + b'"}', b"loom/plan-claim")]),
    ("a plan", [raw(b"{}", b"json/loom-plan")]),
]


@pytest.mark.parametrize("name", ["loom.decision", "loom.control"])
async def test_no_signal_breaks_a_job_or_gets_lost(house: Opener, name: str) -> None:
    opened = await house(calling("send"))
    stranger = await Client.connect(opened.settings.address)
    async with opened.inside():
        job = await opened.start(opened.agent(permissions={"ask": ["send"]}))
        approval = await opened.approval(job)
        for number, (_, arguments) in enumerate(SHAPES, 1):
            await stranger.get_workflow_handle(job.id).signal(name, args=arguments)

            async def refused(wanted: int = number) -> bool:
                return len(of(await events(job), EventType.WARNING)) == wanted

            await eventually(refused)
        await job.decide(approval, "approve", by="me")
        found = await account(opened.loom.store, job)
    assert found.status == "completed"
    assert effects_of(opened.workdir(job)) == ["0/call_1_0 one"]
    warnings = of(await events(job), EventType.WARNING)
    assert {(data["code"], data["signal"]) for data in warnings} == {("signal_refused", name)}
    assert all(data["message"] for data in warnings)
    assert failed_tasks(await histories(opened.loom.client, job.id)) == []


@pytest.mark.parametrize("name", ["unknown", "loom.status", "__temporal_x", "loom.decision ", "x" * 900, "\u0000 ☃"])
async def test_a_signal_of_an_unknown_name_is_told(house: Opener, name: str) -> None:
    opened = await house(calling("send"))
    async with opened.inside():
        job = await opened.start(opened.agent(permissions={"ask": ["send"]}))
        approval = await opened.approval(job)
        await job.handle.signal(name, {"approval_id": approval, "choice": "approve"})
        await job.decide(approval, "approve", by="me")
        assert (await account(opened.loom.store, job)).status == "completed"
    (warning,) = of(await events(job), EventType.WARNING)
    assert warning["code"] == "signal_refused"
    assert failed_tasks(await histories(opened.loom.client, job.id)) == []


@pytest.mark.parametrize("name", ["loom.decide", "loom.steer", "unknown"])
async def test_every_update_is_answered(house: Opener, name: str) -> None:
    opened = await house(calling("send"))
    stranger = await Client.connect(opened.settings.address)
    answers = {}
    async with opened.inside():
        job = await opened.start(opened.agent(permissions={"ask": ["send"]}))
        approval = await opened.approval(job)
        for what, arguments in SHAPES:
            answers[what] = await stranger.get_workflow_handle(job.id).execute_update(name, args=arguments)
        await job.decide(approval, "approve", by="me")
        assert (await account(opened.loom.store, job)).status == "completed"
    assert {answer["verdict"] for answer in answers.values()} <= {"invalid", "unknown"}
    assert all(answer["message"] for answer in answers.values())
    assert failed_tasks(await histories(opened.loom.client, job.id)) == []


async def test_a_message_whose_text_nobody_stored_is_told_and_ends_no_job(house: Opener) -> None:
    opened = await house(calling("send"))
    stranger = await Client.connect(opened.settings.address)
    async with opened.inside():
        job = await opened.start(opened.agent(permissions={"ask": ["send"]}))
        approval = await opened.approval(job)
        handle = stranger.get_workflow_handle(job.id)
        await handle.signal("loom.control", {"op": "inject", "ref": "ab" * 32})
        await job.inject("and be quick")
        await job.decide(approval, "approve", by="me")
        assert (await account(opened.loom.store, job)).status == "completed"
    told = of(await events(job), EventType.WARNING)
    assert [data["code"] for data in told] == ["not_delivered"]
    assert "ab" * 32 in told[0]["message"]
    entries = await opened.loom.store.read(lambda tx: tx.read_entries((tx.job(job.id) or {})["session"]))
    assert [entry.head["role"] for entry in entries if entry.kind == "message"].count("user") == 2
