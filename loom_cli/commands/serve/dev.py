"""``loom dev``: a server and a worker that live and end together."""

import asyncio
import contextlib
import math
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from loom_cli.dev import guardian
from loom_cli.dev.server import DevServer
from loom_cli.errors import MISTAKE, UNCLEAR, say
from loom_cli.options import named_by
from loom_client.settings import Settings, without_access
from loom_dsl.errors import ConfigurationError
from loom_store.location import file_of

# A worker keeps the tools that it has loaded: saying so when their files change.


LOOK_SECONDS = 1.0


async def tell_of_changes(modules: Sequence[str]) -> None:
    """Say once for each change that a file of these modules is newer than what runs; until cancelled."""
    seen: dict[Path, int] = {}
    while modules:
        for file in _files(modules):
            try:
                now = file.stat().st_mtime_ns
            except OSError:  # an editor puts a new file in its place
                continue
            if seen.setdefault(file, now) != now:
                seen[file] = now
                say(
                    f"{file} has changed; this worker goes on with what it has loaded: start it again to use the change"
                )
        await asyncio.sleep(LOOK_SECONDS)


def _files(modules: Sequence[str]) -> Iterator[Path]:
    for name, module in list(sys.modules.items()):
        own = any(name == listed or name.startswith(f"{listed}.") for listed in modules)
        if own and (file := getattr(module, "__file__", None)):
            yield Path(file)


SHORT_LIFE = 5.0
"""A worker that gives up sooner than this, in seconds, has no chance the next time either."""
MAX_DEATHS = 5
DEATHS_SECONDS = 60.0
"""A server that ended so often within so long is not started once more."""
PAUSE_SECONDS = 1.0
KILLED = 128
"""From this exit status on it was a signal that ended a process, not the process itself."""
_POLL_SECONDS = 0.1
_AFTER_GRACE = 5.0
"""Seconds that a worker has beyond its grace before it is killed."""


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """What a worker is started with."""

    tools: tuple[str, ...]
    root: Path
    on_approval: str
    secrets: tuple[str, ...]
    mcp: Path | None = None
    webhooks: Path | None = None
    keys: Path | None = None
    metrics: str = ""
    grace: float = 25.0

    def command(self, settings: Settings, address: str, environment: Mapping[str, str] = os.environ) -> list[str]:
        """Give the command line of the worker, which has these variables."""
        command = [sys.executable, "-P", "-m", "loom_cli", "worker", "--address", address]
        command += ["--namespace", settings.namespace, "--task-queue", settings.task_queue]
        if file_of(settings.store_path()) is not None:  # a server's address may have a password: not in a command line
            command += ["--store", str(settings.store_path())]
        command += ["--root", str(self.root)]
        command += [part for module in self.tools for part in ("--tools", module)]
        command += [part for name in self.secrets for part in ("--secret", name)]
        files = (("--mcp", self.mcp), ("--webhooks", self.webhooks), ("--approver-keys", self.keys))
        for flag, file in files:
            if file is not None and named_by(flag, file, environment) == flag:
                command += [flag, str(file.absolute())]
        command += ["--grace", f"{self.grace:g}"]
        command += ["--metrics", self.metrics] if self.metrics else []
        return command + (["--on-approval", self.on_approval] if self.on_approval else [])


async def develop(server: DevServer, settings: Settings, options: WorkerOptions | None) -> int:
    """Run until SIGINT, SIGTERM, a server or a worker that cannot work; the exit status.

    A server that dies is started again on its database; its worker goes on meanwhile.
    """
    stop, at_once = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, lambda: (at_once if stop.is_set() else stop).set())
    say("starting the Temporal server ...")
    starting = asyncio.create_task(server.start())
    if await _first(starting, stop):
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        await server.stop()
        return 130
    try:
        starting.result()
        _print_addresses(server, settings)
        return await _watch(server, settings, options, stop, at_once)
    finally:
        await server.stop()


async def _first(task: "asyncio.Task[object]", stop: asyncio.Event) -> bool:
    """Wait for the task; True when it is to be stopped before."""
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    return not task.done()


def _print_addresses(server: DevServer, settings: Settings) -> None:
    lines = [f"Temporal server  {server.address}  (LOOM_ADDRESS)", f"HTTP API         http://{server.http_address}"]
    if server.ui_url:
        lines.append(f"web console      {server.ui_url}")
    lines += [f"server's file    {server.db}", f"Loom's store     {settings.shown_store()}  (LOOM_STORE)"]
    print("\n".join(lines), flush=True)
    if server.address != settings.address:
        print(f"other terminals: export LOOM_ADDRESS={server.address}", flush=True)


async def _watch(
    server: DevServer, settings: Settings, options: WorkerOptions | None, stop: asyncio.Event, at_once: asyncio.Event
) -> int:
    """Keep the server and a worker running until the end."""
    reviver = _Reviver(server, stop)
    while True:
        begun = time.monotonic()
        async with _child(options, settings, server.address, at_once) as child:
            ended = await _end_of(reviver, child, stop)
        if ended is None:
            say("stopping")
            return 0
        if reviver.gave_up:
            say(f"error: {reviver.gave_up}; its output is in {server.log}")
            return UNCLEAR
        if reviver.revived_since(begun):  # it may have ended for want of a server
            say(f"the worker ended with status {ended}; starting it again")
            continue
        gave_up = ended < KILLED and time.monotonic() - begun < SHORT_LIFE
        if ended == MISTAKE or gave_up:
            say(f"error: the worker ended with status {ended}; see the line above")
            return ended or 1
        say(f"the worker ended with status {ended}; starting it again")


class _Reviver:
    """Starts a server again that has died, unless it dies again and again.

    Attributes:
        gave_up: Why it does not any more; empty while it does.
    """

    def __init__(self, server: DevServer, stop: asyncio.Event) -> None:
        self._server, self._stop = server, stop
        self._deaths: deque[float] = deque(maxlen=MAX_DEATHS)
        self._last = -math.inf
        self.gave_up = ""

    def revived_since(self, moment: float) -> bool:
        """Whether the server has died since a moment of the monotonic clock."""
        return self._last > moment

    async def revive(self) -> None:
        """See to it that the server runs; `gave_up` says why it does not."""
        while not (self._server.running or self.gave_up or self._stop.is_set()):
            now = self._last = time.monotonic()
            self._deaths.append(now)
            if len(self._deaths) == MAX_DEATHS and now - self._deaths[0] < DEATHS_SECONDS:
                self.gave_up = self.gave_up or f"the Temporal server ended {MAX_DEATHS} times within a minute"
                return
            say("the Temporal server ended; starting it again on its database, jobs go on where they were")
            await self._start()

    async def _start(self) -> None:
        starting = asyncio.create_task(self._server.start())
        if await _first(starting, self._stop):
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            return
        try:
            starting.result()
        except ConfigurationError as error:
            say(f"it did not start: {error.message}")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), PAUSE_SECONDS)
        else:
            say(f"the Temporal server answers again at {self._server.address}")


async def _end_of(reviver: _Reviver, child: "subprocess.Popen[bytes] | None", stop: asyncio.Event) -> int | None:
    """Wait until something ends: the worker's status, or None when all is to be stopped."""
    while not stop.is_set():
        await reviver.revive()
        if reviver.gave_up:
            return 1
        if child is not None and child.poll() is not None:
            return child.returncode
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), _POLL_SECONDS)
    return None


@contextlib.asynccontextmanager
async def _child(
    options: WorkerOptions | None, settings: Settings, address: str, at_once: asyncio.Event
) -> "AsyncIterator[subprocess.Popen[bytes] | None]":
    """Run the worker under the guardian, so that it ends with us, in whatever way we end.

    It gets its grace when it is to end; when `at_once` is set meanwhile, it is told so.
    """
    if options is None:
        yield None
        return
    patience = options.grace + _AFTER_GRACE
    process = _spawn(options.command(settings, address), settings, patience)
    try:
        yield process
    finally:
        if process.stdin:
            process.stdin.close()
        hurrying = asyncio.create_task(_hurry(process, at_once))
        waited = 0.0
        while process.poll() is None and waited < patience + _AFTER_GRACE:
            await asyncio.sleep(_POLL_SECONDS)
            waited += _POLL_SECONDS
        hurrying.cancel()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


async def _hurry(process: "subprocess.Popen[bytes]", at_once: asyncio.Event) -> None:
    await at_once.wait()
    process.send_signal(signal.SIGTERM)  # its guardian passes it on


def _spawn(command: list[str], settings: Settings, patience: float) -> "subprocess.Popen[bytes]":
    # Loom itself is found also where it is not installed but run from its directory.
    home = str(Path(__file__).resolve().parents[3])
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    return subprocess.Popen(
        [sys.executable, "-I", "-S", guardian.__file__, f"--grace={patience:g}", *command],
        stdin=subprocess.PIPE,
        env={
            **without_access(os.environ),
            "PYTHONPATH": os.pathsep.join([*paths, home]),
            "LOOM_STORE": str(settings.store_path()),
        },
        start_new_session=True,  # Ctrl-C at the terminal is ours to pass on, in order: the worker, then the server
    )
