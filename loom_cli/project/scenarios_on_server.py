"""A case of a scenario on a real server: the same mocks in a worker, and the same decisions.

What ends when is laid down by the simulation: a mock gives its result when everything that ended before it in memory
has been taken by the job. Only deadlines and timers run by themselves; those that were over in memory are short here.
"""

import asyncio
import tempfile
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from activities.interceptor import Failures
from activities.jobs.child import Child
from activities.jobs.local_batch import LocalBatch
from activities.jobs.plans import Pin
from activities.observe.events import Observe, store_events
from activities.record.activity_call import ActivityCall
from activities.runtime import Runtime
from loom_client.client import Loom
from loom_client.connection import connect
from loom_client.job import JobHandle
from loom_client.settings import Settings
from loom_dsl.approvals.signature import VERIFIED, stand_in
from loom_dsl.errors import LoomError, UserError
from loom_dsl.graph.graph import Graph
from loom_dsl.graph.library import NAMES
from loom_dsl.graph.nodes import Activity
from loom_dsl.graph.plan import Plan
from loom_dsl.machine.kinds.approvals import digest_of
from loom_dsl.machine.tokens.children import id_part
from loom_dsl.simulation.mocks import EXECUTE, FORMAT, Cast, MockAnswer, MockedCall, stage_result
from loom_dsl.simulation.names import aliases, frame_of
from loom_dsl.simulation.run import Played, play_case
from loom_dsl.simulation.scenario import Scenario, ScenarioCase, SentEvent
from loom_dsl.text.canonical import canonical_json
from loom_tools.registry import ToolRegistry
from worker import BEAT, patient
from workflows.graph import GraphWorkflow

# What comes from outside in a scenario, done to a job on a server.


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
    return at not in status.tokens and node in {name for visits in status.visits.values() for name in visits}


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
        asked = {approval.node: approval.approval_id for approval in status.approvals}
        for at in status.tokens:
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
    asked = (approval for approval in (await handle.status()).approvals if approval.approval_id == asking)
    found = next(asked, None)
    if found is None or not found.signed:
        return {}
    return {"digest": digest_of(found.request), "signature": stand_in(handle.id, f"{asking}/{by}")}


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


STAGES = ("prepare", "discover", "validate", "authorize", "check_cancel", "execute", "format", "output")
Handler = Callable[[dict[str, Any]], Awaitable[Any]]


def hurried(plan: Plan, played: Played, seconds: float) -> Plan:
    """The plan with short times where a time was over in memory; all others are left, and so are never over here."""
    over = {aliases(one.at)[-1] for one in played.log if one.what == "time is over"}

    def node(key: str, given: dict[str, Any]) -> dict[str, Any]:
        for name in ("deadline", "timer"):
            if key in over and isinstance(given.get(name), dict) and given[name].get("after") is not None:
                given = {**given, name: {**given[name], "after": seconds}}
        return given

    def body(given: dict[str, Any]) -> dict[str, Any]:
        return {**given, "nodes": {key: node(key, value) for key, value in given["nodes"].items()}}

    graphs = {}
    for name, graph in plan.graphs.items():
        dumped: dict[str, Any] = graph.dump() if name in NAMES else body(graph.dump())
        inner = {key: body(value) for key, value in dumped.get("graphs", {}).items()}
        graphs[name] = Graph.model_validate({**dumped, **({"graphs": inner} if inner else {})})
    return Plan(plan.root, graphs, plan.agent, plan.agents)


@activity.defn(name="loom.approval.verify")
async def _vouch(envelope: dict[str, Any]) -> dict[str, str]:
    """The decisions of a scenario count as signed."""
    return {"verdict": VERIFIED, "message": ""}


@dataclass
class Performance:
    """One case, on its way.

    Attributes:
        played: How it went in memory.
        ended: The work that has ended, and how.
        strange: What the job wanted that it did not want in memory.
    """

    played: Played
    job: str
    loom: Loom
    runtime: Runtime
    ended: list[tuple[str, str]] = field(default_factory=list)
    strange: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.asked = {one.at: one for one in self.played.asked}
        cast = Cast(self.played.case)
        self.answers = {one.at: cast.give(one.at, one.work, one.arguments) for one in self.played.asked}
        self.cast = Cast(self.played.case)
        self.verdicts = dict(ended_in(self.played))
        log = [one.at for one in self.played.log if one.at in self.asked]
        self.order = [at for at in dict.fromkeys(log) if at in self.verdicts]

    # -- names ---------------------------------------------------------------------------------------

    def whole(self, job: str, at: str) -> str:
        """The execution as the simulation names it: with where its job is below the first one."""
        below = job.removeprefix(self.job).removeprefix(".")
        owners = {known.rpartition("[0]/")[0] for known in self.asked if "[0]/" in known}
        for owner in owners if below else ():
            if id_part(owner) == below:
                return f"{owner}[0]/{at}"
        return at

    def agent_at(self, job: str) -> str:
        """The node whose agent's job this is."""
        below = job.removeprefix(f"{self.job}.")
        return next(at for at in self.asked if id_part(at) == below)

    # -- mocks ---------------------------------------------------------------------------------------

    async def work(self, at: str, arguments: Any) -> Any:
        """Give the result of work when it is its turn."""
        self.check(at, arguments)
        await self.turn(at)
        verdict = self.verdicts[at]
        self.ended.append((at, verdict))
        if verdict != "done":
            raise ApplicationError(self.answers[at].message, type=verdict, non_retryable=True)
        return self.answers[at].result

    def check(self, at: str, arguments: Any) -> None:
        """Compare what is wanted with what was wanted in memory."""
        known = self.asked.get(at, MockedCall(at, "", None))
        if canonical_json(known.arguments) != canonical_json(arguments):
            self.strange.append(f"{at}: {canonical_json(arguments)} instead of {canonical_json(known.arguments)}")

    async def turn(self, at: str) -> None:
        """Wait until everything has been taken that ended before in memory; for ever, if it never ended there."""
        if at not in self.verdicts:
            await asyncio.Event().wait()  # until it is cancelled
        before = self.order[: self.order.index(at)]
        while True:
            ended = {name for name, _ in self.ended} >= set(before)
            if ended and not (before and before[-1] in (await self.loom.graph_job(self.job).status()).tokens):
                return
            await asyncio.sleep(0.02)

    def handlers(self) -> dict[str, Handler]:
        """The mocks, by the names of activities."""

        def named(name: str, do: Callable[[str, str, dict[str, Any]], Awaitable[Any]]) -> Handler:
            @activity.defn(name=name)
            async def handler(envelope: dict[str, Any]) -> Any:
                call = ActivityCall.of(envelope)
                if call.batches:
                    await self.runtime.store.write(lambda tx: store_events(tx, call))
                return await do(name, call.job, envelope)

            return handler

        bodies = self.played_plan.bodies.values()
        nodes = [node for body in bodies for node in body.nodes.values()]
        plain = {
            node.activity for node in nodes if isinstance(node, Activity) and not node.activity.startswith("loom.")
        }
        made = {
            name: named(name, self._work) for name in (*plain, "loom.function.call", "loom.llm.call") if ":" not in name
        }
        made |= {f"loom.tool.{stage}": named(f"loom.tool.{stage}", self._stage) for stage in STAGES}
        turn = ("loom.context.assemble", "loom.context.compress", "loom.model.call", "loom.job.result")
        return {**made, **{name: named(name, self._turn) for name in turn}}

    async def _work(self, name: str, job: str, envelope: dict[str, Any]) -> Any:
        given = envelope["with"]
        if envelope["at"].startswith("~undo/"):
            answer = self.cast.give("", given.get("function", name), given.get("with", given))
            if answer.code:
                raise ApplicationError(answer.message, type=answer.code, non_retryable=True)
            return answer.result
        return await self.work(self.whole(job, envelope["at"]), given["with"] if "function" in given else given)

    async def _stage(self, name: str, job: str, envelope: dict[str, Any]) -> Any:
        owner = self.whole(job, envelope["at"]).rpartition("[0]/")[0]
        given, answer = envelope["with"], MockAnswer()
        if name == EXECUTE:
            self.check(owner, given["arguments"])
            await self.turn(owner)
            answer = self.answers[owner]
            if answer.code:
                raise ApplicationError(answer.message, type=answer.code, non_retryable=True)
        result = stage_result(name, given, answer, self.cast.asks(owner))
        if name == FORMAT:
            self.ended.append((owner, "done" if result["ok"] else result["code"]))
        return result

    async def _turn(self, name: str, job: str, envelope: dict[str, Any]) -> Any:
        given, at = envelope["with"], self.agent_at(job)
        if name == "loom.context.assemble":
            return {"entries": given["entries"], "context": {}}
        if name in ("loom.model.call", "loom.context.compress"):
            if name == "loom.model.call":
                await self.turn(at)
            if self.verdicts[at] != "done":  # where that is `context_length`, a compression does not help
                raise ApplicationError(self.answers[at].message, type=self.verdicts[at], non_retryable=True)
            usage = {"prompt_tokens": 1, "completion_tokens": 1}
            return {"entries": given["entries"], "usage": usage, "cost": 0, "calls": []}
        if given["status"] != "aborted":
            self.ended.append((at, self.verdicts[at]))
        error = {"code": given.get("code"), "message": given.get("message", "")}
        return {"status": given["status"], "result": self.answers[at].result, "content": "0" * 64, "error": error}

    @asynccontextmanager
    async def worker(self, plan: Plan) -> AsyncIterator[None]:
        """A worker that has the mocks, and what Loom itself needs."""
        self.played_plan = plan
        runtime, jobs = self.runtime, self.runtime.jobs
        made, observe, child = self.handlers(), Observe(jobs, runtime.stopping, ""), Child(jobs)
        told = [observe.flush, observe.announce, observe.signal_time]
        own = [*told, _vouch, child.prepare, child.discard, child.look, Pin(jobs.store).pin]
        activities = [*own, LocalBatch(jobs, runtime.steps, made).run, *made.values()]
        worker = Worker(
            self.loom.client,
            task_queue=self.loom.queue,
            workflows=[GraphWorkflow],
            activities=activities,
            interceptors=[Failures(jobs, runtime.steps, runtime.delays)],
            workflow_runner=UnsandboxedWorkflowRunner(),
            max_concurrent_activities=50,
            max_heartbeat_throttle_interval=BEAT,
            default_heartbeat_throttle_interval=BEAT,
        )
        async with patient(worker):
            yield


async def perform(
    loom: Loom,
    runtime: Runtime,
    plan: Plan,
    case: ScenarioCase,
    *,
    job: str,
    seconds: float = 1.0,
    workdir: Path,
) -> dict[str, Any]:
    """Run a case on the server; what came of it, as `in_memory` has it.

    Args:
        loom: Connected with a task queue that nobody else serves.
        runtime: What its worker has.
        plan: The graph.
        case: What the world answers.
        job: The job's id.
        seconds: How long deadlines and timers are that were over in memory.
        workdir: The job's working directory.

    Raises:
        UserError: It asks for something else than in memory.
        TimeoutError: It has not ended in `PATIENCE` seconds.
    """
    played = play_case(plan, case)
    performance = Performance(played, job, loom, runtime)
    async with performance.worker(plan):
        started = await loom.start_graph(hurried(plan, played, seconds), input=case.input, job=job, workdir=workdir)
        outside = asyncio.create_task(world(performance, case))
        result = asyncio.create_task(started.result())
        try:
            async with asyncio.timeout(PATIENCE):
                done, _ = await asyncio.wait({outside, result}, return_when=asyncio.FIRST_EXCEPTION)
                for task in done:
                    task.result()
        finally:
            for task in (outside, result):
                task.cancel()
    ended = result.result()
    if performance.strange:
        raise UserError(f"on the server it asks for something else than in memory: {'; '.join(performance.strange)}")
    code = ended.error.code if ended.error and ended.status == "failed" else ""
    return {"status": ended.status, "code": code, "result": ended.result, "trace": _branches(performance.ended)}


def in_memory(played: Played) -> dict[str, Any]:
    """What came of a case in memory."""
    asked = {one.at for one in played.asked}
    kept = [(at, verdict) for at, verdict in ended_in(played) if at in asked or verdict == "rejected"]
    result = None if played.status == "aborted" else played.result
    return {"status": played.status, "code": played.code, "result": result, "trace": _branches(kept)}


def ended_in(played: Played) -> list[tuple[str, str]]:
    """What ended in memory, and how."""
    named = [(branch, *name.partition(":")) for branch, names in played.trace.items() for name in names]
    return [(name if branch == "main" else f"{branch}/{name}", code or "done") for branch, name, _, code in named]


def _branches(ended: list[tuple[str, str]]) -> dict[str, list[tuple[str, str]]]:
    """What ended, by branch. What is done at the same moment in different branches has no order."""
    found: dict[str, list[tuple[str, str]]] = {}
    for at, verdict in ended:
        found.setdefault(frame_of(at), []).append((at.rpartition("/")[2], verdict))
    return {branch: sorted(names) for branch, names in found.items()}


# A scenario on a real server: whether it comes to the same there as in memory.


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
        scenario: What the world answers. Check it with `loom_dsl.simulation.check.check_scenario` first.
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
    return Compared(case.name, tuple(differences(in_memory(played), found)))


def differences(memory: Mapping[str, Any], server: Mapping[str, Any]) -> Iterator[str]:
    """Say in what a case ended otherwise on the server than in memory."""
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
