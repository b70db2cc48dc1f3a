"""Several real processes on one store, and one of them killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from loom_store.store import Store
from tests.support.stores import problems
from tests.support.waiting import PATIENCE, until

ROOT = Path(__file__).parents[2]

WRITER = """
import sys
from loom_store.rows import NewEntry
from loom_store.store import Store
path, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
with Store.open(path) as store:
    print("ready", flush=True)
    sys.stdin.readline()
    n = 0
    while n < count or count == 0:
        key = f"{name}/{n}"
        def work(tx):
            said = NewEntry(kind="message", head={"by": name}, content=f"content of {key}" * 20, job="j", turn=n)
            found = tx.append_entries("s", key, [said, said])
            first, size = tx.append_events("j", key, [{"key": key, "n": i} for i in range(3)])
            effect = tx.begin_effect(key, job="j", turn=n, call_id=key, tool="t", arguments_digest=tx.put_blob(b"a"))
            tx.settle_effect(key, "settled", tx.put_blob(key.encode()))
            return found.first, first
        print(key, *store.write_sync(work), flush=True)
        n += 1
"""


def start(place: str, name: str, count: int) -> subprocess.Popen[str]:
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, place, name, str(count)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert writer.stdout is not None
    assert writer.stdout.readline() == "ready\n"
    return writer


def release(*writers: subprocess.Popen[str]) -> None:
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()


def test_a_reader_beside_two_writers_sees_every_event_once_and_in_order(place: str) -> None:
    with Store.open(place) as store:
        store.write_sync(lambda tx: tx.create_session("s"))
        writers = [start(place, name, 60) for name in "ab"]
        release(*writers)

        seen: list[tuple[int, dict[str, object]]] = []

        def all_seen() -> bool:
            after = seen[-1][0] if seen else 0
            seen.extend(store.read_sync(lambda tx: tx.read_events("j", after, 100)))
            return len(seen) >= 360

        until(all_seen, every=0)
        told = [writer.communicate(timeout=PATIENCE)[0].splitlines() for writer in writers]

        assert [offset for offset, _ in seen] == list(range(1, 361))
        for name, lines in zip("ab", told, strict=True):
            assert [event["key"] for _, event in seen if str(event["key"])[0] == name] == [
                f"{name}/{n}" for n in range(60) for _ in range(3)
            ]
            by_offset = {offset: event["key"] for offset, event in seen}
            assert all(by_offset[int(line.split()[2])] == line.split()[0] for line in lines)
        entries = store.read_sync(lambda tx: tx.read_entries("s"))
        assert [entry.seq for entry in entries] == list(range(240))
        assert store.read_sync(problems) == []


@pytest.mark.crash
@pytest.mark.parametrize("after", [1, 7, 30])
def test_a_killed_writer_leaves_all_that_it_acknowledged_and_nothing_by_halves(place: str, after: int) -> None:
    with Store.open(place) as store:
        store.write_sync(lambda tx: tx.create_session("s"))
    writer = start(place, "a", 0)
    release(writer)
    assert writer.stdout is not None
    acknowledged = [writer.stdout.readline() for _ in range(after)]
    writer.send_signal(signal.SIGKILL)
    acknowledged += [line for line in writer.stdout if line.endswith("\n")]
    writer.communicate(timeout=PATIENCE)

    with Store.open(place) as store:
        assert store.read_sync(problems) == []
        entries = store.read_sync(lambda tx: tx.read_entries("s"))
        effects = store.read_sync(lambda tx: tx.effects("j"))
        events = store.read_sync(lambda tx: tx.read_events("j", limit=10**6))
        turns = len(effects)
        # The last write may be there without its acknowledgement, never the other way round.
        assert turns in (len(acknowledged), len(acknowledged) + 1)
        assert [entry.key for entry in entries] == [f"a/{n}" for n in range(turns) for _ in range(2)]
        assert [event["key"] for _, event in events] == [f"a/{n}" for n in range(turns) for _ in range(3)]
        assert {effect.status for effect in effects} == {"settled"}
        assert store.write_sync(lambda tx: tx.append_events("j", "next", [{}])) == (3 * turns + 1, 1)
