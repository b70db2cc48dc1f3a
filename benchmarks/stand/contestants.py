"""The bench stand: a Temporal server on its SQLite file, a scripted model and workers, each a process of its own."""

import asyncio
import dataclasses
import os
import secrets
import subprocess
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil
from temporalio.client import Client, WorkflowHandle

from benchmarks.stand.loop import Steps, opening
from benchmarks.stand.workload import Workload
from loom_cli.dev.server import DevServer
from loom_client.client import Loom
from loom_client.connection import connect
from loom_client.job import Job
from loom_client.settings import Settings
from loom_dsl.agent.definition import Agent

READY_SECONDS = 30.0


class Loop:
    """Contestant (a): the loop in plain asyncio, here in the driver."""

    name = "(a) plain asyncio loop"

    def __init__(self, environment: dict[str, str]) -> None:
        self.steps = Steps(environment)
        self.pid = os.getpid()

    async def run(self, workload: Workload) -> None:
        """Do one job."""
        await self.steps.run(workload)


class HandWritten:
    """Contestant (b): a hand-written workflow in a worker of its own."""

    name = "(b) hand-written workflow"

    def __init__(self, client: Client, queue: str, process: "subprocess.Popen[str]") -> None:
        self.client, self._queue, self.pid = client, queue, process.pid

    async def start(self, workload: Workload, messages: list[dict[str, Any]] | None = None) -> WorkflowHandle[Any, Any]:
        """Start one job."""
        arguments = [workload.model, workload.tool, messages or opening(workload)]
        name = f"loop-{secrets.token_hex(5)}"
        return await self.client.start_workflow("bench.loop", args=arguments, id=name, task_queue=self._queue)

    async def run(self, workload: Workload) -> None:
        """Do one job."""
        await (await self.start(workload)).result()


@dataclass(slots=True)
class LoomSide:
    """A store of its own, a worker on it, and a client.

    Attributes:
        loom: The driver's client.
        process: The worker.
    """

    loom: Loom
    process: "subprocess.Popen[str]"


class LoomJobs:
    """A contestant: Loom with one policy of recursion."""

    def __init__(self, side: LoomSide, policy: str, *, remote: bool = False, note: str = "") -> None:
        self.side, self._policy, self._remote, self.pid = side, policy, remote, side.process.pid
        self.name = f"Loom {policy}, execute {'remote' if remote else 'local'}{note and ', ' + note}"

    async def start(self, workload: Workload, task: Any = "Look everything up.", **limits: Any) -> Job:
        """Start one job."""
        if self._remote:
            workload = dataclasses.replace(workload, tool="fetch")
        room = workload.turns * workload.width + 5
        agent = Agent(
            name="bench",
            model=workload.model,
            instructions="Answer briefly.",
            tools=[f"benchmarks.stand.tools:{workload.tool}"],
            permissions={"allow": ["lookup", "fetch", "nap", "post"]},
            limits={"max_iterations": room, "max_tool_calls": room, **limits},
            recurse=self._policy,
        )
        return await self.side.loom.start(agent, task, workdir="/")

    async def run(self, workload: Workload) -> None:
        """Do one job.

        Raises:
            RuntimeError: It did not complete.
        """
        result = await (await self.start(workload)).result()
        if result.status != "completed" or result.usage.tool_calls != workload.turns * workload.width:
            raise RuntimeError(f"{self.name}: {result.status} after {result.usage.tool_calls} calls: {result.error}")


Contestant = Loop | HandWritten | LoomJobs


class Stand:
    """Everything that a benchmark runs on, in a folder that is its own.

    Args:
        folder: Where databases and logs lie.
        script: The scripted model, as `benchmarks.stand.workload.script` writes it.
        stock: Run the server without the settings of Loom's dev file.
    """

    def __init__(self, folder: Path, script: str, *, stock: bool = False) -> None:
        self.folder = folder
        self.server = DevServer(port=0, http_port=0, headless=True, db=folder / "temporal.db", stock=stock)
        self.environment: dict[str, str] = {}
        self._script = script
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "script.yaml").write_text(self._script)
        try:
            await self._stack.enter_async_context(self.server)
            _, url = await self._spawn("model", "--script", str(self.folder / "script.yaml"))
        except BaseException:
            await self._stack.aclose()
            raise
        self.environment = {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "bench-key-0000"}
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    @property
    def server_pid(self) -> int:
        """The process of the server itself, which is a child of its guardian."""
        argument = f"--db-filename={self.server.db}"
        children = psutil.Process().children(recursive=True)
        return [child.pid for child in children if argument in child.cmdline()][-1]

    def loop(self) -> Loop:
        """Give contestant (a)."""
        loop = Loop(self.environment)
        self._stack.push_async_callback(loop.steps.aclose)
        return loop

    async def hand_written(self) -> HandWritten:
        """Start the worker of contestant (b)."""
        process, _ = await self._spawn("loop", "--address", self.server.address, "--queue", "loop")
        return HandWritten(await Client.connect(self.server.address), "loop", process)

    async def loom(self, name: str, *, sandboxed: bool = False, synchronous: str = "full") -> LoomSide:
        """Start a worker of Loom on a store of its own, and connect to both."""
        store = f"sqlite://{self.folder / name}.db?synchronous={synchronous}"
        settings = Settings(address=self.server.address, store=store, task_queue=name)
        loom = await self._stack.enter_async_context(connect(settings))
        options = ["--sandboxed"] if sandboxed else []
        process, _ = await self._spawn(
            "loom", "--address", self.server.address, "--queue", name, "--store", store, *options
        )
        return LoomSide(loom, process)

    def _worker_environment(self) -> dict[str, str]:
        environment = {**os.environ, **self.environment}
        # Without its cache of compiled modules Python compiles the workflow's module again for each sandbox.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        return environment

    async def _spawn(self, what: str, *options: str) -> "tuple[subprocess.Popen[str], str]":
        """Start a process and wait for its first line."""
        with (self.folder / f"{what}.log").open("a") as log:
            process = subprocess.Popen(  # noqa: ASYNC220 - it starts at once, and its end is not awaited
                [sys.executable, "-m", "benchmarks.stand.serving", what, *options],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=self._worker_environment(),
            )
        self._stack.callback(_end, process)
        assert process.stdout is not None
        try:
            async with asyncio.timeout(READY_SECONDS):
                line = (await asyncio.to_thread(process.stdout.readline)).strip()
        except TimeoutError:
            line = ""
        if not line:
            said = (self.folder / f"{what}.log").read_text()[-2000:]
            process.kill()
            raise RuntimeError(f"the process {what!r} did not start: {said}")
        return process, line


def _end(process: "subprocess.Popen[str]") -> None:
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
