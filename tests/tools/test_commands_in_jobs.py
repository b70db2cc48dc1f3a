"""Commands and code in a job: asked about, confined, heard of while they run, and ended with the job."""

import uuid
from collections.abc import AsyncIterator
from typing import Any

import psutil
import pytest
import pytest_asyncio

from loom_cli.dev.server import DevServer
from loom_client.records import ApprovalRecord
from loom_dsl.observe.events import EventType
from loom_tools.sandbox.run import LAUNCHER
from loom_tools.sandbox.settings import lacking
from tests.durability.reading import events, histories, of
from tests.durability.test_replay import replayer
from tests.failures.stand import Stand, standing
from tests.support.waiting import eventually

pytestmark = [pytest.mark.server, pytest.mark.asyncio(loop_scope="module")]

LONG = 700_000 + uuid.uuid4().int % 90_000
"""Seconds that no other process of this machine sleeps."""
LIMITS = [1, 8, 64]
"""Seconds for a command that takes too long: with the first, a slow machine may not even begin it."""
COMMAND = "echo one; cat given.txt; echo made > made.txt; cat ~/.ssh/* /etc/shadow; exit 3"
LABORIOUS = [
    "env " + "a " * 4_900,
    "sudo " * 1_900,
    ")" * 9_900,
    "sh " * 3_200,
    "env " + "sh a " * 1_900,
    "`\\" * 4_900,
]
"""Lines that take much reading: judging each must neither take long nor keep the worker from anything else."""
STEPS: dict[str, list[dict[str, Any]]] = {
    "command": [{"calls": [{"tool": "execute_bash", "args": {"command": COMMAND}}]}, {"say": "done"}],
    "code": [{"calls": [{"tool": "python_repl", "args": {"code": "x = 6\nx * 7"}}]}, {"say": "done"}],
    "laborious": [
        {"calls": [{"tool": "execute_bash", "args": {"command": line}} for line in LABORIOUS]},
        {"say": "done"},
    ],
    "refused": [
        {"calls": [{"tool": "python_repl", "args": {"code": "import os\nos.remove('x')"}}]},
        {"calls": [{"tool": "python_repl", "args": {"code": "def f(:"}}]},
        {"say": "done"},
    ],
    **{
        f"late {seconds}": [
            {"calls": [{"tool": "execute_bash", "args": {"command": f"echo on; sleep {LONG}", "timeout": seconds}}]},
            {"say": "done"},
        ]
        for seconds in LIMITS
    },
    "abort": [
        {"calls": [{"tool": "execute_bash", "args": {"command": f"setsid sleep {LONG} & echo on; sleep {LONG}"}}]},
        {"say": "never"},
    ],
}
DENIED = ["execute_bash(rm *)", "execute_bash(git push *)"]
ASKING = {"tools": ("execute_bash", "python_repl"), "permissions": {}}
ALLOWING = {"tools": ("execute_bash", "python_repl"), "permissions": {"allow": ["execute_bash", "python_repl"]}}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stand(dev_server: DevServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stand]:
    if lacking(LAUNCHER.means()):
        pytest.skip("this machine cannot confine commands")
    folder = tmp_path_factory.mktemp("commands")
    async with standing(dev_server, folder, f"test-{uuid.uuid4().hex[:12]}", STEPS) as made:
        yield made
    LAUNCHER.close()


async def asked(stand: Stand, job: Any) -> ApprovalRecord:
    async def rows() -> list[ApprovalRecord]:
        return await stand.loom.approvals(job.id)

    found: list[ApprovalRecord] = await eventually(rows)
    return found[0]


def sleeping() -> list[int]:
    lines = [(process.pid, process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])]
    return [pid for pid, line in lines if line[:1] == ["sleep"] and str(LONG) in line]


async def test_a_command_runs_after_somebody_approved_it(stand: Stand) -> None:
    (stand.place("command") / "made.txt").unlink(missing_ok=True)  # of a first try
    job = await stand.start("command", agent=ASKING)
    (stand.place("command") / "given.txt").write_text("given\n")
    row = await asked(stand, job)
    assert row.summary == f"$ {COMMAND}"
    assert not (stand.place("command") / "made.txt").exists()
    await job.decide(row.id, "approve", by="me")
    found = await stand.unharmed(job)
    told = found.tool()["content"]
    assert told.startswith("one\ngiven\n")
    assert told.endswith("[exit status 3]")
    assert "Permission denied" in told
    assert (stand.place("command") / "made.txt").read_text() == "made\n"
    assert of(found.told, EventType.PROGRESS)[0]["content"].startswith("one\n")


async def test_lines_that_take_much_reading_are_refused_and_the_job_goes_on(stand: Stand) -> None:
    rules = {"mode": "dont_ask", "allow": ["execute_bash"], "deny": [*DENIED, "execute_bash(* --force)"]}
    job = await stand.start("laborious", agent={"tools": ("execute_bash",), "permissions": rules})
    found = await stand.unharmed(job)
    assert [result["code"] for result in found.results()] == ["permission_denied"] * len(LABORIOUS)
    for run in await histories(stand.loom.client, job.id):
        await replayer(stand.loom.store).replay_workflow(run)


async def test_code_runs_after_somebody_approved_it(stand: Stand) -> None:
    job = await stand.start("code", agent=ASKING)
    row = await asked(stand, job)
    assert row.summary == ">>> x = 6 ... (2 lines)"
    await job.decide(row.id, "approve", by="me")
    assert (await stand.unharmed(job)).tool()["content"] == "42\n[exit status 0]"


async def test_code_that_is_not_allowed_is_refused_before_anybody_is_asked(stand: Stand) -> None:
    found = await stand.unharmed(await stand.start("refused", agent=ASKING))
    codes = [result["code"] for result in found.results()]
    assert codes == ["permission_denied", "validation_error"]
    words = [message["content"] for message in found.messages if message["role"] == "tool"]
    assert "line 1: importing 'os' is not allowed; use `pathlib`" in words[0]
    assert "the code is no valid Python: line 1: invalid syntax" in words[1]


async def test_a_command_that_takes_too_long_is_told_with_what_it_wrote(stand: Stand) -> None:
    for seconds in LIMITS:
        found = await stand.unharmed(await stand.start(f"late {seconds}", agent=ALLOWING))
        told = found.tool()["content"]
        if "on" in told.splitlines():
            break
    late = f"Error (timeout): the command did not end within {seconds} s and was stopped."
    assert told.startswith(f"{late} It had written:\non")
    assert sleeping() == []


async def test_an_abort_ends_the_command_and_what_it_started(stand: Stand) -> None:
    job = await stand.start("abort", agent=ALLOWING)

    async def on() -> bool:
        return any(data["content"] == "on\n" for data in of(await events(job), EventType.PROGRESS))

    await eventually(on)
    await eventually(lambda: len(sleeping()) == 2)
    await job.abort("enough")
    await eventually(lambda: sleeping() == [])
    assert (await job.result()).status == "aborted"
