"""Several workers of a queue with different endpoints, and deliveries that somebody ended on the server."""

import logging

import pytest

from activities.webhooks.relay import SWEEP_SECONDS
from activities.webhooks.sender import Senders
from loom_dsl.observe.webhook_names import workflow_of
from tests.durability.conftest import Opener
from tests.durability.test_webhooks import (
    ASKS,
    ENVIRONMENT,
    approved,
    calling,
    heard,
    telling,
    waiting,
    waiting_is_over,
    written,
)
from tests.support.receiver import receiver
from tests.support.waiting import PATIENCE, eventually
from worker import delivering

pytestmark = pytest.mark.server


def said(log: pytest.LogCaptureFixture) -> list[str]:
    """What workers have said of endpoints that they do not have."""
    return [record.getMessage() for record in log.records if "leaves them to others" in record.getMessage()]


@pytest.mark.parametrize(
    ("has", "why"), [(("other",), "its webhooks have only other"), ((), "it has no --webhooks")], ids=["other", "none"]
)
async def test_messages_wait_for_a_worker_that_has_their_endpoint_and_others_say_once_that_they_have_not(
    house: Opener, caplog: pytest.LogCaptureFixture, has: tuple[str, ...], why: str
) -> None:
    opened, endpoint = await house(calling("send")), receiver()
    loom, queue = opened.loom, opened.settings.task_queue
    with endpoint.up():
        senders = Senders.load(written(opened.folder, endpoint.url), ENVIRONMENT)
        loom.store.subscribe(senders.endpoints, lambda job, endpoint: None)  # it died before it told anybody
        async with opened.inside():
            await approved(opened, await opened.start(opened.agent(**ASKS)))
        expected = [row.message for row in await waiting(opened)]
        assert len(expected) == 3

        caplog.set_level(logging.WARNING)
        named = [written(opened.folder, endpoint.url, name=name) for name in has]
        others = Senders.load(named[0], ENVIRONMENT) if named else Senders({})
        async with delivering(loom.client, loom.store, queue, others, {}):
            await eventually(lambda: len(said(caplog)) == 1)
            assert "messages for the endpoint chat wait" in said(caplog)[0]
            assert why in said(caplog)[0]
            async with telling(opened, endpoint.url):  # which has it
                await eventually(lambda: waiting_is_over(opened))
            assert len(said(caplog)) == 1
    assert [found.id for found in endpoint.taken] == expected
    assert not [found for found in endpoint.seen if found.status != 204]


async def test_a_delivery_that_was_ended_on_the_server_is_begun_again_by_the_next_sweep(house: Opener) -> None:
    opened, endpoint = await house(calling("send")), receiver()
    endpoint.status = lambda told: 500
    assert SWEEP_SECONDS < PATIENCE / 5
    with endpoint.up():
        async with telling(opened, endpoint.url):
            job = await opened.start(opened.agent(**ASKS))
            await eventually(lambda: bool(endpoint.seen))
            await opened.loom.client.get_workflow_handle(workflow_of(job.id, "chat")).terminate("by hand")
            endpoint.status = lambda told: 204
            await eventually(lambda: heard(endpoint.taken, job) == ["approval_requested"])
            await job.abort(by="ops")
            await eventually(lambda: waiting_is_over(opened))
