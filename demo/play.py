"""The demo from its first line to its last."""

import asyncio
import contextlib
import os
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from demo.place import Checkout
from demo.scene import Scene, WorkerProcess
from demo.summary import print_summary
from loom_cli.commands.run.follow import Follower, make_watcher
from loom_cli.dev.fake_model.server import load_script, running
from loom_cli.dev.progress import Progress
from loom_cli.dev.server import DevServer
from loom_cli.render.terminal import Terminal
from loom_cli.render.timeline import Timeline
from loom_client.client import Loom
from loom_client.connection import connect
from loom_client.settings import Settings
from loom_dsl.agent.definition import Agent, load_agent
from loom_dsl.agent.run import RunResult

TASK = "Find out how this code base is laid out, and write a short report about it to {report}."


@dataclass(frozen=True, slots=True)
class DemoModel:
    """The model of the demo.

    Attributes:
        name: Its name, or empty for the agent's own.
        scripted: Whether it only says what a script says.
        env: The environment of a worker that asks it.
        said: What the demo says about it.
    """

    name: str
    scripted: bool
    env: Mapping[str, str]
    said: str


async def play(paper: Terminal, place: Checkout, binary: Path) -> bool:
    """Show the demo; whether the job was completed.

    Args:
        paper: Where it is shown.
        place: Where it happens.
        binary: The Temporal CLI.

    Raises:
        LoomError: Something that it needs is missing, or failed.
    """
    began = time.monotonic()
    paper.line("Loom: an agent at work on its own source code, while its worker is killed twice", "bold")
    async with contextlib.AsyncExitStack() as stack:
        model = await stack.enter_async_context(_model(place))
        paper.line(f"model   {model.said}", hang=8)
        server = DevServer(binary=binary, port=0, http_port=0, headless=True, db=place.folder / "temporal.db")
        stack.push_async_callback(server.stop)
        async with _patience("Starting a Temporal server"):
            await server.start()
        paper.line(f"server  Temporal's development server at {server.address}, {place.short(server.db)}", hang=8)
        settings = Settings(
            address=server.address,
            namespace="default",
            task_queue="demo",
            store=str(place.folder / "loom.db"),
            tls=False,
            api_key=None,
        )
        loom = await stack.enter_async_context(connect(settings))
        arguments, log = ["--tools", "board", "--root", str(place.checkout)], place.folder / "worker.log"
        worker = WorkerProcess(settings, arguments, place.examples, log, model.env)
        stack.callback(worker.kill)
        async with _patience("Starting a worker"):
            seconds = await worker.start()
        paper.line(f"worker  worker 1 started in {seconds:.1f} s, {place.short(log)}", hang=8)
        return await _perform(paper, place, loom, worker, model, began)


@contextlib.asynccontextmanager
async def _patience(what: str) -> AsyncIterator[None]:
    """Show that something takes long, when it does."""
    progress = Progress(what)

    async def tick() -> None:
        while True:
            await asyncio.sleep(0.2)
            progress.tick()

    ticking = asyncio.create_task(tick())
    try:
        yield
    finally:
        ticking.cancel()
        progress.done()


async def _perform(
    paper: Terminal, place: Checkout, loom: Loom, worker: WorkerProcess, model: DemoModel, began: float
) -> bool:
    name = f"demo-{secrets.token_hex(3)}"
    task = TASK.format(report=place.short(place.report))
    await loom.start(_agent(place, model), task, workdir=place.checkout, job=name)
    row = await loom.store.read(lambda tx: tx.job(name))
    assert row is not None, "the job has just been written"
    paper.line()
    timeline, calls = make_watcher(loom, row, as_json=False, states=True, tell=False)
    assert isinstance(timeline, Timeline), "a watcher that does not print JSON is a timeline"
    scene = Scene(timeline, worker, loom, place)
    try:
        result = await Follower(loom, row, scene, calls).run()
    finally:
        await scene.close()
    assert isinstance(result, RunResult), "the demo's job is an agent's"
    await print_summary(paper, scene, loom, result, scripted=model.scripted, seconds=time.monotonic() - began)
    return result.status == "completed"


def _agent(place: Checkout, model: DemoModel) -> Agent:
    file = place.examples / "researcher.yaml"
    return load_agent(file.read_bytes(), place.short(file), os.environ, {"model": model.name} if model.name else None)


@contextlib.asynccontextmanager
async def _model(place: Checkout) -> AsyncIterator[DemoModel]:
    """Take the model of the environment, or serve the example's script."""
    env = dict(os.environ)
    if env.get("OPENAI_API_KEY") or env.get("OPENAI_BASE_URL"):
        name = env.get("OPENAI_MODEL", "")
        yield DemoModel(
            name, False, env, f"{name or 'the one that researcher.yaml names'}, at the endpoint of your environment"
        )
        return
    script = await asyncio.to_thread(load_script, place.examples / "researcher.script.yaml")
    async with running(script) as url:
        said = (
            "none is configured, so this one is a script: it speaks the real protocol and does not think "
            "(examples/researcher.script.yaml). Set OPENAI_API_KEY, OPENAI_BASE_URL and OPENAI_MODEL for a real one"
        )
        yield DemoModel("", True, {**env, "OPENAI_BASE_URL": url, "OPENAI_API_KEY": "none"}, said)
