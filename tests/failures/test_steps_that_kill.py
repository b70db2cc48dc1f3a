"""Steps whose users' code ends its process: the worker dies once, its other jobs live, and the step waits for a person.

The workers are real processes, and so are the deaths.
"""

import asyncio
import os
import signal
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from loom_cli.dev.server import DevServer
from loom_client.job import JobHandle
from loom_dsl.documents.document import load_document
from loom_dsl.documents.validation import validate_model
from loom_dsl.graph.graph import Graph
from loom_dsl.observe.events import EventType
from loom_store.queries.steps import Step
from tests.durability.reading import of
from tests.failures.stand import MODEL_KEY, Stand, standing
from tests.support.deadly_tools import DEATHS, GO
from tests.support.dying_process import seen
from tests.support.external import lines
from tests.support.waiting import eventually
from tests.support.worker_process import WorkerProcess

pytestmark = [pytest.mark.server, pytest.mark.crash]

MODULE = "tests.support.deadly_tools"
NAMES = ("die", "die_quickly", "crash", "die_writing", "hold", "look", "hang", "keyed")
AGENT = {"tools": [f"{MODULE}:{name}" for name in NAMES], "permissions": {"allow": list(NAMES)}}


def calling(name: str, **arguments: Any) -> list[dict[str, Any]]:
    """A model that makes one call and tells what came of it."""
    return [{"calls": [{"tool": name, "args": arguments or {"text": "x"}}]}, {"say": "It says: {last}"}]


class Supervised:
    """A worker that is started again each time it dies, as a supervisor does."""

    def __init__(self, worker: WorkerProcess) -> None:
        self.worker = worker

    async def run(self) -> None:
        """Start it again and again."""
        while True:
            await self.worker.ended()
            await self.worker.start()


@asynccontextmanager
async def supervised(
    server: DevServer, folder: Path, cases: Mapping[str, list[dict[str, Any]]], **rules: float
) -> AsyncIterator[tuple[Stand, WorkerProcess]]:
    async with standing(server, folder, f"test-{uuid.uuid4().hex[:12]}", cases, serve=False) as stand:
        environment = {"OPENAI_API_KEY": MODEL_KEY}
        rules = {"young": 0.0, **rules}  # these workers die soon after their start
        settings = stand.loom.settings
        made = WorkerProcess(settings, stand.url, folder, environment, tools=(MODULE,), deaths=rules, grace=1.0)
        async with made as worker:
            running = asyncio.create_task(Supervised(worker).run())
            try:
                yield stand, worker
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)


async def suspicions(job: JobHandle) -> list[dict[str, Any]]:
    told = [event async for event in job.events(follow=False)]
    return [data for data in of(told, EventType.WARNING) if data["code"] == "step_suspected"]


async def killed(job: JobHandle, deaths: int = 3) -> list[dict[str, Any]]:
    """Wait until a step of the job has been told to have killed so many processes; all that was told of suspicions."""
    await eventually(lambda: has_killed(job, deaths), every=0.1)
    return await suspicions(job)


async def has_killed(job: JobHandle, deaths: int) -> bool:
    found = await suspicions(job)
    return bool(found) and found[-1]["deaths"] == deaths


async def under_way(stand: Stand) -> list[Step]:
    return await stand.loom.store.read(lambda tx: tx.steps_under_way())


async def ended(stand: Stand) -> bool:
    return not await under_way(stand)


async def at_work(stand: Stand, worker: WorkerProcess) -> str:
    """The name of this very process once it has begun steps."""
    names = (step.process or "" for step in await under_way(stand))
    return next((name for name in names if f" {worker.pid} " in name), "")


async def young(stand: Stand, worker: WorkerProcess) -> None:
    """Wait until a worker has begun steps, and see that it is written down when it began."""
    process = await eventually(lambda: at_work(stand, worker))
    await stand.loom.store.write(lambda tx: tx.worker_seen(process) or seen(tx, process, 1.0))


async def held_by(stand: Stand, count: int) -> bool:
    """Whether so many tools are at work."""
    return sum("/execute" in step.key for step in await under_way(stand)) == count


def deaths(stand: Stand, name: str) -> list[str]:
    return lines(stand.place(name), DEATHS)


async def test_a_tool_kills_its_worker_once_and_the_other_jobs_live(dev_server: DevServer, tmp_path: Path) -> None:
    others = [f"other-{number}" for number in range(5)]
    cases = {"killer": calling("die"), **{name: calling("hold") for name in others}}
    async with supervised(dev_server, tmp_path, cases) as (stand, worker):
        job = await stand.start("killer", agent=AGENT)
        await eventually(lambda: deaths(stand, "killer") and worker.starts == 2)  # noted just before the process ends
        for name in others:
            stand.begin(name, agent=AGENT)
        found = await killed(job)
        assert len(deaths(stand, "killer")) == 3
        assert [each["deaths"] for each in found] == [1, 2, 3]
        assert "a worker died while it had only this step (1 of 3)" in found[0]["message"]
        assert f"{MODULE}:die ended its process: it ended with exit status 7" in found[1]["message"]
        assert "the library gives up on x" in found[1]["message"]
        assert "this step killed 3 processes" in found[2]["message"]
        (tmp_path / GO).touch()
        ended = [await stand.jobs[name] for name in others]
        assert {each.result.status for each in ended} == {"completed"}
        assert worker.starts == 2
        assert not any([await suspicions(each.job) for each in ended])
        (step,) = await stand.halted(job)
        assert (step["cause"], step["at"]) == ("kills_worker", "calls#1[0]/execute#1")
        assert f"{MODULE}:die ended its process" in step["message"]
        assert "mend it" in step["action"]
        await job.resume(by="ops")
        await eventually(lambda: len(deaths(stand, "killer")) == 6)
        await stand.halted(job)
        await job.abort(by="ops")
        assert (await job.result()).status == "aborted"


async def test_with_other_steps_beside_it_a_killer_is_a_suspect_first(dev_server: DevServer, tmp_path: Path) -> None:
    others = [f"other-{number}" for number in range(3)]
    cases = {"killer": calling("crash"), **{name: calling("hold") for name in others}}
    async with supervised(dev_server, tmp_path, cases) as (stand, worker):
        for name in others:
            stand.begin(name, agent=AGENT)
        await eventually(lambda: held_by(stand, len(others)))
        job = await stand.start("killer", agent=AGENT)
        found = await killed(job)
        assert [(each["deaths"], each["suspected"]) for each in found] == [(0, 1), (1, 1), (2, 1), (3, 1)]
        assert "3 other steps" in found[0]["message"]
        assert "SIGSEGV" in found[-1]["message"]
        assert len(deaths(stand, "killer")) == 4
        (tmp_path / GO).touch()
        ended = [await stand.jobs[name] for name in others]
        assert {each.result.status for each in ended} == {"completed"}
        assert [len(await suspicions(each.job)) for each in ended] == [1, 1, 1]
        assert worker.starts == 2


@pytest.mark.parametrize(
    ("name", "agent"),
    [
        ("die_quickly", {}),
        pytest.param("look", {"hooks": {"before_authorize": f"{MODULE}:kill_before"}}, marks=pytest.mark.nightly),
        pytest.param("look", {"hooks": {"before_execute": f"{MODULE}:kill_before"}}, marks=pytest.mark.nightly),
        pytest.param("look", {"hooks": {"after_format": f"{MODULE}:kill_before"}}, marks=pytest.mark.nightly),
    ],
)
async def test_what_kills_in_a_light_stage_kills_one_worker(
    dev_server: DevServer, tmp_path: Path, name: str, agent: dict[str, Any]
) -> None:
    async with supervised(dev_server, tmp_path, {"killer": calling(name), "other": calling("look")}) as (stand, worker):
        job = await stand.start("killer", agent={**AGENT, **agent})
        await killed(job)
        assert len(deaths(stand, "killer")) == 3
        stand.begin("other", agent=AGENT)
        assert (await stand.jobs["other"]).result.status == "completed"
        assert worker.starts == 2


async def test_a_concurrency_key_that_kills_halts_the_step_of_the_model(dev_server: DevServer, tmp_path: Path) -> None:
    cases = {"killer": calling("keyed", folder=str(tmp_path / "killer"))}
    async with supervised(dev_server, tmp_path, cases, most=2) as (stand, worker):
        job = await stand.start("killer", agent=AGENT)
        found = await killed(job, 2)
        assert f"`concurrency_key` of {MODULE}:keyed ended its process" in found[-1]["message"]
        assert worker.starts == 2


async def test_what_may_have_changed_something_is_not_run_again(dev_server: DevServer, tmp_path: Path) -> None:
    async with supervised(dev_server, tmp_path, {"killer": calling("die_writing")}) as (stand, worker):
        stand.begin("killer", agent=AGENT)
        found = await stand.jobs["killer"]
        assert found.result.status == "completed"
        assert found.tool()["content"].startswith("Error (outcome_unknown): ")
        assert len(deaths(stand, "killer")) == 1
        assert worker.starts == 2


async def test_a_clean_stop_is_no_death(dev_server: DevServer, tmp_path: Path) -> None:
    async with supervised(dev_server, tmp_path, {"held": calling("hold")}) as (stand, worker):
        job = await stand.start("held", agent=AGENT)
        await eventually(lambda: held_by(stand, 1))
        worker.stop()
        await eventually(lambda: worker.starts == 2)
        (tmp_path / GO).touch()
        assert (await job.result()).status == "completed"
        assert await suspicions(job) == []
        await eventually(lambda: ended(stand))


@pytest.mark.nightly
async def test_no_innocent_job_is_halted_when_workers_are_killed(dev_server: DevServer, tmp_path: Path) -> None:
    names = [f"job-{number}" for number in range(20)]
    steps = [{"calls": [{"tool": "look", "args": {"text": str(turn)}}]} for turn in range(2)]
    cases = {name: [*steps, {"say": "done"}] for name in names}
    async with supervised(dev_server, tmp_path, cases, young=3_600.0) as (stand, worker):
        for name in names:
            stand.begin(name, agent=AGENT)
        for kills in range(6):
            await young(stand, worker)
            os.kill(worker.pid, signal.SIGKILL)
            await eventually(lambda started=kills + 2: worker.starts == started)
        ended = [await stand.jobs[name] for name in names]
        assert {each.result.status for each in ended} == {"completed"}
        assert {told["deaths"] for each in ended for told in await suspicions(each.job)} <= {0}


GRAPH = """
loom: 1
kind: graph
name: deadly
start: kill
nodes:
  kill:
    activity: tests.support.deadly_tools:kill_function
    retry: {attempts: 1}
    with: {folder: FOLDER}
    next: done
  done: {end: true}
"""


async def test_a_suspected_function_of_a_graph_kills_no_worker(dev_server: DevServer, tmp_path: Path) -> None:
    graph = validate_model(load_document(GRAPH.replace("FOLDER", str(tmp_path)), "test", kinds=("graph",)), Graph)
    async with standing(dev_server, tmp_path, f"test-{uuid.uuid4().hex[:12]}", {}, serve=False) as stand:
        job = await stand.loom.start_graph(graph, workdir=tmp_path)
        suspect = Step(job.id, f"{job.id}/0/kill#1", None, 1, 0, 1)
        await stand.loom.store.write(lambda tx: tx.mark_step(suspect))
        async with WorkerProcess(stand.loom.settings, stand.url, tmp_path, tools=(MODULE,)) as worker:
            pid = worker.pid
            found = await killed(job)
            assert f"{MODULE}:kill_function ended its process" in found[-1]["message"]
            assert len(lines(tmp_path, DEATHS)) == 3
            assert worker.pid == pid
