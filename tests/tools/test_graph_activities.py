"""What the nodes of a graph run: functions, models, tools and the jobs of agents, as activities on a real store."""

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.record.activity_call import ActivityCall
from activities.record.provenance import mark_untrusted
from activities.registration import activities_of
from activities.runtime import Runtime
from activities.tool_calls.approval_check import check_approved
from loom_cli.dev.fake_model.app import FakeModel
from loom_cli.dev.fake_model.server import running
from loom_dsl.agent.definition import Agent
from loom_dsl.agent.messages import UNTRUSTED_TASK
from loom_dsl.approvals.decision import Decision
from loom_dsl.approvals.policy import ApprovalPolicy
from loom_dsl.approvals.signature import mark_of
from loom_dsl.documents.document import load_document
from loom_dsl.documents.validation import validate_model
from loom_dsl.errors import (
    FunctionArguments,
    LoomError,
    MissingTools,
    ResultTooLarge,
    StoreError,
    UnknownFunction,
    UnreadableResult,
    UserError,
)
from loom_dsl.graph.graph import Graph
from loom_dsl.graph.library import NAMES, shipped
from loom_dsl.graph.plan import Plan
from loom_dsl.machine.state import MachineState
from loom_dsl.simulation.script import Script
from loom_dsl.text.canonical import canonical_json, digest
from loom_store.rows import ApprovalRow
from loom_store.store import Store
from loom_store.transaction import Transaction
from loom_tools.registry import ToolRegistry

MODULE = "tests.support.graph_functions"
SECRET = "s3cr3t-pw"
GRAPH = f"""
loom: 1
kind: graph
name: letters
permissions: {{allow: [report], deny: [send]}}
nodes:
  a: {{tool: read_file, with: {{path: a}}, next: b}}
  b: {{tool: "{MODULE}:report", with: {{lines: 1}}, next: c}}
  c: {{tool: "{MODULE}:version", next: d}}
  d: {{tool: "tests.support.external:send", with: {{text: hello}}, next: e}}
  e: {{tool: "nowhere:else", next: done}}
  done: {{end: null}}
"""


def plan_of(text: str = GRAPH, agents: dict[str, Agent] | None = None) -> Plan:
    graph = validate_model(load_document(text, "test", kinds=("graph",)), Graph)
    library = {name: shipped(name) for name in NAMES}
    data = {name: agent.to_plan_data() for name, agent in (agents or {}).items()}
    return Plan(graph.name, {**library, graph.name: graph}, {}, data)


@dataclass
class Desk:
    """A job of a graph in a store, and its activities."""

    store: Store
    folder: Path
    runtime: Runtime
    turn: int | None = None

    async def run(self, name: str, arguments: dict[str, Any], *, at: str = "a#1", attempt: int = 1) -> Any:
        """Run an activity of this job as a worker does."""
        function = activities_of(self.runtime)[name]
        environment = ActivityEnvironment()
        environment.info = dataclasses.replace(
            environment.info, workflow_id="job", workflow_run_id="run", attempt=attempt, heartbeat_timeout=None
        )
        return await environment.run(function, {"at": at, "with": arguments})

    async def call(self, function: str, /, **given: Any) -> Any:
        """Run a function of the module."""
        return await self.run("loom.function.call", {"function": f"{MODULE}:{function}", "with": given})

    async def stage(self, name: str, tool: str, arguments: dict[str, Any], /, **more: Any) -> Any:
        """Run a stage for a node's call."""
        item = {"id": "a#1", "name": tool, "arguments": arguments}
        return await self.run(f"loom.tool.{name}", {"call": item, **more})

    async def events(self) -> list[dict[str, Any]]:
        """What watchers were told."""
        return [event for _, event in await self.store.read(lambda tx: tx.read_events("job", expand=True))]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "loom.db") as opened:
        yield opened


def write_job(store: Store, plan: Plan, folder: Path) -> None:
    def write(tx: Any) -> None:
        tx.put_blob(plan.text.encode())
        tx.create_session("s-job", job="job")
        tx.create_job(
            "job",
            session="s-job",
            agent=plan.root,
            plan=plan.hash,
            task="",
            workdir=str(folder),
            namespace="default",
            task_queue="q",
            created_at=1.0,
        )

    store.write_sync(write)


def desk_with(store: Store, folder: Path, plan: Plan, environment: dict[str, str] | None = None) -> Desk:
    write_job(store, plan, folder)
    registry = ToolRegistry.load(modules=[MODULE, "tests.support.external", "tests.support.hook_functions"])
    return Desk(store, folder, Runtime(store, registry, folder, "", {"DB": SECRET}, environment or {}))


@pytest.fixture
def desk(store: Store, tmp_path: Path) -> Desk:
    return desk_with(store, tmp_path, plan_of())


# -- functions ---------------------------------------------------------------------------------------


async def test_a_function_is_called_by_keyword_with_the_types_that_it_names(desk: Desk) -> None:
    assert await desk.call("weigh", grams=2, path="here", unit="kg") == {"grams": 2000, "path": "here"}
    assert await desk.call("weigh", grams=2) == {"grams": 2, "path": "scale"}


async def test_parameters_without_types_take_anything(desk: Desk) -> None:
    assert await desk.call("untyped", first=[1], other=None) == [[1], 2, {"other": None}]


async def test_a_function_may_know_where_it_runs_and_under_which_key(desk: Desk) -> None:
    told = await desk.call("wait_and_tell", text="x")
    assert told == {"text": "x", "key": "job/0/a#1", "dir": str(desk.folder), "call": "a#1"}
    (event,) = [event for event in await desk.events() if event["t"] == "progress"]
    assert (event["tool_call_id"], event["content"]) == ("a#1", "working on x")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"grams": "2"}, "grams"),
        ({}, "grams"),
        ({"grams": 2, "gram": 1}, "did you mean 'grams'"),
        ({"grams": 2, "context": {}}, "context"),
    ],
)
async def test_arguments_that_do_not_fit_are_named_and_not_tried_again(
    desk: Desk, given: dict[str, Any], told: str
) -> None:
    with pytest.raises(FunctionArguments) as failed:
        await desk.call("weigh", **given)
    assert told in failed.value.message
    assert f"{MODULE}:weigh" in failed.value.message
    assert not failed.value.retryable


@pytest.mark.parametrize(
    ("kind", "code", "final"),
    [
        ("busy", "busy", False),
        ("hopeless", "hopeless", True),
        ("plain", "function_failed", False),
        ("exit", "function_failed", False),
    ],
)
async def test_what_a_function_raises_fails_under_its_code_and_without_secrets(
    desk: Desk, kind: str, code: str, final: bool
) -> None:
    with pytest.raises(ApplicationError) as failed:
        await desk.call("fail", kind=kind)
    assert (failed.value.type, failed.value.non_retryable) == (code, final)
    assert f"no {kind}" in failed.value.message
    assert SECRET not in failed.value.message


async def test_a_result_is_json_without_the_known_secrets_and_not_too_large(desk: Desk) -> None:
    assert await desk.call("reveal") == {"password": "${secret:DB}"}
    assert len(await desk.call("large", size=200_000)) == 200_000
    with pytest.raises(ResultTooLarge, match="262144"):
        await desk.call("large", size=262_144)
    with pytest.raises(UnreadableResult, match="object"):
        await desk.call("unreadable")


@pytest.mark.parametrize(
    ("function", "error", "told"),
    [
        (f"{MODULE}:weight", UnknownFunction, f"did you mean {MODULE}:weigh?"),
        (f"{MODULE}:_write", UnknownFunction, "no function '_write'"),
        (f"{MODULE}:lines", UnknownFunction, "no function 'lines'"),
        (f"{MODULE}:version", UnknownFunction, f"`tool: {MODULE}:version`"),
        ("os:system", MissingTools, "'os' is one of Python's own modules"),
    ],
)
async def test_only_functions_of_the_listed_modules_are_called(
    desk: Desk, function: str, error: type[LoomError], told: str
) -> None:
    with pytest.raises(error) as failed:
        await desk.run("loom.function.call", {"function": function, "with": {}})
    assert told in failed.value.message


# -- tools -------------------------------------------------------------------------------------------


async def test_a_node_is_told_how_its_tool_runs(desk: Desk) -> None:
    quick = await desk.stage("prepare", "read_file", {})
    assert (quick["quick"], quick["timeout"]) == (True, 40.0)
    assert (quick["policy"]["expires"], quick["policy"]["on_expiry"]) == (None, "deny")
    assert (await desk.stage("prepare", f"{MODULE}:version", {}))["quick"] is False
    assert (await desk.stage("prepare", "no_such", {}))["timeout"] == 10.0


async def test_only_a_tool_that_a_node_of_the_plan_names_is_found(desk: Desk) -> None:
    assert (await desk.stage("discover", f"{MODULE}:version", {}))["ok"]
    for name in ("version", "write_file", f"{MODULE}:weigh"):
        assert (await desk.stage("discover", name, {}))["code"] == "tool_not_found"
    with pytest.raises(MissingTools):
        await desk.stage("discover", "nowhere:else", {})


@pytest.mark.parametrize(
    ("tool", "arguments", "decision"),
    [
        ("read_file", {"path": "a"}, "allow"),
        (f"{MODULE}:report", {"lines": 1}, "allow"),
        (f"{MODULE}:version", {}, "ask"),
        ("tests.support.external:send", {"text": "x"}, "deny"),
    ],
)
async def test_the_permissions_of_the_graph_count_with_the_defaults_of_agents(
    desk: Desk, tool: str, arguments: dict[str, Any], decision: str
) -> None:
    validated = await desk.stage("validate", tool, arguments)
    found = await desk.stage("authorize", tool, arguments, arguments=validated["arguments"], remembered=[])
    assert found["decision"] == decision
    if decision == "ask":
        assert found["request"]["requester"] == "graph letters"


async def test_arguments_of_a_node_are_validated_and_refused_where_they_hold_a_secret(desk: Desk) -> None:
    wrong = await desk.stage("validate", "tests.support.external:send", {"txt": "x"})
    assert (wrong["ok"], wrong["code"]) == (False, "validation_error")
    kept = await desk.stage("validate", "tests.support.external:send", {"text": "my word"})
    text = await desk.store.read(lambda tx: tx.get_blob(kept["arguments"]))
    assert json.loads(text) == {"text": "my word"}
    refused = await desk.stage("validate", "tests.support.external:send", {"text": f"my {SECRET}"})
    assert (refused["ok"], refused["code"]) == (False, "permission_denied")
    assert "the argument 'text' holds the value of the secret DB" in refused["message"]


async def decided(
    desk: Desk, arguments: dict[str, Any], status: str, *, call: str = "a#1", turn: int = 0, **policy: Any
) -> None:
    """Write down that somebody was asked about a call, and what they said; nothing: they are still to answer."""
    row = ApprovalRow(
        id=f"{status} {call} {turn} {arguments}",
        job="job",
        tool="version",
        summary="",
        created_at=1.0,
        call_id=call,
        turn=turn,
        arguments_digest=digest(canonical_json(arguments)),
        policy=policy,
    )

    def write(tx: Transaction) -> None:
        tx.upsert_approval(row)
        if status != "pending":
            tx.decide_approval(row.id, status, "x", "maria")

    await desk.store.write(write)


WANTS_NUMBER = f"{MODULE}:report"
ASKS = GRAPH.replace("allow: [report]", "ask: [report]")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"status": "approved"}, ""),
        ({"status": "edited", "arguments": {"lines": 9}}, ""),
        ({"status": "approved", "arguments": {"lines": 9}}, "nobody approved this call with these arguments"),
        ({"status": "rejected"}, "nobody approved this call with these arguments"),
        ({"status": "expired"}, "nobody approved this call with these arguments"),
    ],
)
async def test_a_call_runs_on_an_approval_only_as_the_store_has_it(
    store: Store, tmp_path: Path, said: dict[str, Any], words: str
) -> None:
    desk = desk_with(store, tmp_path, plan_of(ASKS))
    await decided(desk, **{"arguments": {"lines": 1}, **said})
    outcome = await desk.stage("execute", WANTS_NUMBER, {"lines": 1}, arguments=None, remembered=[], approved=True)
    assert outcome["ok"] is not bool(words)
    assert words in outcome.get("message", "")


@pytest.mark.parametrize(
    ("held", "runs"),
    [
        ([], False),
        ([("approved a#1 0 {'lines': 1}", "approve", "maria")], False),
        ([("approved a#1 0 {'lines': 1}", "approve", name) for name in ("maria", "bob")], True),
        ([("approved a#1 0 {'lines': 1}", choice, choice) for choice in ("approve", "reject")], False),
        ([("approved b#1 0 {'lines': 1}", "approve", name) for name in ("maria", "bob")], False),
    ],
)
async def test_a_call_that_needs_signatures_runs_only_when_a_worker_has_verified_so_many(
    store: Store, tmp_path: Path, held: list[tuple[str, str, str]], runs: bool
) -> None:
    desk = desk_with(store, tmp_path, plan_of(ASKS + "approvals: {signed: low, quorum: 2}\n"))
    await decided(desk, {"lines": 1}, "approved", quorum=2)
    for name, choice, by in held:
        mark = mark_of(Decision(approval_id=name, choice=choice, by=by))
        await store.write(lambda tx, mark=mark: tx.mark("job", "signed", mark))  # type: ignore[misc]
    outcome = await desk.stage("execute", WANTS_NUMBER, {"lines": 1}, arguments=None, remembered=[], approved=True)
    assert outcome["ok"] is runs
    assert runs or "no worker has verified" in outcome["message"]


@pytest.mark.parametrize("status", ["approved", "edited"])
async def test_an_approval_of_fewer_people_than_a_call_needs_does_not_let_it_run(
    store: Store, tmp_path: Path, status: str
) -> None:
    desk = desk_with(store, tmp_path, plan_of(ASKS + "approvals: {quorum: 2}\n"))
    await decided(desk, {"lines": 1}, status, quorum=1)
    outcome = await desk.stage("execute", WANTS_NUMBER, {"lines": 1}, arguments=None, remembered=[], approved=True)
    assert "needs more than the approval that it has" in outcome["message"]


async def test_silence_lets_a_call_run_only_where_the_document_says_so(store: Store, tmp_path: Path) -> None:
    desk = desk_with(store, tmp_path, plan_of(ASKS + "approvals: {expires: 1h, on_expiry: allow}\n"))
    await decided(desk, {"lines": 1}, "expired")
    outcome = await desk.stage("execute", WANTS_NUMBER, {"lines": 1}, arguments=None, remembered=[], approved=True)
    assert outcome["ok"]


@pytest.mark.parametrize("other", [None, {"call": "b#1"}, {"turn": 1}, {"status": "pending"}])
async def test_an_approval_of_another_call_is_none(store: Store, tmp_path: Path, other: dict[str, Any] | None) -> None:
    plan = plan_of(ASKS)
    desk = desk_with(store, tmp_path, plan)
    if other is not None:
        await decided(desk, {"lines": 1}, **{"status": "approved", **other})
    call = ActivityCall(
        "job", 0, "a#1", "", {"call": {"id": "a#1", "name": WANTS_NUMBER, "arguments": {"lines": 1}}}, []
    )
    name = digest(canonical_json({"lines": 1}))
    with pytest.raises(StoreError, match="is not written down"):
        await check_approved(desk.runtime.store, call, ApprovalPolicy(), name, patience=0.1)


async def test_a_decision_that_is_being_written_down_is_waited_for(store: Store, tmp_path: Path) -> None:
    desk = desk_with(store, tmp_path, plan_of(ASKS))
    running = asyncio.create_task(
        desk.stage("execute", WANTS_NUMBER, {"lines": 1}, arguments=None, remembered=[], approved=True)
    )
    await asyncio.sleep(0.1)
    assert not running.done()
    await decided(desk, {"lines": 1}, "approved")
    assert (await running)["ok"]


POLICY = "loom: 1\nkind: policy\npermissions: {{{0}}}\n"
CHANGES: dict[str, tuple[str | None, str | None, bool]] = {
    "nothing": ("deny: [send]", "deny: [send]", True),
    "what is denied is let through": ("deny: [report]", "deny: [send]", False),
    "the policy is removed": ("deny: [report]", None, False),
    "another takes its place": ("deny: [report]", "allow: ['*']", False),
    "what was let through is denied": ("deny: [send]", "deny: [report]", False),
    "a policy appears": (None, "deny: [report]", False),
    "what no policy is": ("deny: [send]", "nonsense", False),
    "nothing is let through but what is named": ("deny: [send]", "default: deny", False),
}
"""What the project's policy says at first, what a hook, a tool or a worker's user makes of it, and what then runs."""


@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.parametrize("anew", [False, True], ids=["the same worker", "another worker"])
async def test_a_policy_that_changes_between_two_stages_never_lets_more_through(
    store: Store, tmp_path: Path, what: str, anew: bool
) -> None:
    before, after, runs = CHANGES[what]
    desk = desk_with(store, tmp_path, plan_of())
    policy = tmp_path / ".loom" / "policy.yaml"
    policy.parent.mkdir()

    def say(rules: str | None) -> None:
        policy.unlink(missing_ok=True)
        if rules is not None:
            policy.write_text(POLICY.format(rules))

    say(before)
    await desk.stage("authorize", WANTS_NUMBER, {"lines": 1}, arguments=None, remembered=[])
    say(after)
    if anew:
        desk = Desk(store, tmp_path, Runtime(store, desk.runtime.registry, tmp_path))
    outcome = await desk.stage("execute", WANTS_NUMBER, {"lines": 1}, arguments=None, remembered=[])
    assert outcome["ok"] is runs, outcome
    say(before)
    assert (await desk.stage("execute", WANTS_NUMBER, {"lines": 1}, arguments=None, remembered=[]))["ok"] is (
        runs or what == "what no policy is"
    )


HOOKED = "hooks: {{{0}: 'tests.support.hook_functions:{1}'}}\n"


@pytest.mark.parametrize(
    ("stage", "point", "hook", "ok", "words"),
    [
        ("check_cancel", "before_check_cancel", "note", True, "noted"),
        ("check_cancel", "before_check_cancel", "guard", False, "denied"),
        ("check_cancel", "after_check_cancel", "guard", False, "denied"),
        ("execute", "before_execute", "guard", False, "denied"),
        ("validate", "after_validate", "note", True, "noted"),
        ("format", "after_format", "note", True, "noted"),
    ],
)
async def test_hooks_of_a_graph_look_at_the_calls_of_its_nodes(
    store: Store, tmp_path: Path, stage: str, point: str, hook: str, ok: bool, words: str
) -> None:
    desk = desk_with(
        store,
        tmp_path,
        plan_of(
            GRAPH.replace("allow: [report]", "allow: [calculator]").replace(
                "tool: read_file, with: {path: a}", "tool: calculator, with: {expression: '1'}"
            )
            + HOOKED.format(point, hook)
        ),
    )
    given: dict[str, Any] = {"arguments": None, "remembered": [], "outcome": {"ok": False, "code": "x", "message": "y"}}
    told = await desk.stage(stage, "calculator", {"expression": "600 + 666"}, **given)
    assert told["ok"] is (ok and stage != "format")
    (event,) = [event for event in await desk.events() if event["t"] == "hook"]
    assert (event["point"], event["did"], event["tool_call_id"]) == (point, words, "a#1")


async def ran(desk: Desk, tool: str, arguments: dict[str, Any]) -> Any:
    """Execute, format and read the output."""
    await decided(desk, arguments, "approved")
    outcome = await desk.stage("execute", tool, arguments, arguments=None, remembered=[], approved=True)
    told = await desk.stage("format", tool, arguments, outcome=outcome)
    return await desk.stage("output", tool, arguments, output=told["output"]) if told["ok"] else told


async def test_an_output_becomes_a_value(desk: Desk) -> None:
    assert await ran(desk, f"{MODULE}:version", {}) == "1.10"
    assert await ran(desk, f"{MODULE}:report", {"lines": 2}) == {"lines": ["line", "line"]}
    large = await ran(desk, f"{MODULE}:report", {"lines": 10_000})
    assert large["chars"] > 60_000
    assert len(await desk.store.read(lambda tx: tx.get_blob(large["$blob"]))) == large["chars"]


@pytest.mark.parametrize(
    ("outcome", "code", "message"),
    [
        (
            {"ok": False, "code": "tool_error", "message": f"two\nlines {SECRET}"},
            "tool_error",
            "two\nlines ${secret:DB}",
        ),
        ({"choice": "reject", "by": "me", "message": "not today"}, "rejected", "rejected by me: not today"),
        ({"choice": "expired"}, "approval_expired", "before its deadline"),
    ],
)
async def test_a_node_fails_with_the_code_and_the_message_of_the_stage(
    desk: Desk, outcome: dict[str, Any], code: str, message: str
) -> None:
    told = await desk.stage("format", f"{MODULE}:version", {}, outcome=outcome)
    assert (told["ok"], told["code"]) == (False, code)
    assert message in told["message"]
    assert "Do not repeat" not in told["message"]
    assert [event["t"] for event in await desk.events()] == ["tool_result"]


# -- models ------------------------------------------------------------------------------------------


@dataclass
class Talk:
    desk: Desk
    model: FakeModel

    async def ask(self, **how: Any) -> Any:
        given = {"model": "scripted", "prompt": "Say it.", "system": "Be brief.", "parameters": {"temperature": 0}}
        return await self.desk.run("loom.llm.call", given, **how)


@pytest.fixture
async def talk(store: Store, tmp_path: Path) -> AsyncIterator[Talk]:
    async with AsyncExitStack() as stack:
        steps: list[dict[str, Any]] = [{"say": f"It is {SECRET}.", "usage": {"prompt": 100, "completion": 10}}]
        model = FakeModel(Script.model_validate({"loom": 1, "kind": "fake-model", "name": "scripted", "steps": steps}))
        url = await stack.enter_async_context(running(model))
        environment = {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "none"}
        desk = desk_with(store, tmp_path, plan_of(), environment)
        stack.push_async_callback(desk.runtime.close)
        yield Talk(desk, model)


async def test_a_model_is_asked_once_and_another_attempt_gets_the_stored_answer(talk: Talk) -> None:
    first = await talk.ask()
    assert first["text"] == "It is ${secret:DB}."
    assert first["usage"] == {"prompt_tokens": 100, "completion_tokens": 10, "cached_tokens": 0}
    assert await talk.ask(attempt=2) == first
    assert talk.model.count == 1
    assert await talk.ask(at="b#1") == first
    assert talk.model.count == 2
    sent = json.loads(talk.model.requests[0].body)
    assert [message["role"] for message in sent["messages"]] == ["system", "user"]
    assert sent["temperature"] == 0
    assert "tools" not in sent


async def test_watchers_see_the_text_as_it_comes_and_whole(talk: Talk) -> None:
    await talk.ask()
    told = await talk.desk.events()
    kinds = [event.get("t") or event["type"] for event in told]
    assert kinds[0] == "llm_start"
    assert kinds[-1] == "llm_finish"
    assert told[-1]["content"] == "It is ${secret:DB}."
    assert told[-1]["node"] == "a#1"


# -- agents ------------------------------------------------------------------------------------------

REVIEWER = Agent(name="reviewer", model="scripted", instructions="Review.", limits={"max_iterations": 3})


@pytest.fixture
def parent(store: Store, tmp_path: Path) -> Desk:
    (tmp_path / "AGENTS.md").write_text("Use tabs.")
    return desk_with(store, tmp_path, plan_of(agents={"reviewer": REVIEWER}))


async def prepare(desk: Desk, **given: Any) -> Any:
    return await desk.run("loom.child.prepare", {"child": "job.a", "agent": "reviewer", "with": given})


async def notes_of(desk: Desk, child: str) -> list[Any]:
    """The notes before a child's task that say where that comes from."""

    def read(tx: Transaction) -> list[Any]:
        entries = tx.read_entries(f"s-{child}")
        return [
            json.loads(tx.get_blob(e.content_digest or "")) for e in entries if e.head.get("note") == UNTRUSTED_TASK
        ]

    return await desk.store.read(read)


async def test_a_child_gets_the_policies_of_its_parent_and_no_note_while_nothing_was_read(parent: Desk) -> None:
    await parent.store.write(lambda tx: tx.mark("job", "policy", tx.put_blob(b"strict")))
    await prepare(parent, task="Look at it.")
    assert len(await parent.store.read(lambda tx: tx.marks("job.a", "policy"))) == 1
    assert await notes_of(parent, "job.a") == []
    assert await parent.store.read(lambda tx: tx.marks("job.a", "untrusted")) == []


def write_below(tx: Transaction, job: str, above: str | None) -> None:
    tx.create_session(f"s-{job}")
    tx.create_job(job, session=f"s-{job}", agent="a", plan="", task="", workdir="/", namespace="n", task_queue="q",
                  created_at=1.0, above=above)  # fmt: skip


async def test_what_another_job_has_read_whose_id_begins_like_this_ones_is_not_noted(parent: Desk) -> None:
    def work(tx: Transaction) -> None:
        write_below(tx, "job.own", None)
        mark_untrusted(tx, "job.own", "mcp__web__get")

    await parent.store.write(work)
    await prepare(parent, task="Look at it.")
    assert await notes_of(parent, "job.a") == []


@pytest.mark.parametrize("who", ["job", "job.b", "another"])
async def test_what_a_job_or_one_below_it_has_read_is_noted_before_a_childs_task(parent: Desk, who: str) -> None:
    def work(tx: Transaction) -> None:
        write_below(tx, "job.b", "job")
        write_below(tx, "another", "job.b")
        mark_untrusted(tx, who, "mcp__web__get")
        tx.mark("job", "words", tx.put_blob(b"Write out.md."))

    await parent.store.write(work)
    await decided(parent, {}, "approved")
    first = await prepare(parent, task="Look at it.")
    (note,) = await notes_of(parent, "job.a")
    assert note["sources"] == ["mcp__web__get"]
    assert note["words"].startswith("Write out.md.")
    assert await parent.store.read(lambda tx: tx.marks("job.a", "untrusted")) == ["mcp__web__get"]
    assert await prepare(parent, task="Look at it.") == first, "another attempt writes nothing twice"


async def test_the_words_of_an_author_count_unless_an_agent_wrote_the_graph(store: Store, tmp_path: Path) -> None:
    asks = "next: f}\n  f: {agent: reviewer, with: {task: 'Look at ${nodes.a} in out.md'}, next: done}\n  done:"
    plan = plan_of(GRAPH.replace("next: done}\n  done:", asks), agents={"reviewer": REVIEWER})
    parent = desk_with(store, tmp_path, plan)
    await parent.store.write(lambda tx: mark_untrusted(tx, "job", "network_request"))
    await prepare(parent, task="Look at it.")
    (note,) = await notes_of(parent, "job.a")
    assert note["words"] == "Look at \n in out.md"
    await parent.store.write(lambda tx: tx.mark("job", "written", "above"))
    await parent.run("loom.child.prepare", {"child": "job.d", "agent": "reviewer", "with": {"task": "Look."}})
    (note,) = await notes_of(parent, "job.d")
    assert note["words"] == ""


async def test_a_child_is_written_down_once_with_its_first_message(parent: Desk) -> None:
    first = await prepare(parent, task=f"Look at it: {SECRET}.", focus="speed", lines=[1, 2])
    assert await prepare(parent, task=f"Look at it: {SECRET}.", focus="speed", lines=[1, 2]) == first
    row = await parent.store.read(lambda tx: tx.job("job.a"))
    assert row is not None
    assert (row["agent"], row["workdir"], row["task_queue"]) == ("reviewer", str(parent.folder), "q")
    entries = await parent.store.read(lambda tx: tx.read_entries(row["session"]))
    note, message = [
        parent.store.read_sync(lambda tx, name=entry.content_digest: tx.get_blob(name).decode()) for entry in entries
    ]
    assert note == "AGENTS.md:\nUse tabs."
    assert message.startswith("Look at it: ${secret:DB}.\n\n{")
    assert json.loads(message.partition("\n\n")[2]) == {"focus": "speed", "lines": [1, 2]}
    turn = MachineState.from_json(first["state"]).turn
    assert turn is not None
    assert (turn.job, turn.session_id, turn.entries, turn.max_iterations) == ("job.a", "s-job.a", 2, 3)
    plan = Plan.load((await parent.store.read(lambda tx: tx.get_blob(first["plan"]))).decode())
    agent = Agent.from_plan_data(plan.agent)
    assert agent.permissions.within == (parent.runtime.jobs._facts["job", "run"].agent.permissions,)
    assert agent.model_copy(update={"permissions": REVIEWER.permissions}) == REVIEWER


async def test_an_agent_that_is_told_nothing_does_not_start(parent: Desk) -> None:
    with pytest.raises(UserError, match="reviewer is told nothing"):
        await prepare(parent)
    assert await parent.store.read(lambda tx: tx.job("job.a")) is None
