"""The audit trail: what was written stays as it was, or everybody can see that it did not."""

import re

import pytest

from loom_store.queries.audit import FIRST
from loom_store.store import Store
from loom_store.transaction import Transaction
from tests.support.stores import beside


@pytest.fixture
def trail(place: str) -> str:
    """A store with five entries."""

    def write(tx: Transaction) -> None:
        for number in range(1, 6):
            tx.audit("approval_decided", f"job-{number % 2}", {"by": "ann", "number": number})

    with Store.open(place) as store:
        store.write_sync(write)
    return place


def heads(path: str) -> list[str]:
    """The hashes, in order."""
    with Store.open(path) as store:
        return [entry.hash for entry in store.read_sync(lambda tx: tx.audit_entries())]


def problem(path: str, head: str = "") -> str:
    """What is found to be wrong."""
    with Store.open(path) as store:
        return store.read_sync(lambda tx: tx.verify_audit(head)).problem


def test_entries_are_numbered_chained_and_found_by_job(trail: str) -> None:
    with Store.open(trail) as store:
        entries = store.read_sync(lambda tx: tx.audit_entries())
        assert [entry.number for entry in entries] == [1, 2, 3, 4, 5]
        assert entries[0].data == {"by": "ann", "number": 1}
        assert [entry.number for entry in store.read_sync(lambda tx: tx.audit_entries("job-1", after=1))] == [3, 5]
        report = store.read_sync(lambda tx: tx.verify_audit())
    assert (report.entries, report.head, report.problem) == (5, entries[-1].hash, "")


def test_an_empty_trail_is_whole(place: str) -> None:
    with Store.open(place) as store:
        report = store.read_sync(lambda tx: tx.verify_audit())
    assert (report.entries, report.head, report.problem) == (0, FIRST.hex(), "")


_BYTES = re.compile(r"{([0-9a-f]+)}")


def _as_bytes(dialect: str) -> str:
    """Write bytes as a database takes them."""
    return r"x'\1'" if dialect == "sqlite" else r"'\\x\1'::bytea"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("UPDATE audit SET kind = 'control' WHERE number = 3", "entry 3 is not what was written"),
        ("UPDATE audit SET job = 'other' WHERE number = 1", "entry 1 is not what was written"),
        ("UPDATE audit SET at = at + 1 WHERE number = 5", "entry 5 is not what was written"),
        ("UPDATE audit SET body = {00} WHERE number = 2", "entry 2 is not what was written"),
        ("UPDATE audit SET body = {0199} WHERE number = 2", "entry 2 is not what was written"),
        ("UPDATE audit SET body = (SELECT body FROM audit WHERE number = 4) WHERE number = 2", "entry 2 is not"),
        (f"UPDATE audit SET hash = {{{'00' * 32}}} WHERE number = 2", "entry 2 is not what was written"),
        ("DELETE FROM audit WHERE number = 3", "entry 4 is not what was written"),
        ("DELETE FROM audit WHERE number = 1", "entry 2 is not what was written"),
    ],
)
def test_what_was_changed_is_found(trail: str, change: str, told: str) -> None:
    with beside(trail) as database:
        assert database.exec_driver_sql(_BYTES.sub(_as_bytes(database.dialect.name), change)).rowcount == 1
    assert problem(trail).startswith(told)


def test_an_end_that_was_cut_off_is_found_by_who_kept_the_hash(trail: str) -> None:
    kept = heads(trail)
    assert problem(trail, kept[-1]) == problem(trail, kept[2]) == ""
    with beside(trail) as database:
        database.exec_driver_sql("DELETE FROM audit WHERE number = 5")
    assert problem(trail) == ""
    assert f"no entry has the hash {kept[-1]}" in problem(trail, kept[-1])


def test_what_a_transaction_undid_leaves_no_gap(trail: str) -> None:
    with Store.open(trail) as store:

        def fails(tx: Transaction) -> None:
            tx.audit("control", "j", {})
            raise RuntimeError("undone")

        with pytest.raises(RuntimeError):
            store.write_sync(fails)
        store.write_sync(lambda tx: tx.audit("control", "j", {}))
    assert len(heads(trail)) == 6
    assert problem(trail) == ""
