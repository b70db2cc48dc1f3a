"""Somebody who reads a page and does what it says, in a directory and a namespace or with a server of their own."""

import contextlib
import os
import pty
import re
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import psutil

from loom_cli.dev import guardian
from loom_cli.dev.server import DevServer
from loom_cli.dev.temporal_cli import find_temporal
from tests.docs.markdown import Block
from tests.support.ports import own_port
from tests.support.waiting import PATIENCE, until

QUESTION = b"[l]ater?"
READY = re.compile(r"(?m)^http://|^worker ready")
"""What a command prints that goes on in the background, when it can be used."""
FRESH = (sys.executable, "-P", "-m", "loom_cli")
_WITH_ALL_BELOW = """
trap 'trap "" TERM; kill -TERM 0; wait' TERM
{{
{text}
}} &
wait $!
"""
"""A command that goes on in the background, of which nothing goes on once its shell is told to end."""
_PROJECT = "loom init .\n"
_MODEL = "loom fake-model --script script.yaml --port 8126\n"
_DEV = "OPENAI_BASE_URL=http://127.0.0.1:8126/v1 loom dev --tools tools\n"


class Reader:
    """Follows one page. The ports that the page names are replaced by free ones.

    Args:
        folder: Where everything happens.
        loom: What `loom` runs; commands at a terminal are started anew whatever it is.
        python: What `python -` runs.
        server: What runs already, so that `loom dev` needs to start a worker only; none: `loom dev` starts its own.
        namespace: The page's own one of that server.
    """

    def __init__(
        self,
        folder: Path,
        loom: Sequence[str] = FRESH,
        python: Sequence[str] = (sys.executable, "-"),
        server: DevServer | None = None,
        namespace: str = "default",
    ) -> None:
        self.home = folder / "home"
        self._state = folder / "state"
        self._bin = folder / "bin"
        for place in (self.home, self._state, self._bin):
            place.mkdir()
        self._ports = {str(port): str(own_port()) for port in (7233, 7243, 8126, 8480, 8490, 9464)}
        self._namespace = namespace
        if server is not None:
            self._ports["7233"] = server.address.rpartition(":")[2]
            self._ports["7243"] = server.http_address.rpartition(":")[2]
        self._background: list[tuple[subprocess.Popen[bytes], Path]] = []
        self._shell = self._state / "shell"
        self._shell.write_text(f"cd {self.home}\n")
        self._make_commands(loom, python, has_server=server is not None)
        self.output = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process, _ in reversed(self._background):
            assert process.stdin is not None
            process.stdin.close()  # the guardian ends it then
        for process, _ in reversed(self._background):
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        left = self._left()
        _, alive = psutil.wait_procs(left, timeout=PATIENCE)
        for process in alive:
            process.kill()
        assert not alive, f"the page leaves these running: {[process.pid for process in alive]}"

    def begin_project(self) -> None:
        """Do what the README's first agent does."""
        self._run(_PROJECT)
        self._start(_MODEL)
        self._start(_DEV)

    def follow(self, block: Block) -> None:
        """Run a block of commands or of Python."""
        if block.language == "python":
            (self._state / "block.py").write_text(self.with_own_ports(block.text))
            self._run(f"python - < {self._state / 'block.py'}\n")
        elif "background" in block.words:
            self._start(block.text)
        elif "answer" in block.options:
            self._run_at_terminal(block.text, block.options["answer"])
        elif "retry" in block.words:
            self._run_until_it_succeeds(block.text)
        else:
            self._run(block.text)

    def path(self, name: str) -> Path:
        """Give a file as the page names it."""
        found = re.search(r"(?m)^cd (.*)$", self._shell.read_text())
        assert found is not None
        return Path(found[1].strip("'\"")) / name

    def with_own_ports(self, text: str) -> str:
        """Replace the page's ports."""
        return re.sub(r"\b(7233|7243|8126|8480|8490|9464)\b", lambda found: self._ports[found[1]], text)

    def says(self, text: str) -> bool:
        """Say whether the block before printed this, the page's namespace being another one here."""
        return shown(text.replace('namespace="default"', f'namespace="{self._namespace}"'), self.output)

    def _run(self, text: str) -> None:
        command = self._script(text)
        ended = subprocess.run(
            command, env=self._env(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=2 * PATIENCE
        )
        self.output = ended.stdout
        assert ended.returncode == 0, self._tell(text, ended.returncode, self.output)

    def _run_until_it_succeeds(self, text: str) -> None:
        def succeeds() -> bool:
            self._run(text)
            return True

        assert until(succeeds, every=0.2)

    def _run_at_terminal(self, text: str, answer: str) -> None:
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            self._script(text), env={**self._env(), "TERM": "dumb"}, stdin=theirs, stdout=theirs, stderr=theirs
        )
        os.close(theirs)
        said, answered, end = b"", False, time.monotonic() + PATIENCE
        try:
            while time.monotonic() < end:
                if not select.select([ours], [], [], 0.1)[0]:
                    continue
                try:
                    said += os.read(ours, 65536)
                except OSError:  # the other side is closed
                    break
                if not answered and QUESTION in said:
                    answered = True
                    os.write(ours, f"{answer}\n".encode())
            self.output = said.decode().replace("\r\n", "\n")
            assert answered, f"it never asked:\n{self.output}"
            status = process.wait(PATIENCE)
        finally:
            process.kill()
            process.wait()
            os.close(ours)
        assert status == 0, self._tell(text, status, self.output)

    def _start(self, text: str) -> None:
        log = self._state / f"background-{len(self._background)}"
        guarded = [sys.executable, "-I", "-S", guardian.__file__, f"--grace={PATIENCE}"]
        command = [*guarded, *self._script(_WITH_ALL_BELOW.format(text=text), keep=False)]
        with log.open("wb") as out:
            process = subprocess.Popen(
                command, env=self._env(), stdin=subprocess.PIPE, stdout=out, stderr=out, start_new_session=True
            )
        self._background.append((process, log))
        end = time.monotonic() + PATIENCE
        while not READY.search(log.read_text()):
            assert process.poll() is None, self._tell(text, process.returncode, log.read_text())
            assert time.monotonic() < end, f"this was not ready in {PATIENCE:g} s:\n{text}\n{log.read_text()}"
            time.sleep(0.05)

    def _left(self) -> list[psutil.Process]:
        """The processes that were started here, by whatever command, and are still there."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("XDG_STATE_HOME") == str(self._state):
                    found.append(process)
        return found

    def _script(self, text: str, *, keep: bool = True) -> list[str]:
        """Give the command that runs a text where the block before it stopped; and remembers where it stops."""
        keeping = f"export -p > {self._shell}; echo \"cd '$PWD'\" >> {self._shell}\n" if keep else ""
        ended = "(exit $?)"  # -e lets `A=$(false) && B=$(true)` pass
        script = f". {self._shell}\nset -aeuo pipefail\n{self.with_own_ports(text)}\n{ended}\nset +a\n{keeping}"
        return ["bash", "-c", script]

    def _tell(self, text: str, status: int, output: str) -> str:
        logs = "\n".join(f"--- {log.name}:\n{log.read_text()[-2_000:]}" for _, log in self._background)
        return f"this ended with {status}:\n{text}\n--- it printed:\n{output}\n{logs}"

    def _env(self) -> dict[str, str]:
        ours = ("LOOM_", "TEMPORAL_ADDRESS", "TEMPORAL_NAMESPACE", "OPENAI_", "FORCE_COLOR", "PYTHONUNBUFFERED")
        address = f"127.0.0.1:{self._ports['7233']}"
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith(ours)},
            "PATH": os.pathsep.join([str(self._bin), str(Path(sys.executable).parent), os.environ["PATH"]]),
            "XDG_STATE_HOME": str(self._state),
            "LOOM_ADDRESS": address,
            "LOOM_CONNECT_SECONDS": str(PATIENCE),
            "LOOM_ANSWER_SECONDS": str(PATIENCE / 2),
            "TEMPORAL_ADDRESS": address,
            "LOOM_NAMESPACE": self._namespace,
            "TEMPORAL_NAMESPACE": self._namespace,
            "COLUMNS": "120",
            "NO_COLOR": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "PYTEST_PLUGINS": "loom_cli.pytest_plugin",  # these sources', as an installed Loom has it
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
        }

    def _make_commands(self, loom: Sequence[str], python: Sequence[str], *, has_server: bool) -> None:
        """Put `loom`, `temporal` and `python` on PATH: these sources', and those that run the tests."""
        port, http = (self._ports[name] for name in ("7233", "7243"))
        dev = f"--port {port} --http-port {http} --headless --db {self._state}/temporal.db"
        own = f'case "$1 $*" in *--port*) ;; dev*) set -- "$@" {dev} ;; esac'
        there = 'case "$1 $*" in *--port*) ;; dev*) shift; set -- worker "$@" ;; esac'
        scripts = {
            "loom": f"""{there if has_server else own}
[ ! -t 0 ] || exec {shlex.join(FRESH)} "$@"
exec {shlex.join(loom)} "$@"
""",
            "temporal": f'exec {shlex.quote(str(find_temporal()))} "$@"\n',
            "python": f"""case "$*" in -) exec {shlex.join(python)} ;; esac
exec {shlex.quote(sys.executable)} "$@"
""",
        }
        for name, script in scripts.items():
            file = self._bin / name
            file.write_text(f"#!/bin/sh\n{script}")
            file.chmod(0o755)


def shown(expected: str, output: str) -> bool:
    """Say whether each line of a text is in the output, in order; … stands for anything in a line."""
    lines = iter(output.split("\n"))
    for line in expected.rstrip("\n").split("\n"):
        pattern = re.compile(".*".join(re.escape(part) for part in line.split("…")))
        if not any(pattern.match(found) for found in lines):
            return False
    return True
