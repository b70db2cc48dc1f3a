"""A scenario on a real server: whether it comes to the same there as in memory."""

import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from temporalio.service import RPCError

from activities.registry import ToolRegistry
from activities.runtime import Runtime
from loom_client.client import Loom
from loom_client.connection import connect
from loom_client.project.performance import in_memory, perform
from loom_client.project.performed_outside import PATIENCE
from loom_client.settings import Settings
from loom_dsl.canonical import canonical_json
from loom_dsl.errors import LoomError
from loom_dsl.plan import Plan
from loom_dsl.scenario import Scenario, ScenarioCase
from loom_dsl.scenario_run import play_case

SECONDS = 2.0
"""How long a deadline or a timer is on the server that was over in memory: long enough for what comes before it."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One case, in memory and on the server.

    Attributes:
        case: Its name.
        differences: What was otherwise on the server; empty when it came to the same.
        skipped: Why it was not run there, or empty.
    """

    case: str
    differences: tuple[str, ...] = ()
    skipped: str = ""


async def compare(plan: Plan, scenario: Scenario, settings: Settings) -> list[Compared]:
    """Run every case on a Temporal server, with the scenario's answers in place of all work.

    The worker is one of this process, on a task queue of its own and with a store that is gone afterwards, so that
    neither other workers nor other jobs have anything to do with it.

    Args:
        plan: The graph.
        scenario: What the world answers. Check it with `scenario_check.check_scenario` first.
        settings: Which server and which namespace.

    Raises:
        LoomError: There is no server.
    """
    with tempfile.TemporaryDirectory(prefix="loom-simulate-") as folder:
        place, queue = Path(folder), f"loom-simulate-{uuid.uuid4().hex[:12]}"
        own = settings.model_copy(update={"task_queue": queue, "store": str(place / "loom.db")})
        async with connect(own) as loom, Runtime(loom.store, ToolRegistry.load(), place) as runtime:
            try:
                cases = enumerate(scenario.whole_cases())
                return [await _compared(loom, runtime, plan, case, f"{queue}-{index}", place) for index, case in cases]
            finally:
                await _sweep(loom)


async def _compared(loom: Loom, runtime: Runtime, plan: Plan, case: ScenarioCase, job: str, place: Path) -> Compared:
    played = play_case(plan, case)
    if played.waits:
        return Compared(case.name, skipped=f"it waits at {', '.join(played.waits)}, so it has no end to compare")
    try:
        found = await perform(loom, runtime, plan, case, job=job, seconds=SECONDS, workdir=place)
    except TimeoutError:
        return Compared(case.name, (f"it has not ended in {PATIENCE:g} s on the server",))
    except LoomError as error:
        return Compared(case.name, (error.message,))
    return Compared(case.name, tuple(_different(in_memory(played), found)))


def _different(memory: Mapping[str, Any], server: Mapping[str, Any]) -> Iterator[str]:
    for what in ("status", "code", "result"):
        if memory[what] != server[what]:
            yield f"{what}: in memory {canonical_json(memory[what])}, on the server {canonical_json(server[what])}"
    for branch in dict.fromkeys((*memory["trace"], *server["trace"])):
        here, there = memory["trace"].get(branch, []), server["trace"].get(branch, [])
        if here != there:
            yield f"trace of {branch}: in memory {_ended(here)}, on the server {_ended(there)}"


def _ended(names: list[tuple[str, str]]) -> str:
    return ", ".join(name if verdict == "done" else f"{name}:{verdict}" for name, verdict in names) or "nothing"


async def _sweep(loom: Loom) -> None:
    """End what did not come to its end: nobody serves its queue any more."""
    for row in await loom.store.read(lambda tx: tx.jobs()):
        if not row["ended_at"]:
            with suppress(RPCError):
                await loom.client.get_workflow_handle(str(row["job"])).terminate("the simulation is over")
