"""What endpoints are told: in order, signed, again until they take it, whatever dies; and no job waits for them."""

import asyncio
import base64
import hashlib
import hmac
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowFailureError
from temporalio.worker import Replayer

from activities.webhooks.sender import Senders
from loom_client.job import Job
from loom_dsl.observe.webhook_names import workflow_of
from loom_store.queries.deliveries import Delivery
from tests.durability.conftest import House, Opener
from tests.durability.test_worker_killed import calling
from tests.support.receiver import Received, receiver
from tests.support.waiting import PATIENCE, eventually
from tests.support.worker_process import WorkerProcess
from worker import delivering
from workflows.webhooks import WebhookWorkflow

pytestmark = pytest.mark.server
KEY = bytes(range(32))
ENVIRONMENT = {"HOOK": f"whsec_{base64.b64encode(KEY).decode()}"}
RETRY = {"attempts": 100, "first": "50ms", "factor": 1.3, "longest": "2s"}
"""Tries again soon, and for minutes: no message is given up while a slow machine gets to where it can be taken."""
ASKS = {"permissions": {"ask": ["send"]}}


def written(folder: Path, url: str, **fields: Any) -> Path:
    """Write a file with one endpoint."""
    file = folder / "webhooks.yaml"
    endpoint = {"name": "chat", "url": url, "secret": "HOOK", "retry": RETRY, "timeout": "60s", **fields}
    file.write_text(json.dumps({"loom": 1, "kind": "webhooks", "endpoints": [endpoint]}))
    return file


@asynccontextmanager
async def telling(house: House, url: str, **fields: Any) -> AsyncIterator[None]:
    """A worker in this process with one endpoint."""
    senders = Senders.load(written(house.folder, url, **fields), ENVIRONMENT)
    loom, queue = house.loom, house.settings.task_queue
    async with delivering(loom.client, loom.store, queue, senders, {}), house.inside():
        yield


def killable(house: House, url: str, **fields: Any) -> WorkerProcess:
    """A worker with one endpoint that can be killed."""
    file = written(house.folder, url, **fields)
    return WorkerProcess(house.settings, house.url, house.folder, ENVIRONMENT, webhooks=file)


async def waiting(house: House) -> list[Delivery]:
    return await house.loom.store.read(lambda tx: tx.deliveries())


async def approved(house: House, job: Job) -> str:
    """Approve what the job asks, and wait until it has ended; the approval."""
    approval = await house.approval(job)
    await job.decide(approval, "approve", by="ann", message="between you and me")
    await job.result()
    return approval


def verified(received: Received) -> bool:
    """Whether a message is signed as Standard Webhooks writes it, found out without anything of the sender's."""
    signed = f"{received.id}.{received.headers['webhook-timestamp']}.".encode() + received.body
    right = base64.b64encode(hmac.new(KEY, signed, hashlib.sha256).digest()).decode()
    fresh = abs(time.time() - int(received.headers["webhook-timestamp"])) < 300
    return fresh and f"v1,{right}" in received.headers["webhook-signature"].split(" ")


def told(received: Sequence[Received]) -> list[str]:
    return [found.told["type"] for found in received]


async def test_what_an_endpoint_missed_while_it_was_down_comes_in_order_and_each_once(house: Opener) -> None:
    opened, endpoint = await house(calling("send")), receiver()
    with endpoint.up():
        pass
    async with telling(opened, endpoint.url):
        job = await opened.start(opened.agent(**ASKS))
        approval = await approved(opened, job)
        expected = await waiting(opened)
        with endpoint.up():
            await eventually(lambda: len(endpoint.taken) == 3)
            await eventually(lambda: waiting_is_over(opened))

    kinds = ["approval_requested", "approval_decided", "job_completed"]
    assert [row.event for row in expected] == kinds == told(endpoint.taken)
    assert [found.id for found in endpoint.taken] == [row.message for row in expected]
    assert len({found.id for found in endpoint.taken}) == 3
    assert all(map(verified, endpoint.taken))
    asked, decided, ended = (found.told["data"] for found in endpoint.taken)
    assert asked["offset"] < decided["offset"] < ended["offset"]
    assert (asked["approval_id"], asked["agent"], asked["request"]["tool"]) == (approval, "tester", "send")
    assert asked["content"] == {"text": "one"}
    assert (decided["choice"], decided["by"]) == ("approve", "ann")
    assert "answer" not in json.dumps(ended)
    assert not [found for found in endpoint.taken if b"between you and me" in found.body or b"do it" in found.body]


async def remains(house: House, count: int) -> bool:
    return len(await waiting(house)) == count


async def waiting_is_over(house: House) -> bool:
    return await remains(house, 0)


async def test_what_is_refused_for_ever_is_a_dead_letter_until_somebody_has_it_tried_again(house: Opener) -> None:
    opened, endpoint = await house(calling("send")), receiver()
    refused = {"approval_requested"}
    endpoint.status = lambda told: 500 if told["type"] in refused else 200
    with endpoint.up():
        async with telling(opened, endpoint.url, retry={**RETRY, "attempts": 3}):
            job = await opened.start(opened.agent(**ASKS))
            await approved(opened, job)
            await eventually(lambda: told(endpoint.taken) == ["approval_decided", "job_completed"])
            await eventually(lambda: remains(opened, 1))
            (dead,) = await waiting(opened)
            assert (dead.event, dead.problem) == ("approval_requested", "chat answered 500")
            assert dead.died_at
            assert [found.id for found in endpoint.seen[:3]] == [dead.message] * 3
            assert len(endpoint.seen) == 5

            refused.clear()
            said = await asyncio.to_thread(command, opened, "webhooks", "retry", dead.message)
            assert said == "1 message to be delivered\n"
            await eventually(lambda: waiting_is_over(opened))
            delivery = opened.loom.client.get_workflow_handle(workflow_of(job.id, "chat"))
            await delivery.result()
    assert (endpoint.seen[-1].id, endpoint.seen[-1].status) == (dead.message, 200)
    history = await delivery.fetch_history()
    await Replayer(workflows=[WebhookWorkflow], debug_mode=True).replay_workflow(history)
    kept = b"".join(event.SerializeToString() for event in history.events)
    assert [text in kept for text in (b"chat", endpoint.url.encode(), b"send", b"ann")] == [True, False, False, False]


def command(house: House, *arguments: str) -> str:
    """Run a command of `loom`; what it prints."""
    settings = house.settings
    own = {"LOOM_ADDRESS": settings.address, "LOOM_STORE": str(settings.store), "COLUMNS": "300"}
    own |= {"LOOM_CONNECT_SECONDS": str(PATIENCE)}
    done = subprocess.run(
        [sys.executable, "-m", "loom_cli", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **own},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_an_endpoint_says_that_it_takes_nothing_more_and_is_not_asked_again(house: Opener) -> None:
    opened, endpoint = await house(calling("send")), receiver()
    endpoint.status = lambda told: 410
    with endpoint.up():
        async with telling(opened, endpoint.url, events=["approval_requested"]):
            job = await opened.start(opened.agent(**ASKS))
            await approved(opened, job)

            async def dead() -> bool:
                return bool([row for row in await waiting(opened) if row.died_at])

            await eventually(dead)
    assert len(endpoint.seen) == 1


async def test_a_worker_is_killed_while_an_endpoint_keeps_it_waiting_and_the_next_one_delivers(house: Opener) -> None:
    opened, endpoint = await house(calling("send")), receiver()
    endpoint.hold.clear()
    with endpoint.up():
        async with killable(opened, endpoint.url) as worker:
            job = await opened.start(opened.agent(**ASKS))
            approval = await opened.approval(job)
            await eventually(lambda: bool(endpoint.held))
            await job.decide(approval, "approve", by="ann")
            await job.result()  # which did not wait for the endpoint
            expected = await waiting(opened)
            worker.kill()
        endpoint.hold.set()
        async with telling(opened, endpoint.url):
            await eventually(lambda: waiting_is_over(opened))
    assert list(dict.fromkeys(found.id for found in endpoint.taken)) == [row.message for row in expected]
    assert heard(endpoint.taken, job)[-2:] == ["approval_decided", "job_completed"]


async def test_a_delivery_that_is_cancelled_on_the_server_gives_no_message_up(house: Opener) -> None:
    opened, endpoint = await house(calling("send")), receiver()
    endpoint.status = lambda told: 500
    with endpoint.up():
        async with telling(opened, endpoint.url):
            job = await opened.start(opened.agent(**ASKS))
            await eventually(lambda: bool(endpoint.seen))
            delivery = opened.loom.client.get_workflow_handle(workflow_of(job.id, "chat"))
            await delivery.cancel()
            with pytest.raises(WorkflowFailureError):
                await delivery.result()
            assert [(row.event, row.died_at) for row in await waiting(opened)] == [("approval_requested", None)]
            await job.abort(by="ops")


async def test_what_a_worker_wrote_down_before_it_died_is_found_by_the_next_one(house: Opener) -> None:
    opened, endpoint = await house(calling("send")), receiver()
    with endpoint.up():
        senders = Senders.load(written(opened.folder, endpoint.url), ENVIRONMENT)
        opened.loom.store.subscribe(senders.endpoints, lambda job, endpoint: None)  # it died before it told anybody
        async with opened.inside():
            job = await opened.start(opened.agent())
            await job.result()
        assert [row.event for row in await waiting(opened)] == ["job_completed"]
        assert not endpoint.seen
        loom, queue = opened.loom, opened.settings.task_queue
        async with delivering(loom.client, loom.store, queue, senders, {}):
            await eventually(lambda: waiting_is_over(opened))
    assert told(endpoint.taken) == ["job_completed"]


async def test_a_job_that_fails_says_why_and_only_those_are_told_who_asked_for_it(house: Opener) -> None:
    opened, endpoint = await house([{"fail": {"status": 400}}]), receiver()
    with endpoint.up():
        async with telling(opened, endpoint.url, events=["job_failed"], agents=["tester"]):
            job = await opened.start(opened.agent())
            other = await opened.start(opened.agent(name="other"))
            for begun in (job, other):
                assert (await begun.result()).status == "failed"
            await eventually(lambda: len(endpoint.taken) == 1)
            await eventually(lambda: waiting_is_over(opened))
    (found,) = endpoint.taken
    assert (found.told["type"], found.told["data"]["job"]) == ("job_failed", job.id)
    assert found.told["data"]["error"] == "model_refused"


async def test_who_is_reminded_and_that_nobody_answered_is_told(house: Opener) -> None:
    opened, endpoint = await house(calling("send")), receiver()
    with endpoint.up():
        async with telling(opened, endpoint.url):
            approvals = {"remind": "1s", "approvers": ["ann"]}
            reminded = await opened.start(opened.agent(**ASKS, approvals=approvals))
            late = await opened.start(opened.agent(**ASKS, approvals={"expires": "1s", "approvers": ["ann"]}))
            await eventually(lambda: "approval_reminded" in heard(endpoint.taken, reminded))
            await reminded.abort(by="ops")
            await eventually(lambda: heard(endpoint.taken, late)[-1:] == ["job_completed"])
    assert heard(endpoint.taken, reminded)[:2] == ["approval_requested", "approval_reminded"]
    assert heard(endpoint.taken, late) == ["approval_requested", "approval_expired", "job_completed"]
    asking = [found.told["data"] for found in endpoint.taken if found.told["type"].endswith(("requested", "reminded"))]
    assert {tuple(data["to"]) for data in asking} == {("ann",)}


def heard(received: Sequence[Received], job: Job) -> list[str]:
    """What was told of a job, in the order in which it came first."""
    messages = {found.id: found.told["type"] for found in received if found.told["data"]["job"] == job.id}
    return list(messages.values())


@pytest.mark.nightly
@pytest.mark.crash
async def test_whatever_is_killed_each_job_is_told_of_in_order_and_nothing_is_missing(house: Opener) -> None:
    opened, endpoint = await house(calling("send")), receiver()
    refusals = itertools.cycle([500, 204, 204])
    endpoint.status = lambda told: next(refusals)
    with endpoint.up():
        async with killable(opened, endpoint.url) as worker:
            jobs = [await opened.start(opened.agent(**ASKS)) for _ in range(8)]
            ends = [asyncio.create_task(approved(opened, job)) for job in jobs]
            for pause in (0.5, 1.0, 1.5, 2.0):
                await asyncio.sleep(pause)
                worker.kill()
                await worker.start()
            await asyncio.gather(*ends)
            await eventually(lambda: waiting_is_over(opened))
    for job in jobs:
        assert heard(endpoint.taken, job) == ["approval_requested", "approval_decided", "job_completed"]
