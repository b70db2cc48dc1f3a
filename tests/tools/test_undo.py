"""Taking effects back happens at most once each, also when the attempt that did it was lost."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from activities.record.job_store import JobFacts
from activities.registration import activities_of
from activities.runtime import Runtime
from activities.tool_calls.undo import NOT_KNOWN, NOT_SEEN
from loom_dsl.agent.definition import Agent
from loom_dsl.errors import StoreError
from loom_dsl.text.canonical import canonical_json
from loom_dsl.tools.context import Reconciliation
from loom_dsl.tools.tool import tool
from loom_store.queries.effects import undo_key
from loom_store.store import Store
from loom_tools.registry import ToolRegistry

SAID: list[str] = []


def _undo(arguments: dict[str, Any], result: Any, context: Any) -> None:
    SAID.append(f"{arguments['text']} {result} {context.idempotency_key}")


@tool(compensate=_undo)
def send(text: str) -> str:
    """Send."""
    return text


@tool(compensate=_undo, reconcile=lambda arguments, context: Reconciliation(outcome="happened", result="R"))
def register(text: str) -> str:
    """Register."""
    return text


REGISTRY = ToolRegistry({"send": send, "register": register}, {})


class Failing:
    """A store that fails once, at its read or write with a number."""

    def __init__(self, store: Store, number: int) -> None:
        self._store, self._left, self.path, self.closed = store, number, store.path, False

    def mask_with(self, *masks: Any) -> None:
        self._store.mask_with(*masks)

    async def read(self, work: Any) -> Any:
        return await self._at(self._store.read, work)

    async def write(self, work: Any, **options: Any) -> Any:
        return await self._at(self._store.write, work, **options)

    async def _at(self, do: Any, work: Any, **options: Any) -> Any:
        self._left -= 1
        if self._left == 0:
            raise StoreError("the disk is full")
        return await do(work, **options)


async def undone(folder: Path, name: str, status: Any, *, again: Any = None, broken: int = 0) -> list[Any]:
    """Take a job's one effect back, of which `status` is known; give what was told.

    Args:
        folder: Where the store is.
        name: Of the tool.
        status: Of the effect.
        again: Of a taking back before.
        broken: Number of the read or write at which the store fails once.
    """
    SAID.clear()
    environment = ActivityEnvironment()
    environment.info = dataclasses.replace(environment.info, workflow_id="job", workflow_run_id="run", attempt=2)
    agent = Agent(name="tester", model="m", tools=("send", "register"), on_abort="compensate")
    with Store.open(folder / "loom.db") as store:
        arguments = store.write_sync(lambda tx: tx.put_blob(canonical_json({"text": "one"}).encode()))
        output = store.write_sync(lambda tx: tx.put_blob(b"out"))
        given: dict[str, Any] = {"job": "job", "turn": 0, "call_id": "c", "tool": name, "arguments_digest": arguments}
        effect = store.write_sync(lambda tx: tx.begin_effect("job/0/c", **given))
        if status != "pending":
            store.write_sync(lambda tx: tx.settle_effect("job/0/c", status, output if status == "settled" else None))
        if again is not None:
            store.write_sync(lambda tx: tx.begin_effect(undo_key(effect), **given))
        if again not in (None, "pending"):
            store.write_sync(lambda tx: tx.settle_effect(undo_key(effect), again))
        used: Any = Failing(store, broken) if broken else store
        runtime = Runtime(used, REGISTRY, folder, environment={})
        runtime.jobs._facts["job", "run"] = JobFacts(None, agent, folder, "s")  # type: ignore[arg-type]
        undo, failures = activities_of(runtime)["loom.effects.undo"], 0
        for _ in range(3 if broken else 2):
            try:
                await environment.run(undo, {"at": "take_back#1", "with": {}})
            except StoreError:
                failures += 1
        assert failures <= (broken > 0)  # what cannot be found out again waits for the store
        told = [event for _, event in store.read_sync(lambda tx: tx.read_events("job"))]
        return [(event["outcome"], event.get("message", "")) for event in told if event["t"] == "compensated"]


@pytest.mark.parametrize(
    ("name", "status", "again", "said", "told"),
    [
        ("send", "settled", None, ["one out job/~undo/0/c"], [("undone", "")]),
        ("send", "settled", "pending", [], [("unknown", NOT_SEEN)]),
        ("send", "settled", "settled", [], [("undone", "")]),
        ("send", "settled", "failed", [], [("failed", "")]),
        ("send", "unknown", None, [], [("unknown", NOT_KNOWN)]),
        ("send", "failed", None, [], []),
        ("register", "unknown", None, ["one R job/~undo/0/c"], [("undone", "")]),
        ("register", "pending", None, ["one R job/~undo/0/c"], [("undone", "")]),
    ],
)
async def test_an_effect_is_taken_back_at_most_once_and_only_when_it_happened(
    tmp_path: Path, name: str, status: Any, again: Any, said: list[str], told: Any
) -> None:
    assert await undone(tmp_path, name, status, again=again) == told
    assert said == SAID


@pytest.mark.parametrize("number", range(1, 10))
async def test_a_store_that_fails_once_makes_nothing_unknown_and_nothing_twice(tmp_path: Path, number: int) -> None:
    assert await undone(tmp_path, "send", "settled", broken=number) == [("undone", "")]
    assert SAID == ["one out job/~undo/0/c"]
