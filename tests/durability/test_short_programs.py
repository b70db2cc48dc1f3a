"""A short program that uses `connect` ends as any other: by itself, with its status, its output and its atexit."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from loom_cli.dev.server import DevServer
from loom_store.store import Store
from tests.support import short_programs
from tests.support.short_programs import KINDS, SECONDS

pytestmark = pytest.mark.server


@pytest.mark.parametrize(
    "count", [8, pytest.param(500, marks=[pytest.mark.nightly, pytest.mark.timeout(3600)])], ids=["8", "500"]
)
def test_short_programs_end_with_their_status_and_all_that_they_print(
    dev_server: DevServer, tmp_path: Path, count: int
) -> None:
    store, out = tmp_path / "loom.db", tmp_path / "out"
    out.mkdir()
    Store.open(store).close()
    command = [sys.executable, "-m", short_programs.__name__, dev_server.address, str(store), str(count), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS * count)
    assert done.returncode == 0, done.stderr
    share = count // len(KINDS)
    assert json.loads(done.stdout) == {kind: {str(status): share} for kind, (_, status) in KINDS.items()}
    files = sorted(out.iterdir())
    assert len(files) == count
    for file in files:
        said = file.read_text()
        assert "connected\n" in said, file.name
        assert said.endswith("the program's own end\n"), said
        assert ("ValueError: a mistake of the program" in said) is file.name.startswith("fails")
        assert "Fatal Python error" not in said
