"""Graphs on the command line: start, watch, send events, decide, and read the result."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loom_store.store import Store
from tests.cli.conftest import House
from tests.support.waiting import until

pytestmark = pytest.mark.server
GRAPH = """
loom: 1
kind: graph
name: order
input: {item: str, count: {type: int, default: 1}, tags: {type: list, default: []}}
permissions: {allow: [calculator]}
nodes:
  total: {tool: calculator, with: {expression: "${input.count} * 2"}, next: agreed}
  agreed:
    approval: {ask: "Order ${input.item}?", choices: [buy, leave]}
    deadline: never
    next: [{if: result.choice == 'buy', to: paid}, {to: left}]
  paid: {event: paid, deadline: never, next: done}
  done: {end: {total: "${nodes.total}", item: "${input.item}", paid: "${nodes.paid}", tags: "${input.tags}"}}
  left: {fail: {code: left, message: nobody wants it}}
"""


@pytest.fixture(scope="module")
def graph(house: House) -> str:
    path = house.folder / "order.yaml"
    path.write_text(GRAPH)
    return str(path)


def test_a_graph_is_started_answered_and_told_what_happened(
    house: House, graph: str, fresh: Callable[[str], str]
) -> None:
    job = fresh("order-1")
    values = ("--input", "item=lamp", "--input", "count=3", "--input", 'tags=["new"]')
    said = house.loom("run", graph, *values, "--job", job, "--workdir", house.workdir(), "--detach")
    assert (said.code, said.out) == (0, f"{job}\n")
    (row,) = house.pending(job)
    listed = house.loom("approvals", "--job", job).out
    assert "Order lamp?" in listed
    assert f"loom approve {job} {row['id']} --choice buy|leave" in " ".join(listed.split())
    refused = house.loom("approve", job, "--yes")
    assert refused.code == 2
    assert "buy, leave" in refused.err
    bought = house.loom("approve", job, "--choice", "buy")
    assert bought.code == 0, bought
    assert f"answered buy: {row['id']} of job {job}" in bought.out
    wrong = house.loom("event", job, "payed")
    assert wrong.code == 2
    assert "no node of this job waits for the event 'payed'" in wrong.err
    sent = house.loom("event", job, "paid", "--data", '{"by": "card"}')
    assert sent.code == 0, sent
    result = house.loom("result", job)
    assert result.code == 0
    assert json.loads(result.out)["paid"] == {"by": "card"}
    assert json.loads(result.out)["tags"] == ["new"]
    told = json.loads(house.loom("wait", job, "--json").out)
    assert (told["job"], told["status"], told["result"]["item"]) == (job, "completed", "lamp")
    shown = house.loom("show", job).out
    assert "order, plan" in shown
    assert "turns" not in shown
    assert json.loads(house.loom("show", job, "--json").out)["graph"] is True
    watched = house.loom("watch", job)
    assert watched.code == 0, watched
    assert "turn 1" not in watched.out
    assert 'input: {"item": "lamp"' in watched.out
    assert "✓ done" in watched.out
    late = house.loom("event", job, "paid")
    assert late.code == 2
    assert "has already ended" in late.err


def test_a_graph_that_fails_says_so(house: House, graph: str, fresh: Callable[[str], str]) -> None:
    job = fresh("order-2")
    house.loom("run", graph, "--input", "item=lamp", "--job", job, "--workdir", house.workdir(), "--detach")
    house.pending(job)
    assert house.loom("approve", job, "--choice", "leave").code == 0
    result = house.loom("result", job)
    assert (result.code, result.out) == (1, "")
    assert "left: nobody wants it" in result.err
    assert "left: nobody wants it" in house.loom("show", job).out


def test_input_comes_from_a_file_and_options_win(house: House, graph: str, fresh: Callable[[str], str]) -> None:
    job = fresh("order-3")
    place = Path(house.workdir())
    (place / "input.yaml").write_text("item: chair\ncount: 2\n")
    given = ("--input-file", str(place / "input.yaml"), "--input", "count=5")
    said = house.loom("run", graph, *given, "--job", job, "--workdir", str(place), "--detach")
    assert said.code == 0, said
    row = json.loads(house.loom("show", job, "--json").out)
    assert json.loads(row["task"]) == {"item": "chair", "count": 5, "tags": []}
    assert house.loom("abort", job).code == 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "`item` is missing: text"),
        (("--input", "itm=x"), "there is no `itm` (did you mean `item`?)"),
        (("--input", "item"), "--input item: write name=value"),
        (
            ("--input", "item=x", "--input", "count=two"),
            '--input count: `count` is "two", and must be a whole number',
        ),
        (
            ("--input", "item=x", "--input", "count=1", "--input", "tags=a"),
            """--input tags: `tags` is "a", and must be a list, in JSON: '[1, "two"]'""",
        ),
        (("--input", "item=x", "--input", "count=1.5"), "`count` is 1.5, and must be a whole number"),
        (("--input-file", "nowhere.yaml"), "--input-file nowhere.yaml cannot be read"),
        (("do it",), "a graph takes no task"),
        (("--input", "item=x", "--max-turns", "3"), "--max-turns: this is for agents"),
    ],
)
def test_mistakes_about_the_input_are_told_before_anything_starts(
    house: House, graph: str, arguments: tuple[str, ...], told: str
) -> None:
    said = house.loom("run", graph, *arguments, "--job", "never")
    assert said.code == 2
    assert told in said.err
    assert house.loom("show", "never").code == 2


def test_of_a_graph_that_is_not_valid_errors_and_warnings_are_told_each_as_what_it_is(house: House) -> None:
    path = house.folder / "wrong.yaml"
    path.write_text(
        "loom: 1\nkind: graph\nname: wrong\nnodes:\n  a: {activity: x.y, timeout: 2h, next: b}\n"
        "  b: {set: {x: '${nodes.c}'}, next: z}\n  z: {end: 1}\n"
    )
    said = house.loom("run", str(path))
    assert (said.code, said.out) == (2, "")
    told = [line.split(": ")[0] for line in said.err.splitlines()]
    assert set(told) == {"error", "warning"}
    assert all(" warning: " not in line for line in said.err.splitlines())


def test_what_is_doubtful_about_a_graph_is_told_before_it_runs(house: House, fresh: Callable[[str], str]) -> None:
    job, path = fresh("doubtful"), house.folder / "doubtful.yaml"
    head = "loom: 1\nkind: graph\nname: doubtful\nstate: {seen: int}\n"
    path.write_text(f"{head}nodes: {{done: {{end: 7}}}}\n")
    said = house.loom("run", str(path), "--job", job, "--workdir", house.workdir(), "--json")
    assert said.code == 0, said
    assert f"warning: {path}:4:9: L124 nothing reads `state.seen`" in said.err
    assert [json.loads(line)["type"] for line in said.out.splitlines()][-1] == "result"


def test_an_agent_takes_a_task_and_no_input(house: House) -> None:
    agent = house.agent("calm")
    assert "say what the agent is to do" in house.loom("run", agent).err
    for said in (house.loom("run", "nowhere.yaml"), house.loom("run", "nowhere.yaml", "--input", "a=1")):
        assert (said.code, "there is no file nowhere.yaml" in said.err) == (2, True)
    assert "--input and --input-file are for graphs" in house.loom("run", agent, "look", "--input", "a=1").err


FAMILY = """
loom: 1
kind: graph
name: family
permissions: {allow: [calculator]}
nodes:
  each: {map: {over: "[1, 2]", do: sum}, next: kid}
  kid: {graph: ask, child: true, next: done}
  done: {end: {sums: "${nodes.each}", said: "${nodes.kid}", long: "WORDS"}}
graphs:
  sum: {nodes: {w: {tool: calculator, with: {expression: "${item} * 2"}, next: z}, z: {end: "${result}"}}}
  ask: {nodes: {agreed: {approval: {ask: "Really?"}, deadline: never, next: z}, z: {end: "${result.choice}"}}}
""".replace("WORDS", "word " * 60)


def test_a_job_shows_its_nodes_its_child_jobs_and_its_end_to_who_did_not_wait(
    house: House, fresh: Callable[[str], str]
) -> None:
    job = fresh("family-1")
    path = house.folder / "family.yaml"
    path.write_text(FAMILY)
    started = house.loom("run", str(path), "--job", job, "--workdir", house.workdir(), "--detach")
    assert started.code == 0, started
    (asked,) = house.pending(f"{job}.kid.1")
    assert house.shows(job, f"approval {asked['id']} (agreed) of job {job}.kid.1")
    assert house.shows(job, f"{job}.kid.1 waits for approval")
    told = json.loads(house.loom("show", job, "--json").out)
    assert [(child["job"], child["approvals"][0]["id"]) for child in told["children"]] == [
        (f"{job}.kid.1", asked["id"])
    ]
    refused = house.loom("approve", job, "--yes").err
    assert f"no approval waits in job {job}, but below it:\n  {job}.kid.1 {asked['id']}  Really?" in refused
    listed = house.loom("approvals", "--job", job)
    assert f"{asked['id']}  job {job}.kid.1  " in listed.out
    assert house.loom("approve", f"{job}.kid.1", "--yes").code == 0
    assert asked["id"] in house.loom("approvals", "--job", job, "--all").out
    with Store.open(house.store) as store:

        def ended() -> dict[str, Any]:
            row = store.read_sync(lambda tx: tx.job(job))
            assert row is not None
            assert row["ended_at"], row
            return row

        row = until(ended)
    assert row["result"]["result"]["sums"] == ["2", "4"], "nobody waited for it, and it is written down"
    watched = house.loom("watch", job).out
    assert "▸ each  2 items\n" in watched
    assert "  ✓ each[1] › w  " in watched
    assert f"▸ kid  job {job}.kid.1\n" in watched
    assert json.loads(watched[watched.index("\n{") :])["long"] == "word " * 60
    assert "waiting" not in watched, "a job that has ended waits for nothing"
    drawn = house.loom("graph", "--job", job, "--format", "text").out
    assert "for each: sum  [1 visit]" in drawn
    assert "calculator  [2 visits]" in drawn


def test_an_id_that_is_taken_is_refused_in_the_words_of_graphs(
    house: House, graph: str, fresh: Callable[[str], str]
) -> None:
    job = fresh("order-taken")
    given = ("run", graph, "--job", job, "--workdir", house.workdir(), "--detach")
    assert house.loom(*given, "--input", "item=lamp").code == 0
    other = house.loom(*given, "--input", "item=chair")
    assert other.code == 2
    assert "exists already with another input; take another id, or leave --job out" in other.err
    assert house.loom("abort", job).code == 0
    assert house.loom("wait", job).code == 1
    late = house.loom(*given, "--input", "item=lamp")
    assert f"has ended (aborted); its result: `loom result {job}`" in late.err


def test_a_missing_worker_is_told_with_the_command_that_starts_it(house: House, fresh: Callable[[str], str]) -> None:
    first = fresh("own-1")
    second = fresh("own-2")
    path = house.folder / "own.yaml"
    nodes = {"a": {"activity": "my_steps:work", "next": "z"}, "z": {"end": 1}}
    path.write_text(json.dumps({"loom": 1, "kind": "graph", "name": "own", "nodes": nodes}))
    given = ("run", str(path), "--job", first, "--workdir", house.workdir(), "--detach")
    said = house.loom(*given, LOOM_TASK_QUEUE="nobody")
    assert "start one with `loom worker --task-queue nobody --tools my_steps`" in said.err
    asked = house.loom("graph", "--job", first, LOOM_TASK_QUEUE="nobody", LOOM_ANSWER_SECONDS="1")
    assert asked.code == 1
    assert f"no worker answered for job {first} within" in asked.err
    given = ("run", str(path), "--job", second, "--workdir", house.workdir(), "--detach")
    assert house.loom(*given).code == 0, "a worker that lacks the module is there"

    def waits() -> bool:
        said = json.loads(house.loom("show", second, "--json").out)
        assert said["events"] >= 3, said
        assert "the job waits for a worker with its tools: 'my_steps:work'" in said["why"]
        return True

    assert until(waits)
    with Store.open(house.store) as store:
        told = [event["t"] for _, event in store.read_sync(lambda tx: tx.read_events(second))]
    assert "node_retry" not in told, "what waits for its tools was not tried"
    assert house.loom("abort", second).code == 0
