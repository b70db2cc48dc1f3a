"""Effects, approvals, jobs and abort marks."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from loom_dsl.errors import ConflictError, JobExists, NotFoundError, SessionBusy
from loom_store.queries import effects as effects_module
from loom_store.rows import ApprovalRow, Effect, EffectStatus, NewEntry
from loom_store.store import Store

A, B = "a" * 64, "b" * 64
T0 = datetime(2026, 1, 2, 3, 4, 5, 678000, UTC)


NUL = "c\0d"


def test_a_nul_that_a_model_sends_is_kept_as_its_escape_and_its_call_is_found_again(store: Store) -> None:
    given = {"job": "j", "turn": 0, "call_id": NUL, "tool": "t", "arguments_digest": "0" * 64}
    begun = [store.write_sync(lambda tx: tx.begin_effect(f"j/0/{NUL}", **given)) for _ in range(2)]
    assert [effect.created for effect in begun] == [True, False]
    assert begun[1].call_id == r"c\x00d"


@pytest.fixture
def store(place: str) -> Iterator[Store]:
    with Store.open(place, clock=lambda: T0.timestamp()) as opened:
        yield opened


def begin(store: Store, key: str = "j/1/call", arguments: str = A, **other: Any) -> Effect:
    fields = {"job": "j", "turn": 1, "call_id": "call", "tool": "write_file", **other}
    return store.write_sync(lambda tx: tx.begin_effect(key, arguments_digest=arguments, **fields))


def settle(store: Store, status: EffectStatus, result: str | None = None, note: str | None = None) -> None:
    store.write_sync(lambda tx: tx.settle_effect("j/1/call", status, result, note))


def create_job(
    store: Store,
    job: str = "j",
    task: str = "do it",
    session: str = "s",
    created_at: datetime | float = T0,
    above: str | None = None,
) -> bool:
    return store.write_sync(
        lambda tx: tx.create_job(
            job,
            session=session,
            agent="researcher",
            plan=A,
            task=task,
            workdir="/w",
            namespace="default",
            task_queue="loom",
            created_at=created_at,
            above=above,
        )
    )


def approval(id: str = "ap_1", **other: Any) -> ApprovalRow:
    fields = {"job": "j", "tool": "write_file", "arguments_digest": A, "summary": "writes a", "created_at": T0, **other}
    return ApprovalRow(id=id, **fields)


def test_an_intent_is_written_once_and_found_again(store: Store) -> None:
    first, second = begin(store), begin(store)

    assert (first.created, first.status, first.key, first.begun_at) == (
        True,
        "pending",
        "j/1/call",
        "2026-01-02T03:04:05.678Z",
    )
    assert not second.created
    assert store.read_sync(lambda tx: tx.effects("j")) == [second]


def test_an_outcome_is_kept_with_its_result(store: Store) -> None:
    begin(store)
    settle(store, "settled", B, "all well \ud800")

    again = begin(store)
    assert (again.created, again.status, again.result_digest, again.note) == (False, "settled", B, "all well \ud800")
    assert again.settled_at == "2026-01-02T03:04:05.678Z"


@pytest.mark.parametrize(
    ("first", "second", "allowed"),
    [
        ("settled", "settled", True),
        ("unknown", "settled", True),
        ("unknown", "failed", True),
        ("failed", "failed", True),
        ("settled", "failed", False),
        ("settled", "unknown", False),
        ("failed", "settled", False),
        ("cancelled", "settled", False),
    ],
)
def test_a_known_outcome_stays_and_an_unknown_one_may_become_known(
    store: Store, first: EffectStatus, second: EffectStatus, allowed: bool
) -> None:
    begin(store)
    settle(store, first)
    if allowed:
        settle(store, second)
    else:
        with pytest.raises(ConflictError, match=f"is {first} already and cannot become {second}"):
            settle(store, second)
    (found,) = store.read_sync(lambda tx: tx.effects("j"))
    assert found.status == (second if allowed else first)


def test_what_was_cancelled_before_it_began_is_begun_anew(store: Store) -> None:
    begin(store, held=("here", 8.0))
    assert store.write_sync(lambda tx: tx.start_effect("j/1/call", "here"))
    settle(store, "cancelled", note="its worker ended before the tool was called")
    again = begin(store, held=("there", 8.0))
    assert (again.created, again.status, again.holder, again.started_at, again.note) == (
        True,
        "pending",
        "there",
        None,
        None,
    )
    assert again.attempts == 2
    assert store.read_sync(lambda tx: tx.effects("j")) == [replace(again, created=False)]


def test_only_the_process_that_holds_an_effect_begins_it(store: Store) -> None:
    begin(store, held=("here", 8.0))
    store.write_sync(lambda tx: tx.hold_effect("j/1/call", "there", 8.0))
    assert not store.write_sync(lambda tx: tx.start_effect("j/1/call", "here"))
    assert store.write_sync(lambda tx: tx.start_effect("j/1/call", "there"))
    settle(store, "settled", B)
    assert not store.write_sync(lambda tx: tx.start_effect("j/1/call", "there"))


def test_one_key_cannot_stand_for_two_calls(store: Store) -> None:
    begin(store)
    with pytest.raises(ConflictError, match="give every call a key of its own"):
        begin(store, arguments=B)
    with pytest.raises(ConflictError, match="stands for write_file"):
        begin(store, tool="edit_file")


def test_two_keys_with_the_same_number_are_two_effects(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effects_module, "key_hash", lambda key: 7)
    assert begin(store, "j/1/a").created
    assert begin(store, "j/1/b").created
    assert [effect.key for effect in store.read_sync(lambda tx: tx.effects("j"))] == ["j/1/a", "j/1/b"]


def test_a_call_id_that_is_no_proper_text_has_its_effect_too(store: Store) -> None:
    assert begin(store, "j/1/\ud800", call_id="\ud800").created
    assert not begin(store, "j/1/\ud800", call_id="\ud800").created


def test_settling_what_was_not_begun_is_refused(store: Store) -> None:
    with pytest.raises(NotFoundError, match="j/1/call"):
        settle(store, "settled")
    begin(store)
    with pytest.raises(ValueError, match="not as 'pending'"):
        settle(store, "pending")


def test_an_approval_is_listed_until_it_is_decided(store: Store) -> None:
    row = approval(arguments={"path": "a"}, expires_at="2026-01-03T00:00:00Z", policy={"on_expiry": "deny"}, turn=3)
    store.write_sync(lambda tx: tx.upsert_approval(row))
    store.write_sync(lambda tx: tx.upsert_approval(approval("ap_2", job="k")))

    pending = store.read_sync(lambda tx: tx.approvals(status="pending"))
    assert [found["id"] for found in pending] == ["ap_1", "ap_2"]
    assert {name: pending[0][name] for name in ("job", "status", "arguments", "expires_at", "created_at", "turn")} == {
        "job": "j",
        "status": "pending",
        "arguments": {"path": "a"},
        "expires_at": "2026-01-03T00:00:00.000Z",
        "created_at": "2026-01-02T03:04:05.678Z",
        "turn": 3,
    }

    assert store.write_sync(lambda tx: tx.decide_approval("ap_1", "approved", "approve", "ann", T0, "fine"))
    assert [found["id"] for found in store.read_sync(lambda tx: tx.approvals(status="pending"))] == ["ap_2"]
    assert [found["id"] for found in store.read_sync(lambda tx: tx.approvals(job="j"))] == ["ap_1"]
    decided = store.read_sync(lambda tx: tx.approval("ap_1"))
    assert decided is not None
    assert (decided["status"], decided["choice"], decided["by"], decided["message"]) == (
        "approved",
        "approve",
        "ann",
        "fine",
    )


def test_the_questions_of_one_turn_are_listed_as_its_calls_run(store: Store) -> None:
    create_job(store, "k")
    asked = [("early", "k", 0, "calls#1[3]/ask#1"), ("later", "j", 0, "calls#1[10]/ask#1")]
    asked += [("other", "k", 1, "calls#1[1]/ask#1"), ("first", "j", 0, "calls#1[2]/ask#1")]
    asked += [("next", "j", 1, "calls#1[0]/ask#1"), ("graph", "k", 0, "agree#1")]
    for number, (id, job, turn, node) in enumerate(asked):
        row = approval(id, job=job, turn=turn, node=node, created_at=T0 + timedelta(seconds=number))
        store.write_sync(lambda tx, row=row: tx.upsert_approval(row))  # type: ignore[misc]
    listed = [row["id"] for row in store.read_sync(lambda tx: tx.approvals())]
    assert listed == ["early", "first", "later", "other", "next", "graph"]


def test_the_first_decision_stays(store: Store) -> None:
    store.write_sync(lambda tx: tx.upsert_approval(approval()))
    assert store.write_sync(lambda tx: tx.decide_approval("ap_1", "rejected", by="ann"))
    assert not store.write_sync(lambda tx: tx.decide_approval("ap_1", "approved", by="bob"))
    store.write_sync(lambda tx: tx.upsert_approval(approval(summary="again")))

    found = store.read_sync(lambda tx: tx.approval("ap_1"))
    assert found is not None
    assert (found["status"], found["by"], found["summary"]) == ("rejected", "ann", "writes a")


def test_a_pending_request_can_be_written_anew(store: Store) -> None:
    store.write_sync(lambda tx: tx.upsert_approval(approval()))
    store.write_sync(lambda tx: tx.upsert_approval(approval(summary="edited")))
    assert [found["summary"] for found in store.read_sync(lambda tx: tx.approvals())] == ["edited"]


def test_deciding_an_unknown_approval_is_refused(store: Store) -> None:
    with pytest.raises(NotFoundError, match="'ap_9'"):
        store.write_sync(lambda tx: tx.decide_approval("ap_9", "approved"))
    assert store.read_sync(lambda tx: tx.approval("ap_9")) is None


def test_starting_the_same_job_twice_is_one_job_and_another_is_refused(store: Store) -> None:
    assert create_job(store)
    assert not create_job(store)
    with pytest.raises(JobExists, match="'j' exists already with another task;"):
        create_job(store, task="something else")


def test_a_job_shows_what_was_updated(store: Store) -> None:
    create_job(store, task="größer \ud800")
    waiting = {"for": "approval", "id": "ap_1"}
    store.write_sync(lambda tx: tx.update_job("j", state="awaiting_human", waiting=waiting, paused_by="ann"))
    store.write_sync(
        lambda tx: tx.update_job("j", waiting=None, result={"text": "\ud800"}, status="completed", ended_at=T0)
    )

    store.write_sync(lambda tx: tx.update_job("j", failed_at={"at": ["a#1"]}))
    assert store.read_sync(lambda tx: tx.failed_at("j")) == {"at": ["a#1"]}
    assert store.read_sync(lambda tx: tx.failed_at("nobody")) is None
    job = store.read_sync(lambda tx: tx.job("j"))
    assert job == {
        "job": "j",
        "session": "s",
        "agent": "researcher",
        "plan": A,
        "task": "größer \ud800",
        "workdir": "/w",
        "namespace": "default",
        "task_queue": "loom",
        "state": "awaiting_human",
        "status": "completed",
        "paused_by": "ann",
        "waiting": None,
        "halted": None,
        "result": {"text": "\ud800"},
        "abort": None,
        "created_at": "2026-01-02T03:04:05.678Z",
        "ended_at": "2026-01-02T03:04:05.678Z",
    }


def test_jobs_are_listed_with_the_newest_first(store: Store) -> None:
    for name in "abc":
        create_job(store, name)
    store.write_sync(lambda tx: tx.append_events("only-events", "k", [{"t": "state"}]))
    store.write_sync(lambda tx: tx.update_job("b", status="completed"))

    assert [job["job"] for job in store.read_sync(lambda tx: tx.jobs())] == ["c", "b", "a"]
    assert [job["job"] for job in store.read_sync(lambda tx: tx.jobs(limit=1))] == ["c"]
    assert [job["job"] for job in store.read_sync(lambda tx: tx.jobs(status="completed"))] == ["b"]
    assert store.read_sync(lambda tx: tx.job("only-events")) is None


BELOW = {"a": None, "a.kid.1": "a", "elsewhere": "a.kid.1", "a.mine": None, "a.mine.kid": "a.mine", "b.kid.1": None}


def test_the_jobs_below_a_job_are_those_that_it_started_whatever_their_ids(store: Store) -> None:
    for name, above in BELOW.items():
        create_job(store, name, above=above)

    assert [job["job"] for job in store.read_sync(lambda tx: tx.jobs_below("a"))] == ["a.kid.1", "elsewhere"]
    assert [job["job"] for job in store.read_sync(lambda tx: tx.jobs_below("a.mine"))] == ["a.mine.kid"]
    assert store.read_sync(lambda tx: tx.jobs_below("nobody")) == []
    assert {name: store.read_sync(lambda tx, name=name: tx.job_above(name)) for name in BELOW} == BELOW  # type: ignore[misc]


def test_a_job_of_an_id_that_stands_for_a_child_of_another_is_refused(store: Store) -> None:
    for name in ("a", "b"):
        create_job(store, name)
    create_job(store, "a.kid", above="a")
    create_job(store, "a.mine")
    for name, above in (("a.kid", None), ("a.kid", "b"), ("a.mine", "a")):
        with pytest.raises(JobExists, match="job above it"):
            create_job(store, name, above=above)


def test_children_of_a_job_that_was_pruned_are_not_those_of_its_name(store: Store) -> None:
    create_job(store, "a")
    store.write_sync(lambda tx: tx.create_session("other"))
    store.write_sync(lambda tx: tx.append_entries("other", "k", [NewEntry(kind="note", head={}, job="a", turn=0)]))
    create_job(store, "a.kid", above="a")
    store.write_sync(lambda tx: tx.update_job("a", ended_at=1.0))
    store.write_sync(lambda tx: tx.prune(datetime(2026, 1, 1, tzinfo=UTC)))
    assert store.read_sync(lambda tx: tx.job("a")) is None
    create_job(store, "a")
    assert store.read_sync(lambda tx: tx.jobs_below("a")) == []


def test_approvals_of_a_job_are_listed_with_those_below_it(store: Store) -> None:
    create_job(store, "a.older")  # a user's own: nobody started it
    above = {"a.kid.1": "a", "a.kid.1.sub.1": "a.kid.1"}
    for name in ("a", "a.kid.1", "a.kid.1.sub.1", "a-2", "ab", "a/x", "b.kid.1"):
        create_job(store, name, above=above.get(name))
    for name in ("a.older", "a", "a.kid.1", "a.kid.1.sub.1", "a-2", "ab", "a/x", "b.kid.1"):
        asked = approval(f"ap_{name}", job=name)
        store.write_sync(lambda tx, asked=asked: tx.upsert_approval(asked))  # type: ignore[misc]
    store.write_sync(lambda tx: tx.decide_approval("ap_a.kid.1", "approved"))

    def listed(**wanted: Any) -> list[str]:
        return sorted(row["job"] for row in store.read_sync(lambda tx: tx.approvals(below=True, **wanted)))

    assert listed(job="a") == ["a", "a.kid.1", "a.kid.1.sub.1"]
    assert listed(job="a", status="pending") == ["a", "a.kid.1.sub.1"]
    assert listed(job="a.kid.1") == ["a.kid.1", "a.kid.1.sub.1"]
    assert listed(job="nobody") == []
    assert len(listed()) == 8


def test_updating_what_is_not_there_is_refused(store: Store) -> None:
    with pytest.raises(NotFoundError, match="no job 'j'"):
        store.write_sync(lambda tx: tx.update_job("j", state="idle"))
    create_job(store)
    with pytest.raises(TypeError, match="no field agent"):
        store.write_sync(lambda tx: tx.update_job("j", agent="x"))


def test_a_time_without_a_zone_is_refused(store: Store) -> None:
    create_job(store)
    with pytest.raises(ValueError, match="no time zone"):
        store.write_sync(lambda tx: tx.update_job("j", ended_at=datetime(2026, 1, 1)))


def test_a_job_that_has_ended_holds_no_session(store: Store) -> None:
    create_job(store)
    store.write_sync(lambda tx: tx.create_session("s", job="j"))
    with pytest.raises(SessionBusy):
        store.write_sync(lambda tx: tx.acquire_lease("s", "k"))

    store.write_sync(lambda tx: tx.update_job("j", ended_at=T0))
    store.write_sync(lambda tx: tx.acquire_lease("s", "k"))


def test_an_abort_mark_can_come_before_the_job_and_the_first_stays(store: Store) -> None:
    assert store.read_sync(lambda tx: tx.abort_requested("j")) is None
    store.write_sync(lambda tx: tx.request_abort("j", "enough", "ann"))
    store.write_sync(lambda tx: tx.request_abort("j", "other", "bob"))
    create_job(store)

    mark = {"reason": "enough", "by": "ann", "at": "2026-01-02T03:04:05.678Z"}
    assert store.read_sync(lambda tx: tx.abort_requested("j")) == mark
    job = store.read_sync(lambda tx: tx.job("j"))
    assert job is not None
    assert job["abort"] == mark
