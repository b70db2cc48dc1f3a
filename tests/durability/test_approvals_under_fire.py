"""Many jobs wait for people under mixed policies while worker and server are killed.

Nothing is lost or done twice, and what is due is done on time.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from statistics import median
from typing import Any

import pytest
from temporalio.service import RPCError, RPCStatusCode

from loom_cli.dev.server import DevServer
from loom_client.job import GraphJob
from loom_dsl.graph.compiler import compile_graph
from loom_dsl.graph.plan import Plan
from loom_dsl.observe.events import EventType
from tests.durability.conftest import House, Opener
from tests.durability.reading import events, of
from tests.support.waiting import PATIENCE, eventually

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
POLICIES = {
    "plain": "{{}}",
    "quorum": "{{quorum: 2, approvers: [ann, bob]}}",
    "expires": "{{expires: {seconds}s}}",
    # Also with a time limit, which tells when it was asked.
    "passed-on": "{{approvers: [ann], expires: 1h, escalate: [{{after: {seconds}s, to: [lead]}}]}}",
    "halted": "{{expires: {seconds}s, on_expiry: halt}}",
}
TIMED = ("expires", "passed-on", "halted")
DUE = {"expired", "escalated", "halted"}
"""What becomes of their questions in time."""
HOUR = 3600
EARLY = 0.1
"""Seconds by which a timer may seem to fire too soon, by the clocks of two processes."""
ENDS = {
    "plain": {"choice": "approve", "by": "ann", "message": ""},
    "expires": {"ok": False, "code": "approval_expired", "message": "nobody answered `ask` in time"},
    "passed-on": {"choice": "approve", "by": "lead", "message": ""},
    "quorum": {"choice": "approve", "by": "ann, bob", "message": ""},
    "halted": {"choice": "approve", "by": "ops", "message": ""},
}


class Crowd:
    """Jobs that wait, by the name of their policy.

    Args:
        house: Where they run.
        each: How many of each policy.
        seconds: How long a question stays open.
    """

    def __init__(self, house: House, each: int, seconds: float) -> None:
        self.house, self.each, self.seconds = house, each, seconds
        self.patience = PATIENCE + 0.6 * each * len(POLICIES)
        """Seconds in which all must have done something: a machine at load 10 starts five of them a second."""
        self.allowance = self.patience
        """Seconds after which what is due must be done while all is up. A worker that is killed leaves its workflow
        tasks to their timeout of 10 s, which may hit a job twice, and much is due at once. Measured: with 100 jobs at
        loads of 4 to 11 up to 15 s; with 400 at a load of 12 up to 39 s. A timer that is lost is never made up for: who
        waits for it here sends nothing meanwhile that could wake the job."""
        self.jobs: dict[str, list[GraphJob]] = {}
        self.approvals: dict[str, str] = {}
        self.outages: list[tuple[float, float]] = []

    async def start(self) -> None:
        """Start the jobs of each policy, and wait until all have asked."""
        gate = asyncio.Semaphore(8)

        async def one(plan: Plan, name: str) -> GraphJob:
            async with gate:
                job = f"{name}-{self.house.settings.task_queue}"
                return await self.house.loom.start_graph(plan, job=job, workdir=self.house.folder)

        for name, policy in POLICIES.items():
            plan = compile_graph(GRAPH.format(name=name, policy=policy.format(seconds=self.seconds)), name)
            self.jobs[name] = await asyncio.gather(*(one(plan, f"{name}-{number}") for number in range(self.each)))

        async def all_asked() -> bool:
            rows = await self.house.loom.approvals(status=None)
            self.approvals = {row.job: row.id for row in rows}
            return len(self.approvals) == self.each * len(POLICIES)

        await eventually(all_asked, self.patience, every=0.2)

    @contextmanager
    def outage(self) -> Iterator[None]:
        """What happens inside happens while worker or server is down, or coming back."""
        began = time.time()
        yield
        self.outages.append((began, time.time()))

    def up(self, since: float, until: float) -> float:
        """Seconds between two times in which nothing was down."""
        return until - since - sum(max(0.0, min(until, end) - max(since, began)) for began, end in self.outages)

    async def due(self) -> dict[str, float]:
        """When each job's question was to expire or to be passed on."""
        found = {}
        for name in TIMED:
            for job in self.jobs[name]:
                (asked,) = of(await events(job), EventType.APPROVAL_REQUESTED)
                found[job.id] = asked["expires_at"] - (HOUR - self.seconds if name == "passed-on" else 0)
        return found

    async def late(self) -> dict[str, list[float]]:
        """Seconds beyond its due time, by policy, after which what was due is in the audit trail; outages left out."""
        trail = await self.house.loom.store.read(lambda tx: tx.audit_entries())
        done = {entry.job: entry for entry in trail if {entry.data.get("what"), entry.data.get("choice")} & DUE}
        due = await self.due()
        at = {job: datetime.fromisoformat(done[job].at).timestamp() for job in due}
        return {name: [self.up(due[job.id], at[job.id]) for job in self.jobs[name]] for name in TIMED}

    async def say(self, jobs: Sequence[GraphJob], *choices: tuple[str, str]) -> None:
        """Signal decisions to each of the jobs: choice and name, in this order; the first may end a job at once."""

        async def one(job: GraphJob) -> None:
            for number, (choice, by) in enumerate(choices):
                decision = {"approval_id": self.approvals[job.id], "choice": choice, "by": by}
                try:
                    await job.handle.signal("loom.decision", decision)
                except RPCError as error:
                    if error.status is not RPCStatusCode.NOT_FOUND or number == 0:
                        raise

        await asyncio.gather(*(one(job) for job in jobs))

    async def until(self, name: str, told: Callable[[Any], bool]) -> None:
        """Wait until every job of a policy was told of."""
        for job in self.jobs[name]:

            async def is_told(job: GraphJob = job) -> bool:
                return any(map(told, await events(job)))

            await eventually(is_told, self.patience, every=0.2)


def changed(what: str) -> Callable[[Any], bool]:
    """An event by which a question changed so."""
    return lambda event: event.type == EventType.APPROVAL_CHANGED and event.data["what"] == what


@pytest.mark.parametrize(
    ("each", "seconds"),
    [
        pytest.param(3, 8, id="3"),
        pytest.param(200, 60, id="200", marks=[pytest.mark.nightly, pytest.mark.timeout(1800)]),
    ],
)
async def test_waiting_jobs_lose_no_decision_count_each_once_and_do_on_time_what_is_due(
    house: Opener, own_server: DevServer, each: int, seconds: float
) -> None:
    opened = await house([{"say": "nothing"}], server=own_server)
    crowd = Crowd(opened, each, seconds)
    async with opened.worker() as worker:
        await crowd.start()
        due = await crowd.due()
        half = each // 2
        await crowd.say(crowd.jobs["plain"][:half], ("approve", "ann"))
        await crowd.say(crowd.jobs["quorum"], ("approve", "ann"), ("approve", "ann"), ("approve", "eve"))
        with crowd.outage():
            worker.kill()
            own_server.kill()
            await own_server.start()
            # Nobody is up to hear this.
            await crowd.say(crowd.jobs["plain"][half:], ("approve", "ann"), ("approve", "ann"), ("reject", "bob"))
            await crowd.say(crowd.jobs["quorum"], ("approve", "bob"), ("reject", "ann"))
            await crowd.say(crowd.jobs["passed-on"], ("approve", "eve"))
            await eventually(lambda: time.time() > median(due.values()))
            await worker.start()
        await crowd.until("plain", lambda event: event.type == EventType.APPROVAL_DECIDED)
        with crowd.outage():
            worker.kill()
            await worker.start()
            own_server.kill()
            await own_server.start()
        await crowd.until("passed-on", changed("escalated"))
        await crowd.say(crowd.jobs["passed-on"], ("approve", "lead"), ("approve", "ann"))
        await crowd.until("halted", changed("halted"))
        await crowd.say(crowd.jobs["halted"], ("approve", "ops"), ("approve", "ops"))
        for name, jobs in crowd.jobs.items():
            results = await asyncio.gather(*(job.result() for job in jobs))
            assert [result.result for result in results] == [ENDS[name]] * each, name
    await check(crowd)
    late = await crowd.late()
    told = ", ".join(f"{name} {median(times):.1f} ({max(times):.1f})" for name, times in late.items())
    print(f"measured: {each} jobs each, seconds beyond the due time, median (most): {told}")
    for name, times in late.items():
        assert min(times) >= -EARLY, name
        assert max(times) <= crowd.allowance, name


async def check(crowd: Crowd) -> None:
    """Each question was asked and decided once, and what was refused was told by name."""
    rows = {row.job: row for row in await crowd.house.loom.approvals(status=None)}
    for name, jobs in crowd.jobs.items():
        for job in jobs:
            told = await events(job)
            assert len(of(told, EventType.APPROVAL_REQUESTED)) == 1
            (decided,) = of(told, EventType.APPROVAL_DECIDED)
            assert decided["choice"] == ("expired" if name == "expires" else "approve")
            assert rows[job.id].status == ("expired" if name == "expires" else "approved")
            verdicts = {data["verdict"] for data in of(told, EventType.WARNING) if data["code"] == "signal_refused"}
            assert verdicts <= {"already_decided", "not_allowed", "ended"}
            what = [data["what"] for data in of(told, EventType.APPROVAL_CHANGED)]
            expected = {"passed-on": ["escalated"], "halted": ["halted"], "quorum": ["vote"]}
            assert what == expected.get(name, [])
            if name in ("quorum", "passed-on"):
                assert "not_allowed" in verdicts
