"""Events of a workflow task that was lost with its worker, and that its next attempt tells again, or differently."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from activities.observe import store_events
from activities.runtime import Call
from loom_store.store import Store
from loom_store.transaction import Transaction

A, B, C = ({"t": "state", "n": 0, "from": "idle", "state": state} for state in ("preparing", "model_running", "failed"))
OTHER = {"t": "control", "n": 0, "op": "pause", "by": "me", "reason": ""}


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
    ],
)
async def test_no_event_is_lost_and_the_same_one_is_stored_once(
    store: Store, attempts: list[list[Any]], log: list[dict[str, Any]]
) -> None:
    heard: list[Mapping[str, Any]] = []
    store.listen(heard.append)
    for batches in attempts:
        call = Call(job="job", turn=0, at="~flush#1", session="", arguments={}, batches=batches)
        await store.write(lambda tx, call=call: store_events(tx, call))  # type: ignore[misc]
    assert heard == log, "who listens hears each event once, too"
    told = await store.read(lambda tx: tx.read_events("job"))
    assert [event for _, event in told] == log
    assert [offset for offset, _ in told] == list(range(1, len(log) + 1))


async def test_nobody_hears_of_an_event_that_was_not_stored(store: Store) -> None:
    heard: list[Mapping[str, Any]] = []
    store.listen(heard.append)
    call = Call(job="job", turn=0, at="~flush#1", session="", arguments={}, batches=[[0, [A]]])

    def fails(tx: Transaction) -> None:
        store_events(tx, call)
        raise LookupError

    with pytest.raises(LookupError):
        await store.write(fails)
    assert not heard
    await store.write(lambda tx: store_events(tx, call))
    assert heard == [A]
