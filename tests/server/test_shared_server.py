"""One server for all processes of a test run."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
INNER = """
import os, pathlib
from tests.support.waiting import until
def test_one(dev_server):
    met = pathlib.Path({folder!r}) / os.environ["PYTEST_XDIST_WORKER"]
    met.write_text(dev_server.address)
    until(lambda: len(list(met.parent.glob("gw?"))) == 2)
"""


@pytest.mark.server
def test_the_processes_of_a_run_share_one_server_that_ends_with_it(tmp_path: Path) -> None:
    (tmp_path / "test_inner.py").write_text(INNER.format(folder=str(tmp_path)))
    command = [sys.executable, "-m", "pytest", "-c", ROOT / "pyproject.toml", "-p", "tests.conftest", "-n2"]
    options = ["-pno:cacheprovider", "--dist=each", f"--rootdir={tmp_path}", f"--basetemp={tmp_path / 'temp'}"]
    ended = subprocess.run(
        [*command, *options, tmp_path],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout
    addresses = [(tmp_path / name).read_text() for name in ("gw0", "gw1")]
    assert addresses[0] == addresses[1]
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", int(addresses[0].rpartition(":")[2]))) != 0, "the server goes on"
