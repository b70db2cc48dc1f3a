"""Events of a workflow task that was lost with its worker, and that its next attempt tells again, or differently."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from activities.observe.events import store_events
from activities.record.activity_call import ActivityCall
from loom_dsl.observe.webhooks import Endpoint
from loom_store.store import Store
from loom_store.transaction import Transaction

A, B, C = ({"t": "state", "n": 0, "from": "idle", "state": state} for state in ("preparing", "model_running", "failed"))
OTHER = {"t": "control", "n": 0, "op": "pause", "by": "me", "reason": ""}
ASKED = {"t": "approval_requested", "n": 0, "approval_id": "ap_1", "request": {"tool": "note"}, "expires_at": None}
LATER = {**ASKED, "n": 1, "approval_id": "ap_2"}
VOTE = {"t": "approval_changed", "n": 0, "approval_id": "ap_1", "what": "vote", "by": "ann", "have": 1, "need": 2}
DECIDED = {"t": "approval_decided", "n": 0, "approval_id": "ap_1", "choice": "approve", "by": "ann, bob", "message": ""}
EXPIRED = {**DECIDED, "choice": "expired", "by": ""}
FACTS = dict.fromkeys(("session", "agent", "plan", "task", "workdir", "namespace", "task_queue"), "")
CHAT = {"name": "chat", "url": "https://chat.example.com/loom", "secret": "CHAT_SECRET"}
REFUSED = {"t": "warning", "n": 0, "code": "signal_refused", "verdict": "unknown", "message": "", "by": "eve"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "loom.db") as opened:
        yield opened


@pytest.mark.parametrize(
    ("attempts", "log"),
    [
        pytest.param([[[0, [A, B]]], [[0, [A, B]]]], [A, B], id="the same again"),
        pytest.param([[[0, [A]]], [[0, [A, B]]]], [A, B], id="more"),
        pytest.param([[[0, [A]]], [[0, [A, B]]], [[0, [A, B, C]]], [[0, [A, B, C]]]], [A, B, C], id="more and more"),
        pytest.param([[[0, [A, B]]], [[0, [A]], [1, [B, C]]]], [A, B, B, C], id="in other batches: none is lost"),
        pytest.param([[[0, [A]]], [[0, [OTHER, A]]]], [A, OTHER, A], id="something before it: none is lost"),
        pytest.param([[[0, [A]], [1, [B]]], [[0, [A]], [1, [B]], [2, [C]]]], [A, B, C], id="several batches"),
        # What is told once, wherever it stands: signals that came in between move it to another place.
        pytest.param([[[0, [DECIDED]]], [[0, [REFUSED, DECIDED]]]], [DECIDED, REFUSED], id="decided, after a refusal"),
        pytest.param(
            [[[0, [DECIDED]]], [[0, [REFUSED]], [1, [DECIDED]]]], [DECIDED, REFUSED], id="decided, in a later batch"
        ),
        pytest.param(
            [[[0, [A, DECIDED]]], [[0, [A]], [1, [REFUSED, DECIDED, B]]]],
            [A, DECIDED, REFUSED, B],
            id="decided, where a batch ended sooner",
        ),
        pytest.param(
            [[[0, [A, ASKED, B]]], [[0, [A, ASKED, B]]], [[0, [REFUSED, A, ASKED, VOTE]]]],
            [A, ASKED, B, REFUSED, A, VOTE],
            id="asked",
        ),
        pytest.param(
            [[[0, [EXPIRED]]], [[0, [REFUSED, DECIDED]]]], [EXPIRED, REFUSED, DECIDED], id="decided otherwise"
        ),
        pytest.param(
            [[[0, [{**OTHER, "id": "c1"}]]], [[0, [REFUSED, {**OTHER, "id": "c1"}, {**OTHER, "id": "c2"}]]]],
            [{**OTHER, "id": "c1"}, REFUSED, {**OTHER, "id": "c2"}],
            id="two controls of the same words, by their ids",
        ),
        # What happens again is told again.
        pytest.param([[[0, [OTHER, OTHER]], [2, [OTHER]]]], [OTHER, OTHER, OTHER], id="controls without an id"),
        pytest.param([[[0, [ASKED, DECIDED]], [2, [LATER]]]], [ASKED, DECIDED, LATER], id="asked in a later turn"),
        pytest.param(
            [[[0, [VOTE]], [1, [{**VOTE, "by": "bob", "have": 2}]]]],
            [VOTE, {**VOTE, "by": "bob", "have": 2}],
            id="the votes of a quorum",
        ),
        pytest.param(
            [[[0, [ASKED]]], [[0, [{**ASKED, "expires_at": 9.0}]]]],
            [ASKED, {**ASKED, "expires_at": 9.0}],
            id="asked with another time limit",
        ),
    ],
)
async def test_no_event_is_lost_and_the_same_one_is_stored_once(
    store: Store, attempts: list[list[Any]], log: list[dict[str, Any]]
) -> None:
    heard: list[Mapping[str, Any]] = []
    store.listen(heard.append)
    for batches in attempts:
        call = ActivityCall(job="job", turn=0, at="~flush#1", session="", arguments={}, batches=batches)
        await store.write(lambda tx, call=call: store_events(tx, call))  # type: ignore[misc]
    assert heard == [{**event, "job": "job"} for event in log], "who listens hears each event once, too"
    told = await store.read(lambda tx: tx.read_events("job"))
    assert [event for _, event in told] == log
    assert [offset for offset, _ in told] == list(range(1, len(log) + 1))


async def test_nobody_hears_of_an_event_that_was_not_stored(store: Store) -> None:
    heard: list[Mapping[str, Any]] = []
    store.listen(heard.append)
    call = ActivityCall(job="job", turn=0, at="~flush#1", session="", arguments={}, batches=[[0, [A]]])

    def fails(tx: Transaction) -> None:
        store_events(tx, call)
        raise LookupError

    with pytest.raises(LookupError):
        await store.write(fails)
    assert not heard
    await store.write(lambda tx: store_events(tx, call))
    assert heard == [{**A, "job": "job"}]


async def test_trail_and_webhooks_tell_a_decision_once_although_its_task_was_done_again(store: Store) -> None:
    await store.write(lambda tx: tx.create_job("job", created_at=1.0, **FACTS))
    store.subscribe([Endpoint.model_validate(CHAT)], lambda job, endpoint: None)
    for batches in ([[0, [ASKED]], [1, [DECIDED]]], [[0, [ASKED]], [1, [REFUSED, DECIDED, OTHER]]]):
        call = ActivityCall(job="job", turn=0, at="~flush#1", session="", arguments={}, batches=batches)
        await store.write(lambda tx, call=call: store_events(tx, call))  # type: ignore[misc]
    trail = await store.read(lambda tx: [entry.kind for entry in tx.audit_entries("job")])
    assert trail == ["approval_requested", "approval_decided", "decision_refused", "control"]
    messages = await store.read(lambda tx: [row.event for row in tx.deliveries()])
    assert messages == ["approval_requested", "approval_decided", "job_paused"]
    row = await store.read(lambda tx: tx.approval("ap_1"))
    assert row
    assert row["status"] == "approved"
