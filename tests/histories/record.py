"""Records the histories that the tests replay: ``python -m tests.histories.record``.

Until 0.1.0 a change of the machine may record them again, in the same commit; from then on they stay and only new ones
are added.
"""

import asyncio
import contextlib
import dataclasses
import json
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from activities.runtime import Runtime
from loom_cli.dev.fake_model.server import running
from loom_client.client import Loom
from loom_client.connection import connect
from loom_client.job import GraphJob, Job
from loom_client.settings import Settings
from loom_dsl.agent.definition import Agent
from loom_dsl.errors import DecisionRefused
from loom_dsl.graph.compiler import compile_graph
from loom_dsl.observe.events import EventType
from loom_dsl.simulation.script import Script
from loom_tools.approver_keys import ApproverKeys
from loom_tools.registry import ToolRegistry
from tests.durability.reading import histories
from tests.support.server import small_server
from tests.support.signing import key_of, public_key, write_keys
from worker import make_worker

FOLDER = Path(__file__).parent
QUEUE = "recording"
MACHINE = f"@{socket.gethostname()}"
USAGE = {"prompt": 100, "completion": 10}


def script(*steps: dict[str, Any]) -> Script:
    """A scripted model."""
    named = [{"usage": USAGE, **step} for step in steps]
    return Script.model_validate({"loom": 1, "kind": "fake-model", "name": "scripted", "steps": named})


def write(path: str) -> dict[str, Any]:
    """A call that asks for approval."""
    return {"tool": "write_file", "args": {"path": path, "content": "hello"}}


READ = {"tool": "read_file", "args": {"path": "there.txt"}}
JOBS: dict[str, tuple[Script, dict[str, Any]]] = {
    "tools": (script({"say": "I look.", "calls": [READ, READ]}, {"calls": [READ]}, {"say": "bye"}), {}),
    "approvals": (
        script({"calls": [write("a.txt"), READ, write("b.txt")]}, {"calls": [write("c.txt")]}, {"say": "bye"}),
        {"approvals": {"expires": "1h"}},
    ),
    "folded": (
        script({"repeat": 4, "calls": [READ, {"tool": "nonesuch"}]}, {"say": "bye"}),
        {"recurse": "history"},
    ),
    "aborted": (script({"calls": [write("a.txt"), READ]}, {"say": "never"}), {}),
    "signed": (
        script({"calls": [write("a.txt")]}, {"say": "bye"}),
        {"approvals": {"expires": "1h", "quorum": 2, "signed": "low"}},
    ),
}
SIGNERS = [key_of("ann"), key_of("bob")]
ASKS_TWICE = """
loom: 1
kind: graph
name: arrivals
nodes:
  first: {approval: {request: {summary: "First?"}, policy: {signed: low}}, deadline: never, next: second}
  second: {approval: {request: {summary: "Second?"}}, deadline: {after: 3s, to: wait}, next: wait}
  wait: {event: {name: go}, deadline: never, next: done}
  done: {end: "${nodes.first}"}
"""


async def steer(name: str, job: Job) -> None:
    """Do to the job what its history is to hold."""
    choices = ["approve", "edit", "reject"]
    async for event in job.events():
        if event.type != EventType.APPROVAL_REQUESTED:
            continue
        if name == "aborted":
            await job.pause(by="recorder")
            await job.inject("a last word", by="recorder")
            await job.abort(by="recorder", reason="recorded")
            continue
        if name == "signed":
            await sign(job, event.data["approval_id"])
            continue
        choice = choices.pop(0)
        edited = {"path": "edited.txt", "content": "edited"} if choice == "edit" else None
        await job.decide(event.data["approval_id"], choice, edited_arguments=edited, by="recorder")


async def sign(job: Job, approval: str) -> None:
    """Decide by signatures, the first of which is none."""
    stranger = dataclasses.replace(key_of("eve"), by="ann")
    with contextlib.suppress(DecisionRefused):
        await job.decide(approval, "approve", sign=stranger)
    for key in SIGNERS:
        await job.decide(approval, "approve", sign=key)


def public_keys(folder: Path) -> ApproverKeys:
    """Write the signers' public keys down."""
    write_keys(folder / "keys", *map(public_key, SIGNERS))
    return ApproverKeys(folder / "keys")


def without_place(value: Any) -> Any:
    """Take out the names of the machine and the process that recorded."""
    if isinstance(value, dict):
        return {key: without_place(item) for key, item in value.items() if key not in ("identity", "workerVersion")}
    if isinstance(value, list):
        return [without_place(item) for item in value]
    return "recorder" if isinstance(value, str) and MACHINE in value else value


@asynccontextmanager
async def working(loom: Loom, folder: Path, url: str = "") -> AsyncIterator[None]:
    """A worker that knows the signers' keys."""
    environment = {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "none"}
    keys = public_keys(folder)
    async with (
        Runtime(loom.store, ToolRegistry.load(), folder, environment=environment, approver_keys=keys) as runtime,
        make_worker(loom.client, runtime, QUEUE),
    ):
        yield


async def agents(name: str, loom: Loom, folder: Path) -> Job:
    """Run an agent's job."""
    told, fields = JOBS[name]
    workdir = folder / name
    workdir.mkdir()
    (workdir / "there.txt").write_text("something\n")
    async with running(told) as url, working(loom, folder, url):
        agent = Agent(name=name, model="scripted", tools=["read_file", "write_file"], **fields)
        job = await loom.start(agent, "do it", workdir=workdir, job=f"recorded-{name}")
        await steer(name, job)
        await job.result()
    return job


async def arrivals(loom: Loom, folder: Path) -> GraphJob:
    """Let decisions arrive while no worker is up: two signed ones and a copy, then three that are late; then events."""
    async with working(loom, folder):
        job = await loom.start_graph(compile_graph(ASKS_TWICE, "arrivals"), workdir=folder, job="recorded-arrivals")
        first = await asked(job, 1)
    payload = {"approval_id": first["approval_id"], "choice": "approve", "digest": first["digest"]}
    signed = [key.sign(payload, job=job.id, tool="", requester="") for key in SIGNERS]
    for decision in (signed[0], signed[1], signed[0]):
        await job.handle.signal("loom.decision", decision)
    async with working(loom, folder):
        second = await asked(job, 2)
        await job.handle.signal("loom.decision", signed[0])
    await asyncio.sleep(max(0.0, second["expires_at"] + 0.3 - time.time()))
    for number in range(3):
        late = {"approval_id": second["approval_id"], "choice": "approve", "by": f"late{number}", "id": str(number)}
        await job.handle.signal("loom.decision", late)
    async with working(loom, folder):
        await job.handle.signal("loom.event", {"name": "go", "id": "~1"})
        await job.event("go")
        await job.result()
    return job


async def asked(job: GraphJob, number: int) -> dict[str, Any]:
    """Wait for what the job asks, and for how often it has asked."""
    told = (event.data async for event in job.events() if event.type == EventType.APPROVAL_REQUESTED)
    async with contextlib.aclosing(told):
        async for data in told:
            number -= 1
            if not number:
                return data
    raise AssertionError("it ended, and has not asked so often")


RECORDINGS: dict[str, Callable[[Loom, Path], Awaitable[Job | GraphJob]]] = {
    **{name: partial(agents, name) for name in JOBS},
    "arrivals": arrivals,
}


async def record(name: str, loom: Loom, folder: Path) -> None:
    """Run one job and write the histories of its runs, with its plan."""
    job = await RECORDINGS[name](loom, folder)
    runs = [without_place(json.loads(history.to_json())) for history in await histories(loom.client, job.id)]
    row = await loom.store.read(lambda tx: tx.job(job.id))
    assert row is not None
    plan = await loom.store.read(lambda tx: tx.get_blob(row["plan"]))
    (FOLDER / f"{name}.plan.json").write_bytes(plan)
    text = json.dumps({"job": job.id, "status": row["status"], "runs": runs}, indent=0, sort_keys=True)
    (FOLDER / f"{name}.history.json").write_text(text + "\n")
    print(f"{name}: {row['status']}, {len(runs)} runs, {sum(len(run['events']) for run in runs)} events")


async def main() -> None:
    """Record every job on a server of its own."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        async with small_server(folder) as server:
            settings = Settings(address=server.address, namespace="default", task_queue=QUEUE)
            async with connect(settings, store=str(folder / "loom.db")) as loom:
                for name in RECORDINGS:
                    await record(name, loom, folder)


if __name__ == "__main__":
    asyncio.run(main())
