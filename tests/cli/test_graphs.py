"""Graphs on the command line: start, watch, send events, decide, and read the result."""

import json
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


def test_a_graph_is_started_answered_and_told_what_happened(house: House, graph: str) -> None:
    values = ("--input", "item=lamp", "--input", "count=3", "--input", 'tags=["new"]')
    said = house.loom("run", graph, *values, "--job", "order-1", "--workdir", house.workdir(), "--detach")
    assert (said.code, said.out) == (0, "order-1\n")
    (row,) = house.pending("order-1")
    listed = house.loom("approvals", "--job", "order-1").out
    assert "Order lamp?" in listed
    assert f"loom approve order-1 {row['id']} --choice buy|leave" in listed
    refused = house.loom("approve", "order-1", "--yes")
    assert refused.code == 2
    assert "buy, leave" in refused.err
    bought = house.loom("approve", "order-1", "--choice", "buy")
    assert bought.code == 0, bought
    assert f"answered buy: {row['id']} of job order-1" in bought.out
    wrong = house.loom("event", "order-1", "payed")
    assert wrong.code == 2
    assert "no node of this job waits for the event 'payed'" in wrong.err
    sent = house.loom("event", "order-1", "paid", "--data", '{"by": "card"}')
    assert sent.code == 0, sent
    result = house.loom("result", "order-1")
    assert result.code == 0
    assert json.loads(result.out)["paid"] == {"by": "card"}
    assert json.loads(result.out)["tags"] == ["new"]
    told = json.loads(house.loom("wait", "order-1", "--json").out)
    assert (told["job"], told["status"], told["result"]["item"]) == ("order-1", "completed", "lamp")
    shown = house.loom("show", "order-1").out
    assert "order, plan" in shown
    assert "turns" not in shown
    assert json.loads(house.loom("show", "order-1", "--json").out)["graph"] is True
    watched = house.loom("watch", "order-1")
    assert watched.code == 0, watched
    assert "turn 1" not in watched.out
    assert 'input: {"item": "lamp"' in watched.out
    assert "✓ done" in watched.out
    late = house.loom("event", "order-1", "paid")
    assert late.code == 2
    assert "has already ended" in late.err


def test_a_graph_that_fails_says_so(house: House, graph: str) -> None:
    house.loom("run", graph, "--input", "item=lamp", "--job", "order-2", "--workdir", house.workdir(), "--detach")
    house.pending("order-2")
    assert house.loom("approve", "order-2", "--choice", "leave").code == 0
    result = house.loom("result", "order-2")
    assert (result.code, result.out) == (1, "")
    assert "left: nobody wants it" in result.err
    assert "left: nobody wants it" in house.loom("show", "order-2").out


def test_input_comes_from_a_file_and_options_win(house: House, graph: str) -> None:
    place = Path(house.workdir())
    (place / "input.yaml").write_text("item: chair\ncount: 2\n")
    given = ("--input-file", str(place / "input.yaml"), "--input", "count=5")
    said = house.loom("run", graph, *given, "--job", "order-3", "--workdir", str(place), "--detach")
    assert said.code == 0, said
    row = json.loads(house.loom("show", "order-3", "--json").out)
    assert json.loads(row["task"]) == {"item": "chair", "count": 5, "tags": []}
    assert house.loom("abort", "order-3").code == 0


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


def test_a_job_shows_its_nodes_its_child_jobs_and_its_end_to_who_did_not_wait(house: House) -> None:
    path = house.folder / "family.yaml"
    path.write_text(FAMILY)
    started = house.loom("run", str(path), "--job", "family-1", "--workdir", house.workdir(), "--detach")
    assert started.code == 0, started
    (asked,) = house.pending("family-1.kid.1")
    shown = house.loom("show", "family-1").out
    assert f"approval {asked['id']} (agreed) of job family-1.kid.1" in " ".join(shown.split())
    assert "family-1.kid.1  waits for approval" in shown
    told = json.loads(house.loom("show", "family-1", "--json").out)
    assert [(child["job"], child["approvals"][0]["id"]) for child in told["children"]] == [
        ("family-1.kid.1", asked["id"])
    ]
    refused = house.loom("approve", "family-1", "--yes").err
    assert f"no approval waits in job family-1, but below it:\n  family-1.kid.1 {asked['id']}  Really?" in refused
    listed = house.loom("approvals", "--job", "family-1")
    assert f"{asked['id']}  job family-1.kid.1  " in listed.out
    assert house.loom("approve", "family-1.kid.1", "--yes").code == 0
    assert asked["id"] in house.loom("approvals", "--job", "family-1", "--all").out
    with Store.open(house.store) as store:

        def ended() -> dict[str, Any]:
            row = store.read_sync(lambda tx: tx.job("family-1"))
            assert row is not None
            assert row["ended_at"], row
            return row

        row = until(ended)
    assert row["result"]["result"]["sums"] == ["2", "4"], "nobody waited for it, and it is written down"
    watched = house.loom("watch", "family-1").out
    assert "▸ each  2 items\n" in watched
    assert "  ✓ each[1] › w  " in watched
    assert "▸ kid  job family-1.kid.1\n" in watched
    assert json.loads(watched[watched.index("\n{") :])["long"] == "word " * 60
    assert "waiting" not in watched, "a job that has ended waits for nothing"
    drawn = house.loom("graph", "--job", "family-1", "--format", "text").out
    assert "for each: sum  [1 visit]" in drawn
    assert "calculator  [2 visits]" in drawn


def test_an_id_that_is_taken_is_refused_in_the_words_of_graphs(house: House, graph: str) -> None:
    given = ("run", graph, "--job", "order-taken", "--workdir", house.workdir(), "--detach")
    assert house.loom(*given, "--input", "item=lamp").code == 0
    other = house.loom(*given, "--input", "item=chair")
    assert other.code == 2
    assert "exists already with another input; take another id, or leave --job out" in other.err
    assert house.loom("abort", "order-taken").code == 0
    assert house.loom("wait", "order-taken").code == 1
    late = house.loom(*given, "--input", "item=lamp")
    assert "has ended (aborted); its result: `loom result order-taken`" in late.err


def test_a_missing_worker_is_told_with_the_command_that_starts_it(house: House) -> None:
    path = house.folder / "own.yaml"
    nodes = {"a": {"activity": "my_steps:work", "next": "z"}, "z": {"end": 1}}
    path.write_text(json.dumps({"loom": 1, "kind": "graph", "name": "own", "nodes": nodes}))
    given = ("run", str(path), "--job", "own-1", "--workdir", house.workdir(), "--detach")
    said = house.loom(*given, LOOM_TASK_QUEUE="nobody")
    assert "start one with `loom worker --task-queue nobody --tools my_steps`" in said.err
    asked = house.loom("graph", "--job", "own-1", LOOM_TASK_QUEUE="nobody")
    assert asked.code == 1
    assert "no worker answered for job own-1 within" in asked.err
    given = ("run", str(path), "--job", "own-2", "--workdir", house.workdir(), "--detach")
    assert house.loom(*given).code == 0, "a worker that lacks the module is there"

    def waits() -> bool:
        said = json.loads(house.loom("show", "own-2", "--json").out)
        assert said["events"] >= 3, said
        assert "the job waits for a worker with its tools: 'my_steps:work'" in said["why"]
        return True

    assert until(waits)
    with Store.open(house.store) as store:
        told = [event["t"] for _, event in store.read_sync(lambda tx: tx.read_events("own-2"))]
    assert "node_retry" not in told, "what waits for its tools was not tried"
    assert house.loom("abort", "own-2").code == 0
