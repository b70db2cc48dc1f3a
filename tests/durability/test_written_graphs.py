"""Graphs that are written while a job runs, on a real server: run, refused and mended, and with the worker killed."""

import asyncio
from typing import Any

import pytest

from loom_dsl.authoring.mermaid import mermaid_plan
from loom_dsl.errors import NotFoundError
from loom_dsl.graph.plan import Plan
from loom_dsl.observe.events import EventType
from tests.durability.conftest import House, Opener
from tests.durability.reading import events, failed_tasks, histories, of
from tests.durability.test_graphs import MODULE, inside, start, worker_of
from tests.support.external import HOLD, lines
from tests.support.graph_functions import DONE
from tests.support.waiting import PATIENCE, eventually

pytestmark = pytest.mark.server
OUTER = f"""
loom: 1
kind: graph
name: plan-and-run
permissions: {{deny: [version]}}
agents:
  planner: {{model: scripted, instructions: Write a graph.}}
nodes:
  planner:
    agent: planner
    with: {{task: "Note v1.", refusal: "${{get(result, 'message')}}"}}
    max_visits: 3
    exhausted: gave_up
    next: run
  run:
    graph:
      from: planner
      allow: {{functions: ["{MODULE}"], tools: ["{MODULE}:version"], max_nodes: 5}}
    with: {{text: v1}}
    deadline: {{after: 10m, to: gave_up}}
    catch: {{graph_refused: planner}}
    next: done
  done: {{end: "${{nodes.run}}"}}
  gave_up: {{fail: {{code: no_plan, message: no plan}}}}
"""
INNER = f"""
loom: 1
kind: graph
name: noting
input: {{text: str}}
nodes:
  note: {{activity: "{MODULE}:note", with: {{text: "${{input.text}}"}}, next: done}}
  done: {{end: "${{nodes.note.noted}}"}}
"""
WRONG = INNER.replace(f"{MODULE}:note", "shutil:rmtree").replace("next: done", "next: dne")
FENCED = f"Here it is:\n\n```yaml\n{INNER}```\n"


def says(first: str, mended: str) -> dict[str, Any]:
    """A planner that writes one graph, and another one when it is told what is wrong with it."""
    return {
        "cases": [
            {"when": {"contains": "is refused"}, "steps": [{"say": mended}]},
            {"when": {"contains": "Note v1."}, "steps": [{"say": first}]},
        ]
    }


async def row_of(house: House, job: str) -> dict[str, Any]:
    row = await house.loom.store.read(lambda tx: tx.job(job))
    assert row is not None
    return row


@pytest.mark.parametrize("steps", [None, 1])
async def test_a_refused_graph_is_mended_and_then_runs_as_a_job_of_its_own(house: Opener, steps: int | None) -> None:
    opened = await house(**says(WRONG, FENCED))
    async with inside(opened):
        job = await start(opened, OUTER, steps=steps)
        result = await asyncio.wait_for(job.result(), PATIENCE)
    assert (result.status, result.result) == ("completed", "v1")
    assert lines(opened.folder / "work", DONE) == ["v1"]
    told = await events(job)
    (no,) = of(told, EventType.GRAPH_REFUSED)
    assert no["node"] == "run#1"
    assert "run.yaml:7:" in no["message"]
    assert "which is not a node" in no["message"]
    (yes,) = of(told, EventType.GRAPH_ADMITTED)
    child = f"{job.id}.run.2"
    row = await row_of(opened, child)
    assert yes == {"node": "run#2", "child": child, "graph": "noting", "plan": row["plan"], "nodes": 2}
    assert (row["status"], row["agent"]) == ("completed", "noting")
    plan = Plan.load((await opened.loom.store.read(lambda tx: tx.get_blob(row["plan"]))).decode())
    assert plan.hash == row["plan"]
    assert f"{MODULE}:note" in mermaid_plan(plan)
    with pytest.raises(NotFoundError):
        await opened.loom.graph_job(f"{job.id}.run.1").result()
    assert failed_tasks(await histories(opened.loom.client, job.id)) == []


async def test_a_written_graph_runs_the_agents_of_the_job_and_those_that_it_brings_along(house: Opener) -> None:
    outer = OUTER.replace(
        "  planner: {model", "  critic: {model: scripted, instructions: Judge it.}\n  planner: {model", 1
    )
    outer = outer.replace("allow: {", "allow: {agents: [critic], models: [scripted], ")
    inner = """
loom: 1
kind: graph
name: two
agents: {poet: {model: scripted, instructions: Rhyme.}}
nodes:
  poem: {agent: poet, with: {task: Rhyme}, next: verdict}
  verdict: {agent: critic, with: {task: "Is ${nodes.poem.answer} good?"}, next: done}
  done: {end: "${nodes.verdict.answer}"}
"""
    cases = [
        {"when": {"contains": "Is a rhyme good?"}, "steps": [{"say": "It is."}]},
        {"when": {"contains": "Rhyme."}, "steps": [{"say": "a rhyme"}]},
        *says(inner, inner)["cases"],
    ]
    opened = await house(cases=cases)
    async with inside(opened):
        job = await start(opened, outer)
        result = await asyncio.wait_for(job.result(), PATIENCE)
    assert (result.result, result.error) == ("It is.", None)
    assert (await row_of(opened, f"{job.id}.run.1.verdict.1"))["agent"] == "critic"


@pytest.mark.crash
@pytest.mark.nightly
async def test_a_worker_killed_while_the_written_graph_runs_changes_nothing(house: Opener) -> None:
    opened = await house(**says(FENCED, FENCED))
    folder = opened.folder / "work"
    folder.mkdir()
    (folder / HOLD).touch()
    async with worker_of(opened) as worker:
        job = await start(opened, OUTER)
        await eventually(lambda: lines(folder, DONE))
        worker.kill()
        (folder / HOLD).unlink()
        await worker.start()
        result = await asyncio.wait_for(job.result(), PATIENCE)
    assert (result.status, result.result) == ("completed", "v1")
    assert [event["node"] for event in of(await events(job), EventType.GRAPH_ADMITTED)] == ["run#1"]


async def test_the_policy_of_the_job_holds_in_the_written_graph(house: Opener) -> None:
    asking = f"""
loom: 1
kind: graph
name: asking
nodes:
  ask: {{tool: "{MODULE}:version", catch: {{permission_denied: denied}}, next: done}}
  done: {{end: "${{nodes.ask}}"}}
  denied: {{end: denied}}
"""
    opened = await house(**says(asking, asking))
    async with inside(opened):
        job = await start(opened, OUTER)
        result = await asyncio.wait_for(job.result(), PATIENCE)
    assert result.result == "denied"


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(12)
)
BASHED = "loom: 1\nkind: graph\nname: x\nnodes:\n  a: {tool: bash, next: done}\n  done: {end: null}\n"
ITSELF = """
loom: 1
kind: graph
name: itself
input: {text: str}
nodes:
  way: {next: [{if: input.text == '', to: done}, {to: again}]}
  again: {graph: itself, with: {text: "${input.text}"}, next: done}
  done: {end: null}
"""
HOSTILE = {
    "a large text": ("x" * 200_000, "the text has 200,000 bytes"),
    "nested deeply": ("[" * 30_000, "nested deeper than"),
    "a bomb": (BOMB, "over 50,000 values"),
    "itself": (ITSELF, "does not run itself"),
    "a tool that is not on the list": (BASHED, "the kind `tool`"),
    "extends": ("loom: 1\nkind: graph\nname: x\nextends: loom.tt\n", "`extends` is not allowed"),
    "nothing": ("", "the document is empty"),
    "a wider policy": (f"{INNER}permissions: {{enabled: false}}\n", "would let every call through"),
    "another input": (INNER.replace("text: str", "text: int"), "`input.text`"),
}


@pytest.mark.parametrize(("text", "why"), HOSTILE.values(), ids=HOSTILE)
async def test_a_hostile_text_is_refused_and_nothing_of_it_runs(house: Opener, text: str, why: str) -> None:
    giving = f"""
loom: 1
kind: graph
name: giving
nodes:
  write: {{activity: "{MODULE}:contents", with: {{name: text}}, next: run}}
  run:
    graph: {{from: write, allow: {{functions: ["{MODULE}"], kinds: [activity, graph]}}}}
    with: {{text: v1}}
    deadline: never
    catch: {{graph_refused: refused}}
    next: done
  done: {{end: it ran}}
  refused: {{end: "${{result.message}}"}}
"""
    opened = await house([{"say": "never asked"}])
    (opened.folder / "work").mkdir()
    (opened.folder / "work" / "text").write_text(text, encoding="utf-8")
    async with inside(opened):
        job = await start(opened, giving)
        result = await asyncio.wait_for(job.result(), PATIENCE)
    assert result.status == "completed"
    assert str(result.result).startswith("the written graph is refused:")
    assert why in str(result.result)
    assert len(str(result.result)) <= 4_000
    assert not (opened.folder / "work" / DONE).exists()
    rows = await opened.loom.store.read(lambda tx: tx.jobs(limit=5))
    assert [row["job"] for row in rows] == [job.id]
    assert failed_tasks(await histories(opened.loom.client, job.id)) == []
