"""Tools that end the worker's process: the job ends with a failure that is told, not with an endless loop."""

import asyncio
import uuid
from pathlib import Path
from typing import Any

import pytest

from loom_client.dev_server import DevServer
from tests.failures.stand import Outcome, standing
from tests.support.worker_process import WorkerProcess

pytestmark = [pytest.mark.server, pytest.mark.crash]

STEPS: dict[str, list[dict[str, Any]]] = {
    name: [{"calls": [{"tool": name, "args": {"text": "x"}}]}, {"say": "It says: {last}"}]
    for name in ("die_reading", "die_writing")
}


async def served(worker: WorkerProcess, waiting: "asyncio.Task[Outcome]") -> Outcome:
    """Start the worker again each time it dies, as a supervisor does, until the job is done."""
    while True:
        ended = asyncio.create_task(worker.ended())
        await asyncio.wait({ended, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if waiting.done():
            ended.cancel()
            return waiting.result()
        await ended
        await worker.start()


async def outlived(server: DevServer, folder: Path, name: str) -> tuple[Outcome, int, int]:
    """A job whose tool kills its worker: what became of it, how often the tool ran, and how often a worker started."""
    async with standing(server, folder, f"test-{uuid.uuid4().hex[:12]}", STEPS, serve=False) as stand:
        async with stand.worker() as worker:
            stand.begin(name)
            found = await served(worker, stand.jobs[name])
        return found, len((stand.place(name) / "deaths").read_text().split()), worker.starts


async def test_a_job_outlives_a_tool_that_kills_its_worker(
    dev_server: DevServer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    reads, writes = tmp_path_factory.mktemp("reads"), tmp_path_factory.mktemp("writes")
    reading, writing = await asyncio.gather(
        outlived(dev_server, reads, "die_reading"),
        outlived(dev_server, writes, "die_writing"),
    )
    for (found, deaths, starts), expected, code in ((reading, 3, "tool_lost"), (writing, 1, "outcome_unknown")):
        assert (deaths, starts) == (expected, expected + 1)
        assert found.result.status == "completed"
        assert found.tool()["content"].startswith(f"Error ({code}): ")
