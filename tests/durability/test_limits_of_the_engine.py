"""What is too large for the engine ends with a code: it never ends a job without a word, nor holds one up for ever."""

import asyncio

import pytest

from loom_dsl.agent.run import GraphResult
from loom_dsl.graph.compiler import compile_graph
from loom_dsl.observe.events import EventType
from tests.durability.conftest import House, Opener
from tests.durability.reading import events, failed_tasks, histories, of
from tests.durability.test_graphs import MODULE, inside
from tests.durability.test_replay import replayer
from tests.support.external import lines
from tests.support.graph_functions import UNDONE
from tests.support.waiting import PATIENCE
from worker import make_worker

pytestmark = pytest.mark.server
STEPS = [{"say": "never asked"}]
GROWS = f"""
loom: 1
kind: graph
name: grows
input: {{size: int}}
nodes:
  first:
    activity: "{MODULE}:note"
    with: {{text: one}}
    compensate: {{activity: "{MODULE}:take_back", with: {{text: "${{get(result, 'noted')}}"}}}}
    next: many
  many: {{map: {{over: "range(10)", do: large, window: 10}}, next: wait}}
  wait: {{event: go, deadline: never, next: done}}
  done: {{end: "${{len(nodes.many)}}"}}
graphs:
  large:
    nodes:
      work: {{activity: "{MODULE}:large", carrier: CARRIER, with: {{size: "${{input.size}}"}}, next: done}}
      done: {{end: "${{result}}"}}
"""


async def result_of(house: House, text: str, size: int, steps: int | None, event: bool) -> GraphResult:
    """Run a graph to its end."""
    async with inside(house):
        job = await house.loom.start_graph(
            compile_graph(text, "test"), input={"size": size}, workdir=house.folder, steps=steps
        )
        if event:
            await job.event("go")
        return await asyncio.wait_for(job.result(), PATIENCE)


@pytest.mark.parametrize("carrier", ["local", "remote"])
async def test_many_large_results_at_once_end_no_job(house: Opener, carrier: str) -> None:
    opened = await house(STEPS)
    result = await result_of(opened, GROWS.replace("CARRIER", carrier), 250_000, None, True)
    assert (result.status, result.result) == ("completed", 10)


async def test_a_state_that_cannot_be_carried_on_fails_the_job_and_takes_back_what_it_did(house: Opener) -> None:
    opened = await house(STEPS)
    result = await result_of(opened, GROWS.replace("CARRIER", "remote"), 250_000, 8, False)
    assert result.error is not None
    assert (result.status, result.error.code) == ("failed", "state_too_large")
    assert result.compensations == ({"node": "first#1", "outcome": "undone"},)
    assert lines(opened.folder, UNDONE) == ["one"]


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ('done: {end: "${nodes.many}"}', "result_too_large"),
        (
            f'done: {{activity: "{MODULE}:untyped", with: {{first: "${{nodes.many}}"}}, next: e}}\n  e: {{end: 1}}',
            "arguments_too_large",
        ),
    ],
)
async def test_what_a_node_gives_on_that_is_too_large_fails_the_job(house: Opener, end: str, code: str) -> None:
    opened = await house(STEPS)
    text = GROWS.replace("CARRIER", "remote").replace('done: {end: "${len(nodes.many)}"}', end)
    result = await result_of(opened, text, 250_000, None, True)
    assert result.error is not None
    assert (result.status, result.error.code) == ("failed", code)


async def test_a_child_job_that_would_report_too_much_fails_and_its_parent_knows_at_once(house: Opener) -> None:
    opened = await house(STEPS)
    text = """
loom: 1
kind: graph
name: above
input: {size: int}
nodes:
  below: {graph: large, child: true, catch: {result_too_large: done}, next: done}
  done: {end: "${result.code}"}
graphs:
  large:
    nodes:
      many: {map: {over: "range(5)", do: one}, next: done}
      done: {end: "${result}"}
  one:
    nodes:
      work: {activity: "MODULE:large", with: {size: "${input.size}"}, next: done}
      done: {end: "${result}"}
""".replace("MODULE", MODULE)
    result = await result_of(opened, text, 250_000, None, False)
    assert (result.status, result.result) == ("completed", "result_too_large")


async def test_a_graph_that_only_waits_for_times_goes_on_in_another_run(
    house: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = await house(STEPS)
    monkeypatch.setattr("workflows.graph.MAX_EVENTS", 40)
    text = """
loom: 1
kind: graph
name: polls
state: {n: {type: int, reduce: add}}
nodes:
  again: {timer: 0.01, max_visits: 100, next: count}
  count: {set: {n: 1}, next: [{if: "state.n < 30", to: again}, {to: done}]}
  done: {end: "${state.n}"}
"""
    # The sandbox would read the module again, with the number that it has.
    async with (
        opened.runtime() as runtime,
        make_worker(opened.loom.client, runtime, opened.settings.task_queue, sandboxed=False),
    ):
        job = await opened.loom.start_graph(compile_graph(text, "test"), workdir=opened.folder)
        result = await asyncio.wait_for(job.result(), PATIENCE)
    assert (result.status, result.result) == ("completed", 30)
    runs = await histories(opened.loom.client, job.id)
    assert len(runs) > 2
    assert max(len(run.events) for run in runs) < 60


async def test_a_flood_of_large_events_in_one_turn_is_stored_whole(house: Opener) -> None:
    opened = await house(STEPS)
    text = f"""
loom: 1
kind: graph
name: flood
input: {{text: str}}
nodes:
  all: {{map: {{over: "range(40)", do: tells, window: 40}}, next: done}}
  done: {{end: "${{len(nodes.all)}}"}}
graphs:
  tells:
    nodes:
      told: {{emit: {{warning: {{code: flood, message: "${{input.text}}", number: "${{index}}"}}}}, next: work}}
      work: {{activity: "{MODULE}:untyped", with: {{first: "${{index}}"}}, next: done}}
      done: {{end: null}}
"""
    async with inside(opened):
        plan = compile_graph(text, "test")
        job = await opened.loom.start_graph(plan, input={"text": "ä" * 30_000}, workdir=opened.folder)
        result = await asyncio.wait_for(job.result(), PATIENCE)
    assert (result.status, result.result) == ("completed", 40)
    floods = [event for event in of(await events(job), EventType.WARNING) if event["code"] == "flood"]
    assert sorted(event["number"] for event in floods) == list(range(40))
    assert {event["message"] for event in floods} == {"ä" * 30_000}


async def test_letters_count_as_the_bytes_that_they_have_on_the_way(house: Opener) -> None:
    opened = await house(STEPS)
    text = f"""
loom: 1
kind: graph
name: letters
input: {{text: str}}
nodes:
  work:
    activity: "{MODULE}:untyped"
    with: {{first: ["${{input.text}}", "${{input.text}}", "${{input.text}}"]}}
    next: done
  done: {{end: null}}
"""
    async with inside(opened):
        plan = compile_graph(text, "test")
        job = await opened.loom.start_graph(plan, input={"text": "ä" * 120_000}, workdir=opened.folder)
        result = await asyncio.wait_for(job.result(), PATIENCE)
    assert result.error is not None
    assert result.error.code == "arguments_too_large"


AT_ONCE = """
loom: 1
kind: graph
name: at-once
input: {text: str}
nodes:
  many: {map: {over: "range(COUNT)", do: one, window: 50}, next: done}
  done: {end: "${nodes.many}"}
graphs:
  measured: {input: {text: str}, nodes: {done: {end: "${len(input.text)}"}}}
  one: {nodes: {work: WORK, done: {end: "${GIVES}"}}}
"""
LENGTH = f'{{activity: "{MODULE}:length", with: {{text: "${{input.text}}"}}, next: done}}'
CHILD = '{graph: measured, child: true, with: {text: "${input.text}"}, next: done}'
LOCAL = f'{{activity: "{MODULE}:large", carrier: local, with: {{size: 250000}}, next: done}}'


@pytest.mark.parametrize(
    ("work", "gives", "count"),
    [
        (LENGTH, "result", 20),
        pytest.param(CHILD, "result", 20, marks=pytest.mark.nightly),
        (LOCAL, "len(result)", 50),
    ],
    ids=["activities", "children", "local"],
)
async def test_more_than_a_workflow_task_can_carry_is_commanded_in_several(
    house: Opener, work: str, gives: str, count: int
) -> None:
    opened = await house(STEPS)
    text = AT_ONCE.replace("WORK", work).replace("GIVES", gives).replace("COUNT", str(count))
    async with inside(opened):
        plan = compile_graph(text, "test")  # that nothing runs `measured` is only a warning
        job = await opened.loom.start_graph(plan, input={"text": "x" * 250_000}, workdir=opened.folder)
        result = await asyncio.wait_for(job.result(), PATIENCE)
    assert (result.status, result.result) == ("completed", [250_000] * count)
    runs = await histories(opened.loom.client, job.id)
    assert failed_tasks(runs) == []
    for run in runs:
        await replayer(opened.loom.store).replay_workflow(run)
