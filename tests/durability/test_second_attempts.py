"""A second attempt tells what became of the first, and a job has what it needs although an older one put it first."""

import sqlite3
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from activities.assemble import system_message
from activities.execute import Execute
from activities.registry import ToolRegistry
from activities.runtime import Runtime
from activities.stages import Calls
from activities.transcript import Transcript
from loom_dsl.canonical import digest
from loom_store import Store
from tests.durability.conftest import Opener
from tests.durability.reading import account
from tests.durability.test_worker_killed import calling

KEY = "job/0/c1"
ENVELOPE = {"at": "execute#1", "with": {"call": {"id": "c1", "name": "gone", "e": 0, "i": 0}}}
FACTS: Any = SimpleNamespace(agent=SimpleNamespace(tools=()))


@pytest.mark.parametrize(("status", "code"), [(None, "tool_not_found"), ("pending", "outcome_unknown"),
                                              ("failed", "tool_error"), ("settled", None)])  # fmt: skip
async def test_a_tool_that_went_away_between_two_attempts_hides_no_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: Any, code: str | None
) -> None:
    monkeypatch.setattr("temporalio.activity.info", lambda: SimpleNamespace(workflow_id="job", attempt=2))
    with Store.open(tmp_path / "loom.db") as store:
        runtime = Runtime(store, ToolRegistry.load(), tmp_path, environment={})
        runtime._facts["job"] = FACTS
        kept = store.write_sync(lambda tx: tx.put_blob(b"done"))
        if status is not None:
            begun = {"job": "job", "turn": 0, "call_id": "c1", "tool": "gone", "arguments_digest": kept}
            store.write_sync(lambda tx: tx.begin_effect(KEY, **begun))
        if status not in (None, "pending"):
            store.write_sync(lambda tx: tx.settle_effect(KEY, status, kept if status == "settled" else None))
        answer = await Execute(runtime, Calls(runtime, Transcript(store))).execute(ENVELOPE)
    assert answer.get("code") == code
    assert answer.get("output") == (kept if status == "settled" else None)


@pytest.mark.server
async def test_a_job_puts_its_own_system_message_though_an_older_one_had_the_same(house: Opener) -> None:
    opened = await house(calling("send"))
    agent = opened.agent()
    facts: Any = SimpleNamespace(agent=agent, workdir=opened.folder.resolve())
    name = digest(system_message(agent, facts))
    async with opened.inside():
        for _ in range(2):
            job = await opened.loom.start(agent, "do it", workdir=opened.folder)
            assert (await account(opened.loom.store, job)).status == "completed"
            assert await opened.loom.store.read(lambda tx: tx.has_blob(name))
            with sqlite3.connect(opened.settings.store_path()) as connection:  # as prune does
                connection.execute("DELETE FROM blobs WHERE digest = ?", (bytes.fromhex(name),))
