"""A second attempt tells what became of the first, and a job has what it needs although an older one put it first."""

import asyncio
import dataclasses
import re
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio.activity import ActivityCancellationDetails
from temporalio.testing import ActivityEnvironment

from activities.context.assemble import system_message
from activities.record.job_store import Conversation, JobFacts
from activities.record.outcomes import outcome_of
from activities.registration import activities_of
from activities.runtime import Runtime
from loom_cli.dev.fake_model.server import running
from loom_dsl.agent.definition import Agent
from loom_dsl.errors import OutcomeUnknown
from loom_dsl.simulation.script import Script
from loom_dsl.text.canonical import digest
from loom_dsl.tools.context import Image, Reconciliation, ToolContext
from loom_dsl.tools.tool import Arguments, Tool, tool
from loom_store.store import Store
from loom_store.transaction import Transaction
from loom_tools.registry import ToolRegistry
from tests.durability.conftest import Opener
from tests.durability.reading import account
from tests.durability.test_worker_killed import calling
from tests.support.waiting import PATIENCE, eventually, longer

KEY = "job/0/c1"
ENVELOPE: dict[str, Any] = {"at": "execute#1", "with": {"call": {"id": "c1", "name": "gone", "e": 0, "i": 0}}}
FACTS = JobFacts(None, Agent(name="tester", model="m"), Path(), "s")  # type: ignore[arg-type]


def begin(store: Store, status: Any) -> str:
    """Write an effect that an attempt before began, and that came to this; give the digest of its result."""
    kept = store.write_sync(lambda tx: tx.put_blob(b"done"))
    if status is not None:
        begun: dict[str, Any] = {"job": "job", "turn": 0, "call_id": "c1", "tool": "gone", "arguments_digest": kept}
        store.write_sync(lambda tx: tx.begin_effect(KEY, **begun))
    if status not in (None, "pending"):
        store.write_sync(lambda tx: tx.settle_effect(KEY, status, kept if status == "settled" else None))
    return kept


@pytest.mark.parametrize(("status", "code"), [(None, "tool_not_found"), ("pending", "outcome_unknown"),
                                              ("failed", "tool_error"), ("settled", None)])  # fmt: skip
async def test_a_tool_that_went_away_between_two_attempts_hides_no_effect(
    tmp_path: Path, status: Any, code: str | None
) -> None:
    with Store.open(tmp_path / "loom.db") as store:
        runtime = Runtime(store, ToolRegistry.load(), tmp_path, environment={})
        runtime.jobs._facts["job", "run"] = FACTS
        kept = begin(store, status)
        answer = await attempted(2).run(activities_of(runtime)["loom.tool.execute"], ENVELOPE)
    assert answer.get("code") == code
    assert answer.get("output") == (kept if status == "settled" else None)


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (None, "Error (timeout): no result"),
        ("pending", "Error (outcome_unknown): .*do not repeat it"),
        ("unknown", "Error (outcome_unknown): .*do not repeat it"),
        ("failed", "Error (tool_error): the tool failed"),
        ("settled", "done"),
    ],
)
async def test_a_call_of_which_every_attempt_was_lost_is_told_as_the_ledger_knows_it(
    tmp_path: Path, status: Any, words: str
) -> None:
    given = {"call": ENVELOPE["with"]["call"], "outcome": {"ok": False, "code": "timeout", "message": "no result"}}
    with Store.open(tmp_path / "loom.db") as store:
        runtime = Runtime(store, ToolRegistry.load(), tmp_path, environment={})
        runtime.jobs._facts["job", "run"] = FACTS
        begin(store, status)
        stage = activities_of(runtime)["loom.tool.format"]
        told = await attempted(1).run(stage, {"at": "format#1", "with": given})
        text = (await store.read(lambda tx: tx.get_blob(told["content"]))).decode()
    assert re.match(words.replace("(", r"\(").replace(")", r"\)"), text, re.DOTALL), text


@pytest.mark.parametrize("code", ["worker_stopped", "internal", "store_error", "store_read_only", "activity_failed"])
@pytest.mark.parametrize(
    ("status", "words"),
    [(None, "Error ({code}): as it was"), ("pending", "Error (outcome_unknown): "), ("settled", "done")],
)
async def test_what_ended_the_stage_and_not_the_tool_hides_no_effect(
    tmp_path: Path, status: Any, words: str, code: str
) -> None:
    given = {"call": ENVELOPE["with"]["call"], "outcome": {"ok": False, "code": code, "message": "as it was"}}
    with Store.open(tmp_path / "loom.db") as store:
        runtime = Runtime(store, ToolRegistry.load(), tmp_path, environment={})
        runtime.jobs._facts["job", "run"] = FACTS
        begin(store, status)
        stage = activities_of(runtime)["loom.tool.format"]
        told = await attempted(1).run(stage, {"at": "format#1", "with": given})
        text = (await store.read(lambda tx: tx.get_blob(told["content"]))).decode()
    assert text.startswith(words.format(code=code)), text


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
            connection.close()


def attempted(number: int) -> ActivityEnvironment:
    """What the engine says of an attempt with this number."""
    environment = ActivityEnvironment()
    told = dataclasses.replace(environment.info, workflow_id="job", workflow_run_id="run", attempt=number)
    environment.info = told
    return environment


def calling_of(one: Tool, store: Store) -> tuple[Callable[..., Any], dict[str, Any]]:
    """The stage of a worker that has a tool and lets it run, and its argument for a call of it."""
    name, folder = one.name, store.path.parent
    agent = Agent(name="tester", model="m", instructions="Go.", tools=(name,), permissions={"allow": [name]})
    runtime = Runtime(store, ToolRegistry({name: one}, {}), folder, environment={})
    runtime.jobs._facts["job", "run"] = JobFacts(None, agent, folder, "s")  # type: ignore[arg-type]
    runtime.jobs._known["job", "run"] = Conversation("s", 1)
    arguments = store.write_sync(lambda tx: tx.put_blob(b"{}"))
    given = {"call": {**ENVELOPE["with"]["call"], "name": name}, "arguments": arguments, "remembered": []}
    return activities_of(runtime)["loom.tool.execute"], {"at": "execute#1", "with": given}


async def lose(execute: Callable[..., Any], argument: dict[str, Any], begun: threading.Event) -> None:
    """Begin an attempt of which the server then loses sight."""
    environment = attempted(1)
    attempt = asyncio.create_task(environment.run(execute, argument))
    assert await asyncio.to_thread(begun.wait, PATIENCE)
    environment.cancel(ActivityCancellationDetails(timed_out=True))
    with pytest.raises(asyncio.CancelledError):
        await attempt


HOOKS = {"before_execute": "guard", "after_execute": "veil"}


async def test_a_result_is_looked_at_also_where_the_second_attempt_would_have_been_refused(tmp_path: Path) -> None:
    module = "tests.support.hook_functions"
    hooks = {point: f"{module}:{hook}" for point, hook in HOOKS.items()}
    agent = Agent.model_validate({"name": "tester", "model": "m", "tools": ("calculator",), "hooks": hooks})
    environment = attempted(2)
    call = {**ENVELOPE["with"]["call"], "name": "calculator"}
    with Store.open(tmp_path / "loom.db") as store:
        runtime = Runtime(store, ToolRegistry.load(modules=[module]), tmp_path, environment={})
        runtime.jobs._facts["job", "run"] = JobFacts(None, agent, tmp_path, "s")  # type: ignore[arg-type]
        begin(store, "pending")
        kept = store.write_sync(lambda tx: tx.put_blob(b"99"))
        store.write_sync(lambda tx: tx.settle_effect(KEY, "settled", kept))
        arguments = store.write_sync(lambda tx: tx.put_blob(b'{"expression": "600 + 66 + 666"}'))
        execute = activities_of(runtime)["loom.tool.execute"]
        given = {"at": "execute#1", "with": {"call": call, "arguments": arguments, "remembered": []}}
        told = await environment.run(execute, given)
    assert (told["ok"], told["message"]) == (False, "the tool ran, and its result is withheld: too large")


async def test_a_function_whose_attempt_was_lost_says_itself_that_its_outcome_is_not_known(tmp_path: Path) -> None:
    begun, over = threading.Event(), threading.Event()

    @tool
    def pay() -> str:
        """Pay, and hear nothing of it."""
        begun.set()
        over.wait(PATIENCE)
        raise OutcomeUnknown

    with Store.open(tmp_path / "loom.db") as store:
        execute, argument = calling_of(pay, store)
        await lose(execute, argument, begun)
        over.set()

        async def known() -> str:
            effect = await store.read(lambda tx: tx.effect(KEY))
            return effect.status if effect is not None and effect.status != "pending" else ""

        assert await eventually(known) == "unknown"
        told = await attempted(2).run(execute, argument)
        assert told["code"] == "outcome_unknown"


def of_a_dead_process() -> str:
    """Name a process of this machine that has ended."""
    code = "from activities.lifecycle.process_identity import this_process; print(this_process(), end='')"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("holder", "started", "code"),
    [
        ("dead", False, None),
        ("dead", True, "outcome_unknown"),
        ("of another boot", False, "outcome_unknown"),
        ("of another boot", True, "outcome_unknown"),
    ],
)
async def test_a_call_whose_worker_died_between_its_intent_and_its_tool_is_run(
    tmp_path: Path, holder: str, started: bool, code: str | None
) -> None:
    said: list[str] = []

    @tool
    def pay() -> str:
        """Pay."""
        said.append("paid")
        return "paid"

    holder = of_a_dead_process() if holder == "dead" else f"0f0f0f0f/{of_a_dead_process().partition('/')[2]}"
    with Store.open(tmp_path / "loom.db") as store:
        execute, argument = calling_of(pay, store)
        effect: dict[str, Any] = {"job": "job", "turn": 0, "call_id": "c1", "tool": "pay"}
        store.write_sync(lambda tx: tx.begin_effect(KEY, **effect, arguments_digest=digest("{}"), held=(holder, 0.0)))
        if started:
            assert store.write_sync(lambda tx: tx.start_effect(KEY, holder))
        given = await attempted(2).run(execute, argument)
        found = store.read_sync(lambda tx: tx.effect(KEY))
    assert (given.get("code"), said) == (code, [] if code else ["paid"])
    assert found is not None
    assert (found.status, found.attempts) == ("unknown" if code else "settled", 2)


async def test_what_never_began_when_its_job_has_ended_is_cancelled_and_not_unknown(tmp_path: Path) -> None:
    holder = of_a_dead_process()
    with Store.open(tmp_path / "loom.db") as store:
        given: dict[str, Any] = {"job": "job", "turn": 0, "call_id": "c1", "tool": "pay"}
        store.write_sync(lambda tx: tx.begin_effect(KEY, **given, arguments_digest=digest("{}"), held=(holder, 0.0)))
        assert store.write_sync(lambda tx: outcome_of(tx, KEY)) is None
        (found,) = store.read_sync(lambda tx: tx.effects("job"))
    assert (found.status, found.note) == ("cancelled", "its worker ended before the tool was called")


@pytest.mark.parametrize(("idempotent", "status"), [(True, "settled"), (False, "settled"), (None, None)])
async def test_the_ledger_lists_what_changes_something_and_nothing_else(
    tmp_path: Path, idempotent: bool | None, status: str | None
) -> None:
    promises: dict[str, Any] = {"read_only": True} if idempotent is None else {"idempotent": idempotent}

    @tool(**promises)
    def put() -> str:
        """Put something there."""
        return "there"

    with Store.open(tmp_path / "loom.db") as store:
        execute, argument = calling_of(put, store)
        for number in (1, 2):
            assert (await attempted(number).run(execute, argument))["ok"]
        rows = store.read_sync(lambda tx: tx.effects("job"))
    assert [(row.status, row.idempotent, row.attempts) for row in rows] == (
        [] if status is None else [(status, idempotent, 2)]
    )


DOT = Image(data=b"\x89PNG\r\n\x1a\n a dot")


@pytest.mark.parametrize("how", ["lost", "settled", "repeated", "happened", "not_happened"])
async def test_a_second_attempt_gives_the_images_of_the_call_too(tmp_path: Path, how: str) -> None:
    """However it comes to its result: by waiting, from the ledger, by calling again, or from the tool that is asked."""
    begun, over = threading.Event(), threading.Event()

    def told(arguments: Arguments, *_: Any) -> Reconciliation:
        return Reconciliation(outcome="happened" if how == "happened" else "not_happened", result=DOT)

    asked: dict[str, Any] = {"reconcile": told} if "happened" in how else {}
    if how == "repeated":
        asked = {"idempotent": True, "compensate": lambda arguments, result: None}

    @tool(**asked)
    def draw() -> Image:
        """Draw a dot somewhere."""
        begun.set()
        assert over.wait(PATIENCE)
        return DOT

    with Store.open(tmp_path / "loom.db") as store:
        execute, argument = calling_of(draw, store)
        if how == "lost":
            await lose(execute, argument, begun)
        over.set()
        if how == "settled":
            await attempted(1).run(execute, argument)
            execute, argument = calling_of(draw, store)
        elif how != "lost":
            name = digest("{}")
            effect: dict[str, Any] = {"job": "job", "turn": 0, "call_id": "c1", "tool": "draw"}
            store.write_sync(lambda tx: tx.begin_effect(KEY, **effect, arguments_digest=name))
        given = await attempted(2).run(execute, argument)
        assert given["ok"], given
        assert [image["type"] for image in given["images"]] == ["image/png"]
        assert store.read_sync(lambda tx: tx.get_blob(given["images"][0]["digest"])) == DOT.data
        kept = store.read_sync(lambda tx: tx.effect(KEY))
        assert kept is not None
        assert list(kept.images) == given["images"]


async def test_of_two_attempts_that_come_later_one_alone_asks_the_tool_and_calls_it(tmp_path: Path) -> None:
    """The server lost sight of both workers before: each would be told that nothing had happened."""
    asked: list[str] = []
    drawn: list[str] = []
    over = threading.Event()

    def told(arguments: Arguments, context: ToolContext) -> Reconciliation:
        asked.append(context.idempotency_key)
        assert over.wait(PATIENCE)
        return Reconciliation(outcome="happened" if drawn else "not_happened", result="drawn")

    @tool(reconcile=told)
    def draw(context: ToolContext) -> str:
        """Draw something."""
        drawn.append(context.idempotency_key)
        return "drawn"

    effect: dict[str, Any] = {"job": "job", "turn": 0, "call_id": "c1", "tool": "draw"}
    with Store.open(tmp_path / "loom.db") as store:
        store.write_sync(lambda tx: tx.begin_effect(KEY, **effect, arguments_digest=digest("{}")))
        attempts = []
        for number in (2, 3):
            execute, argument = calling_of(draw, store)
            attempts.append(asyncio.create_task(attempted(number).run(execute, argument)))
        kept = partial(store.read, lambda tx: tx.effect(KEY))

        async def counted() -> bool:
            found = await kept()
            return found is not None and found.attempts == 3

        await eventually(lambda: asked)
        await eventually(counted)  # both have seen that an attempt before them began it
        over.set()
        given = await asyncio.gather(*attempts)
    assert (asked, drawn) == ([KEY], [KEY])
    assert [each["ok"] for each in given] == [True, True]
    assert given[0]["output"] == given[1]["output"]


async def test_a_function_whose_attempt_was_lost_is_ended_when_its_time_is_up(tmp_path: Path) -> None:
    for seconds in longer(6.0):  # on a slow machine it may be over before the attempt is lost
        with Store.open(tmp_path / f"{seconds:g}.db") as store:
            if await ended_after_it_was_lost(store, seconds):
                break


async def ended_after_it_was_lost(store: Store, seconds: float) -> bool:
    """Lose the attempt of a function, and see it told to end; False: its time was up before."""
    begun, ended = threading.Event(), threading.Event()

    @tool(read_only=True, timeout=seconds)
    def endless(context: ToolContext) -> str:
        """Go on until somebody says that it is enough."""
        begun.set()
        while not context.cancelled():
            ended.wait(0.01)
        ended.set()
        return "told to end"

    try:
        await lose(*calling_of(endless, store), begun)
    except pytest.fail.Exception:  # it was not cancelled, for it had ended
        return False
    assert await asyncio.to_thread(ended.wait, PATIENCE)
    return True


async def test_a_model_is_asked_again_though_more_attempts_were_made_before_this_activity(tmp_path: Path) -> None:
    """Where the last attempts of an activity came to workers without the tools, another one begins to count anew."""
    script = Script.model_validate({"loom": 1, "kind": "fake-model", "name": "anew", "steps": [{"say": "told anew"}]})
    environment = attempted(1)
    with Store.open(tmp_path / "loom.db") as store:
        for attempt in (1, 2):
            store.write_sync(partial(Transaction.append_deltas, job="job", stream_key="0/ask#1", attempt=attempt,
                                     sequence=7, text="lost"))  # fmt: skip
        async with running(script) as url:
            means = {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "k"}
            async with Runtime(store, ToolRegistry.load(), tmp_path, environment=means) as runtime:
                given = {"at": "ask#1", "before": 4, "with": {"model": "scripted", "prompt": "Tell."}}
                answer = await environment.run(activities_of(runtime)["loom.llm.call"], given)
        told = [event for _, event in store.read_sync(lambda tx: tx.read_events("job", limit=100))]
    assert answer["text"] == "told anew"
    since = [event.get("type") for event in told].index("stream_reset", 2)
    assert [event["attempt"] for event in told[since:] if "attempt" in event] == [5, 5]
