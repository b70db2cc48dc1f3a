"""The model is away, and workers come and go: no job is lost by it, and each says what it waits for."""

from contextlib import AsyncExitStack
from typing import Any

import pytest

from loom_cli.dev.fake_model.server import running
from loom_client.job import Job
from loom_dsl.observe.events import EventType
from tests.durability.conftest import House, Opener
from tests.durability.reading import events, histories, of, unheard_of
from tests.support.ports import own_port
from tests.support.waiting import eventually

pytestmark = [pytest.mark.server, pytest.mark.crash]

SAYS: list[dict[str, Any]] = [{"say": "well"}]


class Endpoint:
    """A model at one address, which can go away and come back."""

    def __init__(self, house: House) -> None:
        self._house, self._up = house, AsyncExitStack()
        self.port = own_port()  # which the system gives to nobody else while this one is away
        self.url = f"http://127.0.0.1:{self.port}/v1"

    async def up(self) -> None:
        """Begin to answer."""
        await self._up.enter_async_context(running(self._house.model, port=self.port))

    async def down(self) -> None:
        """Refuse connections, and cut those that are open."""
        await self._up.aclose()
        self._up = AsyncExitStack()


def told(kind: EventType, found: list[Any]) -> list[dict[str, Any]]:
    """What events of a kind say."""
    return of(found, kind)


async def waits_for(house: House, job: Job, tries: int = 1) -> dict[str, Any]:
    """Wait until lists show that a job waits for its model, after so many tries."""

    async def waiting() -> list[dict[str, Any]]:
        row = await house.loom.store.read(lambda tx: tx.job(job.id))
        steps = (row or {}).get("waiting") or []
        return steps if steps and steps[0]["tries"] >= tries else []

    steps: list[dict[str, Any]] = await eventually(waiting)
    return steps[0]


@pytest.mark.parametrize("options", [{}, pytest.param({"steps": 1}, marks=pytest.mark.nightly)])
async def test_a_job_goes_on_when_its_model_is_back_after_seconds(house: Opener, options: dict[str, Any]) -> None:
    opened = await house(SAYS)
    endpoint = Endpoint(opened)
    async with opened.inside({"OPENAI_BASE_URL": endpoint.url}):
        jobs = [await opened.start(**options) for _ in range(3)]
        for job in jobs:
            step = await waits_for(opened, job, tries=3)
            assert (step["at"], step["cause"]) == ("model#1", "model_unavailable")
            assert "Nothing listens" in step["message"]
        await endpoint.up()
        try:
            for job in jobs:
                assert (await job.result()).status == "completed"
        finally:
            await endpoint.down()
    for job in jobs:
        found = await events(job)
        assert len(told(EventType.WAITING, found)) >= 3
        assert told(EventType.ERROR, found) == []
        row = await opened.loom.store.read(lambda tx, name=job.id: tx.job(name))
        assert (row["waiting"], row["halted"]) == (None, None)


async def test_an_outage_in_the_middle_of_an_answer_costs_no_job(house: Opener) -> None:
    for delay in (30, 240, 1920):
        opened = await house([{"say": "word " * 40, "chunk": 5, "delay": f"{delay}ms"}])
        endpoint = Endpoint(opened)
        async with opened.inside({"OPENAI_BASE_URL": endpoint.url}):
            await endpoint.up()
            job = await opened.start()
            await eventually(lambda job=job: streaming(job))  # type: ignore[misc]
            await endpoint.down()
            cut = await eventually(lambda house=opened, job=job: cut_off(house, job)) == "waits"  # type: ignore[misc]
            await endpoint.up()
            result = await job.result()
            await endpoint.down()
        if cut:
            break  # else a slow machine let the model say everything before
    assert cut
    assert (result.status, result.answer.split()[0]) == ("completed", "word")
    assert result.usage.model_calls == 1


async def cut_off(house: House, job: Job) -> str:
    """Say whether a job `waits` for the rest of an answer or has `all` of it; nothing while neither is known."""
    row = await house.loom.store.read(lambda tx: tx.job(job.id))
    if (row or {}).get("waiting"):
        return "waits"
    return "all" if of(await events(job), EventType.LLM_FINISH) else ""


async def streaming(job: Job) -> bool:
    """Whether the model's answer is on its way."""
    return bool(of(await events(job), EventType.LLM_DELTA))


async def test_a_resume_ends_the_wait_at_once(house: Opener) -> None:
    opened = await house(SAYS)
    endpoint = Endpoint(opened)
    async with opened.inside({"OPENAI_BASE_URL": endpoint.url}):
        job = await opened.start()
        step = await waits_for(opened, job, tries=4)
        await endpoint.up()
        assert (await job.resume(by="ops")).verdict == "recorded"
        result = await job.result()
        await endpoint.down()
    assert result.status == "completed"
    (resumed, *_) = told(EventType.RESUMED, await events(job))
    assert (resumed["cause"], resumed["by"]) == ("model_unavailable", "ops")
    asked = [one for one in opened.model.requests if one.headers.get("x-loom-run") == job.id]
    lost = unheard_of(await histories(opened.loom.client, job.id), "loom.model.call")  # by a slow machine
    assert 1 <= len(asked) <= 1 + lost
    assert step["next_at"] > step["since"]


async def test_a_step_that_is_halted_outlives_its_worker_and_goes_on_when_it_is_resumed(house: Opener) -> None:
    opened = await house(SAYS)
    endpoint = Endpoint(opened)
    given = {"OPENAI_BASE_URL": endpoint.url}
    async with opened.inside(given):
        job = await opened.start(opened.agent(limits={"max_outage": "1s"}))

        async def halted() -> Any:
            row = await opened.loom.store.read(lambda tx: tx.job(job.id))
            return (row or {}).get("halted")

        (step,) = await eventually(halted)
        assert (step["cause"], step["at"]) == ("model_unavailable", "model#1")
    await endpoint.up()
    async with opened.inside(given):
        assert (await job.status()).halted[0].cause == "model_unavailable"
        await job.resume(by="ops")
        result = await job.result()
    await endpoint.down()
    assert result.status == "completed"


async def test_answers_that_cannot_be_used_are_counted_over_continue_as_new(house: Opener) -> None:
    opened = await house([{"malformed": True, "times": 3, "say": "well"}])
    async with opened.inside():
        job = await opened.start(steps=1)
        assert (await job.result()).status == "completed"
    opened = await house([{"malformed": True}])
    async with opened.inside():
        job = await opened.start(steps=1)
        result = await job.result()
    assert result.error is not None
    lost = unheard_of(await histories(opened.loom.client, job.id), "loom.model.call")  # by a slow machine
    assert (result.error.code, 4 <= opened.model.count <= 4 + lost) == ("model_protocol", True)


@pytest.mark.parametrize(("jobs", "restarts"), [(2, 5), pytest.param(20, 6, marks=pytest.mark.nightly)])
async def test_rolling_restarts_in_the_middle_of_calls_lose_no_job(house: Opener, jobs: int, restarts: int) -> None:
    """Clean stops, more of them than a call has tries, each sooner than a call ends."""
    opened = await house([{"hang": True, "times": restarts, "say": "well"}])
    # A slow machine may ask for one job more often than for another, which then waits once more.
    async with opened.worker({"LOOM_MODEL_FIRST_BYTE": "20s"}, grace=0.2) as worker:
        begun = [await opened.start() for _ in range(jobs)]
        for number in range(1, restarts + 1):
            await eventually(lambda least=number * jobs: opened.model.count >= least)  # type: ignore[misc]
            worker.stop()
            await worker.ended()
            await worker.start()
        for job in begun:
            assert (await job.result()).status == "completed"
    for job in begun:
        assert told(EventType.ERROR, await events(job)) == []


@pytest.mark.parametrize(("jobs", "deaths"), [(3, 3), pytest.param(10, 8, marks=pytest.mark.nightly)])
async def test_a_release_that_dies_soon_after_its_start_loses_no_job(house: Opener, jobs: int, deaths: int) -> None:
    opened = await house([{"before": "2s", "say": "well"}])
    async with opened.worker() as worker:
        begun = [await opened.start() for _ in range(jobs)]
        for number in range(1, deaths + 1):
            await eventually(lambda least=number: opened.model.count >= least)  # type: ignore[misc]
            worker.kill()
            await worker.start()
        for job in begun:
            result = await job.result()
            assert result.status == "completed"
            assert result.usage.model_calls == 1


@pytest.mark.nightly
async def test_an_outage_of_a_minute_costs_no_job(house: Opener) -> None:
    opened = await house(SAYS)
    endpoint = Endpoint(opened)
    async with opened.inside({"OPENAI_BASE_URL": endpoint.url}):
        begun = [await opened.start() for _ in range(10)]
        for job in begun:
            await waits_for(opened, job, tries=7)  # after 1 + 2 + 4 + 8 + 16 + 32 s
        await endpoint.up()
        for job in begun:
            assert (await job.result()).status == "completed"
        await endpoint.down()
