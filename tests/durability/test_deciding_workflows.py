"""Workflows that know nothing of Loom decide what its jobs ask: the examples, in Python and in Go."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from loom_client.job import Job
from loom_dsl.observe.events import EventType
from tests.durability.conftest import House, Opener
from tests.durability.reading import account, effects_of, events, of
from tests.durability.test_worker_killed import calling
from tests.support.waiting import PATIENCE, eventually, until
from worker import make_worker

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "approvals"
PYTHON = [sys.executable, str(EXAMPLES / "workflow.py")]
GO = "Go"
UNREACHABLE = ("dial tcp", "no such host", "i/o timeout", "TLS handshake", "connection re", "GOPROXY=off")
TOO_OLD = ("requires go >= ", "invalid go version")


@pytest.fixture(scope="session")
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command line of an example, built first where that is needed."""
    if request.param != GO:
        return list(request.param)
    if shutil.which("go") is None:
        pytest.skip("Go is not installed")
    binary = tmp_path_factory.mktemp("go") / "window"
    command = ["go", "build", "-buildvcs=false", "-o", str(binary), "."]
    built = subprocess.run(command, cwd=EXAMPLES / "go", capture_output=True, text=True, check=False)
    if built.returncode:
        for words, reason in ((UNREACHABLE, "its modules cannot be fetched"), (TOO_OLD, "Go is too old")):
            if any(word in built.stderr for word in words):
                pytest.skip(f"{reason}: {built.stderr.strip()[-300:]}")
    assert built.returncode == 0, built.stderr
    return [str(binary)]


both = pytest.mark.parametrize(
    "program",
    [
        pytest.param(PYTHON, id="Python"),
        pytest.param(GO, id="Go", marks=[pytest.mark.nightly, pytest.mark.timeout(900)]),
    ],  # a cold build
    indirect=True,
)


class Windows:
    """The example's worker, and what starts a workflow for a notice."""

    def __init__(self, program: list[str], house: House) -> None:
        self._program, self._house = program, house
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("TEMPORAL_")},
            "TEMPORAL_ADDRESS": house.settings.address,
            "TEMPORAL_NAMESPACE": "default",
        }
        self.client: Client = house.loom.client

    @contextmanager
    def working(self) -> Iterator[None]:
        log = self._house.folder / "windows.log"
        with log.open("wb") as out:
            process = subprocess.Popen([*self._program, "worker"], stdout=out, stderr=out, env=self._environment)
        try:
            until(lambda: process.poll() is not None or "ready" in log.read_text())
            assert process.poll() is None, log.read_text()
            yield
        finally:
            process.kill()
            process.wait()

    async def notice(self, job: Job, patience: float = 600) -> str:
        """Pass the job's notice on, as `--on-approval` would; gives the workflow's id."""
        notice = await eventually(lambda: self._noticed(job))
        process = await asyncio.create_subprocess_exec(
            *self._program, "notice", str(patience), env=self._environment, stdin=subprocess.PIPE
        )
        await process.communicate(json.dumps(notice).encode())
        assert process.returncode == 0
        return f"window-{notice['approval_id']}"

    def _noticed(self, job: Job) -> dict[str, Any] | None:
        notices = (json.loads(file.read_text()) for file in self._house.folder.glob("*.notice"))
        return next((notice for notice in notices if notice["job"] == job.id), None)

    async def outcome(self, window: str) -> tuple[str, str]:
        async with asyncio.timeout(PATIENCE):
            came: dict[str, str] = await self.client.get_workflow_handle(window).result()
        return came["choice"], came["became"]

    async def open(self, window: str) -> None:
        await self.client.get_workflow_handle(window).signal("open", "ann")


@asynccontextmanager
async def telling(house: House) -> AsyncIterator[None]:
    """A worker of Loom that writes each notice into a file."""
    runtime = house.runtime()
    part = f"{house.folder}/$$"
    runtime.on_approval = f"sh -c 'cat > {part}.part && mv {part}.part {part}.notice'"
    try:
        async with make_worker(house.loom.client, runtime, house.settings.task_queue, sandboxed=True):
            yield
    finally:
        await runtime.close()


@both
@pytest.mark.server
async def test_a_workflow_decides_by_a_signal_when_its_own_condition_says_so(house: Opener, program: list[str]) -> None:
    opened = await house(calling("send"))
    windows = Windows(program, opened)

    async def opened_in_time() -> None:
        job = await ask()
        window = await windows.notice(job)
        await windows.open(window)
        assert await windows.outcome(window) == ("approve", "settled")
        assert (await account(opened.loom.store, job)).status == "completed"
        assert effects_of(opened.workdir(job)) == ["0/call_1_0 one"]
        (decided,) = of(await events(job), EventType.APPROVAL_DECIDED)
        assert (decided["by"], decided["message"]) == ("the change window", "opened by ann")
        assert await windows.notice(job) == window, "a notice that comes again starts nothing and is no failure"

    async def never_opened() -> None:
        job = await ask()
        assert await windows.outcome(await windows.notice(job, patience=0.2)) == ("reject", "settled")
        found = await account(opened.loom.store, job)
        assert effects_of(opened.workdir(job)) == []
        assert "no change window opened in time" in found.messages[2]["content"]

    async def decided_by_another() -> None:
        job = await ask(hold=True)
        window = await windows.notice(job)
        await job.decide(await opened.approval(job), "approve", by="bob")
        await windows.open(window)
        assert await windows.outcome(window) == ("approve", "late")
        opened.release(job)
        assert (await account(opened.loom.store, job)).status == "completed"
        assert of(await events(job), EventType.WARNING) == [], "a decision was sent although it was too late"

    async def ended() -> None:
        job = await ask()
        window = await windows.notice(job)
        await job.decide(await opened.approval(job), "reject", by="bob")
        await account(opened.loom.store, job)
        await windows.open(window)
        assert await windows.outcome(window) == ("approve", "late")

    async def not_allowed() -> None:
        job = await ask({"approvers": ["bob"]})
        window = await windows.notice(job)
        await windows.open(window)
        assert await windows.outcome(window) == ("approve", "open")
        (refused,) = await eventually(lambda: warnings(job))  # what watchers are told comes a moment later
        assert refused["verdict"] == "not_allowed"
        await job.decide(await opened.approval(job), "approve", by="bob")
        assert (await account(opened.loom.store, job)).status == "completed"

    async def warnings(job: Job) -> list[dict[str, Any]]:
        return of(await events(job), EventType.WARNING)

    async def ask(approvals: dict[str, Any] | None = None, **options: Any) -> Job:
        agent = opened.agent(permissions={"ask": ["send"]}, **({"approvals": approvals} if approvals else {}))
        return await opened.start(agent, **options)

    with windows.working():
        async with telling(opened), asyncio.TaskGroup() as group:
            for case in (opened_in_time, never_opened, decided_by_another, ended, not_allowed):
                group.create_task(case())


def test_the_workflow_in_python_imports_nothing_of_loom() -> None:
    code = (
        "import runpy, sys; runpy.run_path('workflow.py'); "
        "print(sorted({name.partition('.')[0] for name in sys.modules} & "
        "{'loom_dsl', 'loom_cli', 'loom_client', 'loom_store', 'loom_tools', 'workflows', 'activities', 'worker'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=EXAMPLES, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
