"""By which command a failed job goes on is found in the store alone, and is told only where it would help."""

from collections.abc import Iterator
from typing import Any

import pytest

from loom_client.recovery import how_to_go_on
from loom_client.start.graph_fork import read_resuming
from loom_dsl.agent.fork import ForkPoint
from loom_dsl.errors import NotFoundError, UserError
from loom_store.store import Store
from loom_store.transaction import Transaction
from tests.store.test_store_forks import NOW, run
from tests.support.tokens import DONE, plan, work

GRAPH = plan({"a": work("b"), "b": work("z"), "z": DONE})
STOOD: dict[str, Any] = {
    "tok": {"b#1": {"at": "b#1", "n": "b", "src": "a", "via": "a"}},
    "fr": {"": {"g": "main", "o": {"a": 1}, "v": {"a": 1, "b": 1}}},
    "done": {},
    "at": ["b#1"],
    "whole": {"out": {"q": 0}, "st": "idle", "t": 1.0},
}


@pytest.fixture
def store(place: str) -> Iterator[Store]:
    with Store.open(place, clock=NOW.timestamp) as opened:
        yield opened


def failed(tx: Transaction, job: str, code: str = "broken", status: str = "failed") -> None:
    tx.update_job(job, status=status, ended_at=NOW, result={"error": {"code": code, "message": "it broke"}})


def graph(tx: Transaction, job: str, stood: dict[str, Any] | None = None, workdir: str = "/") -> None:
    tx.create_session(f"s-{job}", job=job)
    tx.create_job(job, session=f"s-{job}", agent="main", plan=tx.put_blob(GRAPH.text.encode()), task="",
                  workdir=workdir, namespace="n", task_queue="q", created_at=NOW)  # fmt: skip
    if stood is not None:
        tx.update_job(job, failed_at=stood)


def told(tx: Transaction, job: str) -> str:
    row = tx.job(job)
    assert row is not None
    return how_to_go_on(tx, row)


def test_an_agents_job_goes_on_after_its_last_finished_turn(store: Store) -> None:
    def write(tx: Transaction) -> None:
        run(tx, "broken", 2)
        failed(tx, "broken")
        run(tx, "limited", 2)
        failed(tx, "limited", "max_tool_calls")
        run(tx, "lost", 1)
        tx.update_job("lost", status="failed", ended_at=NOW)  # ended outside Loom: nobody wrote a result

    store.write_sync(write)
    broken, limited, lost = (store.read_sync(lambda tx, j=j: told(tx, j)) for j in ("broken", "limited", "lost"))
    assert broken == "`loom fork broken --turn 2` goes on from its last finished turn"
    assert limited.endswith(", with a limit of its own (max_tool_calls) as large as this one's was")
    assert lost == "`loom fork lost --turn 1` goes on from its last finished turn"


def test_no_command_is_told_where_none_would_help(store: Store) -> None:
    def write(tx: Transaction) -> None:
        run(tx, "nothing", 0)
        failed(tx, "nothing")
        run(tx, "aborted", 2)
        failed(tx, "aborted", "aborted", "aborted")
        run(tx, "refused", 2)
        failed(tx, "refused", "job_exists")
        run(tx, "running", 2)
        graph(tx, "lost")
        failed(tx, "lost")
        graph(tx, "undone", {"why": "what it had done was taken back"})
        failed(tx, "undone")

    store.write_sync(write)
    for job in ("nothing", "aborted", "refused", "running", "lost", "undone"):
        assert store.read_sync(lambda tx, job=job: told(tx, job)) == "", job  # type: ignore[misc]


def test_a_graphs_job_goes_on_at_the_node_that_failed(store: Store) -> None:
    def write(tx: Transaction) -> None:
        graph(tx, "failed", STOOD)
        failed(tx, "failed")
        tx.mark("failed", "untrusted", "network_request")
        tx.mark("failed", "forked", ForkPoint("first", 0, 0).text())

    store.write_sync(write)
    assert store.read_sync(lambda tx: told(tx, "failed")) == (
        "`loom fork failed` goes on at `b#1`; what was finished is not done again"
    )
    found = store.read_sync(lambda tx: read_resuming(tx, "failed", "next"))
    assert found.again == ("b#1",)
    assert found.state.frames[""].outputs == {"a": 1}
    assert found.start.point == ForkPoint("failed", 0, 0, ForkPoint("first", 0, 0))
    assert ("untrusted", "network_request") in found.start.marks
    row = store.read_sync(lambda tx: tx.job("failed"))
    assert row is not None
    assert "failed_at" not in row, "it is large, and lists have no use for it"


def test_what_cannot_go_on_is_told(store: Store) -> None:
    def write(tx: Transaction) -> None:
        graph(tx, "lost")
        failed(tx, "lost")
        graph(tx, "running")
        graph(tx, "nowhere", STOOD, "/no/such/directory")
        failed(tx, "nowhere")

    store.write_sync(write)

    def why(job: str) -> str:
        with pytest.raises(UserError) as refused:
            store.read_sync(lambda tx: read_resuming(tx, job, "next"))
        return refused.value.message

    assert "it was ended outside Loom, and nothing is known of where it stood" in why("lost")
    assert "it runs; only one that failed goes on" in why("running")
    assert "does not exist" in why("nowhere")
    with pytest.raises(NotFoundError, match="there is no job 'nobody'"):
        store.read_sync(lambda tx: read_resuming(tx, "nobody", "next"))


def test_the_halted_jobs_are_those_that_run_and_have_a_step_that_waits_for_a_person(store: Store) -> None:
    step = {"at": "a#1", "cause": "model_access"}

    def write(tx: Transaction) -> None:
        for job in ("halts", "runs", "resumed", "ended"):
            run(tx, job, 1)
        for job in ("halts", "resumed", "ended"):
            tx.update_job(job, halted=[step])
        tx.update_job("resumed", halted=[])
        failed(tx, "ended")

    store.write_sync(write)

    def listed(status: str) -> list[str]:
        return sorted(row["job"] for row in store.read_sync(lambda tx: tx.jobs(status=status)))

    assert listed("halted") == ["halts"]
    assert listed("running") == ["halts", "resumed", "runs"]
    assert listed("failed") == ["ended"]
