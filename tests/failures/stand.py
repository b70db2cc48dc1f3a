"""One worker in this process, one scripted model, and many jobs that run at the same time.

What a job gets wrong is in its model's steps. Many jobs of a table run together, so that those that have to wait
(for a retry, for a timeout) wait at the same time.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from starlette.types import Receive, Scope, Send

from activities.interceptor import RetryDelays
from activities.runtime import Runtime
from loom_cli.dev.fake_model.app import FakeModel
from loom_cli.dev.fake_model.server import running
from loom_cli.dev.server import DevServer
from loom_client.client import Loom
from loom_client.connection import connect
from loom_client.job import Job
from loom_client.settings import Settings
from loom_dsl.agent.definition import Agent
from loom_dsl.agent.run import RunResult
from loom_dsl.observe.events import Event, EventType
from loom_dsl.simulation.script import Script
from loom_tools.mcp.servers import Servers
from loom_tools.registry import ToolRegistry
from loom_tools.secrets import NO_SECRETS
from tests.durability.reading import Message, events, failed_tasks, histories, of, transcript, unheard_of, watched
from tests.failures.bad_tools import BUILTINS, CREDENTIAL, KNOWN, NAMES, REFERENCES
from tests.support.waiting import PATIENCE, eventually
from tests.support.worker_process import WorkerProcess
from worker import make_worker

USAGE = {"prompt": 100, "completion": 10}
MODEL_KEY = "the-key-of-the-model-4711"
MODULES = ("tests.failures.bad_tools",)
AT_ONCE = 12
"""Jobs of a table that run at the same time: with more, a busy machine's worker has no time to tell that it lives."""
FORBIDDEN = (CREDENTIAL, KNOWN, MODEL_KEY, "Traceback (most recent call last)")
"""What must not be in any history, event or message."""


@dataclass(frozen=True)
class Outcome:
    """What became of a job; and how many attempts of its activities the server lost sight of."""

    job: Job
    result: RunResult
    told: list[Event]
    messages: list[Message]
    unheard_of: int
    halted: list[dict[str, Any]] = field(default_factory=list)
    """The steps that waited for a person before the job was aborted."""

    def tool(self, index: int = 0) -> Message:
        """The tool message with this number."""
        return [message for message in self.messages if message["role"] == "tool"][index]

    def warnings(self) -> list[str]:
        """The codes of the warnings that watchers were given."""
        return [data["code"] for data in of(self.told, EventType.WARNING)]

    def results(self) -> list[dict[str, Any]]:
        """What watchers were told of tool results."""
        return of(self.told, EventType.TOOL_RESULT)


class TimedModel(FakeModel):
    """Notes when it was asked, by job."""

    def __init__(self, script: Script) -> None:
        super().__init__(script)
        self.asked: dict[str, list[float]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Note the time, and answer."""
        for name, value in scope.get("headers", ()):
            if name == b"x-loom-run":
                self.asked.setdefault(value.decode(), []).append(time.monotonic())
        await super().__call__(scope, receive, send)


@dataclass
class Stand:
    """A store, a task queue, a model and jobs."""

    folder: Path
    loom: Loom
    model: TimedModel
    url: str
    jobs: dict[str, asyncio.Task[Outcome]] = field(default_factory=dict)
    begun: dict[str, dict[str, Any]] = field(default_factory=dict)
    over: list[asyncio.Task[Outcome]] = field(default_factory=list)
    tries: int = 1
    gate: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))

    @property
    def asked(self) -> dict[str, list[float]]:
        """When each job asked the scripted model, in seconds."""
        return self.model.asked

    def agent(self, **fields: Any) -> Agent:
        """An agent with every bad tool allowed, unless the fields say otherwise."""
        given = {
            "name": "tester",
            "model": "scripted",
            "tools": (*BUILTINS, *REFERENCES),
            "permissions": {"allow": [*NAMES, *BUILTINS]},
        }
        return Agent(**{**given, **fields})

    def place(self, name: str) -> Path:
        """The working directory of a job."""
        try_ = f"-{self.tries}" if self.tries > 1 else ""
        return self.folder / f"{name}{try_}".replace(" ", "-").replace("/", "-")

    async def start(self, name: str, *, agent: Mapping[str, Any] | None = None, **options: Any) -> Job:
        """Start the job whose steps have this name."""
        self.place(name).mkdir(exist_ok=True)
        given = {"workdir": self.place(name), **options}
        return await self.loom.start(self.agent(**(agent or {})), f"case <{name}>", **given)

    def worker(self) -> WorkerProcess:
        """A worker as a process; not started."""
        environment = {"OPENAI_API_KEY": MODEL_KEY}
        return WorkerProcess(self.loom.settings, self.url, self.folder, environment, tools=MODULES)

    def begin(self, name: str, *, prepare: Callable[[Path], object] | None = None, **options: Any) -> None:
        """Start a job, in a directory that is prepared so, and go on; `outcome` waits for it."""
        self.begun[name] = {"prepare": prepare, **options}
        if prepare:
            self.place(name).mkdir()
            prepare(self.place(name))
        self.jobs[name] = asyncio.create_task(self._whole(name, options))

    async def outcome(self, name: str) -> Outcome:
        """What became of a job that was begun."""
        async with asyncio.timeout(2 * PATIENCE):  # many jobs of a module run at once
            for _ in range(3):
                if name not in self.jobs:
                    self.begin(name, **self.begun[name])
                found = await asyncio.shield(self.jobs[name])
                if not found.unheard_of:
                    break
                # It counts like an attempt that failed in the way that the case is about: again, with fewer others.
                self.tries += 1
                self.over.append(self.jobs.pop(name))
        return found

    async def _whole(self, name: str, options: dict[str, Any]) -> Outcome:
        given = {**options}
        halts = given.pop("halts", False)
        async with self.gate:
            job = await self.start(name, **given)
            steps = await self.halted(job) if halts else []
            if halts:
                await job.abort(by="the test")
            return replace(await self.unharmed(job), halted=steps)

    async def halted(self, job: Job) -> list[dict[str, Any]]:
        """Wait until steps of a job wait for a person, and give them as lists show them."""

        async def found() -> list[dict[str, Any]]:
            row = await self.loom.store.read(lambda tx: tx.job(job.id))
            return (row or {}).get("halted") or []

        steps: list[dict[str, Any]] = await eventually(found)
        return steps

    async def unharmed(self, job: Job) -> Outcome:
        """Wait for a job's end, and check what must hold whatever went wrong.

        No workflow task failed, the messages are in a legal order, and nothing secret and no traceback is anywhere.
        """
        result = await job.result()
        told = await events(job)
        watched(told)
        runs = await histories(self.loom.client, job.id)
        assert failed_tasks(runs) == []
        messages = await transcript(self.loom.store, result.session_id)
        raw = [event.SerializeToString() for run in runs for event in run.events]
        kept = [repr(messages).encode(), *(event.model_dump_json().encode() for event in told)]
        for word in FORBIDDEN:
            assert not any(word.encode() in text for text in (*raw, *kept)), f"{word!r} was stored"
        states = [data["state"] for data in of(told, EventType.STATE)]
        assert states[-1] == result.status
        return Outcome(job, result, told, messages, unheard_of(runs))


@asynccontextmanager
async def standing(
    server: DevServer,
    folder: Path,
    task_queue: str,
    cases: Mapping[str, Sequence[dict[str, Any]]],
    *,
    environment: Mapping[str, str] | None = None,
    serve: bool = True,
) -> AsyncIterator[Stand]:
    """Open a stand whose model has steps for each case."""
    told = [
        {"when": {"contains": f"case <{name}>"}, "steps": [{"usage": USAGE, **step} for step in steps]}
        for name, steps in cases.items()
    ]
    script = {
        "loom": 1,
        "kind": "fake-model",
        "name": "scripted",
        "cases": told,
        "otherwise": {"say": "and that was all"},
    }
    model = TimedModel(Script.model_validate(script))
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(running(model))
        settings = Settings(
            address=server.address,
            namespace="default",
            task_queue=task_queue,
            store=str(folder / "loom.db"),
            answer_seconds=PATIENCE,
            connect_seconds=PATIENCE,
        )
        loom = await stack.enter_async_context(connect(settings))
        stand = Stand(folder, loom, model, url)
        if serve:
            await stack.enter_async_context(serving(stand, environment or {}))
        yield stand
        begun = [*stand.over, *stand.jobs.values()]
        for task in begun:
            task.cancel()
        await asyncio.gather(*begun, return_exceptions=True)


@asynccontextmanager
async def serving(stand: Stand, environment: Mapping[str, str], **changes: Any) -> AsyncIterator[None]:
    """A worker in this process."""
    known = {"OPENAI_BASE_URL": stand.url, "OPENAI_API_KEY": MODEL_KEY, **environment}
    registry = ToolRegistry.load(modules=changes.pop("modules", MODULES))
    secrets = {"OPENAI_API_KEY": MODEL_KEY, "SHELF": KNOWN}
    delays = RetryDelays(changes.pop("store_delays", (0.5,)), changes.pop("tools_delays", (0.2, 1.0)))
    runtime = Runtime(
        changes.pop("store", stand.loom.store), registry, changes.pop("root", stand.folder), secrets=secrets,
        environment=known, delays=delays, allowed=changes.pop("allowed", NO_SECRETS),
        mcp=changes.pop("mcp", Servers({}, NO_SECRETS)),
    )  # fmt: skip
    client = changes.pop("client", stand.loom.client)
    async with runtime, make_worker(client, runtime, stand.loom.settings.task_queue, **changes):
        yield
