"""Graphs of users on a real server: functions, tools that ask, models, agents and events, with the worker killed."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from activities.runtime import Runtime
from loom_client.job import GraphJob
from loom_dsl.agent.run import GraphResult
from loom_dsl.documents.document import load_document
from loom_dsl.documents.validation import validate_model
from loom_dsl.errors import ConflictError, DecisionRefused, JobExists, NotFoundError, UserError
from loom_dsl.graph.graph import Graph
from loom_dsl.observe.events import EventType
from loom_tools.registry import ToolRegistry
from tests.durability.conftest import House, Opener
from tests.durability.reading import effects_of, events, histories, of
from tests.durability.test_replay import replayer
from tests.support.external import BEGUN, HOLD, lines
from tests.support.graph_functions import DONE, UNDONE
from tests.support.waiting import PATIENCE, eventually, longer
from tests.support.worker_process import TOOLS, WorkerProcess
from worker import make_worker

pytestmark = pytest.mark.server
MODULE = "tests.support.graph_functions"
MODULES = (*TOOLS, MODULE)
SAYS = [{"say": "It is good."}]
EVERYTHING = f"""
loom: 1
kind: graph
name: release
input: {{text: str, times: {{type: int, default: 2}}}}
permissions: {{ask: [send]}}
agents:
  writer: {{model: scripted, instructions: Write., permissions: {{allow: [calculator]}}, tools: [calculator]}}
nodes:
  noted:
    activity: {MODULE}:note
    with: {{text: "${{input.text}}"}}
    compensate: {{activity: "{MODULE}:take_back", with: {{text: "${{get(result, 'noted')}}"}}}}
    next: [sent, summary, written, released]
  sent: {{tool: "tests.support.external:send", with: {{text: "${{nodes.noted.noted}}"}}, next: gather}}
  summary: {{llm: {{model: scripted, prompt: "Sum up ${{input.text}}."}}, next: gather}}
  written: {{agent: writer, with: {{task: "Write about ${{input.text}}.", times: "${{input.times}}"}}, next: gather}}
  released: {{event: {{name: release, key: "${{input.text}}"}}, deadline: never, next: gather}}
  gather: {{join: all, next: done}}
  done:
    end:
      sent: ${{nodes.sent}}
      summary: ${{nodes.summary.text}}
      written: ${{nodes.written.answer}}
      released: ${{nodes.released}}
"""
WANTED = {"sent": "done: v1", "summary": "It is good.", "written": "It is good.", "released": {"by": "ops"}}


def worker_of(house: House) -> WorkerProcess:
    """A worker that has the functions."""
    return WorkerProcess(house.settings, house.url, house.folder, tools=MODULES)


@asynccontextmanager
async def inside(house: House) -> AsyncIterator[None]:
    """A worker in this process that has the functions."""
    environment = {"OPENAI_BASE_URL": house.url, "OPENAI_API_KEY": "none"}
    registry = ToolRegistry.load(modules=list(MODULES))
    async with (
        Runtime(house.loom.store, registry, house.folder, environment=environment) as runtime,
        make_worker(house.loom.client, runtime, house.settings.task_queue, sandboxed=True),
    ):
        yield


def graph_of(text: str) -> Graph:
    return validate_model(load_document(text, "test", kinds=("graph",)), Graph)


async def start(house: House, text: str = EVERYTHING, name: str = "work", **options: Any) -> GraphJob:
    """Start a job in a directory of its own."""
    workdir = house.folder / name
    workdir.mkdir(exist_ok=True)
    return await house.loom.start_graph(graph_of(text), workdir=workdir, **options)


async def settle(house: House, job: GraphJob) -> GraphResult:
    """Approve the one call, send the one event, and wait for the end."""
    await job.decide(await house.approval(job), "approve", by="me")
    said = await job.event("release", {"by": "ops"}, key="v1")
    assert said.verdict == "recorded"
    return await asyncio.wait_for(job.result(), PATIENCE)


@pytest.mark.parametrize("steps", [None, 1, 4])
async def test_a_graph_runs_functions_tools_models_agents_and_events(house: Opener, steps: int | None) -> None:
    opened = await house(SAYS)
    async with inside(opened):
        job = await start(opened, input={"text": "v1"}, steps=steps)
        result = await settle(opened, job)
    assert (result.status, result.result, result.error) == ("completed", WANTED, None)
    assert lines(opened.folder / "work", DONE) == ["v1"]
    assert len(effects_of(opened.folder / "work")) == 1
    row = await opened.loom.store.read(lambda tx: tx.job(job.id))
    assert row is not None
    assert (row["status"], row["agent"], row["task"]) == ("completed", "release", '{"text": "v1", "times": 2}')
    assert row["ended_at"]
    child = await opened.loom.store.read(lambda tx: tx.job(f"{job.id}.written.1"))
    assert child is not None
    assert (child["status"], child["agent"]) == ("completed", "writer")
    assert await opened.loom.graph_job(job.id).result() == result


@pytest.mark.crash
async def test_a_worker_killed_in_the_middle_changes_nothing(house: Opener) -> None:
    opened = await house([{"say": "It is good.", "before": "300ms"}], answer_seconds=5.0)
    folder = opened.folder / "work"
    folder.mkdir()
    async with worker_of(opened) as worker:
        job = await start(opened, input={"text": "v1"})
        await opened.approval(job)  # the model and the agent are being asked meanwhile
        worker.kill()
        said = await job.event("release", {"by": "ops"}, key="v1")
        assert said.verdict == "unconfirmed"
        await worker.start()
        (folder / HOLD).touch()
        await job.decide(await opened.approval(job), "approve", by="me")
        await eventually(lambda: lines(folder, BEGUN))
        (folder / HOLD).unlink()
        result = await asyncio.wait_for(job.result(), PATIENCE)
    assert (result.status, result.result) == ("completed", WANTED)
    assert lines(folder, DONE) == ["v1"]
    assert len(effects_of(folder)) == 1
    assert len(of(await events(job), EventType.APPROVAL_REQUESTED)) == 1


@pytest.mark.crash
async def test_a_tool_that_a_killed_worker_had_begun_is_not_run_again(house: Opener) -> None:
    opened = await house(SAYS)
    folder = opened.folder / "work"
    folder.mkdir()
    (folder / HOLD).touch()
    text = """
loom: 1
kind: graph
name: sender
permissions: {allow: [send]}
nodes:
  sent: {tool: "tests.support.external:send", with: {text: one}, catch: {outcome_unknown: lost}, next: done}
  done: {end: "${result}"}
  lost: {end: {lost: "${result.message}"}}
"""
    async with worker_of(opened) as worker:
        job = await start(opened, text)
        await eventually(lambda: lines(folder, BEGUN))
        worker.kill()
        (folder / HOLD).unlink()
        await worker.start()
        result = await asyncio.wait_for(job.result(), PATIENCE)
    assert isinstance(result.result, dict)
    assert "not known" in str(result.result["lost"])
    assert len(effects_of(folder)) == 1


FAILING = f"""
loom: 1
kind: graph
name: failing
input: {{how: str}}
nodes:
  first:
    activity: "{MODULE}:note"
    with: {{text: first}}
    compensate: {{activity: "{MODULE}:take_back", with: {{text: "${{result.noted}}"}}}}
    next: second
  second:
    activity: "{MODULE}:note"
    with: {{text: second}}
    compensate: {{activity: "{MODULE}:take_back", with: {{text: "${{result.noted}}"}}}}
    next: [{{if: "input.how == 'fail'", to: broken}}, {{to: wait}}]
  broken: {{activity: "{MODULE}:fail", with: {{kind: hopeless}}, next: done}}
  wait: {{event: go, deadline: never, next: done}}
  done: {{end: null}}
"""
UNDONE_BOTH = ({"node": "second#1", "outcome": "undone"}, {"node": "first#1", "outcome": "undone"})


async def test_a_graph_that_fails_takes_back_what_it_did_and_says_so(house: Opener) -> None:
    opened = await house(SAYS)
    async with inside(opened):
        job = await start(opened, FAILING, input={"how": "fail"})
        result = await asyncio.wait_for(job.result(), PATIENCE)
    assert result.error is not None
    assert (result.status, result.error.code, result.compensations) == ("failed", "hopeless", UNDONE_BOTH)
    assert lines(opened.folder / "work", UNDONE) == ["second", "first"]
    row = await opened.loom.store.read(lambda tx: tx.job(job.id))
    assert row is not None
    assert row["status"] == "failed"


ATTEMPTED = f"""
loom: 1
kind: graph
name: attempted
nodes:
  work:
    activity: {MODULE}:falter
    carrier: local
    with: {{seconds: SECONDS}}
    retry: {{attempts: ATTEMPTS, initial: 10ms}}
    catch: {{busy: done}}
    next: done
  done: {{end: "${{result.code}}"}}
"""


@pytest.mark.parametrize("attempts", [1, 2, 3])
@pytest.mark.parametrize("seconds", [0.0, 0.7], ids=["raises", "too_slow_to_be_local"])
async def test_a_local_function_is_called_as_often_as_its_node_says_and_no_more(
    house: Opener, attempts: int, seconds: float
) -> None:
    opened = await house(SAYS)
    text = ATTEMPTED.replace("SECONDS", str(seconds)).replace("ATTEMPTS", str(attempts))
    async with inside(opened):
        job = await start(opened, text)
        result = await asyncio.wait_for(job.result(), PATIENCE)
    assert (result.status, result.result) == ("completed", "busy")
    assert lines(opened.folder / "work", DONE) == ["called"] * attempts
    told = [data["content"] for data in of(await events(job), EventType.PROGRESS)]
    assert told == ["called"] * attempts
    for run in await histories(opened.loom.client, job.id):
        await replayer(opened.loom.store).replay_workflow(run)


ENDING = f"""
loom: 1
kind: graph
name: ending
nodes:
  first:
    activity: {MODULE}:count
    compensate: {{activity: "{MODULE}:note", with: {{text: back}}}}
    next: last
  last: {{fail: enough}}
"""


async def test_an_abort_of_a_job_that_ends_already_is_refused(house: Opener) -> None:
    opened = await house(SAYS)
    work = opened.folder / "work"
    work.mkdir()
    (work / HOLD).touch()
    async with inside(opened):
        job = await start(opened, ENDING)
        await eventually(lambda: lines(work, DONE))  # it takes back what it did
        with pytest.raises(DecisionRefused, match="the job is ending"):
            await job.abort(by="me")
        (work / HOLD).unlink()
        result = await asyncio.wait_for(job.result(), PATIENCE)
    assert (result.status, result.error and result.error.message) == ("failed", "enough")


async def test_a_graph_that_is_aborted_takes_back_what_it_did_too(house: Opener) -> None:
    opened = await house(SAYS)
    async with inside(opened):
        job = await start(opened, FAILING, input={"how": "wait"})

        async def waits() -> bool:
            return (await job.status()).tokens == ("wait#1",)

        await eventually(waits)
        await job.abort(by="me", reason="not today")
        result = await asyncio.wait_for(job.result(), PATIENCE)
    assert result.error is not None
    assert (result.status, result.error.message, result.result) == ("aborted", "not today", None)
    assert result.compensations == UNDONE_BOTH
    assert lines(opened.folder / "work", UNDONE) == ["second", "first"]


async def test_events_that_nobody_waits_for_are_refused(house: Opener) -> None:
    opened = await house(SAYS)
    async with inside(opened):
        job = await start(opened, FAILING, input={"how": "wait"})
        with pytest.raises(NotFoundError, match="no node of this job waits for the event 'gone'"):
            await job.event("gone")
        assert (await job.event("go")).verdict == "recorded"
        assert (await asyncio.wait_for(job.result(), PATIENCE)).status == "completed"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "`text` is missing: text"),
        ({"text": 7}, "`text` is 7, and must be text"),
        ({"text": "x", "times": "2"}, '`times` is "2", and must be a whole number'),
        ({"text": "x", "time": 2}, "there is no `time` (did you mean `times`?)"),
        ({"text": "x" * 300_000}, "may have 262144"),
    ],
)
async def test_an_input_that_the_graph_does_not_declare_starts_nothing(
    house: Opener, given: dict[str, Any], told: str
) -> None:
    opened = await house(SAYS)
    with pytest.raises(UserError) as refused:
        await start(opened, input=given, job=opened.named("never"))
    assert told in refused.value.message
    assert await opened.loom.store.read(lambda tx: tx.job(opened.named("never"))) is None


async def test_a_graphs_policy_says_who_decides_for_its_tools_and_what_nobodys_answer_means(house: Opener) -> None:
    opened = await house(SAYS)
    text = """
loom: 1
kind: graph
name: policies
permissions: {ask: [send]}
approvals: {expires: SECONDS, approvers: [ada]}
nodes:
  one: {tool: "tests.support.external:send", with: {text: one}, next: two}
  two: {tool: "tests.support.external:send", with: {text: two}, catch: {any: done}, next: done}
  done: {end: "${result.code}"}
"""
    async with inside(opened):
        for seconds in longer(3):
            job = await start(opened, text.replace("SECONDS", f"{seconds:g}s"))
            name = await opened.approval(job)
            with pytest.raises(ConflictError):
                await job.decide(name, "approve", by="eve")
            with contextlib.suppress(ConflictError):  # it may have expired before the decision came
                await job.decide(name, "approve", by="ada")
            result = await asyncio.wait_for(job.result(), 2 * PATIENCE)
            if effects_of(opened.folder / "work"):
                break
    assert result.result == "approval_expired"
    assert [line.rpartition(" ")[2] for line in effects_of(opened.folder / "work")] == ["one"]


async def test_the_same_id_again_is_the_same_job(house: Opener) -> None:
    opened = await house(SAYS)
    name = f"once-{opened.settings.task_queue}"
    async with inside(opened):
        first = await start(opened, FAILING, input={"how": "wait"}, job=name)
        again = await start(opened, FAILING, input={"how": "wait"}, job=name)
        with pytest.raises(JobExists):
            await start(opened, FAILING, input={"how": "fail"}, job=name)
        await first.event("go")
        assert await again.result() == await first.result()
