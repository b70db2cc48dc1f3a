"""A house for one test: a server, a store, a task queue, a scripted model, and jobs in it."""

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from activities.runtime import Runtime
from loom_cli.dev.fake_model.app import FakeModel
from loom_cli.dev.fake_model.server import running
from loom_cli.dev.server import DevServer
from loom_client.client import Loom
from loom_client.connection import connect
from loom_client.job import Job
from loom_client.settings import Settings
from loom_dsl.agent.definition import Agent
from loom_dsl.observe.events import EventType
from loom_dsl.simulation.script import Script
from loom_tools.registry import ToolRegistry
from tests.durability.reading import events, of
from tests.support.external import HOLD, NAMES, REFERENCES
from tests.support.waiting import PATIENCE, eventually
from tests.support.worker_process import TOOLS, WorkerProcess
from worker import make_worker

USAGE = {"prompt": 100, "completion": 10}
"""Reported for every answer, because the default depends on the length of the working directory's path."""


@dataclass
class House:
    """Everything that a job needs, for one test alone."""

    folder: Path
    settings: Settings
    loom: Loom
    model: FakeModel
    url: str
    workdirs: dict[str, Path] = field(default_factory=dict)
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    def agent(self, **fields: Any) -> Agent:
        """An agent with every outside tool allowed, unless the fields say otherwise."""
        given = {"name": "tester", "model": "scripted", "tools": REFERENCES, "permissions": {"allow": list(NAMES)}}
        return Agent(**{**given, **fields})

    async def start(
        self, agent: Agent | None = None, *, hold: bool = False, before: Mapping[str, str] | None = None, **options: Any
    ) -> Job:
        """Start a job in a directory of its own, where tools wait if `hold`, with the files of `before` in it."""
        workdir = self.folder / f"work-{next(self._numbers)}"
        workdir.mkdir(exist_ok=True)  # another house of the same test may have made it
        if hold:
            (workdir / HOLD).touch()
        for name, text in (before or {}).items():
            (workdir / name).write_text(text)
        job = await self.loom.start(agent or self.agent(), "do it", workdir=workdir, **options)
        self.workdirs[job.id] = workdir
        return job

    def named(self, name: str) -> str:
        """An id for a job, which no other test's on the same server has."""
        return f"{name}-{self.settings.task_queue}"

    def workdir(self, job: Job) -> Path:
        """Where a job works."""
        return self.workdirs[job.id]

    def release(self, job: Job) -> None:
        """Let the job's tools go on."""
        (self.workdir(job) / HOLD).unlink()

    def worker(self, environment: dict[str, str] | None = None, **options: Any) -> WorkerProcess:
        """A worker as a process; not started."""
        return WorkerProcess(self.settings, self.url, self.folder, environment, **options)

    @asynccontextmanager
    async def inside(self, environment: Mapping[str, str] | None = None, **options: Any) -> AsyncIterator[None]:
        """A worker in this process; not in the sandbox, which is tried where graphs and patterns are run."""
        queue = self.settings.task_queue
        async with (
            self.runtime(environment) as runtime,
            make_worker(self.loom.client, runtime, queue, **options),
        ):
            yield

    def runtime(self, environment: Mapping[str, str] | None = None) -> Runtime:
        """What activities in this process work with."""
        known = {"OPENAI_BASE_URL": self.url, "OPENAI_API_KEY": "none", **(environment or {})}
        registry = ToolRegistry.load(modules=list(TOOLS))
        return Runtime(self.loom.store, registry, self.folder, environment=known)

    async def approve_all(self, job: Job) -> None:
        """Approve whatever the job asks, until it has ended."""
        async for event in job.events():
            if event.type == EventType.APPROVAL_REQUESTED:
                await job.decide(event.data["approval_id"], "approve", by="me")

    async def approval(self, job: Job, index: int = 0) -> str:
        """Wait for the job's approval request with this number, and give its id."""

        async def asked() -> str:
            requests = of(await events(job), EventType.APPROVAL_REQUESTED)
            return str(requests[index]["approval_id"]) if len(requests) > index else ""

        return await eventually(asked)


Opener = Callable[..., Awaitable[House]]


@pytest.fixture
async def house(request: pytest.FixtureRequest, tmp_path: Path, task_queue: str) -> AsyncIterator[Opener]:
    """Opens a house with the steps of its model: ``await house([{"say": "hello"}], server=own_server)``.

    A worker has all the time that it needs to confirm what a job is sent; where there may be none, give
    `answer_seconds`.
    """
    async with AsyncExitStack() as stack:

        async def open_house(
            steps: Sequence[dict[str, Any]] = (),
            *,
            server: DevServer | None = None,
            answer_seconds: float = PATIENCE,
            **script: Any,
        ) -> House:
            served: DevServer = server or request.getfixturevalue("dev_server")
            counted = [{"usage": USAGE, **step} for step in steps]
            text = {"loom": 1, "kind": "fake-model", "name": "scripted", "steps": counted, **script}
            model = FakeModel(Script.model_validate(text))
            url = await stack.enter_async_context(running(model))
            store = str(tmp_path / "loom.db")
            settings = Settings(
                address=served.address,
                namespace="default",
                task_queue=task_queue,
                store=store,
                answer_seconds=answer_seconds,
                connect_seconds=PATIENCE,
            )
            loom = await stack.enter_async_context(connect(settings))
            return House(tmp_path, settings, loom, model, url)

        yield open_house
