"""What `loom wait` and `loom result` tell a person while the job waits for one."""

import shlex
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.cli.conftest import LOOM, House
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.server
TOLD = "; decide with `"


class Waiting:
    """A command that waits for a job, and the lines that it has said so far."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.said: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr
        for line in self.process.stderr:
            self.said.append(line.rstrip("\n"))

    def says(self, count: int) -> str:
        """Wait until it has said so many lines; the last of them."""

        def enough() -> str:
            assert len(self.said) >= count, self.said
            return self.said[count - 1]

        return until(enough)

    def end(self) -> tuple[int, str]:
        """Wait for its end; the status and what it printed."""
        assert self.process.stdout
        out = self.process.stdout.read()
        self._reader.join(PATIENCE)
        return self.process.wait(PATIENCE), out


@contextmanager
def waiting(house: House, *arguments: str) -> Iterator[Waiting]:
    command = [*LOOM, *arguments]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=house.environment(), cwd=house.folder, text=True, **pipes) as process:  # type: ignore[call-overload]
        try:
            yield Waiting(process)
        finally:
            process.kill()


def test_it_says_once_why_the_job_waits_and_what_decides_it(house: House) -> None:
    job = house.started("twice")
    (first,) = house.pending(job)
    with waiting(house, "wait", job) as wait, waiting(house, "result", job, "--json") as quiet:
        line = wait.says(1)
        assert line.startswith(f"job {job} waits: approval {first['id']} (write_file) since ")
        assert line.removeprefix(f"job {job} waits: ").partition(TOLD)[0] in " ".join(
            house.loom("show", job).out.split()
        )

        command = line.partition(TOLD)[2].rstrip("`")
        assert command == f"loom approve {job} {first['id']}"
        assert house.loom(*shlex.split(command)[1:]).code == 0
        second = wait.says(2).split()[4]
        assert wait.says(2).startswith(f"job {job} waits: approval {second} (write_file) since ")
        assert second != first["id"]

        assert house.loom("pause", job, "--by", "ann").code == 0
        assert wait.says(3) == f"job {job} waits: paused by ann; go on with `loom resume {job}`"
        assert house.loom("resume", job, "--by", "ann").code == 0
        assert wait.says(4) == wait.says(2)
        assert house.loom("reject", job, second).code == 0
        assert wait.end() == (0, "Both are written.\n")
        assert len(wait.said) == 4
        assert quiet.end()[0] == 0
        assert quiet.said == []


def test_a_question_of_a_graph_is_told_with_its_answers(house: House) -> None:
    graph = house.folder / "ask.yaml"
    graph.write_text(
        "loom: 1\nkind: graph\nname: ask\nnodes:\n"
        "  ask: {approval: {ask: Which one?, choices: [left, right]}, deadline: never, next: done}\n"
        '  done: {end: "${result.choice}"}\n'
    )
    begun = house.loom("run", str(graph), "--detach")
    assert begun.code == 0, begun
    job = begun.out.strip()
    (asked,) = house.pending(job)
    with waiting(house, "wait", job) as wait:
        assert wait.says(1).endswith(f"{TOLD}loom approve {job} {asked['id']} --choice left|right`")
        assert house.loom("approve", job, asked["id"], "--choice", "right").code == 0
        assert wait.end() == (0, "right\n")
