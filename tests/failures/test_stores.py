"""Stores that are locked, cannot be written, are from another release or belong to another worker."""

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from loom_cli.dev.server import DevServer
from loom_client.connection import temporal
from loom_dsl.errors import LoomError
from loom_dsl.graph.compiler import compile_agent
from loom_store.store import Store
from tests.durability.reading import histories, unheard_of
from tests.failures.stand import serving, standing
from tests.support.copied import copied
from tests.support.waiting import PATIENCE, eventually
from worker import serve

pytestmark = pytest.mark.server

STEPS: dict[str, list[dict[str, Any]]] = {
    "look": [{"say": "I look.", "calls": [{"tool": "look", "args": {"text": "x"}}]}, {"say": "It says: {last}"}],
    "stream": [{"say": "word " * 400, "chunk": 5, "delay": "5ms"}],
    "write": [{"say": "I write.", "calls": [{"tool": "plain", "args": {"what": "print"}}]}, {"say": "It says: {last}"}],
}


@contextmanager
def locked(path: Path, seconds: float) -> Iterator[None]:
    """Another process's write transaction, as the store sees it: from a connection of its own, for a time."""
    taken = threading.Event()

    def hold() -> None:
        connection = sqlite3.connect(path, isolation_level=None, timeout=PATIENCE)
        connection.execute("BEGIN IMMEDIATE")
        taken.set()
        time.sleep(seconds)
        connection.execute("ROLLBACK")
        connection.close()

    holder = threading.Thread(target=hold)
    holder.start()
    taken.wait()
    yield
    holder.join()


async def test_jobs_go_on_when_a_store_that_was_locked_is_free(
    dev_server: DevServer, tmp_path: Path, task_queue: str
) -> None:
    async with standing(dev_server, tmp_path, task_queue, STEPS) as stand:
        for name in STEPS:
            stand.begin(name)
        streaming = await eventually(lambda: stand.model.count >= 1)
        assert streaming
        with locked(tmp_path / "loom.db", 8):
            outcomes = [await stand.jobs[name] for name in STEPS]
        for found in outcomes:
            assert found.result.status == "completed", found.result.error
            assert found.result.usage.prompt_tokens == 100 * len(
                [m for m in found.messages if m["role"] == "assistant"]
            )
        # What the locked store kept waiting was not paid for or done a second time; where the server lost sight of an
        # attempt, for a busy machine kept its worker from telling that it lives, it may have been.
        runs = [run for found in outcomes for run in await histories(stand.loom.client, found.job.id)]
        assert 5 <= stand.model.count <= 5 + unheard_of(runs, "loom.model.call")
        assert outcomes[2].tool()["content"] == "printed"


@pytest.mark.parametrize("kind", ["read-only", "newer", "foreign", "not a database", "directory"])
async def test_a_worker_does_not_start_on_a_store_that_it_cannot_use(
    dev_server: DevServer, tmp_path: Path, task_queue: str, kind: str
) -> None:
    # Where nobody may write, not even root.
    path = Path("/proc/loom/loom.db") if kind == "read-only" else tmp_path / "loom.db"
    words = prepared(path, kind)
    with pytest.raises(LoomError, match=words) as caught:
        await serve(address=dev_server.address, namespace="default", task_queue=task_queue, store=path, root=tmp_path)
    assert str(path) in caught.value.message


def prepared(path: Path, kind: str) -> str:
    """Make such a store, and say what the message about it holds."""
    if kind == "directory":
        path.mkdir()
        return "this is a directory; give a file in it"
    if kind == "not a database":
        path.write_bytes(b"no database at all " * 1_000)
        return "not an SQLite database; point LOOM_STORE at another file"
    if kind == "foreign":
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE theirs (a)")
        connection.close()
        return "belongs to another program"
    if kind == "newer":
        Store.open(path).close()
        with sqlite3.connect(path) as connection:
            connection.execute("UPDATE loom_version SET version_num = '9999'")
        connection.close()
        return "at migration 9999, which this release of Loom does not know.*upgrade Loom"
    return "cannot be written; change its permissions"


async def test_a_worker_with_an_older_copy_of_the_store_that_has_the_same_plan_loses_nothing(
    dev_server: DevServer, tmp_path: Path, task_queue: str
) -> None:
    steps = {"look": STEPS["look"]}
    async with standing(dev_server, tmp_path, task_queue, steps, serve=False) as stand:
        with Store.open(copied(stand.loom.store.path, tmp_path / "another.db")) as another:
            plan = compile_agent(stand.agent())
            await another.write(lambda tx: tx.put_blob(plan.text.encode()))
            client = await temporal(stand.loom.settings, another)
            async with serving(stand, {}, store=another, client=client):
                job = await stand.start("look")

                async def refused() -> bool:
                    pending = (await job.handle.describe()).raw_description.pending_activities
                    return any("does not know the job" in each.last_failure.message for each in pending)

                await eventually(refused, every=0.1)
        async with serving(stand, {}):
            found = await stand.unharmed(job)
        assert found.result.status == "completed"
        assert [event.offset for event in found.told] == list(range(1, len(found.told) + 1))


async def test_a_job_whose_store_fails_for_long_waits_and_does_not_spin(
    dev_server: DevServer, tmp_path: Path, task_queue: str
) -> None:
    async with standing(dev_server, tmp_path, task_queue, {"look": STEPS["look"]}, serve=False) as stand:
        with Store.open(tmp_path / "loom.db") as closed:
            client = await temporal(stand.loom.settings, closed)
            async with serving(stand, {}, store=closed, client=client):
                warm = await stand.unharmed(await stand.start("look"))
                assert warm.result.status == "completed"
                closed.close()  # every activity fails at once from here on
                job = await stand.start("look")

                async def tried_again() -> bool:
                    described = await job.handle.describe()
                    return any(each.attempt > 4 for each in described.raw_description.pending_activities)

                await eventually(tried_again, every=0.1)
                (before,) = await histories(stand.loom.client, job.id)
        async with serving(stand, {}):
            result = await job.result()
    assert result.status == "completed"
    assert len(before.events) < 20
