"""The processes beside the driver: ``python -m benchmarks.stand.serving model|loom|loop …``.

Each prints one line when it serves, and ends when its standard input ends, so none outlives the driver.
"""

import argparse
import asyncio
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from temporalio import activity
from temporalio.client import Client
from temporalio.worker import Worker

READY = "ready"


def _end_with_the_driver() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


async def serve_loom(address: str, queue: str, store: str, *, sandboxed: bool) -> None:
    """Serve Loom's jobs: as `loom worker` does, or with workflow code in the SDK's sandbox."""
    from worker import make_worker, serve

    if not sandboxed:
        await serve(
            address=address,
            namespace="default",
            task_queue=queue,
            store=store,
            root=Path("/"),
            tools=["benchmarks.stand.tools"],
            ready=READY,
        )
        return
    from activities.runtime import Runtime
    from loom_store.server.payloads import data_converter
    from loom_store.store import Store
    from loom_tools.registry import ToolRegistry

    with Store.open(store) as opened:
        client = await Client.connect(address, data_converter=data_converter(opened))
        runtime = Runtime(opened, ToolRegistry.load(modules=["benchmarks.stand.tools"]), Path("/"))
        async with make_worker(client, runtime, queue, sandboxed=True):
            print(READY, flush=True)
            await asyncio.Event().wait()


async def serve_loop(address: str, queue: str) -> None:
    """Serve the hand-written workflow with a worker as the SDK makes it."""
    from benchmarks.stand.loop import Steps
    from benchmarks.stand.loop_workflow import ChainWorkflow, GateWorkflow, LoopWorkflow, MapWorkflow
    from benchmarks.stand.tools import item, pause

    steps = Steps(os.environ)
    client = await Client.connect(address)
    activities: list[Callable[..., Any]] = [steps.model, steps.tool]
    activities += [activity.defn(name="bench.item")(item), activity.defn(name="bench.pause")(pause)]
    workflows = [LoopWorkflow, MapWorkflow, ChainWorkflow, GateWorkflow]
    async with Worker(client, task_queue=queue, workflows=workflows, activities=activities):
        print(READY, flush=True)
        await asyncio.Event().wait()


def main() -> None:
    """Serve what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["model", "loom", "loop"])
    parser.add_argument("--script")
    parser.add_argument("--address")
    parser.add_argument("--queue")
    parser.add_argument("--store")
    parser.add_argument("--sandboxed", action="store_true")
    options = parser.parse_args()
    threading.Thread(target=_end_with_the_driver, daemon=True).start()
    if options.what == "model":
        from loom_cli.dev.fake_model.server import serve

        serve(options.script)
    elif options.what == "loop":
        asyncio.run(serve_loop(options.address, options.queue))
    else:
        asyncio.run(serve_loom(options.address, options.queue, options.store, sandboxed=options.sandboxed))
    sys.stdout.flush()
    os._exit(0)  # a process that ran workers may abort in the interpreter's own ending


if __name__ == "__main__":
    main()
