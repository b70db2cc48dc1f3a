"""A command that has its libraries already is the same as one that a fresh interpreter runs."""

import os
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from tests.cli.conftest import LOOM
from tests.support.processes import gone
from tests.support.waiting import PATIENCE, until

ROOT = Path(__file__).resolve().parents[2]


def variables(folder: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LOOM_", "OPENAI_"))}
    return {**kept, "PYTHONPATH": str(ROOT), "LOOM_STORE": str(folder / "loom.db"), **more}


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--version"], 0),
        (["jobs"], 2),
        (["show", "nobody"], 2),
        (["nonsense"], 2),
        (["validate", "own.yaml", "--tools", "own"], 0),
        (["validate", "missing.yaml"], 2),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else "",
)
def test_it_says_the_same_as_a_fresh_one(
    loom_at_hand: list[str], tmp_path: Path, arguments: list[str], code: int
) -> None:
    (tmp_path / "own.py").write_text(
        'from loom_dsl.tools.tool import tool\n\n\n@tool\ndef say(text: str) -> str:\n    """Say it."""\n    return text\n'  # noqa: E501
    )
    (tmp_path / "own.yaml").write_text("loom: 1\nkind: agent\nname: a\nmodel: 'own:m'\ntools: ['own:say']\n")
    said = [
        subprocess.run(
            [*command, *arguments],
            stdin=subprocess.DEVNULL,
            env=variables(tmp_path),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        for command in (LOOM, loom_at_hand)
    ]
    fresh, ready = ((done.returncode, done.stdout, done.stderr) for done in said)
    assert ready == fresh
    assert fresh[0] == code, fresh


def test_it_ends_with_who_asked_for_it(loom_at_hand: list[str], tmp_path: Path) -> None:
    own = variables(tmp_path, LOOM_ADDRESS="127.0.0.1:1", LOOM_CONNECT_SECONDS=str(PATIENCE))
    before = {process.pid for process in psutil.Process().children(recursive=True)}

    def others() -> list[psutil.Process]:
        found = psutil.Process().children(recursive=True)
        return [child for child in found if child.pid not in before and not gone(child)]

    with subprocess.Popen([*loom_at_hand, "worker"], env=own, cwd=tmp_path, stderr=subprocess.DEVNULL) as asking:
        until(lambda: len(others()) == 3)  # who asks, who waits for the command, and the command
        started = others()
        asking.send_signal(signal.SIGKILL)
        asking.wait(PATIENCE)
    until(lambda: all(map(gone, started)))
