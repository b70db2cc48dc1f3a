"""One Temporal server for all processes of a test run.

The process that hands out the tests starts it when the first of the others needs it, and ends it when all of them have
ended. It cannot outlive that process, whatever becomes of it: a guardian ends it then.
"""

import json
import os
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest

from loom_cli.dev.server import DevServer
from tests.support.server import run_apart, small_server
from tests.support.waiting import until

KEY = "loom_server"
"""The name under which a process learns the folder of the run's server."""
_WANTED, _STARTED = "wanted", "started.json"


class SharedServer:
    """A plug-in of pytest, in the process that hands out the tests."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Let a new process know where to ask."""
        node.workerinput[KEY] = self._folder.name

    def pytest_unconfigure(self) -> None:
        """End the server, if there is one: the other processes have ended."""
        self._ended.set()
        self._thread.join()
        self._folder.cleanup()

    def _serve(self) -> None:
        folder = Path(self._folder.name)
        while not (folder / _WANTED).exists():
            if self._ended.wait(0.05):
                return
        server = small_server(folder)
        try:
            run_apart(server.start())
            answer: dict[str, Any] = {"address": server.address, "http_address": server.http_address}
        except Exception as error:  # whoever waits for it is told, whatever it is
            answer = {"error": str(error)}
        (folder / "answer").write_text(json.dumps(answer))
        os.replace(folder / "answer", folder / _STARTED)
        self._ended.wait()
        run_apart(server.stop())


def ask(folder: Path) -> DevServer:
    """Have the run's server started, and wait until it is; what stands for it here can neither stop nor kill it."""
    (folder / _WANTED).touch()
    until((folder / _STARTED).exists)
    answer = json.loads((folder / _STARTED).read_text())
    assert "error" not in answer, f"the run's Temporal server did not start: {answer['error']}"
    port, http_port = (int(answer[name].rpartition(":")[2]) for name in ("address", "http_address"))
    return small_server(folder, port=port, http_port=http_port)
