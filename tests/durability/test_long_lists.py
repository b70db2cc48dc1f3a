"""Maps over more items than one history holds: child jobs of some items each."""

import pytest

from loom_cli.commands.show.outputs import kept_output
from loom_dsl.graph.compiler import compile_graph
from tests.durability.conftest import Opener
from tests.durability.reading import failed_tasks, histories

pytestmark = pytest.mark.server
COUNTS = """
loom: 1
kind: graph
name: counts
input: {items: list, add: int}
nodes:
  each: {map: {over: input.items, do: one, window: 50}, next: done}
  done: {end: {first: "${nodes.each[0]}", last: "${nodes.each[-1]}"}}
graphs:
  one:
    nodes:
      work: {set: {}, next: done}
      done: {end: "${[index, item + input.add]}"}
"""


@pytest.mark.parametrize("count", [1_500, pytest.param(10_000, marks=pytest.mark.nightly)])
async def test_the_items_of_a_long_list_are_done_in_child_jobs_and_keep_their_order(house: Opener, count: int) -> None:
    opened = await house([{"say": "never asked"}])
    plan = compile_graph(COUNTS, "counts.yaml")
    async with opened.inside():
        items = list(range(count))
        job = await opened.loom.start_graph(plan, input={"items": items, "add": 1}, workdir=opened.folder)
        result = (await job.result()).result
    assert result == {"first": [0, 1], "last": [count - 1, count]}
    runs = await histories(opened.loom.client, job.id)
    assert max(len(run.events) for run in runs) < 60 * (count // 200 + 1)


READ = COUNTS.replace(
    """done: {end: {first: "${nodes.each[0]}", last: "${nodes.each[-1]}"}}""",
    """done: {end: {sum: "${sum([x[0] for x in nodes.each])}", most: "${last(sorted(nodes.each))}", bad: "${BAD}"}}""",
)


@pytest.mark.parametrize("count", [2_500, pytest.param(10_000, marks=pytest.mark.nightly)])
async def test_all_results_of_a_long_list_can_be_read_at_once(house: Opener, count: int) -> None:
    opened = await house([{"say": "never asked"}])
    plan = compile_graph(READ.replace("BAD", "null"), "counts.yaml")
    async with opened.inside():
        job = await opened.loom.start_graph(plan, input={"items": list(range(count)), "add": 0}, workdir=opened.folder)
        result = (await job.result()).result
    assert result == {"sum": sum(range(count)), "most": [count - 1, count - 1], "bad": None}


async def test_results_of_a_long_list_are_kept_when_an_expression_fails_over_them(house: Opener) -> None:
    opened = await house([{"say": "never asked"}])
    plan = compile_graph(READ.replace("BAD", "nodes.each[0][1].nothing"), "counts.yaml")
    async with opened.inside():
        job = await opened.loom.start_graph(plan, input={"items": list(range(1_200)), "add": 3}, workdir=opened.folder)
        ended = await job.result()
    assert ended.error is not None
    assert ended.error.code == "expression_error"
    assert "node `done`: cannot read `.nothing` of a number in `nodes.each[0][1].nothing`, in its `end`" in (
        ended.error.message
    )
    row = await opened.loom.store.read(lambda tx: tx.job(job.id))
    assert row is not None
    assert row["result"]["error"] == {"code": ended.error.code, "message": ended.error.message}
    results = await opened.loom.store.read(lambda tx: kept_output(tx, job.id, "each"))
    assert results == [[index, index + 3] for index in range(1_200)]
    runs = await histories(opened.loom.client, job.id)
    assert failed_tasks(runs) == []


async def test_a_graph_as_a_child_job_has_a_history_of_its_own(house: Opener) -> None:
    opened = await house([{"say": "never asked"}])
    text = COUNTS.replace("each: {map: {over: input.items, do: one, window: 50}", "each: {graph: one, child: true")
    text = text.replace('{first: "${nodes.each[0]}", last: "${nodes.each[-1]}"}', '"${nodes.each}"')
    text = text.replace("[index, item + input.add]", "[len(input.items), input.add]")
    async with opened.inside():
        plan = compile_graph(text, "counts.yaml")
        job = await opened.loom.start_graph(plan, input={"items": [1, 2], "add": 5}, workdir=opened.folder)
        assert (await job.result()).result == [2, 5]
    rows = await opened.loom.store.read(lambda tx: tx.jobs(limit=5))
    assert sorted((row["job"], row["status"]) for row in rows) == [
        (job.id, "completed"),
        (f"{job.id}.each.1", "completed"),
    ]


LOOPS = """
loom: 1
kind: graph
name: loops
input: {last: int}
state: {sum: {type: int, reduce: add}}
nodes:
  loop: {loop: {do: one, until: index >= input.last, max: 1000000}, next: done}
  done: {end: "${state.sum}"}
graphs:
  one:
    nodes:
      work: {set: {sum: 1}, next: done}
      done: {end: null}
"""


@pytest.mark.parametrize("rounds", [3_000, pytest.param(100_000, marks=pytest.mark.nightly)])
async def test_a_loop_of_many_rounds_holds_up_no_workflow_task(house: Opener, rounds: int) -> None:
    opened = await house([{"say": "never asked"}])
    async with opened.inside():
        plan = compile_graph(LOOPS, "loops.yaml")
        job = await opened.loom.start_graph(plan, input={"last": rounds - 1}, workdir=opened.folder)
        assert (await job.result()).result == rounds
    runs = await histories(opened.loom.client, job.id)
    assert failed_tasks(runs) == []
    assert sum(len(run.events) for run in runs) < 20 + rounds // 20
