"""A worker as a real process, which a test may kill and which cannot outlive the test.

It is forked from the process that has its libraries already: a second of each start would go to importing.
Run as ``python -m tests.support.worker_process OPTIONS``, it is that process.
"""

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import psutil

from activities.lifecycle.deaths import DeathRules
from activities.lifecycle.shutdown import GRACE
from loom_cli.dev import guardian
from loom_client.settings import Settings
from tests.support import ready_loom
from tests.support.waiting import PATIENCE, eventually
from worker import serve

READY = "the worker is ready"
TOOLS = ("tests.support.external",)
_ROOT = Path(__file__).resolve().parents[2]


class WorkerProcess:
    """One worker: started, killed, started again. As a context manager it is killed at the end.

    Args:
        settings: The server, the task queue and the store.
        model: Base URL of the model's endpoint.
        folder: Where its log goes; working directories lie below.
        environment: More variables for it.
        tools: Modules of tools that it loads.
        activities: How many it runs at once. With one, it asks for no further work while a tool runs.
        webhooks: The file of webhooks.
        deaths: Fields of the rules about deaths that differ from the usual ones.
        grace: Seconds that steps go on for once it is told to stop.
        on_approval: Who is told that a job waits.
    """

    def __init__(
        self,
        settings: Settings,
        model: str,
        folder: Path,
        environment: Mapping[str, str] | None = None,
        tools: Sequence[str] = TOOLS,
        activities: int = 100,
        *,
        webhooks: Path | None = None,
        deaths: Mapping[str, float] | None = None,
        grace: float | None = None,
        on_approval: str = "",
    ) -> None:
        self._options = {
            "address": settings.address,
            "namespace": settings.namespace,
            "task_queue": settings.task_queue,
            "store": str(settings.store),
            "root": str(folder),
            "tools": list(tools),
            "max_concurrent_activities": activities,
            "webhooks": str(webhooks) if webhooks else None,
            "deaths": dict(deaths or {}),
            "on_approval": on_approval,
            **({} if grace is None else {"grace": grace}),
        }
        self._patience = guardian.GRACE_SECONDS + (GRACE if grace is None else grace)
        self._environment = {**os.environ, "OPENAI_BASE_URL": model, "OPENAI_API_KEY": "none", **(environment or {})}
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._pid = 0
        self.log = folder / "worker.log"
        self.starts = 0

    async def start(self) -> Self:
        """Start it, and wait until it takes work."""
        assert self._process is None, "the worker runs already"
        self.starts += 1
        before = len(self._said())
        command = [*ready_loom.at_hand(), "-m", "tests.support.worker_process", json.dumps(self._options)]
        self._pid = 0
        with self.log.open("ab") as log:
            # The guardian ends the worker when this process lets go of its input, in whatever way.
            self._process = subprocess.Popen(  # noqa: ASYNC220 - a fork takes milliseconds
                [sys.executable, "-I", "-S", guardian.__file__, f"--grace={self._patience}", *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=_ROOT,
                env=self._environment,
                start_new_session=True,
            )
        await eventually(lambda: self._is_ready(before))
        return self

    def kill(self) -> float:
        """Kill it with SIGKILL, and wait until it is gone; the moment of the kill, on the monotonic clock."""
        assert self._process is not None, "the worker does not run"
        process, self._process = self._process, None
        worker = [psutil.Process(self._pid)] if psutil.pid_exists(self._pid) else []
        moment = time.monotonic()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        psutil.wait_procs(worker, timeout=PATIENCE)
        assert process.stdin is not None
        process.stdin.close()
        return moment

    def stop(self) -> None:
        """Tell it to stop, as a deployment does; the second time, to stop at once. `ended` waits for its end."""
        assert self._process is not None, "the worker does not run"
        self._process.send_signal(signal.SIGTERM)

    def said(self) -> str:
        """What it wrote to its log."""
        return self._said()

    async def ended(self) -> int:
        """Wait until it ends by itself; its exit status, 128 + n when signal n ended it."""
        process = self._process
        assert process is not None, "the worker does not run"
        await eventually(lambda: process.poll() is not None)
        self._process = None
        assert process.stdin is not None
        process.stdin.close()
        return int(process.returncode)

    def memory(self) -> int:
        """Its resident memory in bytes."""
        return int(self.process().memory_info().rss)

    @property
    def pid(self) -> int:
        """The worker's own process; 0 while there is none."""
        return self._pid if self._process is not None and psutil.pid_exists(self._pid) else 0

    def process(self) -> psutil.Process:
        """The process itself."""
        assert self._process is not None, "the worker does not run"
        return psutil.Process(self._pid)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:  # one that ended by itself has said so
            self.kill()

    def _said(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def _is_ready(self, before: int) -> bool:
        said = self._said()[before:]
        if self._process is not None and self._process.poll() is not None:
            raise RuntimeError(f"the worker ended with {self._process.returncode}:\n{said[-3_000:]}")
        ready = re.search(rf"^{READY}: process (\d+)$", said, re.MULTILINE)
        self._pid = int(ready[1]) if ready else 0
        return ready is not None


def main() -> None:
    """Be the worker."""
    options: dict[str, Any] = json.loads(sys.argv[1])
    options |= {name: Path(options[name]) for name in ("root", "webhooks") if options[name]}
    options["deaths"] = DeathRules(**options["deaths"])
    ready = f"{READY}: process {os.getpid()}"
    asyncio.run(serve(**options, ready=ready, tell=lambda line: print(line, flush=True)))
    # The interpreter's own end is left out: after a worker ran, it sometimes aborts there.
    os._exit(0)


if __name__ == "__main__":
    main()
