"""In a job: what was approved is done to the file that was shown, and to no other."""

import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from loom_cli.dev.server import DevServer
from loom_client.records import ApprovalRecord
from tests.failures.stand import Stand, standing
from tests.support.waiting import eventually

pytestmark = [pytest.mark.server, pytest.mark.asyncio(loop_scope="module")]


def edit(path: str, old: str, new: str) -> dict[str, Any]:
    return {"tool": "edit_file", "args": {"path": path, "old": old, "new": new}}


WRITE = {"tool": "write_file", "args": {"path": "f", "content": "new\n"}}
STEPS: dict[str, list[dict[str, Any]]] = {
    "stale": [{"calls": [WRITE]}, {"calls": [WRITE]}, {"say": "done"}],
    "pair": [{"calls": [edit("f", "one", "1"), edit("f", "two", "2")]}, {"say": "done"}],
    "elsewhere": [{"calls": [WRITE]}, {"say": "done"}],
}
ASKING = {"tools": ("write_file", "edit_file"), "permissions": {}}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stand(dev_server: DevServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stand]:
    async with standing(dev_server, tmp_path_factory.mktemp("stale"), f"test-{uuid.uuid4().hex[:12]}", STEPS) as made:
        yield made


async def asked(stand: Stand, job: Any, count: int = 1) -> list[ApprovalRecord]:
    async def rows() -> list[ApprovalRecord]:
        found = await stand.loom.approvals(job.id)
        return found if len(found) == count else []

    found: list[ApprovalRecord] = await eventually(rows)
    return found


async def test_a_file_that_changed_since_it_was_shown_is_not_overwritten_and_the_next_call_asks_anew(
    stand: Stand,
) -> None:
    place = stand.place("stale")
    place.mkdir(exist_ok=True)
    (place / "f").write_text("new\n")  # so that the diff says that nothing changes
    job = await stand.start("stale", agent=ASKING)
    (first,) = await asked(stand, job)
    (place / "f").write_text("of somebody else\n")
    await job.decide(first.id, "approve", by="me")

    async def another() -> ApprovalRecord | None:
        rows = await stand.loom.approvals(job.id)
        return next((row for row in rows if row.id != first.id), None)

    second = await eventually(another)
    assert (place / "f").read_text() == "of somebody else\n"
    await job.decide(second.id, "approve", by="me")
    found = await stand.unharmed(job)
    assert "was changed after this call was shown to its approver" in found.tool(0)["content"]
    assert found.results()[0]["code"] == "approval_stale"
    assert (place / "f").read_text() == "new\n"


async def test_two_calls_of_a_turn_that_were_approved_together_both_change_the_file(stand: Stand) -> None:
    place = stand.place("pair")
    place.mkdir(exist_ok=True)
    (place / "f").write_text("one\ntwo\n")
    job = await stand.start("pair", agent=ASKING)
    for row in await asked(stand, job, 2):
        await job.decide(row.id, "approve", by="me")
    found = await stand.unharmed(job)
    assert [result.get("code", "") for result in found.results()] == ["", ""], found.messages
    assert (place / "f").read_text() == "1\n2\n"


async def test_an_approver_may_edit_what_is_written_but_not_over_what_was_not_shown(stand: Stand) -> None:
    place = stand.place("elsewhere")
    place.mkdir(exist_ok=True)
    (place / "f").write_text("shown\n")
    (place / "g").write_text("chosen by the approver\n")
    job = await stand.start("elsewhere", agent=ASKING)
    (row,) = await asked(stand, job)
    await job.decide(row.id, "edit", by="me", edited_arguments={"path": "g", "content": "other\n"})
    await stand.unharmed(job)
    assert ((place / "f").read_text(), (place / "g").read_text()) == ("shown\n", "other\n")
