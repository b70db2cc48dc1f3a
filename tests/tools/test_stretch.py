"""Local executions that follow one another: what runs, what is told of it, and where a stretch ends."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from activities.jobs import local_batch
from activities.jobs.local_batch import LocalBatch
from activities.lifecycle.attempts import Steps
from activities.lifecycle.deaths import DEATH_RULES
from loom_dsl.errors import ModelUnavailable, StoreLocked, ToolError
from loom_dsl.graph.compiler import compile_graph
from loom_dsl.graph.plan import Plan
from loom_dsl.machine.commands import Command, RunActivity, Started
from loom_dsl.machine.interpreter import Machine
from loom_dsl.machine.payloads import activity_argument
from loom_dsl.machine.state import MachineState
from loom_store.store import Store
from loom_store.transaction import Transaction
from tests.support.waiting import PATIENCE, eventually, longer

THREE = """
loom: 1
kind: graph
name: three
start: a
nodes:
  a: {activity: look, carrier: local, with: {n: 1}, catch: {any: caught}, next: b}
  b: {activity: look, carrier: local, with: {n: "${result.n + 1}"}, next: c}
  c: {activity: far, with: {n: "${result.n + 1}"}, next: d}
  d: {activity: look, carrier: local, with: {n: "${result.n + 1}"}, next: done}
  caught: {activity: look, carrier: local, with: {n: "${result.code}"}, next: done}
  done: {end: "${result.n}"}
"""
MANY = """
loom: 1
kind: graph
name: many
start: split
nodes:
  split: {next: [a, b]}
  a: {activity: look, carrier: local, with: {n: a}, next: done}
  b: {activity: slow, carrier: local, with: {n: b}, next: done}
  done: {end: null}
"""


async def look(argument: dict[str, Any]) -> dict[str, Any]:
    """Gives what it was given."""
    return dict(argument["with"])


@dataclass
class Beginning:
    """A machine that has just started, as a workflow hands it over; its stretch may last for as long as it needs."""

    text: str
    last_start: float = PATIENCE
    max_seconds: float = PATIENCE
    plan: Plan = field(init=False)
    commands: list[RunActivity] = field(init=False)
    argument: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.plan = compile_graph(self.text, "test")
        machine = Machine(self.plan, MachineState(), "job")
        given: list[Command] = machine.feed(Started(now=1.0))
        self.commands = [command for command in given if isinstance(command, RunActivity)]
        self.argument = {
            "state": machine.state.to_json(),
            "attached": machine.state.outbox.attached,
            "busy": False,
            "begin": [[command.activity, activity_argument(command, None)] for command in self.commands],
        }

    async def run(self, **handlers: Callable[[dict[str, Any]], Awaitable[Any]]) -> list[list[Any]]:
        """Run the stretch with these activities."""
        with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder) / "loom.db") as store:
            return await self.run_on(store, **handlers)

    async def run_on(self, store: Store, **handlers: Callable[[dict[str, Any]], Awaitable[Any]]) -> list[list[Any]]:
        """Run it on a store that the caller has opened."""
        found: Mapping[str, Any] = {"look": look, **handlers}

        async def facts(job: str) -> Any:
            return SimpleNamespace(plan=self.plan)

        secrets = {"KEY": "hunter2hunter2"}
        steps = Steps(store, secrets, DEATH_RULES)
        jobs: Any = SimpleNamespace(facts=facts, store=store, secrets=secrets)
        batch = LocalBatch(jobs, steps, found, self.last_start, self.max_seconds)
        return await ActivityEnvironment().run(batch.run, self.argument)


def told(outcomes: list[list[Any]]) -> list[list[Any]]:
    """Outcomes without the fingerprints."""
    return [[name, *rest] for name, _, *rest in outcomes]


async def test_what_is_local_runs_until_something_remote_is_next() -> None:
    outcomes = await Beginning(THREE).run()
    assert told(outcomes) == [["0/a#1", "done", {"n": 1}], ["0/b#1", "done", {"n": 2}]]


async def test_a_failure_that_is_final_is_told_and_caught_as_in_the_workflow() -> None:
    async def look_once(argument: dict[str, Any]) -> dict[str, Any]:
        if argument["at"] == "a#1":
            raise ToolError("no: hunter2hunter2")
        return await look(argument)

    outcomes = await Beginning(THREE).run(look=look_once)
    assert told(outcomes)[1] == ["0/caught#1", "done", {"n": "tool_error"}]
    name, verdict, code, message = told(outcomes)[0]
    assert (name, verdict, code) == ("0/a#1", "failed", "tool_error")
    assert "hunter2" not in message


@pytest.mark.parametrize("error", [ModelUnavailable(), StoreLocked(), RuntimeError("a fault")])
async def test_what_another_attempt_may_mend_is_left_to_the_workflow(error: Exception) -> None:
    async def fail(argument: dict[str, Any]) -> dict[str, Any]:
        raise error

    assert await Beginning(THREE).run(look=fail) == []


async def test_what_takes_too_long_is_ended_and_told_as_slow() -> None:
    ended = asyncio.Event()

    async def slow(argument: dict[str, Any]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    for seconds in longer(0.5):  # on a slow machine it may be over before anything is done
        outcomes = told(await Beginning(MANY, max_seconds=seconds).run(slow=slow))
        if outcomes[0][1] == "done":
            break
    assert outcomes == [["0/a#1", "done", {"n": "a"}], ["0/b#1", "slow"]]
    await asyncio.wait_for(ended.wait(), PATIENCE)


async def test_late_in_a_stretch_nothing_more_is_started() -> None:
    assert told(await Beginning(THREE, last_start=0.0).run()) == [["0/a#1", "done", {"n": 1}]]


async def test_what_is_too_much_for_one_marker_of_the_history_is_left_to_run_remotely() -> None:
    async def large(argument: dict[str, Any]) -> str:
        return "x" * (local_batch.MAX_BYTES - 200)

    outcomes = await Beginning(MANY).run(look=large, slow=large)
    assert [outcome[2] for outcome in outcomes] == ["done", "slow"]


def tell(tx: Transaction) -> None:
    tx.append_events("job", "told", [{"t": "told"}])


def is_told(store: Store) -> bool:
    return bool(store.read_sync(lambda tx: tx.read_events("job")))


async def test_what_waits_to_be_written_is_written_when_the_stretch_ends(tmp_path: Path) -> None:
    with Store.open(tmp_path / "loom.db") as store:

        async def later(argument: dict[str, Any]) -> dict[str, Any]:
            await store.write_later(tell)
            assert not await asyncio.to_thread(is_told, store)
            return await look(argument)

        assert told(await Beginning(THREE).run_on(store, look=later))[-1] == ["0/b#1", "done", {"n": 2}]
        assert is_told(store)


async def test_watchers_of_one_call_do_not_wait_for_another(tmp_path: Path) -> None:
    with Store.open(tmp_path / "loom.db") as store:

        async def later(argument: dict[str, Any]) -> dict[str, Any]:
            await store.write_later(tell)
            return await look(argument)

        async def waits_for_it(argument: dict[str, Any]) -> dict[str, Any]:
            await eventually(lambda: asyncio.to_thread(is_told, store))
            return await look(argument)

        outcomes = await Beginning(MANY).run_on(store, look=later, slow=waits_for_it)
        assert told(outcomes) == [["0/a#1", "done", {"n": "a"}], ["0/b#1", "done", {"n": "b"}]]
