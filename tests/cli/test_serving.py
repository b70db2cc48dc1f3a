"""The commands that stay: the development server with its worker, and the scripted model."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from loom_cli.dev.server import DevServer
from tests.cli.conftest import LOOM, SCRIPTS, House, models_served, served
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.server
WORKER = str(Path(__file__).parents[2] / "worker.py")


class Dev:
    """A running `loom dev`."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.process, self._log = process, log

    def said(self) -> str:
        return self._log.read_text()

    def wait(self, condition: Callable[[], object]) -> None:
        def met() -> bool:
            assert condition(), self.said()
            return True

        until(met)

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def workers(self) -> list[psutil.Process]:
        """The processes that run the worker, without their guardians."""
        return self.those(lambda line: line[1:5] == ["-P", "-m", "loom_cli", "worker"])

    def servers(self) -> list[psutil.Process]:
        """The processes of the Temporal server itself, without their guardians."""
        return self.those(lambda line: "server" in line[1:3])

    def those(self, of: Callable[[list[str]], bool]) -> list[psutil.Process]:
        """The processes with such a command line."""
        found = []
        for child in self.children():
            with contextlib.suppress(psutil.NoSuchProcess):  # it ends just now
                found += [child] if of(child.cmdline()) else []
        return found


@contextmanager
def dev(house: House, *arguments: str, **more: str) -> Iterator[Dev]:
    log = house.folder / f"dev-{time.monotonic_ns()}.log"
    ports = ["--port", "0", "--http-port", "0", "--headless", "--db", str(house.folder / "temporal.db")]
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*LOOM, "dev", *ports, *arguments], stdout=out, stderr=out, env=house.environment(**more), cwd=house.folder
        )
    try:
        yield Dev(process, log)
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(PATIENCE)


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[House]:
    """Models, and neither a server nor a worker."""
    scripts = {"asking": "\n  - {calls: [{tool: fine, args: {text: hello}}]}\n  - {say: 'It said {last}'}\n"}
    (tmp_path / "my_tools.py").write_text("def fine(text: str) -> str:\n    '''Say it.'''\n    return text.upper()\n")
    with models_served(scripts) as models:
        yield House(tmp_path, "", tmp_path / "loom.db", "loom", models)


def test_dev_serves_a_job_with_a_users_tool_restarts_its_worker_and_ends_clean(alone: House) -> None:
    with dev(alone, "--tools", "my_tools") as running:
        running.wait(lambda: "worker ready: queue loom" in running.said())
        address = next(line.split()[2] for line in running.said().splitlines() if line.startswith("Temporal server"))
        assert f"export LOOM_ADDRESS={address}" in running.said()
        assert "tools my_tools" in running.said()
        agent = alone.agent("asking", tools=["my_tools:fine"], permissions={"allow": ["fine"]})
        said = alone.loom("run", agent, "x", LOOM_ADDRESS=address)
        assert said.code == 0, said
        assert "It said HELLO" in said.out
        (alone.folder / "my_tools.py").write_text("def fine(text: str) -> str:\n    '''Say it.'''\n    return 'new'\n")
        running.wait(lambda: "my_tools.py has changed; this worker goes on with what it has loaded" in running.said())
        (worker,) = running.workers()
        worker.kill()
        running.wait(lambda: running.said().count("worker ready") == 2)
        assert "the worker ended with status 137; starting it again" in running.said()
        children = running.children()
        os.kill(running.process.pid, signal.SIGINT)
        assert running.process.wait(PATIENCE) == 0, running.said()
        assert not psutil.wait_procs(children, timeout=PATIENCE)[1]
        assert "worker stopped\n" in running.said()


def test_dev_starts_a_server_that_was_killed_again_and_keeps_its_worker(alone: House) -> None:
    with dev(alone, "--tools", "my_tools") as running:
        running.wait(lambda: "worker ready: queue loom" in running.said())
        address = next(line.split()[2] for line in running.said().splitlines() if line.startswith("Temporal server"))
        agent = alone.agent("asking", tools=["my_tools:fine"], permissions={"ask": ["fine"]})
        begun = alone.loom("run", agent, "x", "--detach", LOOM_ADDRESS=address)
        assert begun.code == 0, begun
        job = begun.out.strip()
        (asked,) = alone.pending(job)
        (worker,) = running.workers()
        (server,) = running.servers()
        server.kill()
        running.wait(lambda: f"the Temporal server answers again at {address}" in running.said())
        assert running.said().count("the Temporal server ended; starting it again on its database") == 1
        assert alone.loom("approve", job, asked["id"], LOOM_ADDRESS=address).code == 0
        ended = alone.loom("wait", job, LOOM_ADDRESS=address)
        assert (ended.code, "It said HELLO" in ended.out) == (0, True), ended
        assert running.workers() == [worker]
        assert running.said().count("does not answer; waiting for it") <= 1  # it may be back before that is looked at
        assert "gRPC call" not in running.said()
        assert running.said().count("worker ready") == 1


def test_dev_gives_up_on_a_server_that_dies_again_and_again_and_says_why(alone: House) -> None:
    with dev(alone, "--no-worker") as running:
        running.wait(lambda: "Loom's store" in running.said())
        begun, deaths = time.monotonic(), 0
        killed: set[int] = set()
        while running.process.poll() is None and time.monotonic() - begun < PATIENCE:
            for server in running.servers():
                if server.pid not in killed:
                    killed.add(server.pid)
                    deaths += 1
                    with contextlib.suppress(psutil.NoSuchProcess):
                        server.kill()
            time.sleep(0.02)
        if time.monotonic() - begun < 60:  # else a slow machine has started it over more than a minute
            assert running.process.wait(PATIENCE) == 4
            assert "error: the Temporal server ended 5 times within a minute; its output is in " in running.said()
            assert deaths >= 4


def test_dev_that_is_killed_leaves_nothing_behind(alone: House) -> None:
    with dev(alone) as running:
        running.wait(lambda: "worker ready" in running.said())
        children = running.children()
        assert len(children) >= 4
        running.process.kill()
        running.process.wait()
        assert not psutil.wait_procs(children, timeout=PATIENCE)[1]


def test_dev_with_a_worker_that_cannot_work_says_why_and_ends(alone: House) -> None:
    with dev(alone, "--tools", "no_such_module") as running:
        assert running.process.wait(PATIENCE) == 2, running.said()
        assert "no_such_module" in running.said()
        assert "error: the worker ended with status 2; see the line above" in running.said()


def test_dev_on_a_port_in_use_says_so(alone: House) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        said = alone.loom("dev", "--port", port, "--db", "t.db")
        assert said.code == 2
        assert port in said.err
        assert "Traceback" not in said.err


def test_the_scripted_model_tells_its_address(house: House) -> None:
    script = house.folder / "calm-model.yaml"
    script.write_text(f"loom: 1\nkind: fake-model\nname: calm\nsteps:{SCRIPTS['calm']}")
    command = ["fake-model", "--script", str(script)]
    with (
        served(command, house.environment(), house.folder, "http://", house.ready) as url,
        urllib.request.urlopen(f"{url}/models") as answer,
    ):
        assert json.load(answer)["object"] == "list"


def test_a_worker_ends_in_good_order_and_says_so(dev_server: DevServer, house: House) -> None:
    command = [*LOOM, "worker", "--secret", "GITHUB_TOKEN@api.github.com"]  # as the reference of tools has it
    environment = house.environment(GITHUB_TOKEN="a-token-of-nobody")
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, text=True
    ) as process:
        assert process.stdout is not None
        ready = process.stdout.readline()
        assert ready.startswith(f"worker ready: queue {house.queue}, namespace default at {dev_server.address}")
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=PATIENCE)
        # Temporal's own part may warn, on a busy machine, of what it was told to stop.
        said = [line for line in err.splitlines() if " WARN " not in line]
        assert (process.returncode, said) == (0, ["worker stopped"])


def test_worker_py_alone_does_the_work_of_jobs_with_the_settings_of_the_environment(house: House) -> None:
    environment = house.environment(LOOM_TASK_QUEUE="another", LOOM_GRACE="1")
    with subprocess.Popen(
        [sys.executable, WORKER], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, cwd=house.folder,
        text=True,
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            ready = process.stdout.readline()
            assert ready.startswith(f"worker ready: queue another, namespace default at {house.address}")
            ended = house.loom("run", house.agent("calm"), "x", LOOM_TASK_QUEUE="another")
            assert ended.code == 0, ended
        finally:
            process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, "Traceback" in err) == (0, False), err


@pytest.mark.parametrize(
    ("arguments", "variables", "said"),
    [
        (["--tools", "mine"], {}, "takes no options"),
        ([], {"LOOM_ADDRESS": "nowhere"}, "write HOST:PORT"),
        ([], {"LOOM_ADDRESS": "127.0.0.1:1"}, "no Temporal server answers at 127.0.0.1:1"),
        ([], {"LOOM_GRACE": "soon"}, "the environment's LOOM_GRACE cannot be used"),
        ([], {"LOOM_MCP": "missing.yaml"}, "missing.yaml"),
    ],
    ids=["options", "address", "no server", "grace", "file"],
)
def test_worker_py_says_in_a_line_what_is_wrong_with_its_settings(
    house: House, arguments: list[str], variables: dict[str, str], said: str
) -> None:
    environment = house.environment(**variables)
    done = subprocess.run(
        [sys.executable, WORKER, *arguments], capture_output=True, env=environment, cwd=house.folder, text=True,
        timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
