"""A secret reaches a tool of a user's by reference: its function gets the value, and nobody and nothing else does."""

import dataclasses
import sqlite3
import uuid
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from temporalio.testing import ActivityEnvironment

from activities.record.job_store import JobFacts
from activities.registration import activities_of
from activities.runtime import Runtime
from loom_cli.dev.server import DevServer
from loom_client.records import ApprovalRecord
from loom_dsl.agent.definition import Agent
from loom_dsl.documents.document import load_document
from loom_dsl.documents.validation import validate_model
from loom_dsl.graph.graph import Graph
from loom_dsl.observe.events import EventType
from loom_dsl.text.canonical import canonical_json, digest
from loom_store.queries.blobs import unpack
from loom_store.store import Store
from loom_tools.registry import ToolRegistry
from loom_tools.secrets import NO_SECRETS, AllowedSecrets
from tests.durability.reading import events, histories, of
from tests.failures.bad_tools import KNOWN
from tests.failures.stand import Stand, serving, standing
from tests.support import secret_tools
from tests.support.secret_tools import GIVEN, REFERENCE, SEEN
from tests.support.waiting import eventually
from tests.tools.test_graph_activities import plan_of, write_job

MODULE = secret_tools.__name__
LENT = AllowedSecrets.of(["SHELF"], {"SHELF": KNOWN})


def call(tool: str, account: str, **given: str) -> dict[str, Any]:
    """One call of a tool."""
    return {"tool": tool, "args": {"account": account, **given}}


CASES: dict[str, list[dict[str, Any]]] = {
    "asked": [
        {"calls": [call("sign_in", "open", token=REFERENCE)]},
        {"calls": [call("sign_in", "closed", token=REFERENCE)]},
        {"calls": [call("balance", "all")]},
        {"calls": [call("balance", REFERENCE, token="plain")]},
        {"calls": [call("sign_in", "lost", token="${secret:OPENAI_API_KEY}")]},
        {"calls": [call("sign_in", "told", token=KNOWN)]},
        {"say": "{last}"},
    ],
    "edited": [{"calls": [call("transfer", "edited", token="mine")]}, {"say": "It says: {last}"}],
}
AGENT: dict[str, Any] = {
    "tools": tuple(f"{MODULE}:{name}" for name in ("sign_in", "balance", "transfer")),
    "permissions": {"allow": ["balance"], "ask": ["sign_in", "transfer"]},
}
GRAPH = f"""
loom: 1
kind: graph
name: banking
input: {{said: any}}
permissions: {{allow: ["{MODULE}:sign_in", "{MODULE}:balance"]}}
nodes:
  named: {{tool: "{MODULE}:sign_in", with: {{account: "${{input.said}}", token: "${{secret:SHELF}}"}}, next: default}}
  default: {{tool: "{MODULE}:balance", with: {{account: graph}}, next: computed}}
  computed:
    tool: "{MODULE}:sign_in"
    with: {{account: computed, token: "${{'$' + '{{secret:OTHER}}'}}"}}
    catch: {{any: done}}
    next: wrong
  wrong: {{fail: it had a secret that nobody wrote}}
  done: {{end: {{named: "${{nodes.named}}", default: "${{nodes.default}}", computed: "${{result}}"}}}}
"""


@pytest.fixture(autouse=True)
def fresh() -> None:
    GIVEN.clear()
    SEEN.clear()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stand(dev_server: DevServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stand]:
    """A worker that lends two secrets."""
    lent = AllowedSecrets.of(["SHELF", "OTHER"], {"SHELF": KNOWN, "OTHER": "another-value-of-the-worker"})
    queue, folder = f"test-{uuid.uuid4().hex[:12]}", tmp_path_factory.mktemp("stand")
    async with (
        standing(dev_server, folder, queue, CASES, serve=False) as made,
        serving(made, {}, allowed=lent, modules=(MODULE,)),
    ):
        yield made


async def next_approval(stand: Stand, job: str, known: set[str]) -> ApprovalRecord:
    """Wait for a question that was not seen before."""

    async def asked() -> list[ApprovalRecord]:
        return [row for row in await stand.loom.approvals(job) if row.id not in known]

    (row,) = await eventually(asked)
    known.add(row.id)
    return row


def stored(stand: Stand) -> bytes:
    """All that is in the store: its files, and the contents of its rows unpacked."""
    path, unpacked = stand.loom.store.path, []
    with closing(sqlite3.connect(path)) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        cells = [cell for table in tables for row in connection.execute(f'SELECT * FROM "{table}"') for cell in row]
    for cell in cells:
        if isinstance(cell, bytes):
            with suppress(zlib.error, ValueError):  # a digest, which is not packed
                unpacked.append(unpack(cell))
    assert any(REFERENCE.encode() in text for text in unpacked), "contents cannot be looked into"
    return b"\0".join([*unpacked, *(file.read_bytes() for file in path.parent.glob(f"{path.name}*"))])


def once_each() -> list[tuple[str, ...]]:
    """What the functions were given, in order; a quick one that is too slow for its worker runs once more."""
    return list(dict.fromkeys(GIVEN))


async def blobs(stand: Stand, names: list[str]) -> list[bytes]:
    return [await stand.loom.store.read(lambda tx, name=name: tx.get_blob(name)) for name in names]


@pytest.mark.server
@pytest.mark.asyncio(loop_scope="module")
async def test_the_function_gets_the_value_and_all_others_the_reference(stand: Stand) -> None:
    hooks = {point: f"{MODULE}:look" for point in ("after_validate", "before_execute", "after_execute")}
    job = await stand.start("asked", agent={**AGENT, "hooks": hooks})
    known: set[str] = set()
    for account in ("open", "closed", "lost"):
        row = await next_approval(stand, job.id, known)
        token = "${secret:OPENAI_API_KEY}" if account == "lost" else REFERENCE
        assert row.summary == f"sign {account} in with {token}"
        arguments, preview = await blobs(stand, [row.arguments_digest, row.details["preview"]])
        assert arguments.decode() == canonical_json({"account": account, "token": token})
        assert preview.decode() == row.summary
        assert KNOWN not in repr(row)
        await job.decide(row.id, "approve", by="me")
    found = await stand.unharmed(job)  # which looks for the value in histories, messages and events

    assert once_each() == [
        ("sign_in", "open", KNOWN),
        ("sign_in", "closed", KNOWN),
        ("balance", "all", KNOWN),
        ("balance", REFERENCE, "plain"),
    ]
    assert [call[0] for call in GIVEN].count("sign_in") == 2
    assert set(SEEN) == {REFERENCE, "plain", "${secret:OPENAI_API_KEY}"}
    told = [found.tool(place)["content"] for place in range(6)]
    assert told[0] == f'{{"account":"open","with":"{REFERENCE}"}}'
    assert told[1].startswith(f"Error (tool_error): RuntimeError: {REFERENCE} is not accepted")
    assert told[2] == f"all has 5, says the bearer of {REFERENCE}"
    assert told[3] == f"{REFERENCE} has 5, says the bearer of plain"
    assert told[4].startswith(
        "Error (permission_denied): this worker lends no secret 'OPENAI_API_KEY'; it lends: OTHER, SHELF. "
        "Who runs it can lend a variable of its environment: --secret NAME"
    )
    assert "the argument 'token' holds the value of the secret SHELF" in told[5]
    said = [data["content"] for data in of(found.told, EventType.PROGRESS)]
    assert said == [f"signing in with {REFERENCE}"] * 2
    effects = await stand.loom.store.read(lambda tx: tx.effects(job.id))
    shown = [canonical_json({"account": account, "token": REFERENCE}) for account in ("open", "closed")]
    assert [(row.summary, row.arguments_digest, row.status) for row in effects] == [
        (f"sign_in({shown[0]})", digest(shown[0]), "settled"),
        (f"sign_in({shown[1]})", digest(shown[1]), "failed"),
    ]
    assert KNOWN.encode() not in stored(stand)


@pytest.mark.server
@pytest.mark.asyncio(loop_scope="module")
async def test_an_approver_may_write_a_reference(stand: Stand) -> None:
    job = await stand.start("edited", agent=AGENT)
    row = await next_approval(stand, job.id, set())
    await job.decide(row.id, "edit", by="me", edited_arguments={"account": "edited", "token": REFERENCE})
    found = await stand.unharmed(job)
    assert GIVEN == [("transfer", "edited", KNOWN)]
    assert found.tool()["content"] == REFERENCE
    assert KNOWN.encode() not in stored(stand)


@pytest.mark.server
@pytest.mark.asyncio(loop_scope="module")
async def test_a_node_gives_a_secret_that_its_graph_names_and_no_other(stand: Stand) -> None:
    graph = validate_model(load_document(GRAPH, "test", kinds=("graph",)), Graph)
    job = await stand.loom.start_graph(graph, input={"said": "node"}, workdir=stand.folder)
    result = await job.result()
    assert result.status == "completed", result.error
    assert once_each() == [("sign_in", "node", KNOWN), ("balance", "graph", KNOWN)]
    assert [call[0] for call in GIVEN].count("sign_in") == 1
    assert result.result["named"] == {"account": "node", "with": REFERENCE}
    assert result.result["default"] == f"graph has 5, says the bearer of {REFERENCE}"
    assert result.result["computed"]["code"] == "permission_denied"
    assert "'OTHER' does not stand in this graph" in result.result["computed"]["message"]
    raw = [event.SerializeToString() for run in await histories(stand.loom.client, job.id) for event in run.events]
    kept = [*raw, stored(stand), *(event.model_dump_json().encode() for event in await events(job))]
    assert not any(KNOWN.encode() in text for text in kept)


# -- finding out, and taking back ----------------------------------------------------------------------------


@dataclasses.dataclass
class Desk:
    """A store with one effect of a tool, and the activities of a worker."""

    store: Store
    runtime: Runtime
    arguments: str
    item: dict[str, Any]

    async def run(self, function: Any, given: dict[str, Any]) -> Any:
        """Run an activity as a second attempt."""
        environment = ActivityEnvironment()
        environment.info = dataclasses.replace(
            environment.info, workflow_id="job", workflow_run_id="run", attempt=2, heartbeat_timeout=None
        )
        return await environment.run(function, {"at": "execute#1", "with": given})


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "loom.db") as opened:
        yield opened


def desk(store: Store, folder: Path, name: str, status: str, lent: AllowedSecrets) -> Desk:
    """An effect that an attempt before began, and that came to this."""
    agent = Agent(name="tester", model="m", instructions="Go.", on_abort="compensate", **AGENT)
    agent = agent.model_copy(update={"permissions": agent.permissions.model_copy(update={"allow": ("*",), "ask": ()})})
    runtime = Runtime(
        store, ToolRegistry.load(modules=[MODULE]), folder, secrets={"SHELF": KNOWN}, environment={}, allowed=lent
    )
    write_job(store, plan_of(), folder)
    runtime.jobs._facts["job", "run"] = JobFacts(None, agent, folder, "s")  # type: ignore[arg-type]
    text = canonical_json({"account": "mine", "token": REFERENCE})
    arguments = store.write_sync(lambda tx: tx.put_blob(text.encode()))
    item = {"id": "c", "name": name, "e": 0, "i": 0}
    key = "job/0/c"
    given: dict[str, Any] = {"job": "job", "turn": 0, "call_id": "c", "tool": name, "arguments_digest": arguments}
    store.write_sync(lambda tx: tx.begin_effect(key, **given))
    if status == "settled":
        output = store.write_sync(lambda tx: tx.put_blob(b"{}"))
        store.write_sync(lambda tx: tx.settle_effect(key, "settled", output))
    return Desk(store, runtime, arguments, item)


async def test_finding_out_what_became_of_a_call_has_the_secret(store: Store, tmp_path: Path) -> None:
    made = desk(store, tmp_path, "transfer", "pending", LENT)
    execute = activities_of(made.runtime)["loom.tool.execute"]
    given = {"call": made.item, "arguments": made.arguments, "remembered": []}
    outcome = await made.run(execute, given)
    assert GIVEN == [("find", "mine", KNOWN)]
    assert (await store.read(lambda tx: tx.get_blob(outcome["output"]))).decode() == f"found with {REFERENCE}"


async def test_a_worker_that_does_not_lend_the_secret_begins_nothing(store: Store, tmp_path: Path) -> None:
    made = desk(store, tmp_path, "transfer", "pending", NO_SECRETS)
    execute = activities_of(made.runtime)["loom.tool.execute"]
    given = {"call": {**made.item, "id": "other"}, "arguments": made.arguments, "remembered": []}
    outcome = await made.run(execute, given)
    assert outcome["code"] == "permission_denied"
    assert outcome["message"].startswith("this worker lends no secret 'SHELF'; it lends: none.")
    assert GIVEN == []
    assert [row.call_id for row in await store.read(lambda tx: tx.effects("job"))] == ["c"]


@pytest.mark.parametrize(
    ("lent", "given", "note"),
    [
        (LENT, [("undo", "mine", KNOWN)] * 3, f"RuntimeError: {REFERENCE} has no right to sign out (3 attempts)"),
        (NO_SECRETS, [], "this worker lends no secret 'SHELF'; it lends: none. "),
    ],
)
async def test_taking_back_has_the_secret_or_says_that_it_is_missing(
    store: Store, tmp_path: Path, lent: AllowedSecrets, given: list[tuple[str, ...]], note: str
) -> None:
    made = desk(store, tmp_path, "sign_in", "settled", lent)
    for _ in range(2):  # the second time, it is told what came of the first
        assert await made.run(activities_of(made.runtime)["loom.effects.undo"], {}) in ({"failed": 1}, {})
    assert given == GIVEN
    (told,) = [event for _, event in await store.read(lambda tx: tx.read_events("job")) if event["t"] == "compensated"]
    assert told["message"].startswith(note)
    assert (await store.read(lambda tx: tx.effects("job")))[-1].status == "failed"
