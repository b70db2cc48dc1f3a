"""What the desk of a gateway does where two things happen at once, and where nothing is as it should be."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from temporalio.client import Client

from loom_client.client import Loom
from loom_client.job import Job
from loom_client.settings import Settings
from loom_dsl.errors import ConflictError
from loom_dsl.permissions.roles import Role
from loom_gateway.schemas import JobBody
from loom_gateway.service import Service
from loom_gateway.starts import StartPolicy
from loom_store.rows import ApprovalRow
from loom_store.store import Store

AGENT = "loom: 1\nkind: agent\nname: calm\nmodel: fake:any\n"


class EndsMeanwhile(Loom):
    """A connection over which a job is found to have ended only when it is to be started again."""

    async def start(self, agent: Any, task: Any, **options: Any) -> Job:
        await self.store.write(lambda tx: tx.update_job(options["job"], status="completed", ended_at=time.time()))
        raise ConflictError(f"job {options['job']!r} has ended (completed); take another id")


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Service]:
    for name in ("agents", "work/reports"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "agents" / "calm.yaml").write_text(AGENT)
    with Store.open(tmp_path / "loom.db") as store:
        loom = EndsMeanwhile(cast(Client, None), store, Settings())
        roles = {"all": Role(who=("ann",), start=("*",), directories=("*",))}
        yield Service(loom, roles, grounds=StartPolicy(tmp_path / "agents", tmp_path / "work"))


@pytest.mark.parametrize(("task", "same"), [("look", True), ("look elsewhere", False)])
async def test_the_same_request_is_the_same_job_also_when_that_ends_just_then(
    desk: Service, tmp_path: Path, task: str, same: bool
) -> None:
    await desk.loom.store.write(
        lambda tx: tx.create_job(
            "one",
            session="s-one",
            agent="calm",
            plan="",
            task="look",
            workdir=str(tmp_path / "work" / "reports"),
            namespace="default",
            task_queue="loom",
            created_at=time.time(),
        )
    )
    said = JobBody(agent="calm", task=task, job="one", directory="reports")
    if same:
        row, fresh = await desk.start("ann", said)
        assert (row["status"], fresh) == ("completed", False)
    else:
        with pytest.raises(ConflictError, match="take another id"):
            await desk.start("ann", said)


@pytest.mark.parametrize("content", [b"\xff", b"{", b"[" * 50_000])
async def test_a_question_that_names_no_arguments_is_shown_without(desk: Service, content: bytes) -> None:
    """A graph can put whatever a model said where the digest of arguments stands."""
    digest = await desk.loom.store.write(lambda tx: tx.put_blob(content))
    fields: dict[str, Any] = {"arguments_digest": digest, "details": {"preview": digest}}
    row = ApprovalRow(id="ap_1", job="one", tool="", summary="", created_at=1.0, **fields)
    await desk.loom.store.write(lambda tx: tx.upsert_approval(row))
    shown = await desk.approval("ap_1")
    assert (shown["content"], shown["arguments_digest"]) == (None, digest)
