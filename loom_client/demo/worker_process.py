"""A worker that can be killed: ``loom worker`` as a process that cannot outlive its starter."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import loom_client
from loom_client import guardian
from loom_client.settings import Settings, without_access
from loom_dsl.errors import ConfigurationError

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
        self._command = [sys.executable, "-P", "-m", "loom_client.cli", "worker", *options, *arguments]
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
