"""A case of a scenario on a real server: the same mocks in a worker, and the same decisions.

What ends when is laid down by the simulation: a mock gives its result when everything that ended before it in memory
has been taken by the job. Only deadlines and timers run by themselves; those that were over in memory are short here.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from activities.child import Child
from activities.interceptor import Failures
from activities.observe import Observe, store_events
from activities.pin import Pin
from activities.runtime import Call, Runtime
from activities.stretch import Stretch
from loom_client.client import Loom
from loom_client.project.performed_outside import PATIENCE, world
from loom_dsl.canonical import canonical_json
from loom_dsl.errors import UserError
from loom_dsl.graph import Graph
from loom_dsl.library import NAMES
from loom_dsl.machine_frames import _UNSAFE
from loom_dsl.nodes_work import Activity
from loom_dsl.plan import Plan
from loom_dsl.scenario import ScenarioCase
from loom_dsl.scenario_cast import EXECUTE, FORMAT, Answer, Asked, Cast, stage_result
from loom_dsl.scenario_names import aliases, frame_of
from loom_dsl.scenario_run import Played, play_case
from loom_dsl.signature import VERIFIED
from worker import BEAT, patient
from workflows.graph import GraphWorkflow

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
        dumped = graph.dump() if name in NAMES else body(graph.dump())
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
            if _UNSAFE.sub(".", owner).strip(".") == below:
                return f"{owner}[0]/{at}"
        return at

    def agent_at(self, job: str) -> str:
        """The node whose agent's job this is."""
        below = job.removeprefix(f"{self.job}.")
        return next(at for at in self.asked if _UNSAFE.sub(".", at).strip(".") == below)

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
        known = self.asked.get(at, Asked(at, "", None))
        if canonical_json(known.arguments) != canonical_json(arguments):
            self.strange.append(f"{at}: {canonical_json(arguments)} instead of {canonical_json(known.arguments)}")

    async def turn(self, at: str) -> None:
        """Wait until everything has been taken that ended before in memory; for ever, if it never ended there."""
        if at not in self.verdicts:
            await asyncio.Event().wait()  # until it is cancelled
        before = self.order[: self.order.index(at)]
        while True:
            ended = {name for name, _ in self.ended} >= set(before)
            if ended and not (before and before[-1] in (await self.loom.graph_job(self.job).status())["tokens"]):
                return
            await asyncio.sleep(0.02)

    def handlers(self) -> dict[str, Handler]:
        """The mocks, by the names of activities."""

        def named(name: str, do: Callable[[str, str, dict[str, Any]], Awaitable[Any]]) -> Handler:
            @activity.defn(name=name)
            async def handler(envelope: dict[str, Any]) -> Any:
                call = Call.of(envelope)
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
        given, answer = envelope["with"], Answer()
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
        made, observe, child = self.handlers(), Observe(self.runtime), Child(self.runtime)
        told = [observe.flush, observe.announce, observe.signal_time]
        own = [*told, _vouch, child.prepare, child.discard, child.look, Pin(self.runtime).pin]
        activities = [*own, Stretch(self.runtime, made).run, *made.values()]
        worker = Worker(
            self.loom.client,
            task_queue=self.loom.queue,
            workflows=[GraphWorkflow],
            activities=activities,
            interceptors=[Failures(self.runtime)],
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
