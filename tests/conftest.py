"""Fixtures for every test. Those that need a Temporal server start one when the first test asks."""

import gc
import os
import signal
import sys
import uuid
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter

from loom_cli.dev.server import DevServer
from tests.support import postgres, ready_loom, shared_server
from tests.support.processes import children_left, exit_now
from tests.support.scheduling import Modules, put_first
from tests.support.server import create_namespace, run_apart, small_server

_session = pytest.StashKey[pytest.Session]()

# What whoever runs the tests has set for their own Loom, models, proxy and terminal is none of the tests' business.
_TERMINAL = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR")
for _name in [name for name in os.environ if name.startswith(("LOOM_", "OPENAI_")) or name in _TERMINAL]:
    del os.environ[_name]
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As it is in a background of a shell, and as every process inherits it, so that Ctrl-C would end none.
    signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1,localhost"

# By itself hypothesis fails an example that takes 200 ms: on a busy machine that says nothing of what is tested.
_BUSY: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
# By day the same examples in each run, so that what fails fails for whoever looks; new ones are drawn by night.
settings.register_profile("day", max_examples=25, derandomize=True, **_BUSY)
settings.register_profile("night", max_examples=500, print_blob=True, **_BUSY)
settings.load_profile("day")


@pytest.fixture(scope="session", autouse=True)
def no_process_is_left() -> Iterator[None]:
    """Set up before every other fixture, so torn down after all of them."""
    yield
    ready_loom.let_go()
    left = children_left()
    assert not left, "tests left processes behind (killed now):\n" + "\n".join(left)


@pytest.fixture(scope="session")
def loom_at_hand(no_process_is_left: None) -> list[str]:
    """The command line of a `loom` that has its libraries already."""
    return ready_loom.at_hand()


@pytest.fixture(scope="session")
def dev_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, no_process_is_left: None
) -> Iterator[DevServer]:
    """A real Temporal server with the dev file's settings, shared by all tests of a run: leave it running."""
    if folder := getattr(request.config, "workerinput", {}).get(shared_server.KEY):
        yield shared_server.ask(Path(folder))
        return
    server = small_server(tmp_path_factory.mktemp("temporal"))
    run_apart(server.start())
    yield server
    run_apart(server.stop())


@pytest.fixture
async def temporal_client(dev_server: DevServer) -> Client:
    """A client of `dev_server`, in the namespace `default`, that converts pydantic models."""
    return await Client.connect(dev_server.address, data_converter=pydantic_data_converter)


@pytest.fixture
async def namespace(temporal_client: Client) -> str:
    """A namespace that only this test uses."""
    return await create_namespace(temporal_client)


@pytest.fixture
def task_queue() -> str:
    """A task queue that only this test uses."""
    return f"test-{uuid.uuid4().hex[:12]}"


@pytest.fixture
async def own_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[DevServer]:
    """A started server that only this test uses, and so may kill and start again."""
    async with small_server(tmp_path_factory.mktemp("own")) as server:
        yield server


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Look for cycles after collecting, and no more among what was collected and imported.

    Fourteen thousand tests are objects that stay: going through them again and again took a third of collecting them.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    put_first(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Modules | None:
    return Modules(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_configure(config: pytest.Config) -> None:
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(shared_server.SharedServer())
        config.pluginmanager.register(postgres.SharedPostgres())


def pytest_sessionfinish(session: pytest.Session) -> None:
    session.config.stash[_session] = session


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Report the tests' own exit status, whatever happens to a process that ran Temporal's native code when it ends.

    This comes after the summary; an xdist worker has sent its results by now, and its status is not looked at.
    """
    if "temporalio.bridge.temporal_sdk_bridge" in sys.modules and _session in config.stash:
        exit_now(int(config.stash[_session].exitstatus))
