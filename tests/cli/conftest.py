"""One house for a module's tests: a server, a worker started by the real command line, and scripted models."""

import asyncio
import json
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from loom_cli.dev.fake_model.server import running
from loom_cli.dev.server import DevServer
from loom_dsl.documents.document import load_document
from loom_dsl.documents.validation import validate_model
from loom_dsl.simulation.script import Script
from loom_store.store import Store
from tests.cli.terminal import Terminal
from tests.support.waiting import PATIENCE, until

LOOM = [sys.executable, "-m", "loom_cli"]
_ROOT = Path(__file__).resolve().parents[2]

WRITE = '{tool: write_file, args: {path: "%s", content: "one\\ntwo\\n"}}'
SCRIPTS = {
    "calm": """
  - {say: "I look first.", calls: [{tool: glob, args: {pattern: "**/*"}}, {tool: read_file, args: {path: missing.txt}}]}
  - {say: "All is well."}
""",
    "writer": f"""
  - {{say: "I write.", calls: [{WRITE % "report.md"}]}}
  - {{say: "It said: {{last}}"}}
""",
    "twice": f"""
  - {{say: "First.", calls: [{WRITE % "a.md"}]}}
  - {{say: "Again.", calls: [{WRITE % "a.md"}]}}
  - {{say: "Both are written."}}
""",
    "pair": f"""
  - {{say: "Two at once.", calls: [{WRITE % "a.md"}, {WRITE % "b.md"}]}}
  - {{say: "Both are decided."}}
""",
    "evil": r"""
  - say: "red \u001b[31mtext\u001b]0;title\u0007 and \u009b2J and \u202eabc"
    calls: [{tool: read_file, args: {path: "\u001b[2Jx"}}]
  - {say: "\u001b[2Jend"}
""",
    "broken": """
  - {say: "one two three four five six seven eight nine ten", chunk: 6, delay: 60ms, close_after: 8, times: 1}
""",
    "refusing": """
  - {fail: {status: 503, retry_after: 60s, times: 1}, say: "At last."}
""",
    "hanging": """
  - {hang: true}
""",
    "steered": """
  - {before: 2s, say: "Step {n}.", calls: [{tool: glob, args: {pattern: "*"}}], repeat: 40}
  - {say: "Enough."}
""",
}
"""What each model says; an agent names it as `NAME:any`."""


@dataclass
class House:
    """Everything that the commands need. `queue` has a worker."""

    folder: Path
    address: str
    store: Path
    queue: str
    models: Mapping[str, str]
    answer_seconds: float = PATIENCE / 2
    """How long a command waits for a worker's answer; less where there is none."""
    namespace: str = "default"
    ready: list[str] | None = None
    """The command line of a `loom` that has its libraries already; none runs a fresh interpreter each time."""
    _count: int = field(default=0)

    def environment(self, **more: str) -> dict[str, str]:
        """The environment of a command: nothing of ours is left to chance."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("LOOM_", "OPENAI_"))}
        for name in (
            "NO_COLOR",
            "FORCE_COLOR",
            "COLUMNS",
            "EDITOR",
            "VISUAL",
            "HTTP_PROXY",
            "HTTPS_PROXY",
            "ALL_PROXY",
        ):
            kept.pop(name, None)
            kept.pop(name.lower(), None)
        own = {
            "PYTHONPATH": str(_ROOT),
            "LOOM_ADDRESS": self.address,
            "LOOM_NAMESPACE": self.namespace,
            "LOOM_STORE": str(self.store),
            "LOOM_TASK_QUEUE": self.queue,
            "LOOM_CONNECT_SECONDS": str(PATIENCE),
            "LOOM_ANSWER_SECONDS": str(self.answer_seconds),
            "TERM": "xterm-256color",
            "PYTHONWARNINGS": "error::ResourceWarning",
        }
        return {**kept, **own, **{f"{name.upper()}_BASE_URL": url for name, url in self.models.items()}, **more}

    def loom(self, *arguments: str, stdin: str = "", within: float = PATIENCE, **more: str) -> "Said":
        """Run a command to its end, its output going through pipes."""
        fresh = any(name.startswith(("PYTHON", "LANG", "LC_")) for name in more)  # the interpreter reads these
        done = subprocess.run(
            [*(LOOM if fresh else self.ready or LOOM), *arguments],
            input=stdin.encode(),
            capture_output=True,
            env=self.environment(**more),
            cwd=self.folder,
            timeout=within,
            check=False,
        )
        return Said(done.returncode, done.stdout.decode(), done.stderr.decode())

    def at_terminal(self, *arguments: str, columns: int = 80, **more: str) -> Terminal:
        """Run a command at a terminal."""
        return Terminal([*LOOM, *arguments], self.environment(**more), self.folder, columns)

    def agent(self, model: str, **fields: Any) -> str:
        """Write an agent's file; its path."""
        self._count += 1
        path = self.folder / f"agent-{self._count}.yaml"
        tools = ["glob", "grep", "read_file", "write_file"]
        own = {"loom": 1, "kind": "agent", "name": "scribe", "model": f"{model}:any", "tools": tools}
        path.write_text(json.dumps({**own, **fields}))
        return str(path)

    def workdir(self) -> str:
        """Make a working directory; its path."""
        self._count += 1
        path = self.folder / f"work-{self._count}"
        path.mkdir()
        return str(path)

    def started(self, model: str, *arguments: str, **fields: Any) -> str:
        """Start a job and leave it; its id."""
        start = ("run", self.agent(model, **fields), "do it", "--workdir", self.workdir(), "--detach")
        said = self.loom(*start, *arguments)
        assert said.code == 0, said
        return said.out.strip()

    def pending(
        self, job: str, count: int = 1, status: str | None = "pending", but: tuple[str, ...] = ()
    ) -> list[dict[str, Any]]:
        """Wait until the job asks so often; the approvals.

        Args:
            job: The job.
            count: How often.
            status: None: also those that do not wait any more.
            but: Ids of those that were decided: a slow worker writes that down a moment after it has said so.
        """
        with Store.open(self.store) as store:

            def asked() -> list[dict[str, Any]]:
                found = store.read_sync(lambda tx: tx.approvals(status=status, job=job))
                rows = [row for row in found if row["id"] not in but]
                assert len(rows) >= count, f"job {job} has asked {len(rows)} times"
                return rows

            return until(asked)

    def shows(self, job: str, text: str) -> bool:
        """Wait until `loom show` says so, however it breaks its lines: it soon gives up on a server that is slow."""

        def said() -> bool:
            shown = " ".join(self.loom("show", job).out.split())
            assert text in shown, shown
            return True

        return until(said)


@dataclass(frozen=True)
class Said:
    """What a command said, and its exit status."""

    code: int
    out: str
    err: str


@contextmanager
def served(
    command: list[str], environment: Mapping[str, str], folder: Path, ready: str, loom: list[str] | None = None
) -> Iterator[str]:
    """Run a command that stays, until it is ready; yields the line that says so, and ends it with SIGTERM.

    Args:
        command: Its arguments.
        environment: Its variables.
        folder: Its directory, where its log goes.
        ready: What is in the line that says so.
        loom: The command line of a `loom` that has its libraries already; none runs a fresh interpreter.
    """
    log = folder / f"{uuid.uuid4().hex[:6]}.log"
    with log.open("wb") as out:
        process = subprocess.Popen([*(loom or LOOM), *command], stdout=out, stderr=out, env=environment, cwd=folder)
    try:
        yield until(lambda: _ready(process, log, ready))
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        finally:
            process.kill()


def _ready(process: "subprocess.Popen[bytes]", log: Path, ready: str) -> str | None:
    said = log.read_text()
    if process.poll() is not None:
        raise RuntimeError(f"it ended with {process.returncode}:\n{said}")
    line = next((line for line in said.splitlines(keepends=True) if ready in line and line.endswith("\n")), None)
    assert line is not None, said
    return line.rstrip("\n")


@contextmanager
def models_served(scripts: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Serve scripted models beside the tests; yields their addresses."""
    addresses: dict[str, str] = {}
    ready, stop = threading.Event(), threading.Event()

    async def serve() -> None:
        async with AsyncExitStack() as stack:
            for name, steps in scripts.items():
                text = f"loom: 1\nkind: fake-model\nname: {name}\nsteps:{steps}"
                script = validate_model(load_document(text, name, kinds=("fake-model",)), Script)
                addresses[name] = await stack.enter_async_context(running(script))
            ready.set()
            await asyncio.to_thread(stop.wait)

    with ThreadPoolExecutor(1) as thread:
        serving = thread.submit(asyncio.run, serve())
        while not ready.wait(0.1) and not serving.done():
            continue
        try:
            yield addresses
        finally:
            stop.set()
            serving.result()


@pytest.fixture
def fresh() -> Callable[[str], str]:
    """Gives ids of jobs that no other test has taken: all share a server."""
    return lambda name: f"{name}-{uuid.uuid4().hex[:12]}"


@pytest.fixture(scope="module")
def house(dev_server: DevServer, loom_at_hand: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("house")
    with models_served(SCRIPTS) as models:
        made = House(folder, dev_server.address, folder / "loom.db", f"cli-{uuid.uuid4().hex[:8]}", models)
        made.ready = loom_at_hand
        with served(["worker"], made.environment(), folder, "worker ready", made.ready):
            yield made
