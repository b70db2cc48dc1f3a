"""What the demo does while the job runs: shows it, kills its worker twice, and decides from outside."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import loom_client
from demo.place import Checkout
from loom_cli.dev import guardian
from loom_cli.render.timeline import Timeline
from loom_client.client import Loom
from loom_client.settings import Settings, without_access
from loom_dsl.agent.run import GraphResult, RunResult
from loom_dsl.errors import ConfigurationError, LoomError
from loom_dsl.observe.events import Event, EventType
from loom_dsl.text.canonical import Json

# A worker that can be killed: ``loom worker`` as a process that cannot outlive its starter.


READY = "worker ready"
READY_SECONDS = 60.0
_POLL_SECONDS = 0.02


class WorkerProcess:
    """One worker after another: each start is a new process.

    Args:
        settings: The server, the queue and the store.
        arguments: More arguments of ``loom worker``.
        folder: Its current directory, where modules with tools are found.
        log: Where its output goes.
        env: Its environment.

    Attributes:
        number: How many have been started.
    """

    def __init__(
        self, settings: Settings, arguments: Sequence[str], folder: Path, log: Path, env: Mapping[str, str]
    ) -> None:
        places = {"--address": settings.address, "--namespace": settings.namespace, "--store": settings.store_path()}
        options = [text for name, value in places.items() for text in (name, str(value))]
        self._command = [sys.executable, "-P", "-m", "loom_cli", "worker", *options, *arguments]
        home = str(Path(str(loom_client.__file__)).resolve().parent.parent)
        path = os.pathsep.join(part for part in (home, env.get("PYTHONPATH", "")) if part)
        self._env = {**without_access(env), "PYTHONPATH": path, "LOOM_TASK_QUEUE": settings.task_queue}
        self._folder, self._log = folder, log
        self._process: subprocess.Popen[bytes] | None = None
        self.number = 0

    async def start(self) -> float:
        """Start one and wait until it takes work; the seconds that took.

        Raises:
            ConfigurationError: It ended, or was not ready in a minute; quotes what it said.
        """
        self.kill()
        self.number += 1
        began, told = time.monotonic(), len(self._said())
        with self._log.open("ab") as log:
            # The guardian ends the worker when this process lets go of its input, in whatever way.
            process = self._process = subprocess.Popen(  # noqa: ASYNC220 - a fork takes milliseconds
                [sys.executable, "-I", "-S", guardian.__file__, *self._command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                env=self._env,
                start_new_session=True,
            )
        while READY not in (said := self._said()[told:]):
            if process.poll() is not None or time.monotonic() - began > READY_SECONDS:
                last = said.strip().splitlines()[-1:] or ["nothing"]
                raise ConfigurationError(f"The worker did not start. It said: {last[0]} ({self._log})")
            await asyncio.sleep(_POLL_SECONDS)
        return time.monotonic() - began

    def kill(self) -> None:
        """End it with SIGKILL, as a crash would; nothing happens when none runs."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdin:
            process.stdin.close()

    def _said(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""


DECIDE_SECONDS = 30.0
LOOK_SECONDS = 0.5
"""How long a reader sees that the job waits, before the worker is killed."""


@dataclass
class Scene:
    """A watcher of the job that also acts.

    Attributes:
        timeline: Where the events are shown.
        worker: The worker that is killed and started again.
        loom: The connection; from it come the address and what an approval is about.
        place: The demo's files.
        recoveries: Seconds from each kill to the next event of the job.
    """

    timeline: Timeline
    worker: WorkerProcess
    loom: Loom
    place: Checkout
    recoveries: list[float] = field(default_factory=list)
    _killed_at: float = 0.0
    _moments: set[EventType] = field(default_factory=set)
    _acts: "list[asyncio.Task[None]]" = field(default_factory=list)
    _one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)

    # -- a watcher, as `Follower` needs it ---------------------------------------------------------

    def feed(self, event: Event) -> None:
        """Show an event, and act on the first sign of a tool at work and on every approval."""
        if self._killed_at:
            self.recoveries.append(time.monotonic() - self._killed_at)
            self._killed_at = 0.0
        self.timeline.feed(event)
        first = event.type not in self._moments
        if event.type == EventType.PROGRESS and first:
            self._act(self._lose_worker("a tool is at work, the note is posted, the receipt is still to come"))
        elif event.type == EventType.APPROVAL_REQUESTED:
            self._act(self._answer(event, first))
        if event.is_known:
            self._moments.add(EventType(event.type))

    def has_told(self, halted: Sequence[Mapping[str, Any]]) -> bool:
        """Say whether these halted steps were shown."""
        return self.timeline.has_told(halted)

    def waiting(self, reason: str) -> None:
        """Show why nothing comes."""
        for act in self._acts:
            if act.done():
                act.result()  # raises what went wrong, such as a worker that did not start
        if self._killed_at and EventType.APPROVAL_REQUESTED not in self._moments:
            reason = "the server gives a lost worker's tool to another after 5 s without a heartbeat"
        self.timeline.waiting(reason)

    def end(self, result: RunResult | GraphResult, seconds: float | None = None) -> None:
        """Show the end."""
        self.timeline.end(result, seconds)

    def interrupt(self) -> None:
        """End what is open, so that something else may be said."""
        self.timeline.interrupt()

    async def close(self) -> None:
        """Wait for what is under way, or stop it when the demo is being stopped."""
        for act in self._acts:
            act.cancel()
        await asyncio.gather(*self._acts, return_exceptions=True)

    # -- acting --------------------------------------------------------------------------------------

    def _act(self, doing: Coroutine[Any, Any, None]) -> None:
        self._acts.append(asyncio.create_task(doing))

    def _tell(self, text: str) -> None:
        self.timeline.interrupt()
        paper = self.timeline.paper
        paper.line(f"{paper.glyph('▶', '>')} {text}", "bold yellow", hang=2)
        paper.flush()

    async def _lose_worker(self, why: str) -> None:
        async with self._one_at_a_time:
            self.worker.kill()
            self._killed_at = time.monotonic()
            self._tell(f"worker {self.worker.number} killed with SIGKILL: {why}")
            seconds = await self.worker.start()
            self._tell(f"worker {self.worker.number} started in {seconds:.1f} s, knowing nothing; the job goes on")

    async def _answer(self, event: Event, first: bool) -> None:
        """Decide an approval from another process; before the first one, let the worker die while it waits."""
        if first:
            await asyncio.sleep(LOOK_SECONDS)
            await self._lose_worker("the job waits for a person, and needs no process for that")
        name = event.data["request"]["arguments"]
        asked = json.loads(await self.loom.store.read(lambda tx: tx.get_blob(name)))
        choice = "approve" if self._harmless(asked) else "reject"
        await self._decide(event.job, str(event.data["approval_id"]), choice)

    def _harmless(self, arguments: Json) -> bool:
        """Whether a call touches nothing but the demo's own directory; a real model may want to write elsewhere."""
        path = arguments.get("path") if isinstance(arguments, dict) else None
        if not isinstance(path, str):
            return False
        return (self.place.checkout / path).resolve().is_relative_to(self.place.folder.resolve())

    async def _decide(self, job: str, approval: str, choice: str) -> None:
        script = self.place.examples / "approve.py"
        arguments = (self.loom.settings.address, self.loom.settings.namespace, job, approval, choice)
        self._tell("somebody decides, in another process that imports no Loom, by a plain Temporal signal:")
        self.timeline.paper.line(f"  python {self.place.short(script)} {' '.join(arguments)}", "yellow", hang=6)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            str(script),
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(DECIDE_SECONDS):
                _, said = await process.communicate()
        except TimeoutError:
            raise LoomError(f"{script} did not end within {DECIDE_SECONDS:.0f} s") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            last = said.decode(errors="replace").strip().splitlines()[-1:]
            raise LoomError(f"{script} failed: {' '.join(last)}")
