"""Cases of scenarios on a real server, where their deadlines are short."""

import contextlib
from typing import Any

from temporalio.service import RPCError

from activities.runtime import Runtime
from loom_cli.project.scenarios_on_server import in_memory, perform
from loom_dsl.errors import UserError
from loom_dsl.graph.plan import Plan
from loom_dsl.simulation.run import play_case
from loom_dsl.simulation.scenario import ScenarioCase
from loom_tools.registry import ToolRegistry
from tests.durability.conftest import House
from tests.support.waiting import longer


async def performed(
    house: House, plan: Plan, case: ScenarioCase, job: str, seconds: float
) -> tuple[str, Any, dict[str, Any]]:
    """Play a case on the server: the job, what came of it, and what came of it in memory.

    A time that is over in memory is so many seconds long here. On a slow machine that may be over before what has to
    come first; then the case is played again with more. A case without such a time is played once.
    """
    played = play_case(plan, case)
    expected = in_memory(played)
    passes = any(one.what == "time is over" for one in played.log)
    for number, limit in enumerate(longer(seconds, 16 * seconds) if passes else [seconds]):
        name = f"{job}-{number}"
        found: Any
        async with Runtime(house.loom.store, ToolRegistry.load(), house.folder) as runtime:
            try:
                found = await perform(house.loom, runtime, plan, case, job=name, workdir=house.folder, seconds=limit)
            except (TimeoutError, UserError) as error:
                found = error
        if found == expected:
            break
        with contextlib.suppress(RPCError):
            await house.loom.client.get_workflow_handle(name).terminate()
    return name, found, expected
