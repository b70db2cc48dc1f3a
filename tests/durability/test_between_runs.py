"""What falls due while a run ends and the next one has not begun."""

import asyncio
from functools import partial
from typing import Any

import pytest
from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from loom_dsl.agent.turn import TurnState
from loom_dsl.graph.compiler import compile_graph
from loom_dsl.graph.plan import ENGINE, PlanText
from loom_dsl.machine.state import MachineState
from loom_store.transaction import Transaction
from tests.durability.conftest import Opener
from tests.durability.reading import histories
from tests.support.waiting import eventually
from worker import patient
from workflows.graph import GraphWorkflow

pytestmark = pytest.mark.server

GRAPH = """
loom: 1
kind: graph
name: two_things
start: both
agents:
  writer: {model: scripted, instructions: Write., tools: [calculator]}
nodes:
  both: {next: {all: [ask, writes]}}
  ask: {approval: {ask: "Go on?", policy: {escalate: [{after: 1s, to: [lead]}]}}, deadline: never, next: done}
  writes: {agent: writer, with: {task: Write.}, catch: {any: done}, next: done}
  done: {end: 1}
"""


async def test_who_is_asked_besides_is_told_also_when_that_falls_due_as_the_run_ends(house: Opener) -> None:
    opened = await house([{"say": "nothing"}])
    client, queue = opened.loom.client, opened.loom.queue
    plan = compile_graph(GRAPH, "two_things.yaml")
    for text in (plan.text, plan.child("writer").text):
        await opened.loom.store.write(partial(Transaction.put_blob, data=text.encode()))
    told: list[str] = []
    escalating = asyncio.Event()

    @activity.defn(name="loom.approval.announce")
    async def announce(envelope: dict[str, Any]) -> None:
        again = envelope["with"].get("again", "asked")
        if again == "escalation" and not escalating.is_set():
            escalating.set()
            raise ApplicationError("not yet")
        told.append(again)

    @activity.defn(name="loom.child.prepare")
    async def prepare(envelope: dict[str, Any]) -> dict[str, Any]:
        await escalating.wait()  # the run is drained by now, and ends as soon as the child is started
        turn = TurnState.initial(envelope["with"]["child"], max_iterations=1)
        return {"state": MachineState(turn=turn).to_json()}

    envelope = {"engine": ENGINE, "state": MachineState().to_json(), "steps": 1}
    id = opened.named("two")
    worker = Worker(
        client,
        task_queue=queue,
        workflows=[GraphWorkflow],
        activities=[announce, prepare],
        workflow_runner=UnsandboxedWorkflowRunner(),
    )
    async with patient(worker):
        job = await client.start_workflow("loom.graph", args=[envelope, PlanText(plan.text)], id=id, task_queue=queue)

        async def went_on() -> int:
            return max(0, len(await histories(client, id)) - 1)

        assert await eventually(went_on)
        try:
            # A slow machine may have one of them told again, or late: an activity runs at least once.
            await eventually(lambda: set(told) == {"asked", "escalation"})
        finally:
            await job.terminate()
            await client.get_workflow_handle(f"{id}.writes.1").terminate()
