"""Real Temporal servers for tests."""

import asyncio
import contextlib
import uuid
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import psutil
from google.protobuf.duration_pb2 import Duration
from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from loom_cli.dev.server import DevServer
from tests.support.waiting import eventually

Result = TypeVar("Result")


def small_server(folder: Path, **options: Any) -> DevServer:
    """A server with free ports and its own database below `folder`, without the web console; not started yet."""
    return DevServer(**{"port": 0, "http_port": 0, "headless": True, "db": folder / "temporal.db", **options})


def server_processes(server: DevServer) -> list[psutil.Process]:
    """The living processes of a server: its guardian and the Temporal CLI itself, in this order."""
    argument = f"--db-filename={server.db}"
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # another one, that ends just now
            if argument in process.cmdline():
                found.append(process)
    return found


def run_apart(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine to its end in a thread, so that the test's event loop is left alone."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()


async def create_namespace(client: Client, retention: timedelta = timedelta(days=1)) -> str:
    """Register a namespace with a name of its own, and wait until it can be used."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    period = Duration()
    period.FromTimedelta(retention)
    await client.workflow_service.register_namespace(
        RegisterNamespaceRequest(namespace=name, workflow_execution_retention_period=period)
    )
    await eventually(lambda: _serves(client.service_client.config.target_host, name))
    return name


async def _serves(address: str, namespace: str) -> bool:
    client = await Client.connect(address, namespace=namespace)
    try:
        return (await client.count_workflows("WorkflowId = 'none'")).count == 0
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:  # the server looks for new ones now and then
            raise
        return False
