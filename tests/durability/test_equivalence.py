"""One plan and one script come to the same, whoever drives the machine and however often it continues as new."""

import asyncio
from typing import Any

import pytest
from temporalio import activity
from temporalio.client import Client
from temporalio.testing import ActivityEnvironment

from activities.registration import activities_of
from loom_client.job import Job
from loom_dsl.agent.definition import Agent
from loom_dsl.graph.plan import Plan, PlanText
from loom_dsl.machine.commands import RunActivity
from loom_dsl.machine.state import MachineState
from loom_dsl.simulation.in_memory import Handler, Simulation
from tests.durability.conftest import House, Opener
from tests.durability.reading import (
    account,
    branches,
    effects_of,
    events,
    failed_tasks,
    histories,
    of,
    trace,
    transcript,
)
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.server

STEPS: list[dict[str, Any]] = [
    {
        "say": "Several at once.",
        "calls": [
            {"tool": "look", "args": {"text": "a"}},
            {"tool": "linger", "args": {"text": "b"}},
            {"tool": "send", "args": {"text": "asked"}},
            {"tool": "nonesuch", "args": {}},
            {"tool": "look", "raw": "{not json"},
            {"tool": "put", "args": {"text": "c"}},
        ],
    },
    {"repeat": 2, "say": "And again {n}.", "calls": [{"tool": "look", "args": {"text": "{n}"}}]},
    {"calls": [{"tool": "send", "args": {"text": "twice"}, "id": "same"}] * 2},
    {"say": "Done: {last}"},
]
EFFECTS = sorted(["0/call_1_2 asked", "0/call_1_5 c", "3/same twice", "3/same#2 twice"])


def asking(house: House, recurse: str = "per_turn") -> Agent:
    """An agent that asks before it sends."""
    allowed = ["look", "linger", "put"]
    return house.agent(permissions={"allow": allowed, "ask": ["send"]}, recurse=recurse)


async def on_temporal(house: House, agent: Agent, steps: int | None) -> tuple[Job, dict[str, Any]]:
    """Run the job with every approval given; what it came to and its trace."""
    job = await house.start(agent, steps=steps)
    await house.approve_all(job)
    found = await account(house.loom.store, job)
    runs = await histories(house.loom.client, job.id)
    assert failed_tasks(runs) == []
    assert sorted(effects_of(house.workdir(job))) == EFFECTS
    return job, {"messages": found.messages, "usage": found.usage, "trace": trace(runs), "runs": len(runs)}


WAYS: list[Any] = [
    pytest.param("history", None, {}, range(1, 2), id="never"),
    pytest.param("adaptive", None, {}, range(1, 6), id="adaptive"),
    pytest.param("per_turn", 4, {}, range(8, 40), id="after 4 activities"),
    pytest.param("per_turn", 1, {}, range(20, 100), id="after 1 activity"),
    pytest.param("per_turn", None, {"max_cached_workflows": 0}, range(5, 6), id="every turn, nothing cached"),
    pytest.param("history", None, {"max_cached_workflows": 0}, range(1, 2), id="never, nothing cached"),
]


@pytest.mark.parametrize(("recurse", "steps", "options", "runs"), WAYS)
async def test_the_way_to_continue_as_new_changes_nothing(
    house: Opener, recurse: str, steps: int | None, options: dict[str, Any], runs: range
) -> None:
    opened = await house(STEPS)
    async with opened.inside():
        _, expected = await on_temporal(opened, asking(opened), None)
    assert expected.pop("runs") == 5
    async with opened.inside(**options):
        _, found = await on_temporal(opened, asking(opened, recurse), steps)
    assert found.pop("runs") in runs
    assert found == expected


@pytest.mark.parametrize("steps_per_run", [None, 1, 3])
async def test_the_driver_in_memory_comes_to_the_same(house: Opener, steps_per_run: int | None) -> None:
    opened = await house(STEPS)
    async with opened.inside():
        _, expected = await on_temporal(opened, asking(opened), None)
    twin = await opened.start(asking(opened))  # nobody serves the queue now: its first run stays where it is
    envelope, plan = await first_input(opened.loom.client, twin)
    runtime = opened.runtime()
    state = MachineState.from_json(envelope["state"])
    handlers = inline(runtime, twin.id, lambda: simulation.machine.state)
    simulation: Simulation = await asyncio.to_thread(
        Simulation, Plan.load(plan.text), state, handlers, job=twin.id, steps_per_run=steps_per_run
    )
    asked = 0
    while not (await asyncio.to_thread(simulation.run)).over:
        requests = of(await events(twin), "approval_requested")  # type: ignore[arg-type]
        assert len(requests) > asked, "the simulation stands still and asks for nothing"
        decision = {"approval_id": requests[asked]["approval_id"], "choice": "approve", "by": "me"}
        asked += 1
        simulation.signal("loom.decision", decision)
    await runtime.close()
    await twin.handle.terminate()
    assert simulation.outcome.failure is None
    assert await transcript(opened.loom.store, f"s-{twin.id}") == expected["messages"]
    assert branches(simulation.outcome.trace) == expected["trace"]
    assert sorted(effects_of(opened.workdir(twin))) == EFFECTS


async def first_input(client: Client, job: Job) -> tuple[dict[str, Any], PlanText]:
    """What a job was started with."""
    history = await job.handle.fetch_history()
    payloads = history.events[0].workflow_execution_started_event_attributes.input.payloads
    envelope, plan = await client.data_converter.decode(payloads, [dict, PlanText])
    return envelope, plan


def inline(runtime: Any, job: str, state_of: Any) -> dict[str, Handler]:
    """The real activities as handlers of the in-memory driver, each run to its end in this event loop."""
    loop = asyncio.get_running_loop()
    environment = ActivityEnvironment()
    environment.info = activity_info(environment.info, job)
    handlers: dict[str, Handler] = {}
    for name, function in activities_of(runtime).items():

        def handle(command: RunActivity, function: Any = function) -> Any:
            turn = state_of().turn
            argument = {"at": command.at, "with": command.arguments, "events": command.events}
            argument |= {"turn": turn.turn_counter, "session": turn.session_id}
            running = environment.run(function, argument)
            return asyncio.run_coroutine_threadsafe(running, loop).result(PATIENCE)

        handlers[name] = handle
    return handlers


def activity_info(info: activity.Info, job: str) -> activity.Info:
    """The context of an activity that belongs to a job."""
    import dataclasses

    return dataclasses.replace(info, workflow_id=job, is_local=True)
