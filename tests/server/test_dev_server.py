import asyncio
import http.client
import json
import socket
import sys
import urllib.request
from pathlib import Path

import psutil
import pytest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from loom_cli.dev.file import DevServerSettings
from loom_cli.dev.server import DevServer
from loom_cli.dev.temporal_cli import find_temporal
from loom_dsl.errors import ConfigurationError
from tests.support.processes import gone
from tests.support.server import server_processes, small_server
from tests.support.waiting import PATIENCE, eventually

pytestmark = pytest.mark.server


async def started_job(server: DevServer) -> str:
    client = await Client.connect(server.address)
    handle = await client.start_workflow("nobody.runs.this", id="job", task_queue="nobody")
    return str(handle.first_execution_run_id)


async def test_a_job_survives_a_killed_server_on_the_same_ports_and_database(own_server: DevServer) -> None:
    address, run = own_server.address, await started_job(own_server)
    own_server.kill()
    assert not own_server.running
    with pytest.raises(RuntimeError, match="Failed client connect"):
        await Client.connect(address)
    await own_server.start()
    assert own_server.address == address
    description = await (await Client.connect(address)).get_workflow_handle("job").describe()
    assert description.run_id == run


async def test_a_stopped_server_leaves_no_process_and_can_be_started_again(own_server: DevServer) -> None:
    run = await started_job(own_server)
    await own_server.stop()
    assert server_processes(own_server) == []
    await own_server.stop()
    await own_server.start()
    description = await (await Client.connect(own_server.address)).get_workflow_handle("job").describe()
    assert description.run_id == run


async def test_starting_a_running_server_changes_nothing(own_server: DevServer) -> None:
    before = server_processes(own_server)
    assert len(before) == 2
    await own_server.start()
    assert server_processes(own_server) == before


def fetched(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
        return bytes(answer.read())


async def test_the_http_api_and_the_console_answer_at_their_addresses(tmp_path: Path) -> None:
    async with small_server(tmp_path, headless=False, ui_port=0) as server:
        namespace = await asyncio.to_thread(fetched, f"http://{server.http_address}/api/v1/namespaces/default")
        assert json.loads(namespace)["namespaceInfo"]["name"] == "default"

        def page() -> bool:
            try:
                return b"<html" in fetched(server.ui_url or "").lower()
            except (OSError, http.client.HTTPException):
                return False

        # The console comes up on its own, a moment after the server.
        assert await eventually(lambda: asyncio.to_thread(page))


async def test_a_headless_server_has_no_console(own_server: DevServer) -> None:
    assert own_server.ui_url is None


async def test_a_server_has_the_namespaces_that_it_was_started_with(tmp_path: Path) -> None:
    async with small_server(tmp_path, namespaces=("billing",)) as server:
        client = await Client.connect(server.address, namespace="billing")
        assert (await client.count_workflows("WorkflowId = 'none'")).count == 0


async def test_each_test_can_have_a_namespace_of_its_own(
    temporal_client: Client, namespace: str, task_queue: str
) -> None:
    mine = await Client.connect(temporal_client.service_client.config.target_host, namespace=namespace)
    await mine.start_workflow("nobody.runs.this", id=task_queue, task_queue=task_queue)
    assert (await mine.get_workflow_handle(task_queue).describe()).task_queue == task_queue
    with pytest.raises(RPCError) as refused:
        await temporal_client.get_workflow_handle(task_queue).describe()
    assert refused.value.status is RPCStatusCode.NOT_FOUND


@pytest.mark.parametrize("option", ["port", "http_port", "ui_port"])
async def test_a_port_in_use_is_named_with_what_to_do(tmp_path: Path, option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = small_server(tmp_path, headless=False, **{"ui_port": 0, option: port})
        with pytest.raises(ConfigurationError, match=rf"Port {port} .*already in use.*--{option.replace('_', '-')} "):
            await server.start()
    assert not server.running


async def test_a_second_server_on_the_same_database_is_refused(own_server: DevServer) -> None:
    second = small_server(own_server.db.parent)
    with pytest.raises(ConfigurationError, match=r"temporal\.db is in use by another development server"):
        await second.start()
    assert own_server.running


async def test_a_database_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match=r"file/temporal\.db cannot be written: File exists.*--db"):
        await small_server(tmp_path / "file").start()


async def test_a_database_that_is_a_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "temporal.db").mkdir()
    with pytest.raises(ConfigurationError, match=r"temporal\.db cannot be written: Is a directory"):
        await small_server(tmp_path).start()


async def test_an_empty_database_file_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "temporal.db").touch()
    async with small_server(tmp_path) as server:
        await started_job(server)


async def test_what_a_server_said_before_it_ended_is_told(tmp_path: Path) -> None:
    (tmp_path / "temporal.db").write_text("this is not a database" * 100)
    server = small_server(tmp_path)
    with pytest.raises(ConfigurationError, match="not a database"):
        await server.start()
    assert not server.running


async def test_a_binary_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no-such-binary: No such file"):
        await small_server(tmp_path, binary=tmp_path / "no-such-binary").start()


async def test_the_address_of_a_server_with_a_free_port_is_unknown_before_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="not been started"):
        _ = small_server(tmp_path).address


async def test_wait_tells_that_a_server_ended_by_itself(own_server: DevServer) -> None:
    waiting = asyncio.create_task(own_server.wait())
    _, temporal = server_processes(own_server)
    temporal.kill()
    assert await asyncio.wait_for(waiting, PATIENCE) == 128 + 9


@pytest.mark.parametrize(("stock", "tuned"), [(False, True), (True, False)])
async def test_a_stock_server_is_started_without_the_dynamic_configuration(
    tmp_path: Path, stock: bool, tuned: bool
) -> None:
    async with small_server(tmp_path, stock=stock) as server:
        _, temporal = server_processes(server)
        assert any("history.workflowIdReuseMinimalInterval" in argument for argument in temporal.cmdline()) is tuned


PANICS_ONCE = """#!/bin/sh
[ -e {folder}/tried ] && exec {binary} "$@"
touch {folder}/tried
printf 'panic: failed assigning ephemeral port: listen tcp: address already in use\\n\\n' >&2
printf 'goroutine 1 [running]:\\n\\tmain.go:18 +0x96\\n' >&2
exit 2
"""


async def test_a_server_that_finds_no_port_for_itself_is_started_again(tmp_path: Path) -> None:
    binary = tmp_path / "temporal"
    binary.write_text(PANICS_ONCE.format(folder=tmp_path, binary=find_temporal()))
    binary.chmod(0o755)
    async with small_server(tmp_path, binary=binary) as server:
        await Client.connect(server.address)
    assert (tmp_path / "tried").exists()


async def test_a_server_that_ends_at_once_says_why(tmp_path: Path) -> None:
    binary = tmp_path / "temporal"
    binary.write_text("#!/bin/sh\nprintf 'panic: no such luck\\n\\nmain.go:18 +0x96\\n' >&2\nexit 2\n")
    binary.chmod(0o755)
    with pytest.raises(ConfigurationError, match="It said: panic: no such luck"):
        await small_server(tmp_path, binary=binary).start()


STARTER = """
import asyncio, sys
from pathlib import Path
from tests.support.server import server_processes, small_server
async def main():
    server = await small_server(Path(sys.argv[1])).start()
    print(server.address, flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


@pytest.mark.crash
async def test_no_server_outlives_a_starter_that_is_killed(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    starter = await asyncio.create_subprocess_exec(
        sys.executable, "-c", STARTER, tmp_path, stdout=asyncio.subprocess.PIPE, cwd=root
    )
    try:
        assert starter.stdout is not None
        assert await starter.stdout.readline()
        family = psutil.Process(starter.pid).children(recursive=True)
        assert {process.name() for process in family} >= {"temporal"}
    finally:
        starter.kill()
        await starter.communicate()
    await eventually(lambda: all(map(gone, family)))


@pytest.mark.crash
async def test_no_server_outlives_a_killed_guardian(own_server: DevServer) -> None:
    guardian, temporal = server_processes(own_server)
    guardian.kill()
    await eventually(lambda: gone(temporal))


def test_settings_are_those_of_the_dev_file() -> None:
    server = DevServer(settings=DevServerSettings.load())
    assert (server.address, server.http_address) == ("127.0.0.1:7233", "127.0.0.1:7243")
    assert server.ui_url == "http://127.0.0.1:8233"
