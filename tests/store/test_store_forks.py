"""What a fork is made of: found in the store alone, shared and not copied, left there by a prune."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from loom_client.start.forking import read_fork
from loom_client.start.submission import WrittenJob, fork_of, write_down
from loom_dsl.agent.definition import Agent
from loom_dsl.agent.fork import ForkPoint
from loom_dsl.agent.messages import PROJECT_CONTEXT, RUNTIME_DATA, legal_order
from loom_dsl.errors import ConflictError, UserError
from loom_dsl.graph.compiler import compile_agent
from loom_store.rows import NewEntry
from loom_store.store import Store
from loom_store.transaction import Transaction
from tests.support.stores import problems

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PLAN = compile_agent(Agent(name="tester", model="m"))


@pytest.fixture
def store(place: str) -> Iterator[Store]:
    with Store.open(place, clock=NOW.timestamp) as opened:
        yield opened


def note(name: str, text: str, job: str) -> NewEntry:
    return NewEntry(kind="note", head={"note": name}, content=text, job=job, turn=0)


def message(job: str, turn: int, content: str | None, **head: Any) -> NewEntry:
    return NewEntry(kind="message", head=head, content=content, job=job, turn=turn)


def turn(tx: Transaction, job: str, session: str, number: int, *, answered: bool = True) -> None:
    """A turn in which the model calls a tool, and what it gave unless that is still to come."""
    call = message(job, number, None, role="assistant", tool_calls=[{"id": "c"}])
    tx.append_entries(session, f"{job}/{number}/model#1", [call])
    tx.append_events(job, f"m{number}", [{"t": "llm_finish", "n": number}])
    if answered:
        given = message(job, number, f"{job} {number}", role="tool", tool_call_id="c")
        tx.append_entries(session, f"{job}/{number}/feedback#1", [given])


def run(tx: Transaction, job: str, turns: int = 3, *, session: str = "", notes: tuple[NewEntry, ...] = ()) -> None:
    """A job with some turns whose tools are done, and one more whose tool runs."""
    session = session or f"s-{job}"
    tx.create_session(session, job=job)
    tx.create_job(job, session=session, agent="tester", plan=tx.put_blob(PLAN.text.encode()), task="do it",
                  workdir="/w", namespace="n", task_queue="q", created_at=NOW)  # fmt: skip
    tx.append_entries(session, f"{job}/input", [*notes, message(job, 0, "do it", role="user")])
    go_on(tx, job, turns, session)


def go_on(tx: Transaction, job: str, turns: int, session: str, first: int = 0) -> None:
    for number in range(first, first + turns + 1):
        turn(tx, job, session, number, answered=number < first + turns)


def fork(store: Store, parent: str, at: int, job: str, task: str = "", place: str = "/w") -> WrittenJob:
    """Write a fork down, as starting it does."""

    def work(tx: Transaction) -> WrittenJob:
        return write_down(tx, fork_of(read_fork(tx, parent, at), job, task, Path(place)), "n", "q")

    return store.write_sync(work)


def told(store: Store, job: str) -> list[str]:
    """What stands in a job's conversation: contents, and roles where there are none."""

    def read(tx: Transaction) -> list[str]:
        entries = [entry for entry in tx.read_entries(f"s-{job}") if entry.kind == "message"]
        assert legal_order([entry.head for entry in entries]) == []
        return [tx.get_blob(e.content_digest).decode() if e.content_digest else e.head["role"] for e in entries]

    return store.read_sync(read)


def notes(store: Store, job: str) -> list[str]:
    def read(tx: Transaction) -> list[str]:
        kept = [entry for entry in tx.read_entries(f"s-{job}") if entry.kind == "note"]
        return [tx.get_blob(entry.content_digest or "").decode() for entry in kept]

    return store.read_sync(read)


def prune(store: Store, job: str) -> None:
    store.write_sync(lambda tx: tx.update_job(job, ended_at=NOW - timedelta(days=9)))
    store.write_sync(lambda tx: tx.prune(NOW - timedelta(days=5)))
    assert store.read_sync(lambda tx: tx.job(job)) is None
    assert store.read_sync(problems) == []


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        (0, ["do it"]),
        (1, ["do it", "assistant", "p 0"]),
        (3, ["do it", "assistant", "p 0", "assistant", "p 1", "assistant", "p 2"]),
    ],
)
def test_a_fork_has_the_turns_up_to_its_point_and_its_message(store: Store, at: int, expected: list[str]) -> None:
    store.write_sync(lambda tx: run(tx, "p"))

    written = fork(store, "p", at, "f", "more")

    assert told(store, "f") == [*expected, "more"]
    assert written.entries == len(expected) + 1
    assert store.read_sync(lambda tx: tx.fork_point("f")) == ForkPoint("p", at, len(expected))
    assert store.read_sync(lambda tx: tx.fork_point("p")) is None
    assert (store.read_sync(lambda tx: tx.effects("f")), store.read_sync(lambda tx: tx.read_events("f"))) == ([], [])


def test_a_turn_whose_tool_runs_is_no_point_and_what_is_said_later_is_not_in_the_fork(store: Store) -> None:
    store.write_sync(lambda tx: run(tx, "p"))
    with pytest.raises(UserError, match="runs, and has finished 3 turns so far"):
        fork(store, "p", 4, "f")
    assert fork(store, "p", 3, "f").entries == 7
    store.write_sync(lambda tx: turn(tx, "p", "s-p", 4))
    assert len(told(store, "f")) == 7


def test_a_session_that_another_job_went_on_with_is_forked_where_the_job_was(store: Store) -> None:
    store.write_sync(lambda tx: run(tx, "a", 1))
    end = message("a", 1, "done", role="tool", tool_call_id="c")
    store.write_sync(lambda tx: tx.append_entries("s-a", "a/1/feedback#1", [end]))
    store.write_sync(lambda tx: tx.update_job("a", ended_at=NOW))
    store.write_sync(lambda tx: run(tx, "b", 2, session="s-a"))

    fork(store, "a", 2, "of-a")
    fork(store, "b", 1, "of-b")
    assert told(store, "of-a") == ["do it", "assistant", "a 0", "assistant", "done"]
    assert told(store, "of-b") == [*told(store, "of-a"), "do it", "assistant", "b 0"]
    with pytest.raises(UserError, match="job a has finished 2 turns, so it cannot be forked at turn 3"):
        fork(store, "a", 3, "of-c")


def test_a_fork_of_a_fork_counts_from_the_first_job_on_and_outlives_both(store: Store) -> None:
    store.write_sync(lambda tx: run(tx, "p"))
    fork(store, "p", 2, "f", "more")
    store.write_sync(lambda tx: go_on(tx, "f", 2, "s-f", first=2))

    for at, expected in {
        1: ForkPoint("p", 1, 3),
        2: ForkPoint("f", 2, 6, ForkPoint("p", 2, 5)),
        4: ForkPoint("f", 4, 10, ForkPoint("p", 2, 5)),
    }.items():
        fork(store, "f", at, f"at-{at}")
        assert store.read_sync(lambda tx, at=at: tx.fork_point(f"at-{at}")) == expected  # type: ignore[misc]
    before = {at: told(store, f"at-{at}") for at in (1, 2, 4)}
    assert before[1] == ["do it", "assistant", "p 0"]
    assert before[2] == [*before[1], "assistant", "p 1", "more"]
    assert before[4] == [*before[2], "assistant", "f 2", "assistant", "f 3"]
    prune(store, "p")
    prune(store, "f")
    assert {at: told(store, f"at-{at}") for at in (1, 2, 4)} == before
    fork(store, "at-4", 1, "last")
    assert told(store, "last") == before[1]


def test_one_that_is_left_alone_goes_with_its_last_fork(store: Store) -> None:
    store.write_sync(lambda tx: run(tx, "p"))
    fork(store, "p", 2, "f", "more")
    prune(store, "p")
    assert store.read_sync(lambda tx: tx.session_exists("s-p"))
    prune(store, "f")
    assert not store.read_sync(lambda tx: tx.session_exists("s-p") or tx.session_exists("s-f"))


def test_what_a_job_was_started_with_goes_along(store: Store, tmp_path: Path) -> None:
    given = (note(RUNTIME_DATA, '{"user":"eve"}', "p"), note(PROJECT_CONTEXT, "Be kind.", "p"))
    store.write_sync(lambda tx: run(tx, "p", notes=given))
    store.write_sync(lambda tx: tx.mark("p", "policy", tx.put_blob(b"a policy")))
    store.write_sync(lambda tx: tx.mark("p", "signed", "of this job"))
    (tmp_path / "AGENTS.md").write_text("Be quick.")

    fork(store, "p", 1, "here")
    fork(store, "p", 1, "there", place=str(tmp_path))
    fork(store, "there", 1, "back", place="/w")
    assert notes(store, "here") == ['{"user":"eve"}', "Be kind.", '{"user":"eve"}']
    assert notes(store, "there")[1] == "Be kind."
    assert "Be quick." in notes(store, "there")[-1]
    assert store.read_sync(lambda tx: (len(tx.marks("here", "policy")), tx.marks("here", "signed"))) == (1, [])
    assert store.read_sync(lambda tx: read_fork(tx, "there", 1).agent.name) == "tester"


def test_a_fork_writes_in_a_session_that_no_other_job_uses(store: Store) -> None:
    store.write_sync(lambda tx: run(tx, "p"))
    store.write_sync(lambda tx: tx.create_session("s-f"))
    with pytest.raises(ConflictError, match="exists already and was not forked there"):
        fork(store, "p", 1, "f")
    assert store.read_sync(lambda tx: tx.job("f")) is None
