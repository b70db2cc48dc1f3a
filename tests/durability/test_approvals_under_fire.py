"""Many jobs wait for people under mixed policies while worker and server are killed: nothing is lost or done twice."""

import asyncio
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import pytest

from loom_client.dev_server import DevServer
from loom_client.graph_job import GraphJob
from loom_dsl.compile import compile_graph
from loom_dsl.events import EventType
from tests.durability.conftest import House, Opener
from tests.durability.reading import events, of
from tests.support.waiting import eventually

pytestmark = [pytest.mark.server, pytest.mark.crash]

GRAPH = """
loom: 1
kind: graph
name: ask-{name}
nodes:
  ask:
    approval:
      ask: May it go on?
      policy: {policy}
    deadline: never
    catch: {{approval_expired: done}}
    next: done
  done: {{end: "${{result}}"}}
"""
SECONDS = 10
"""How long a question stays open: long enough for all jobs to have begun before the first expires."""
POLICIES = {
    "plain": "{}",
    "expires": f"{{expires: {SECONDS}s}}",
    "passed-on": f"{{approvers: [ann], escalate: [{{after: {SECONDS}s, to: [lead]}}]}}",
    "quorum": "{quorum: 2, approvers: [ann, bob]}",
    "halted": f"{{expires: {SECONDS}s, on_expiry: halt}}",
}
ENDS = {
    "plain": {"choice": "approve", "by": "ann", "message": ""},
    "expires": {"ok": False, "code": "approval_expired", "message": "nobody answered `ask` in time"},
    "passed-on": {"choice": "approve", "by": "lead", "message": ""},
    "quorum": {"choice": "approve", "by": "ann, bob", "message": ""},
    "halted": {"choice": "approve", "by": "ops", "message": ""},
}


class Crowd:
    """Jobs that wait, by the name of their policy."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.jobs: dict[str, list[GraphJob]] = {}
        self.approvals: dict[str, str] = {}

    async def start(self, each: int) -> None:
        """Start so many jobs of each policy, and wait until all have asked."""
        gate = asyncio.Semaphore(8)

        async def one(name: str, number: int) -> GraphJob:
            async with gate:
                plan = compile_graph(GRAPH.format(name=name, policy=POLICIES[name]), name)
                return await self.house.loom.start_graph(
                    plan, job=f"{name}-{number}-{self.house.settings.task_queue}", workdir=self.house.folder
                )

        for name in POLICIES:
            self.jobs[name] = await asyncio.gather(*(one(name, number) for number in range(each)))

        async def all_asked() -> bool:
            rows = await self.house.loom.approvals(status=None)
            self.approvals = {row["job"]: row["id"] for row in rows}
            return len(self.approvals) == each * len(POLICIES)

        await eventually(all_asked, every=0.2)

    async def say(self, jobs: Sequence[GraphJob], *choices: tuple[str, str]) -> None:
        """Signal decisions to each of the jobs: choice and name, in this order."""

        async def one(job: GraphJob) -> None:
            for choice, by in choices:
                decision = {"approval_id": self.approvals[job.id], "choice": choice, "by": by}
                await job.handle.signal("loom.decision", decision)

        await asyncio.gather(*(one(job) for job in jobs))

    async def until(self, name: str, told: Callable[[Any], bool]) -> None:
        """Wait until every job of a policy was told of."""
        for job in self.jobs[name]:

            async def is_told(job: GraphJob = job) -> bool:
                return any(map(told, await events(job)))

            await eventually(is_told, every=0.2)


def changed(what: str) -> Callable[[Any], bool]:
    """An event by which a question changed so."""
    return lambda event: event.type == EventType.APPROVAL_CHANGED and event.data["what"] == what


@pytest.mark.parametrize("each", [20, pytest.param(200, marks=pytest.mark.nightly)])
async def test_waiting_jobs_lose_no_decision_and_count_each_once(
    house: Opener, own_server: DevServer, each: int
) -> None:
    opened = await house([{"say": "nothing"}], server=own_server)
    crowd = Crowd(opened)
    async with opened.worker() as worker:
        await crowd.start(each)
        half = each // 2
        await crowd.say(crowd.jobs["plain"][:half], ("approve", "ann"))
        await crowd.say(crowd.jobs["quorum"], ("approve", "ann"), ("approve", "ann"), ("approve", "eve"))
        worker.kill()
        own_server.kill()
        await own_server.start()
        # Nobody is up to hear this.
        await crowd.say(crowd.jobs["plain"][half:], ("approve", "ann"), ("approve", "ann"), ("reject", "bob"))
        await crowd.say(crowd.jobs["quorum"], ("approve", "bob"), ("reject", "ann"))
        await crowd.say(crowd.jobs["passed-on"], ("approve", "eve"))
        await worker.start()
        await crowd.until("plain", lambda event: event.type == EventType.APPROVAL_DECIDED)
        worker.kill()
        await worker.start()
        await crowd.until("passed-on", changed("escalated"))
        await crowd.say(crowd.jobs["passed-on"], ("approve", "lead"), ("approve", "ann"))
        own_server.kill()
        await own_server.start()
        await crowd.until("halted", changed("halted"))
        await crowd.say(crowd.jobs["halted"], ("approve", "ops"), ("approve", "ops"))
        back = time.time()
        for name, jobs in crowd.jobs.items():
            results = await asyncio.gather(*(job.result() for job in jobs))
            assert [result.result for result in results] == [ENDS[name]] * each, name
        took = time.time() - back
    print(f"measured: {took:.1f} s from the last kill to the end of {each * len(POLICIES)} jobs")
    await check(crowd)


async def check(crowd: Crowd) -> None:
    """Each question was asked and decided once, none before its time, and what was refused was told by name."""
    rows = {row["job"]: row for row in await crowd.house.loom.approvals(status=None)}
    for name, jobs in crowd.jobs.items():
        for job in jobs:
            told = await events(job)
            (asked,) = of(told, EventType.APPROVAL_REQUESTED)
            (decided,) = of(told, EventType.APPROVAL_DECIDED)
            assert decided["choice"] == ("expired" if name == "expires" else "approve")
            assert rows[job.id]["status"] == ("expired" if name == "expires" else "approved")
            verdicts = {data["verdict"] for data in of(told, EventType.WARNING) if data["code"] == "signal_refused"}
            assert verdicts <= {"already_decided", "not_allowed", "ended"}
            what = [data["what"] for data in of(told, EventType.APPROVAL_CHANGED)]
            expected = {"passed-on": ["escalated"], "halted": ["halted"], "quorum": ["vote"]}
            assert what == expected.get(name, [])
            if name in ("quorum", "passed-on"):
                assert "not_allowed" in verdicts
            if name == "expires":
                assert decided_at(rows[job.id]) >= asked["expires_at"] - 0.1


def decided_at(row: dict[str, Any]) -> float:
    """When a list says that it was decided."""
    return datetime.fromisoformat(row["at"]).timestamp()
