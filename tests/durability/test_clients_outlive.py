"""Whoever only waits or asks goes on when a killed server is back: in one process and in many, and told in one line."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import IO, Any

import pytest
from temporalio.service import RPCError

from loom_cli.dev.server import DevServer
from loom_client.runner import AgentRunner
from loom_client.server.errors import is_away
from loom_client.server.reconnect import SENT_SECONDS, lasting
from loom_client.start.schedules import Times
from loom_dsl.errors import LoomError, NotFoundError
from tests.cli.conftest import LOOM
from tests.durability.conftest import House, Opener
from tests.durability.test_worker_killed import calling
from tests.support.external import BEGUN, HOLD, lines
from tests.support.waiting import PATIENCE, eventually

pytestmark = [pytest.mark.server, pytest.mark.crash]

AWAY, BACK = "does not answer; waiting for it", "answers again"
_ROOT = Path(__file__).resolve().parents[2]
TOGETHER = """
import asyncio, sys
from loom_client.connection import connect

async def main():
    async with connect() as loom:
        print("ready", flush=True)
        results = await asyncio.gather(*(loom.job(sys.argv[1]).result() for _ in range(int(sys.argv[2]))))
        print(*(result.status for result in results), flush=True)

asyncio.run(main())
"""


async def twice_killed(server: DevServer, log: Path | None = None) -> None:
    """Kill the server and start it again, two times, while others wait; the second time it is away for longer.

    Args:
        server: The server.
        log: What those who wait say: it stays away until they have said so, and then they say that it is back.
    """
    for away in (0.0, 8.0):
        server.kill()
        await asyncio.sleep(away)  # as an outage: nothing else is waited for
        if log is not None and away:
            await eventually(lambda: said(log)[-1:] == [AWAY])
        await server.start()
        if log is not None and away:
            await eventually(lambda: said(log)[-1:] == [BACK])
        await asyncio.sleep(1.0)


def said(log: Path) -> list[str]:
    """Whether the server is away or back, as often as it was said."""
    return [word for line in log.read_text().splitlines() for word in (AWAY, BACK) if line.endswith(word)]


def environment(house: House) -> dict[str, str]:
    own = {name: str(getattr(house.settings, name)) for name in ("address", "namespace", "task_queue", "store")}
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": str(house.folder),
        "PYTHONPATH": str(_ROOT),
        **{f"LOOM_{name.upper()}": value for name, value in own.items()},
    }


def process(house: House, *command: str, log: IO[str] | int = subprocess.PIPE) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, *command],
        env=environment(house),
        cwd=house.folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
    )


async def ended(waiting: "subprocess.Popen[str]") -> tuple[str, str]:
    out, err = await asyncio.to_thread(waiting.communicate, timeout=PATIENCE)
    return out, err


@pytest.mark.parametrize("waiters", [8, pytest.param(24, marks=pytest.mark.nightly)])
async def test_all_waiters_of_one_process_outlast_two_kills_and_are_told_of_each_in_one_line(
    house: Opener, own_server: DevServer, waiters: int
) -> None:
    opened = await house(calling("register"), server=own_server)
    async with opened.worker():
        job = await opened.start(hold=True)
        await eventually(lambda: lines(opened.workdir(job), BEGUN))
        log = opened.folder / "waiting.log"
        with log.open("w") as kept:
            waiting = process(opened, "-c", TOGETHER, job.id, str(waiters), log=kept)
        try:
            assert waiting.stdout
            assert await asyncio.to_thread(waiting.stdout.readline) == "ready\n"
            await twice_killed(own_server, log)
            opened.release(job)
            out, _ = await ended(waiting)
        finally:
            waiting.kill()
        err = log.read_text()
    assert out == " ".join(["completed"] * waiters) + "\n", err
    told = err.splitlines()
    assert 2 <= len(told) < 2 * waiters, told  # a slow machine may take the server for away once more
    assert [line.endswith(AWAY) for line in told] == [True, False] * (len(told) // 2), told
    assert all(line.endswith(BACK) for line in told[1::2]), told


@pytest.mark.nightly
async def test_commands_that_wait_outlast_a_kill_and_end_as_the_job_does(house: Opener, own_server: DevServer) -> None:
    opened = await house(calling("register"), server=own_server)
    async with opened.worker():
        job = await opened.start(hold=True)
        await eventually(lambda: lines(opened.workdir(job), BEGUN))
        commands = [("wait", job.id), ("result", job.id, "--json"), ("watch", job.id), ("watch", job.id, "--json")]
        waiting = [process(opened, *LOOM[1:], *command) for command in commands]
        try:
            assert waiting[2].stdout
            assert job.id in await asyncio.to_thread(waiting[2].stdout.readline)
            await twice_killed(own_server)
            opened.release(job)
            said = await asyncio.gather(*(ended(one) for one in waiting))
        finally:
            for one in waiting:
                one.kill()
    assert [one.returncode for one in waiting] == [0] * len(waiting), said
    assert len(said[0][1].splitlines()) % 2 == 0, said  # what ends soon is bridged without a word
    assert json.loads(said[1][0])["status"] == "completed"
    assert all(isinstance(json.loads(line), dict) for line in said[3][0].splitlines())


async def test_a_command_that_waits_may_be_begun_before_the_server_is_back(
    house: Opener, own_server: DevServer
) -> None:
    opened = await house(calling("register"), server=own_server)
    async with opened.worker():
        job = await opened.start(hold=True)
        await eventually(lambda: lines(opened.workdir(job), BEGUN))
        own_server.kill()
        waiting = process(opened, *LOOM[1:], "wait", job.id)
        limited = process(opened, *LOOM[1:], "wait", job.id, "--timeout", "1s")
        try:
            assert waiting.stderr
            assert (await asyncio.to_thread(waiting.stderr.readline)).endswith(f"{AWAY}\n")
            assert "has not ended within 1s, as far as is known here" in (await ended(limited))[1]
            assert limited.returncode == 4
            await own_server.start()
            opened.release(job)
            out, err = await ended(waiting)
        finally:
            waiting.kill()
            limited.kill()
    assert waiting.returncode == 0, (out, err)
    assert err.splitlines()[0].endswith(BACK), err


async def test_a_runner_and_a_question_outlast_a_kill(house: Opener, own_server: DevServer) -> None:
    opened = await house(calling("register"), server=own_server)
    async with opened.worker():
        workdir = opened.folder / "work"
        workdir.mkdir()
        (workdir / HOLD).touch()
        runner = AgentRunner(opened.loom, opened.agent(), str(workdir))
        running = asyncio.create_task(runner.request("do it"))
        await eventually(lambda: lines(workdir, BEGUN))
        ((row),) = await opened.loom.jobs()
        own_server.kill()
        asked = asyncio.create_task(opened.loom.job(row.job).status())
        await own_server.start()
        assert (await asked).state
        (workdir / HOLD).unlink()
        assert (await running).success


async def test_what_is_sent_while_the_server_is_away_keeps_its_limit(house: Opener, own_server: DevServer) -> None:
    opened = await house(calling("register"), server=own_server)
    tries = 0

    async def describe() -> Any:
        nonlocal tries
        tries += 1
        return await opened.loom.client.get_workflow_handle("none").describe()

    own_server.kill()
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(RPCError) as refused:
            await lasting(opened.loom.client, describe, within=1.0)
    assert is_away(refused.value)
    assert tries


async def test_a_schedule_is_asked_and_changed_through_a_short_outage(house: Opener, own_server: DevServer) -> None:
    opened = await house(calling("register"), server=own_server)
    graph = opened.folder / "done.yaml"
    graph.write_text("loom: 1\nkind: graph\nname: done\nnodes: {done: {end: 1}}\n")
    schedules, name = opened.loom.schedules, opened.named("nightly")
    await schedules.create(name, graph, times=Times(every="90d"), workdir=opened.folder)

    async def outlasts(act: Callable[[], Awaitable[Any]]) -> Any:
        while True:
            killed = time.monotonic()
            own_server.kill()
            asked = asyncio.create_task(act())
            await asyncio.sleep(0)  # it is asked while the server is away
            await own_server.start()
            try:
                return await asyncio.wait_for(asked, PATIENCE)
            except (RPCError, LoomError):
                if time.monotonic() - killed < SENT_SECONDS:
                    raise  # else the outage was no short one

    await outlasts(lambda: schedules.pause(name, "holidays"))
    shown = await outlasts(lambda: schedules.show(name))
    assert (shown.paused, shown.note) == (True, "holidays")
    await outlasts(lambda: schedules.delete(name))
    with pytest.raises(NotFoundError):
        await schedules.show(name)
