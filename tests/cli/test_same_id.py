"""One id, two stores: a job is never taken for another one that only has its id."""

import json
import time
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.client import Client

from loom_client.client import ORIGIN
from loom_client.connection import connect
from loom_client.settings import Settings
from loom_dsl.agent import load_agent
from loom_dsl.compile import compile_agent
from loom_dsl.errors import ConflictError, JobExists
from tests.cli.conftest import House
from tests.support.waiting import eventually

pytestmark = pytest.mark.server


def start(house: House, agent: str, workdir: str, *more: str) -> tuple[str, ...]:
    return ("run", agent, "do it", "--workdir", workdir, "--detach", *more)


def test_the_same_job_started_twice_from_one_store_is_one_job(house: House) -> None:
    same = start(house, house.agent("writer"), house.workdir(), "--job", "once")
    for _ in range(2):
        said = house.loom(*same)
        assert (said.code, said.out) == (0, "once\n"), said
    (approval,) = house.pending("once")
    assert house.loom("approve", "once", approval["id"]).code == 0
    assert house.loom("wait", "once").code == 0
    assert "job 'once' has ended (completed)" in house.loom(*same).err


async def test_the_origin_goes_along_through_every_turn(house: House) -> None:
    agent, workdir = house.agent("steered"), house.workdir()
    assert house.loom(*start(house, agent, workdir, "--job", "turning")).code == 0
    handle = (await Client.connect(house.address)).get_workflow_handle("turning")
    first = (await handle.describe()).run_id

    async def moved_on() -> str:
        latest = (await handle.describe()).run_id
        return latest if latest != first else ""

    latest: str = await eventually(moved_on)
    assert latest
    assert ORIGIN in await (await handle.describe()).memo()
    again = house.loom(*start(house, agent, workdir, "--job", "turning"))
    assert (again.code, again.out) == (0, "turning\n"), again
    assert house.loom("abort", "turning").code == 0


def test_an_id_that_runs_for_another_store_is_refused_and_nothing_is_written(house: House, tmp_path: Path) -> None:
    agent, workdir, other = house.agent("writer"), house.workdir(), str(tmp_path / "other.db")
    assert house.loom(*start(house, agent, workdir, "--job", "theirs")).code == 0
    (approval,) = house.pending("theirs")
    said = house.loom(*start(house, agent, workdir, "--job", "theirs", "--store", other))
    assert (said.code, said.out) == (2, ""), said
    assert "job 'theirs' runs on the server already, and it is not this store's" in said.err
    assert said.err.count("\n") == 1
    assert house.loom("jobs", "--store", other).out == "no jobs\n"
    assert house.loom("approve", "theirs", approval["id"]).code == 0
    assert house.loom("wait", "theirs").code == 0
    ended = house.loom(*start(house, agent, workdir, "--job", "theirs", "--store", other))
    assert (ended.code, "has ended on the server; take another id" in ended.err) == (2, True), ended


async def test_an_id_that_was_taken_after_a_client_wrote_its_job_down_ends_that_job(
    house: House, tmp_path: Path
) -> None:
    fields = {"loom": 1, "kind": "agent", "name": "scribe", "model": "calm:any"}
    agent = load_agent(json.dumps(fields), "agent.yaml", {})
    settings = Settings(address=house.address, task_queue="nobody", store=str(tmp_path / "own.db"))
    async with connect(settings) as own, connect(settings, store=str(tmp_path / "other.db")) as other:
        row = {"plan": compile_agent(agent).hash, "task": "do it", "workdir": str(tmp_path), "task_queue": "nobody"}
        # A client that dies between writing and starting leaves this.
        await own.store.write(
            lambda tx: tx.create_job(
                "quick", session="s-quick", agent="scribe", namespace="default", created_at=time.time(), **row
            )
        )
        theirs = await other.start(agent, "do it", workdir=tmp_path, job="quick")
        with pytest.raises(JobExists, match="it is not this store's"):
            await own.start(agent, "do it", workdir=tmp_path, job="quick")
        (ended,) = await own.jobs()
        assert (ended["status"], ended["result"]["error"]["code"]) == ("failed", "job_exists")
        with pytest.raises(ConflictError, match="has ended"):
            await own.start(agent, "do it", workdir=tmp_path, job="quick")
        await theirs.handle.terminate("the test ends")


async def test_an_id_of_a_workflow_that_is_not_looms_is_refused(house: House) -> None:
    client = await Client.connect(house.address)
    handle = await client.start_workflow(
        "theirs.entirely", id="foreign", task_queue="nobody", execution_timeout=timedelta(minutes=5)
    )
    said = house.loom(*start(house, house.agent("calm"), house.workdir(), "--job", "foreign"))
    assert (said.code, "another program; take another id" in said.err) == (2, True), said
    await handle.terminate("the test ends")
