"""One id, two stores: a job is never taken for another one that only has its id."""

import json
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.client import Client

from loom_client.connection import connect
from loom_client.settings import Settings
from loom_client.start.submission import ORIGIN
from loom_dsl.agent.definition import load_agent
from loom_dsl.errors import ConflictError, JobExists
from loom_dsl.graph.compiler import compile_agent
from tests.cli.conftest import House
from tests.support.waiting import eventually

pytestmark = pytest.mark.server


def start(house: House, agent: str, workdir: str, *more: str) -> tuple[str, ...]:
    return ("run", agent, "do it", "--workdir", workdir, "--detach", *more)


def test_the_same_job_started_twice_from_one_store_is_one_job(house: House, fresh: Callable[[str], str]) -> None:
    job = fresh("once")
    same = start(house, house.agent("writer"), house.workdir(), "--job", job)
    for _ in range(2):
        said = house.loom(*same)
        assert (said.code, said.out) == (0, f"{job}\n"), said
    (approval,) = house.pending(job)
    assert house.loom("approve", job, approval["id"]).code == 0
    assert house.loom("wait", job).code == 0
    assert f"job '{job}' has ended (completed)" in house.loom(*same).err


async def test_the_origin_goes_along_through_every_turn(house: House, fresh: Callable[[str], str]) -> None:
    job = fresh("turning")
    agent, workdir = house.agent("steered"), house.workdir()
    assert house.loom(*start(house, agent, workdir, "--job", job)).code == 0
    handle = (await Client.connect(house.address)).get_workflow_handle(job)
    first = (await handle.describe()).run_id

    async def moved_on() -> str:
        latest = (await handle.describe()).run_id
        return latest if latest != first else ""

    latest: str = await eventually(moved_on)
    assert latest
    assert ORIGIN in await (await handle.describe()).memo()
    again = house.loom(*start(house, agent, workdir, "--job", job))
    assert (again.code, again.out) == (0, f"{job}\n"), again
    assert house.loom("abort", job).code == 0


def test_an_id_that_runs_for_another_store_is_refused_and_nothing_is_written(
    house: House, tmp_path: Path, fresh: Callable[[str], str]
) -> None:
    job = fresh("theirs")
    agent, workdir, other = house.agent("writer"), house.workdir(), str(tmp_path / "other.db")
    assert house.loom(*start(house, agent, workdir, "--job", job)).code == 0
    (approval,) = house.pending(job)
    said = house.loom(*start(house, agent, workdir, "--job", job, "--store", other))
    assert (said.code, said.out) == (2, ""), said
    assert f"job '{job}' runs on the server already, and it is not this store's" in said.err
    assert said.err.count("\n") == 1
    assert house.loom("jobs", "--store", other).out == "no jobs\n"
    assert house.loom("approve", job, approval["id"]).code == 0
    assert house.loom("wait", job).code == 0
    ended = house.loom(*start(house, agent, workdir, "--job", job, "--store", other))
    assert (ended.code, "has ended on the server; take another id" in ended.err) == (2, True), ended


async def test_an_id_that_was_taken_after_a_client_wrote_its_job_down_ends_that_job(
    house: House, tmp_path: Path, fresh: Callable[[str], str]
) -> None:
    job = fresh("quick")
    fields = {"loom": 1, "kind": "agent", "name": "scribe", "model": "calm:any"}
    agent = load_agent(json.dumps(fields), "agent.yaml", {})
    settings = Settings(address=house.address, task_queue="nobody", store=str(tmp_path / "own.db"))
    async with connect(settings) as own, connect(settings, store=str(tmp_path / "other.db")) as other:
        row = {"plan": compile_agent(agent).hash, "task": "do it", "workdir": str(tmp_path), "task_queue": "nobody"}
        # A client that dies between writing and starting leaves this.
        await own.store.write(
            lambda tx: tx.create_job(
                job, session=f"s-{job}", agent="scribe", namespace="default", created_at=time.time(), **row
            )
        )
        theirs = await other.start(agent, "do it", workdir=tmp_path, job=job)
        with pytest.raises(JobExists, match="it is not this store's"):
            await own.start(agent, "do it", workdir=tmp_path, job=job)
        (ended,) = await own.jobs()
        assert (ended.status, ended.error and ended.error.code) == ("failed", "job_exists")
        with pytest.raises(ConflictError, match="has ended"):
            await own.start(agent, "do it", workdir=tmp_path, job=job)
        await theirs.handle.terminate("the test ends")


async def test_an_id_of_a_workflow_that_is_not_looms_is_refused(house: House, fresh: Callable[[str], str]) -> None:
    job = fresh("foreign")
    client = await Client.connect(house.address)
    handle = await client.start_workflow(
        "theirs.entirely", id=job, task_queue="nobody", execution_timeout=timedelta(minutes=5)
    )
    said = house.loom(*start(house, house.agent("calm"), house.workdir(), "--job", job))
    assert (said.code, "another program; take another id" in said.err) == (2, True), said
    await handle.terminate("the test ends")
