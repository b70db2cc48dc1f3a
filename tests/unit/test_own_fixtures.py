"""The tests' own frame: a run reports what its tests did, and nothing is left behind."""

import re
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]

# What a process that ran Temporal's native code does now and then while the interpreter ends.
ABORTS_AT_THE_END = """
import os, sys, types
import temporalio.bridge.temporal_sdk_bridge
class Native:
    def __del__(self):
        os.abort()
sys.modules["native"] = types.ModuleType("native")
sys.modules["native"].native = Native()
"""


def run_pytest(folder: Path, content: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_inner.py").write_text(content)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-c",
        ROOT / "pyproject.toml",
        "-p",
        "tests.conftest",
        "-pno:cacheprovider",
    ]
    return subprocess.run(
        [*command, f"--rootdir={folder}", f"--basetemp={folder / 'temp'}", *options, folder],
        capture_output=True, text=True, cwd=ROOT, check=False,
    )  # fmt: skip


FAILS, PASSES = ("False", 1, "1 failed, 1 passed"), ("True", 0, "2 passed")


@pytest.mark.parametrize(
    ("processes", "claim", "status", "line"),
    [
        ("-n0", *PASSES),
        ("-n2", *FAILS),
        pytest.param("-n0", *FAILS, marks=pytest.mark.nightly),
        pytest.param("-n2", *PASSES, marks=pytest.mark.nightly),
    ],
)
def test_the_exit_status_is_the_tests_own_even_when_the_interpreter_aborts(
    tmp_path: Path, processes: str, claim: str, status: int, line: str
) -> None:
    tests = f"{ABORTS_AT_THE_END}\ndef test_one():\n    assert {claim}\ndef test_two():\n    pass\n"
    ended = run_pytest(tmp_path, tests, processes)
    assert ended.returncode == status, ended.stdout + ended.stderr
    assert re.search(rf"=+ {line} in ", ended.stdout.splitlines()[-1])


def test_without_these_fixtures_such_a_process_would_end_with_an_abort(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(ABORTS_AT_THE_END)
    assert subprocess.run([sys.executable, tmp_path / "script.py"], check=False, capture_output=True).returncode == -6


@pytest.mark.parametrize("processes", ["-n0", pytest.param("-n2", marks=pytest.mark.nightly)])
def test_a_process_left_behind_fails_the_run_and_is_ended(tmp_path: Path, processes: str) -> None:
    at_once = "from tests.support import processes\nprocesses.MOMENT = 0.5\n"  # what sleeps for an hour stays that long
    sleeper = f"{at_once}import subprocess\ndef test_one():\n    subprocess.Popen(['sleep', '3111'])\n"
    # The forgotten Popen object warns on its own; here it is the frame that has to notice.
    ended = run_pytest(tmp_path, sleeper, processes, "-Wignore")
    assert ended.returncode == 1, ended.stdout
    assert "tests left processes behind" in ended.stdout
    pid = re.search(r"(\d+): sleep 3111", ended.stdout)
    assert pid is not None
    assert not psutil.pid_exists(int(pid[1]))


async def test_eventually_waits_for_a_condition_and_hands_its_answer_on() -> None:
    began = time.monotonic()
    assert await eventually(lambda: "ready" if time.monotonic() - began > 0.1 else None) == "ready"


async def test_eventually_fails_with_what_the_condition_said_last() -> None:
    def condition() -> bool:
        assert "queue" == "empty"  # noqa: PLR0133
        return True

    with pytest.raises(AssertionError, match=r"did not become true within 0\.1 s; last: .*queue"):
        await eventually(condition, 0.1)


async def test_eventually_lets_other_errors_through() -> None:
    with pytest.raises(ZeroDivisionError):
        await eventually(lambda: 1 / 0)
