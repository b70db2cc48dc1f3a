"""What the next attempt makes of the notes of a process that was killed, of one that lives, and of one elsewhere."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from activities.lifecycle.attempts import StepAttempt, Steps
from activities.lifecycle.deaths import DeathRules
from activities.lifecycle.process_identity import this_process
from loom_dsl.errors import StepDied, StepKillsWorker, ToolError
from loom_dsl.tools.context import ToolContext
from loom_store.queries.steps import Step
from loom_store.store import Store
from loom_tools.user_code import Code
from tests.support.deadly_tools import DEATHS
from tests.support.dying_process import killed, process_with, seen
from tests.support.external import lines
from tests.support.waiting import PATIENCE, eventually

USERS, OWN = "loom.tool.execute", "loom.model.call"
SECRETS = {"KEY": "a-secret-4711"}
JOBS = ("a", "b", "c")


class Place:
    """A store in which three jobs are known, and the steps of this process's worker."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "loom.db"
        self.store = Store.open(self.path)
        self.steps = Steps(self.store, SECRETS, DeathRules())
        for job in JOBS:
            self.store.write_sync(lambda tx, job=job: tx.append_events(job, "begun", [{"t": "control", "n": 0}]))

    def attempt(self, job: str = "a", kind: str = USERS, **rules: Any) -> StepAttempt:
        steps = Steps(self.store, SECRETS, DeathRules(**rules)) if rules else self.steps
        return StepAttempt(steps, job, {"turn": 0, "at": "x#1"}, kind)

    async def death(self, *jobs: str, age: float | None = 60.0) -> None:
        """A process dies while it has steps of these jobs."""
        killed(await process_with(self.path, [f"{job}/0/x#1" for job in jobs], age))

    def history(self, job: str = "a") -> tuple[int, int] | None:
        found = self.noted(job)
        return found and (found.deaths, found.suspected)

    def noted(self, job: str = "a") -> Step | None:
        return self.store.write_sync(lambda tx: tx.step(job, f"{job}/0/x#1"))

    def told(self, job: str = "a") -> list[str]:
        found = self.store.read_sync(lambda tx: tx.read_events(job))
        return [event["message"] for _, event in found if event["t"] == "warning"]


@pytest_asyncio.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    made = Place(tmp_path)
    yield made
    await made.steps.close()
    made.store.close()


@pytest.mark.parametrize(
    ("age", "rules", "expected"),
    [(60.0, {}, (1, 0)), (None, {}, (1, 0)), (5.0, {}, (0, 1)), (5.0, {"young": 2.0}, (1, 0))],
)
async def test_a_death_counts_for_a_step_that_was_alone_in_a_worker_that_was_not_young(
    place: Place, age: float | None, rules: dict[str, float], expected: tuple[int, int]
) -> None:
    await place.death("a", age=age)
    attempt = place.attempt(**rules)
    await attempt.begin()
    assert place.history() == expected
    assert attempt.is_apart
    (told,) = place.told()
    assert told.startswith("a worker died ")


async def test_of_several_steps_none_is_counted_whichever_comes_back_last(place: Place) -> None:
    await place.death(*JOBS)
    for job in JOBS:
        attempt = place.attempt(job)
        await attempt.begin()
        assert attempt.is_apart
    assert [place.history(job) for job in JOBS] == [(0, 1)] * 3
    assert ["2 other steps" in told for job in JOBS for told in place.told(job)] == [True] * 3


async def test_an_attempt_whose_process_lives_is_no_death(place: Place) -> None:
    process = await process_with(place.path, ["a/0/x#1"], 60.0)
    attempt = place.attempt()
    await attempt.begin()
    assert not attempt.is_apart
    assert (place.history(), place.told()) == ((0, 0), [])
    killed(process)


@pytest.mark.parametrize(
    ("ago", "stopped", "expected", "apart"),
    [(0.0, False, (0, 0), True), (60.0, False, (1, 0), True), (60.0, True, (0, 0), False)],
)
async def test_of_a_worker_elsewhere_its_silence_tells(
    place: Place, ago: float, stopped: bool, expected: tuple[int, int], apart: bool
) -> None:
    elsewhere = "another-boot/pid:[1] 17 4711"
    with Store.open(place.path, clock=lambda: time.time() - ago) as then:
        then.write_sync(lambda tx: tx.begin_step("a", "a/0/x#1", elsewhere))
    place.store.write_sync(lambda tx: seen(tx, elsewhere, 100.0, ago, stopped))
    attempt = place.attempt()
    await attempt.begin()
    assert place.history() == expected
    assert attempt.is_apart == apart


async def test_after_three_deaths_a_step_is_halted_and_counted_anew_when_it_is_resumed(place: Place) -> None:
    for _ in range(2):
        await place.death("a")
        await place.attempt(kind=OWN).begin()
    await place.death("a")
    with pytest.raises(StepKillsWorker) as caught:
        await place.attempt(kind=OWN).begin()
    assert (caught.value.code, caught.value.halts, caught.value.retryable) == ("kills_worker", True, False)
    assert "mend it" in caught.value.action
    assert "3 workers died while they had only this step" in caught.value.message
    resumed = place.attempt(kind=OWN)
    await resumed.begin()
    assert resumed.is_apart
    assert place.history() == (0, 1)


async def works() -> str:
    return "done"


async def fails() -> str:
    raise ToolError("no")


async def stops() -> str:
    raise asyncio.CancelledError


async def test_what_ends_with_an_answer_leaves_nothing_behind(place: Place) -> None:
    for work, error in ((works, None), (fails, ToolError)):
        await place.death("a", "b")
        if error is None:
            assert await place.attempt().run(work) == "done"
        else:
            with pytest.raises(error):
                await place.attempt().run(work)
        await place.steps.close()
        assert place.history() is None


async def test_what_is_broken_off_leaves_what_was_before_it(place: Place) -> None:
    with pytest.raises(asyncio.CancelledError):
        await place.attempt().run(stops)
    await place.steps.close()
    assert place.history() is None
    await place.death("a", "b")
    with pytest.raises(asyncio.CancelledError):
        await place.attempt().run(stops)
    await place.steps.close()
    noted = place.noted()
    assert noted is not None
    assert (noted.process, noted.suspected) == (None, 1)


async def test_a_local_step_notes_nothing_before_it_calls_users_code_and_moves_when_it_is_suspected(
    place: Place,
) -> None:
    assert await place.attempt(kind="").run(works) == "done"
    assert place.history() is None
    local = place.attempt(kind="")
    await local.begin()
    assert place.history() == (0, 0)
    await place.death("b")
    with pytest.raises(StepDied) as caught:
        await place.attempt("b", kind="").begin()
    assert caught.value.retryable


async def test_suspects_of_looms_own_run_one_at_a_time_and_hold_up_no_others(place: Place) -> None:
    for _ in range(4):
        await place.death("a", "b")
        for job in ("a", "b"):
            await place.attempt(job, kind=OWN).begin()
    await place.death("a", "b")
    at_work: set[str] = set()
    go = asyncio.Event()

    async def work(job: str) -> str:
        at_work.add(job)
        await go.wait()
        at_work.discard(job)
        return job

    running = [asyncio.create_task(place.attempt(job, kind=OWN).run(lambda job=job: work(job))) for job in JOBS]  # type: ignore[misc]
    await eventually(lambda: len(at_work) == 2)
    assert "c" in at_work
    suspects = [place.noted(job) for job in ("a", "b")]
    assert sum(each is not None and each.process is not None for each in suspects) == 1
    go.set()
    assert await asyncio.gather(*running) == list(JOBS)
    await place.steps.close()
    assert [place.history(job) for job in JOBS] == [None] * 3


async def test_each_death_of_a_process_of_its_own_counts_and_is_told_without_secrets(
    place: Place, tmp_path: Path
) -> None:
    await place.death("a", "b", age=1.0)
    code = Code(("tests.support.deadly_tools:die",), "function")
    keywords = {"text": SECRETS["KEY"], "context": ToolContext(working_dir=tmp_path)}
    for deaths, error in ((1, StepDied), (2, StepDied), (3, StepKillsWorker)):
        attempt = place.attempt()
        await attempt.begin()
        with pytest.raises(error) as caught:
            await attempt.call_apart(code, keywords, PATIENCE, is_async=False)
        assert type(caught.value) is error
        assert "it ended with exit status 7" in caught.value.message
        assert "the library gives up on" in caught.value.message
        assert SECRETS["KEY"] not in caught.value.message + "".join(place.told())
        assert len(lines(tmp_path, DEATHS)) == deaths
    assert len(place.told()) == 4
    await place.steps.close()
    assert place.history() == (0, 1)


async def test_while_users_code_runs_apart_the_death_of_the_worker_is_not_this_steps_fault(
    place: Place, tmp_path: Path
) -> None:
    await place.death("a", "b")
    attempt, stop, said = place.attempt(), threading.Event(), list[str]()
    context = ToolContext(working_dir=tmp_path, cancelled=stop.is_set, progress=said.append)
    await attempt.begin()
    code = Code(("tests.support.deadly_tools:wait_for_end",), "function")
    calling = asyncio.create_task(attempt.call_apart(code, {"text": "x", "context": context}, PATIENCE, is_async=False))
    await eventually(lambda: said)
    noted = place.noted()
    assert noted is not None
    assert noted.process is None
    stop.set()
    assert await calling == "cancelled"
    await place.steps.close()
    noted = place.noted()
    assert noted is not None
    assert noted.process == this_process()


async def test_of_a_job_that_the_store_does_not_know_nothing_is_noted(place: Place) -> None:
    await place.attempt("unknown").begin()
    assert place.history("unknown") is None
