"""`make demo`: what it shows, that it ends cleanly whatever happens, and that it leaves the checkout as it was."""

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from loom_cli.dev.fake_model.server import running
from loom_dsl.documents.document import load_document
from loom_dsl.documents.validation import validate_model
from loom_dsl.simulation.script import Script
from tests.support.waiting import PATIENCE, until

ROOT = Path(__file__).resolve().parents[2]
PARTS = (
    *("activities", "demo", "examples", "loom_cli", "loom_client"),
    *("loom_dsl", "loom_gateway", "loom_store", "loom_tools", "workflows"),
)
FILES = ("README.md", "temporal-dev.yml", "worker.py")


@pytest.fixture
def checkout(tmp_path: Path) -> Iterator[Path]:
    """A copy of this checkout; at the end no process may be left that works in it."""
    copy = tmp_path / "loom"
    for part in PARTS:
        shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
    for file in FILES:
        shutil.copy(ROOT / file, copy / file)
    yield copy
    with contextlib.suppress(AssertionError):  # what was told to end may take a moment
        until(lambda: not processes_in(copy), every=0.1)
    left = processes_in(copy)
    for process in left:
        process.kill()
    assert not left, f"left running: {left}"


def processes_in(folder: Path) -> list[psutil.Process]:
    """Every process of the machine that has the directory in its command line."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if any(str(folder) in part for part in process.info["cmdline"] or ()):
            found.append(process)
    return found


def start(checkout: Path, **env: str) -> "subprocess.Popen[str]":
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LOOM_", "OPENAI_"))}
    own = {"PYTHONPATH": str(checkout), "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "80", "NO_COLOR": "1", **env}
    return subprocess.Popen(
        [sys.executable, "-u", "-m", "demo"],
        cwd=checkout,
        env={**kept, **own},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell gives its children the default; a test runner in the background might not.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler) and None,
    )


def contents(checkout: Path) -> dict[str, str]:
    """Digests of all files outside the directory that git does not look at."""
    files = (path for path in checkout.rglob("*") if path.is_file() and ".loom" not in path.parts)
    return {str(path.relative_to(checkout)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.server
@pytest.mark.crash
def test_the_job_survives_both_kills_and_everything_happens_once(checkout: Path) -> None:
    before = contents(checkout)
    with start(checkout) as demo:
        out, err = demo.communicate(timeout=2 * PATIENCE)
    assert (demo.returncode, _without_progress(err)) == (0, ""), err + out
    for told in (
        "none is configured, so this one is a script",
        "● turn 5  depth 4",
        "│ ✓ read_file worker.py",
        "▶ worker 1 killed with SIGKILL",
        "▶ worker 2 started",
        "▶ worker 2 killed with SIGKILL",
        "▶ worker 3 started",
        "approved by approve.py",
        "│ ✓ write_file .loom/demo/report.md",
        "· awaiting_human -> tool_running",
        "✓ done",
        "# What is in this code base",
        "turns   5 turns, 4 recursions, each one a fresh Temporal run: 5 runs",
        "kills   2 workers killed",
        "effect  post_note: settled, write_file: settled in the ledger; .loom/board.txt",
        "loom show demo-",
    ):
        assert told in out, out
    assert out.count("I look around first.") == 1
    usage = r"usage 5 model calls, 10 tool calls, [\d,]+ tokens in and [\d,]+ out; \$0\.\d+ at the price of"
    assert re.search(usage, " ".join(out.split())), out
    assert [line for line in out.splitlines() if len(line) > 80] == []
    assert (checkout / ".loom/demo/report.md").read_text().endswith("found on the board after a worker was lost\n")
    assert contents(checkout) == before


@pytest.mark.server
@pytest.mark.crash
@pytest.mark.parametrize(
    "moment",
    [
        "● turn 2",
        *(pytest.param(moment, marks=pytest.mark.nightly) for moment in ("model   ", "worker  worker 1 started")),
        pytest.param("killed with SIGKILL", marks=pytest.mark.nightly),
    ],
)
def test_ctrl_c_ends_everything_that_was_started(checkout: Path, moment: str) -> None:
    with start(checkout) as demo:
        _read_until(demo, moment)
        demo.send_signal(signal.SIGINT)
        _, err = demo.communicate(timeout=PATIENCE)
    assert (demo.returncode, _without_progress(err)) == (130, "interrupted")
    assert until(lambda: not processes_in(checkout), every=0.1)


@pytest.mark.server
@pytest.mark.crash
@pytest.mark.nightly
def test_even_a_demo_that_is_killed_leaves_nothing_running(checkout: Path) -> None:
    with start(checkout) as demo:
        _read_until(demo, "● turn 2")
        demo.kill()
    assert until(lambda: not processes_in(checkout), every=0.1)


@pytest.mark.server
@pytest.mark.crash
@pytest.mark.nightly
async def test_a_configured_model_is_used_and_may_write_only_where_the_demo_looks(checkout: Path) -> None:
    document = """
loom: 1
kind: fake-model
name: willful
steps:
  - {say: "I change the README.", calls: [{tool: write_file, args: {path: README.md, content: "mine"}}]}
  - {calls: [{tool: write_file, args: {path: ".loom/demo/../../README.md", content: "mine"}}]}
  - {calls: [{tool: write_file, args: {path: .loom/demo/report.md, content: "A report of another model."}}]}
  - {say: "It is written."}
"""
    before = contents(checkout)
    async with running(validate_model(load_document(document, "willful"), Script)) as url:
        demo = start(checkout, OPENAI_BASE_URL=url, OPENAI_MODEL="some-model")
        with demo:
            out, err = await _communicate(demo)
    assert (demo.returncode, _without_progress(err)) == (0, ""), err + out
    assert "model   some-model, at the endpoint of your environment" in out
    assert "script" not in out.partition("demo-")[0]
    assert out.count("  rejected by approve.py") == 2
    assert out.count("  approved by approve.py") == 1
    assert "kills   1 worker killed" in out
    assert "  A report of another model." in out
    assert contents(checkout) == before


def test_a_checkout_that_is_none_is_refused(checkout: Path) -> None:
    shutil.rmtree(checkout / "examples")
    with start(checkout) as demo:
        out, err = demo.communicate(timeout=PATIENCE)
    assert (demo.returncode, out) == (2, "")
    assert "is not a checkout of it" in err
    assert "make demo" in err


def test_a_missing_temporal_cli_is_told(checkout: Path, tmp_path: Path) -> None:
    with start(checkout, TEMPORAL_CLI=str(tmp_path / "none")) as demo:
        _, err = demo.communicate(timeout=PATIENCE)
    assert demo.returncode == 2
    assert "TEMPORAL_CLI names" in err


def test_two_demos_in_one_checkout_do_not_disturb_each_other(checkout: Path) -> None:
    (checkout / ".loom").mkdir()
    with (checkout / ".loom" / "demo.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with start(checkout) as demo:
            _, err = demo.communicate(timeout=PATIENCE)
    assert demo.returncode == 2
    assert "Another demo is running" in err


def test_the_stranger_who_approves_imports_nothing_of_loom() -> None:
    code = (
        "import runpy, sys; runpy.run_path('approve.py'); "
        "print(sorted({name.partition('.')[0] for name in sys.modules} & "
        "{'loom_dsl', 'loom_cli', 'loom_client', 'loom_store', 'loom_tools', 'workflows', 'activities', 'worker'}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT / "examples", capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def _read_until(demo: "subprocess.Popen[str]", text: str) -> None:
    assert demo.stdout is not None
    said = ""
    for line in demo.stdout:
        said += line
        if text in line:
            return
    raise AssertionError(f"{text!r} was not shown:\n{said}")


def _without_progress(said: str) -> str:
    """What was said beside the progress of starting, which a slow machine shows."""
    return "\n".join(line for line in said.splitlines() if line and not line.startswith("Starting a "))


async def _communicate(demo: "subprocess.Popen[str]") -> tuple[str, str]:
    import asyncio

    return await asyncio.to_thread(demo.communicate, None, 2 * PATIENCE)
