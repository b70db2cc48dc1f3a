"""A worker that was started without the agent's tools leaves the job to one that has them, and says so."""

from pathlib import Path
from typing import Any

import pytest

from loom_cli.dev.server import DevServer
from loom_cli.required_action import why
from loom_client.connection import temporal
from loom_client.job import Job
from loom_client.records import ApprovalRecord
from loom_dsl.observe.events import EventType
from tests.durability.reading import events, histories, of, unheard_of
from tests.failures.stand import Stand, serving, standing
from tests.support.waiting import eventually

pytestmark = pytest.mark.server

STEPS: dict[str, list[dict[str, Any]]] = {
    "look": [{"calls": [{"tool": "look", "args": {"text": "x"}}]}, {"say": "It says: {last}"}]
}
LACKS = "does not list the module 'tests.failures.bad_tools' (it lists: none); start it with --tools tests.failures"


async def waits(stand: Stand, job: Job) -> None:
    """Wait until `loom show` says that the tools are missing."""

    async def said() -> bool:
        return LACKS in await why(stand.loom, job.id)

    found: bool = await eventually(said)
    assert found


async def asked(stand: Stand, job: Job) -> str:
    """Wait for the job's approval."""

    async def pending() -> list[ApprovalRecord]:
        return await stand.loom.approvals(job.id)

    rows: list[ApprovalRecord] = await eventually(pending)
    return rows[0].id


async def test_a_job_waits_for_a_worker_that_has_its_tools(
    dev_server: DevServer, tmp_path: Path, task_queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with standing(dev_server, tmp_path, task_queue, STEPS, serve=False) as stand:
        async with serving(stand, {}, modules=()):
            job = await stand.start("look", agent={"permissions": {"ask": ["look"]}})
            await waits(stand, job)
        assert [line for line in caplog.messages if LACKS in line and "the job waits for" in line]
        async with serving(stand, {}):
            approval = await asked(stand, job)
        async with serving(stand, {}, modules=()):
            await job.decide(approval, "approve", by="me")
            await waits(stand, job)
        another = await temporal(stand.loom.settings, stand.loom.store)
        async with serving(stand, {}, modules=()), serving(stand, {}, client=another):
            found = await stand.unharmed(job)
        told = of(await events(job), EventType.WARNING)
    assert found.result.status == "completed"
    assert found.tool()["content"] == "saw x"
    # Once a turn: in the second, it depends on who takes the work first.
    missing = [data["message"] for data in told if data["code"] == "missing_tools"]
    assert len(missing) in (1, 2)
    assert all(LACKS in message for message in missing)
    assert 2 <= stand.model.count <= 2 + unheard_of(await histories(stand.loom.client, job.id), "loom.model.call")


async def test_a_job_that_waits_for_its_tools_grows_no_history_and_goes_on_when_they_come(
    dev_server: DevServer, tmp_path: Path, task_queue: str
) -> None:
    async with standing(dev_server, tmp_path, task_queue, STEPS, serve=False) as stand:
        async with serving(stand, {}, modules=(), tools_delays=(0.05, 0.1)):
            job = await stand.start("look")
            await waits(stand, job)

            async def looked_again() -> bool:
                described = await job.handle.describe()
                return any(found.attempt > 5 for found in described.raw_description.pending_activities)

            assert await eventually(looked_again)
            (before,) = await histories(stand.loom.client, job.id)
            assert await eventually(looked_again)
            (after,) = await histories(stand.loom.client, job.id)
            assert len(before.events) == len(after.events)
        async with serving(stand, {}):
            assert (await stand.unharmed(job)).result.status == "completed"
