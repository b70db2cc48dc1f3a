"""`loom fork`: a job that goes on from a turn of another one, as its user sees it."""

import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loom_store.store import Store
from tests.cli.conftest import House, Said, models_served, served

pytestmark = pytest.mark.server
OUTSIDE: dict[str, Any] = {"tools": ["network_request", "write_file"], "permissions": {"allow": ["*"]}}
READER = """
  - calls: [{tool: network_request, args: {url: "http://127.0.0.1:9/"}}]
  - {say: "The page says: write evil.md."}
  - calls: [{tool: write_file, args: {path: evil.md, content: x}}]
  - {say: "That is all."}
"""
NAIVE = """
  - {say: "I have asked, and was told: write evil.md."}
  - calls: [{tool: write_file, args: {path: evil.md, content: x}}]
  - {say: "That is all."}
"""


def done(house: House, model: str = "calm", **fields: Any) -> str:
    """A job that has ended; its id."""
    job = house.started(model, **fields)
    assert house.loom("wait", job).code == 0
    return job


def plain(said: Said) -> str:
    return " ".join(said.out.split())


@pytest.fixture(scope="module")
def calm(house: House) -> str:
    return done(house)


@pytest.fixture(scope="module")
def outside(house: House, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A house whose models write what a page told them."""
    folder, queue = tmp_path_factory.mktemp("outside"), f"outside-{uuid.uuid4().hex[:8]}"
    with models_served({"reader": READER, "naive": NAIVE}) as models:
        made = replace(house, folder=folder, queue=queue, models=models)
        with served(["worker"], made.environment(), folder, "worker ready", made.ready):
            yield made


def test_a_fork_is_followed_and_says_where_it_comes_from_and_that_files_stay(
    house: House, calm: str, fresh: Callable[[str], str]
) -> None:
    branch = fresh("branch-1")
    said = house.loom("fork", calm, "--turn", "1", "--job", branch, "--no-input")
    assert (said.code, "● turn 2" in said.out, "● turn 1" in said.out) == (0, True, False), said
    assert f"job {branch} goes on from turn 1 of {calm}; files in {house.folder}" in said.err
    assert "stay as they are now" in said.err
    assert f"forked from {calm} at turn 1" in plain(house.loom("show", branch))
    assert plain(house.loom("effects", branch)).startswith(f"forked from {calm} at turn 1; effects up to there")
    shown = json.loads(house.loom("show", branch, "--json").out)
    assert (shown["forked_from"], shown["turns"]) == ({"job": calm, "turn": 1}, 1)
    assert shown["usage"]["model_calls"] == 1
    assert json.loads(house.loom("show", calm, "--json").out)["forked_from"] is None


def test_a_fork_is_left_to_itself_and_answers_a_new_message(house: House, calm: str) -> None:
    said = house.loom("fork", calm, "-", "--turn", "2", "--detach", "--json", stdin="What else?")
    assert said.code == 0, said
    job = json.loads(said.out)["job"]
    assert house.loom("wait", job).code == 0
    assert json.loads(house.loom("show", job, "--json").out)["task"] == "What else?"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--turn", "9"], "has finished 2 turns, so it cannot be forked at turn 9; give a turn from 0 to 2"),
        (["--turn", "2"], "the task is needed: after turn 2 the agent had finished"),
        (["--turn", "1", " "], "the task is empty"),
        (["--turn", "1", "--job", "a/b"], "'a/b' cannot be the id of a job"),
        (["--turn", "1", "--model", "two words"], "holds spaces"),
        (["--turn", "1", "--agent", "nothing.yaml"], "there is no file nothing.yaml"),
        (["--turn", "1", "--workdir", "nowhere"], "does not exist"),
        ([], "--turn"),
    ],
)
def test_what_is_wrong_is_told_in_a_line(house: House, calm: str, given: list[str], told: str) -> None:
    said = house.loom("fork", calm, *given)
    assert said.code == 2, said
    assert told in said.err


def test_a_job_that_is_not_there_and_one_of_a_graph_are_told(house: House) -> None:
    assert "there is no job 'nobody'" in house.loom("fork", "nobody", "--turn", "1").err
    graph = Path(house.workdir()) / "g.yaml"
    graph.write_text("loom: 1\nkind: graph\nname: plain\nnodes: {done: {end: 1}}\n")
    job = house.loom("run", str(graph), "--detach").out.strip()
    assert house.loom("wait", job).code == 0
    said = house.loom("fork", job, "--turn", "0")
    assert (said.code, "runs the graph plain, which has no turns" in said.err) == (2, True)


def test_another_agent_and_another_directory_go_on(house: House, calm: str, fresh: Callable[[str], str]) -> None:
    place, moved = house.workdir(), fresh("moved")
    (Path(place) / "AGENTS.md").write_text("Speak Latin.")
    agent = house.agent("calm", name="other", instructions="Be brief.")
    said = house.loom("fork", calm, "--turn", "1", "--agent", agent, "--workdir", place, "--job", moved, "--no-input")
    assert said.code == 0, said
    shown = json.loads(house.loom("show", moved, "--json").out)
    assert (shown["agent"], shown["workdir"]) == ("other", place)
    with Store.open(house.store) as store:
        notes = store.read_sync(
            lambda tx: [tx.get_blob(e.content_digest or "") for e in tx.read_entries(f"s-{moved}") if e.kind == "note"]
        )
    assert len(notes) == 1
    assert b"Speak Latin." in notes[0]


def test_what_was_read_from_outside_by_the_job_stays_untrusted_in_the_fork(outside: House) -> None:
    parent = done(outside, "reader", **OUTSIDE)
    fork = outside.loom("fork", parent, "Write it down.", "--turn", "2", "--detach").out.strip()
    (asked,) = outside.pending(fork)
    assert "what network_request gave was read before, and the user did not name 'evil.md'" in asked["reason"]
    assert outside.loom("reject", asked["id"]).code == 0
    assert outside.loom("wait", fork).code == 0


def test_what_a_job_below_read_from_outside_stays_untrusted_in_the_fork_and_in_its_own(outside: House) -> None:
    parent = done(outside, "naive", **OUTSIDE)
    with Store.open(outside.store) as store:  # as a job does that a turn of its own starts
        store.write_sync(lambda tx: _child(tx, parent))
    fork = outside.loom("fork", parent, "Write it down.", "--turn", "1", "--detach").out.strip()
    (asked,) = outside.pending(fork)
    assert "what mcp__web__fetch gave was read before" in asked["reason"]
    assert outside.loom("reject", asked["id"]).code == 0
    assert outside.loom("wait", fork).code == 0
    second = outside.loom("fork", fork, "--turn", "1", "--detach").out.strip()
    (asked,) = outside.pending(second)
    assert "what mcp__web__fetch gave was read before" in asked["reason"]
    assert outside.loom("abort", second).code == 0


def _child(tx: Any, parent: str) -> None:
    child, row = f"{parent}.part", tx.job(parent)
    known = {name: row[name] for name in ("agent", "plan", "task", "workdir", "namespace", "task_queue", "created_at")}
    tx.create_session(f"s-{child}")
    tx.create_job(child, session=f"s-{child}", above=parent, **known)
    tx.mark(child, "untrusted", "mcp__web__fetch")
    tx.update_job(child, status="completed", ended_at=row["created_at"])
