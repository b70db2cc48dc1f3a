"""What comes from outside in a scenario, done to a job on a server."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from loom_client.job import JobHandle
from loom_dsl.errors import LoomError
from loom_dsl.machine_approvals import digest_of
from loom_dsl.scenario import ScenarioCase, SentEvent
from loom_dsl.scenario_names import aliases
from loom_dsl.signature import stand_in

if TYPE_CHECKING:
    from loom_client.project.performance import Performance

PATIENCE = 120.0
"""Seconds that one case may take on a server, its deadlines with it: far more than a busy machine needs."""


async def _until(condition: Callable[[], Awaitable[bool]]) -> None:
    while not await condition():  # noqa: ASYNC110 - only the server can tell
        await asyncio.sleep(0.02)


async def world(performance: "Performance", case: ScenarioCase) -> None:
    """Do what comes from outside, each when everything has happened that happened before it in memory."""
    events, steering = list(case.events), list(case.steering)
    for one in performance.played.log:
        if one.what.startswith("taken back"):
            return  # the job is ending
        if one.what == "time is over":
            await _until(lambda at=one.at: _is_gone(performance, at))  # type: ignore[misc]
        elif not one.at and one.what.startswith("event "):
            sent = next(event for event in events if f"event {event.name}" == one.what)
            events.remove(sent)
            await _send(performance, sent)
        elif not one.at:
            op = next(each.op for each in steering if each.op == one.what)
            job = performance.loom.graph_job(performance.job)
            await (job.resume() if op == "resume" else {"abort": job.abort, "pause": job.pause}[op]())
        elif one.at in performance.order and one.what == performance.verdicts[one.at]:
            await _until(lambda at=one.at: _has_ended(performance, at))  # type: ignore[misc]
        elif " by " in one.what:
            await _decide(performance, one.at)


async def _has_ended(performance: "Performance", at: str) -> bool:
    return any(name == at for name, _ in performance.ended)


async def _is_gone(performance: "Performance", at: str) -> bool:
    """Whether an execution has begun and is over."""
    status = await performance.loom.graph_job(performance.job).status()
    node = at.rpartition("/")[2].partition("#")[0]
    return at not in status["tokens"] and node in {name for visits in status["visits"].values() for name in visits}


async def _standing(performance: "Performance") -> dict[str, tuple[str, str]]:
    """The tokens of all jobs, by the names of the simulation: the job, and the open approval there."""
    found = {}
    for row in await performance.loom.store.read(lambda tx: tx.jobs()):
        job = str(row["job"])
        if row["ended_at"] or not job.startswith(performance.job):
            continue
        try:
            status = await performance.loom.graph_job(job).status()
        except LoomError:
            continue  # it has not begun
        asked = {approval["node"]: approval["approval_id"] for approval in status["approvals"]}
        for at in status["tokens"]:
            found[performance.whole(job, at)] = (job, asked.get(at, ""))
    return found


async def _decide(performance: "Performance", at: str) -> None:
    given = performance.cast.decision(at)
    while given is not None and given.choice is None:
        given = performance.cast.decision(at)
    assert given is not None
    assert given.choice is not None
    asking, names = "", (at, f"{at}[0]/ask#1")
    while not asking:
        standing = await _standing(performance)
        job, asking = next((standing[name] for name in names if standing.get(name, ("", ""))[1]), ("", ""))
        await asyncio.sleep(0.03)
    edited: dict[str, Any] = {"edited_arguments": given.edited_arguments} if given.edited_arguments is not None else {}
    handle = performance.loom.graph_job(job)
    more = {**edited, **await _signature(handle, asking, given.by)}
    await handle.decide(asking, given.choice, by=given.by, message=given.message, **more)


async def _signature(handle: JobHandle, asking: str, by: str) -> dict[str, Any]:
    """What stands in for a signature, where one is needed; the verifying activity of a performance takes it."""
    asked = (approval for approval in (await handle.status())["approvals"] if approval["approval_id"] == asking)
    found = next(asked, None)
    if found is None or not found["signed"]:
        return {}
    return {"digest": digest_of(found["request"]), "signature": stand_in(handle.id, f"{asking}/{by}")}


async def _send(performance: "Performance", event: SentEvent) -> None:
    job = performance.job
    while event.when is not None:
        standing = await _standing(performance)
        there = [found for at, (found, _) in standing.items() if event.when in aliases(at)]
        if there:
            job = there[0]
            break
        await asyncio.sleep(0.03)
    await performance.loom.graph_job(job).event(event.name, event.data, key=event.key)
