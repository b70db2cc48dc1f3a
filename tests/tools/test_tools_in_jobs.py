"""What the built-in tools need of a job: outputs that are kept, images in the conversation, a todo list, secrets."""

import hashlib
import json
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio
from pydantic import JsonValue

from loom_cli.commands.show.summary import summarise
from loom_cli.dev.server import DevServer
from loom_dsl.agent.definition import Agent
from loom_dsl.agent.run import RunInput
from loom_dsl.observe.events import EventType
from loom_dsl.permissions.policy import Permissions
from loom_dsl.tools.result import reference_of
from loom_tools.secrets import AllowedSecrets
from tests.durability.reading import histories, of
from tests.failures.bad_tools import BUILTINS, KNOWN
from tests.failures.stand import MODULES, Stand, serving, standing
from tests.support.echo_server import EchoServer, echo_server
from tests.tools.test_more_files import png

pytestmark = [pytest.mark.server, pytest.mark.asyncio(loop_scope="module")]

HUGE = "0123456789" * 500_000
REFERENCE = reference_of(hashlib.sha256(HUGE.encode()).hexdigest())
DATA_TOOLS = "tests.support.data_tools"
HOOKS = "tests.support.hook_functions"
HOOKED = {
    "1 + 1": "42",
    "2 + 2": "4",
    "666 + 0": "Error (permission_denied): not this number",
    "3 + 4": "veiled",
    "90 + 9": "Error (permission_denied): the tool ran, and its result is withheld: too large",
    "13 + 0": f"Error (tool_error): the hook {HOOKS}:broken at before_authorize failed: LookupError",
    "14 + 0": f"Error (tool_error): the hook {HOOKS}:broken at before_authorize is wrong: it changes",
    "15 + 0": f"Error (tool_error): the hook {HOOKS}:broken at before_authorize returned a str",
}
MORE = ("calculator", "read_output", "todo", "network_request", "delete_file")
TODO = [{"text": "look", "status": "done"}, {"text": "write"}]


def agent(**fields: Any) -> dict[str, Any]:
    """The fields of an agent that has the new tools besides."""
    tools = (*BUILTINS, *MORE, "tests.failures.bad_tools:plain")
    return {"tools": tools, "permissions": {"allow": ["plain", *BUILTINS, *MORE]}, **fields}


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    """A step that calls one tool."""
    return {"calls": [{"tool": tool, "args": arguments}]}


@pytest.fixture(scope="module")
def echo() -> Iterator[EchoServer]:
    with echo_server() as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stand(
    dev_server: DevServer, tmp_path_factory: pytest.TempPathFactory, echo: EchoServer
) -> AsyncIterator[Stand]:
    """A worker that lends one secret, to the server `echo` only."""
    own = f"127.0.0.1:{echo.port}"
    cases: dict[str, list[dict[str, Any]]] = {
        "outputs": [
            call("plain", what="huge"),
            call("read_output", ref=REFERENCE, start=100_001, length=20),
            call("read_output", ref="out-" + "0" * 16),
            {"say": "read"},
        ],
        "stranger": [call("read_output", ref=REFERENCE), {"say": "could not"}],
        "image": [
            {"calls": [{"tool": "read_file", "args": {"path": name}} for name in ("dot.png", "note.txt")]},
            {"say": "seen"},
        ],
        "blind": [call("read_file", path="dot.png"), {"say": "not seen"}],
        "todo": [call("todo", items=TODO), call("calculator", expression="1"), call("todo"), {"say": "kept"}],
        "with data": [call("tenant"), {"say": "known"}],
        "without data": [call("tenant"), {"say": "not known"}],
        "hooks": [
            {"calls": [{"tool": "calculator", "args": {"expression": text}} for text in HOOKED]},
            {"say": "hooked"},
        ],
        "often": [
            {"calls": [{"tool": "calculator", "args": {"expression": f"{n} + 1"}} for n in range(2)]},
            {"calls": [{"tool": "calculator", "args": {"expression": f"{n} + 1"}} for n in range(2, 4)]},
            call("todo"),
            {"say": "often"},
        ],
        "secret": [
            {
                "say": f"The value is {KNOWN}, in hex {KNOWN.encode().hex()}.",
                "calls": [
                    {"tool": "write_file", "args": {"path": "out.txt", "content": f"key {KNOWN}"}},
                    {"tool": "calculator", "args": {"expression": KNOWN}},
                    {"tool": "write_file", "args": {"path": "fine.txt", "content": "no key"}},
                ],
            },
            {"say": f"It is {KNOWN}."},
        ],
        "network": [
            # In one turn: what the network said would make a call of the next turn ask.
            {
                "calls": [
                    {
                        "tool": "network_request",
                        "args": {"url": echo.url("/echo"), "headers": {"Authorization": "Bearer ${secret:SHELF}"}},
                    },
                    {"tool": "network_request", "args": {"url": "http://127.0.0.1:1/"}},
                ]
            },
            {"say": "asked"},
        ],
    }
    queue = f"test-{uuid.uuid4().hex[:12]}"
    allowed = AllowedSecrets.of([f"SHELF@{own}"], {"SHELF": KNOWN})
    folder = tmp_path_factory.mktemp("stand")
    async with (
        standing(dev_server, folder, queue, cases, serve=False) as made,
        serving(made, {"LOOM_PRIVATE_HOSTS": own}, allowed=allowed, modules=(*MODULES, DATA_TOOLS, HOOKS)),
    ):
        yield made


async def test_what_was_cut_is_read_on_in_its_own_conversation_only(stand: Stand) -> None:
    stand.begin("outputs", agent=agent())
    found = await stand.outcome("outputs")
    assert f"read_output(ref='{REFERENCE}', start=" in found.tool()["content"]
    assert found.tool(1)["content"].startswith(f"{REFERENCE}: characters 100001-100020 of 5000000\n\n{HUGE[:20]}\n")
    assert "there is no output" in found.tool(2)["content"]
    stand.begin("stranger", agent=agent())
    stranger = await stand.outcome("stranger")
    assert "there is no output" in stranger.tool()["content"]


async def test_an_image_follows_the_results_and_is_in_the_store_only(stand: Stand) -> None:
    place = stand.place("image")
    place.mkdir()
    (place / "dot.png").write_bytes(png())
    (place / "note.txt").write_text("a note")
    stand.begin("image", agent=agent(images=True))
    found = await stand.outcome("image")
    roles = [message["role"] for message in found.messages]
    assert roles == ["user", "assistant", "tool", "tool", "user", "assistant"]
    assert found.messages[2]["content"].startswith("dot.png: an image, image/png, ")
    asked = [json.loads(request.body) for request in stand.model.requests if b"case <image>" in request.body]
    parts = asked[-1]["messages"][-1]["content"]
    assert [part["type"] for part in parts] == ["text", "image_url"]
    assert parts[1]["image_url"]["url"].startswith("data:image/png;base64,iVBORw0KGgo")
    raw = b"".join(
        event.SerializeToString() for run in await histories(stand.loom.client, found.job.id) for event in run.events
    )
    assert b"iVBORw0KGgo" not in raw
    blind = stand.place("blind")
    blind.mkdir()
    (blind / "dot.png").write_bytes(png())
    stand.begin("blind", agent=agent())
    assert "not known to take images" in (await stand.outcome("blind")).tool()["content"]


async def test_a_todo_list_lasts_as_long_as_its_conversation(stand: Stand) -> None:
    stand.begin("todo", agent=agent())
    found = await stand.outcome("todo")
    assert found.tool()["content"] == found.tool(2)["content"] == "Todo: 1 of 2 done\n[x] look\n[ ] write"
    row = await stand.loom.store.read(lambda tx: tx.job(found.job.id))
    assert row is not None
    summary = await summarise(stand.loom.store, stand.loom.settings, row)
    assert [(item["text"], item["status"]) for item in summary["todo"]] == [("look", "done"), ("write", "pending")]


async def test_a_secret_is_resolved_where_the_tool_runs_and_masked_in_what_comes_back(
    stand: Stand, echo: EchoServer
) -> None:
    stand.begin("network", agent=agent())
    found = await stand.outcome("network")
    assert echo.seen[-1][2]["authorization"] == f"Bearer {KNOWN}"
    assert found.tool()["content"].endswith("hello Bearer ${secret:SHELF}")
    assert "not on the public internet" in found.tool(1)["content"]
    # They ran side by side, so either may have been told first.
    results = sorted(found.results(), key=lambda told: str(told["tool_call_id"]))
    assert [told.get("code") for told in results] == [None, "permission_denied"]


async def test_a_secret_that_the_model_says_is_kept_nowhere_and_reaches_no_tool(stand: Stand) -> None:
    stand.begin("secret", agent=agent())
    found = await stand.outcome("secret")  # which looks for it in the history, the messages and the events
    assert found.result.status == "completed"
    assert found.messages[-1]["content"] == "It is ${secret:SHELF}."
    assert found.messages[1]["content"] == "The value is ${secret:SHELF}, in hex ${secret:SHELF}."
    assert "the argument 'content' holds the value of the secret SHELF" in found.tool()["content"]
    assert "the argument 'expression' holds the value of the secret SHELF" in found.tool(1)["content"]
    assert sorted(path.name for path in stand.place("secret").iterdir()) == ["fine.txt"]
    path = stand.loom.store.path
    for file in path.parent.glob(f"{path.name}*"):
        assert KNOWN.encode() not in file.read_bytes()


async def test_a_tool_is_called_as_often_as_its_limit_says_and_others_go_on(stand: Stand) -> None:
    stand.begin("often", agent=agent(limits={"calls": {"calculator": 3}}))
    found = await stand.outcome("often")
    assert [found.tool(place)["content"] for place in range(3)] == ["1", "2", "3"]
    assert "calculator may be called 3 times in a job, and this is call 4" in found.tool(3)["content"]
    assert found.tool(4)["content"] == "The todo list is empty."
    assert found.result.status == "completed"


async def test_a_tool_gets_the_data_that_its_run_was_started_with(stand: Stand) -> None:
    wanting = Agent(**{**agent(), "name": "tester", "model": "scripted", "tools": (f"{DATA_TOOLS}:tenant",)})
    told = {}
    given: dict[str, dict[str, JsonValue]] = {"with data": {"tenant": "acme"}, "without data": {}}
    for name, data in given.items():
        message: dict[str, JsonValue] = {"role": "user", "content": f"case <{name}>"}
        job = await stand.loom.start(
            wanting.model_copy(update={"permissions": Permissions(allow=["tenant"])}),
            RunInput(input_messages=(message,), runtime_init_data=data),
            workdir=stand.folder,
        )
        told[name] = await stand.unharmed(job)
    assert told["with data"].tool()["content"] == "acme"
    assert "needs the run's runtime data" in told["without data"].tool()["content"]
    assert told["without data"].results()[0]["code"] == "tool_unavailable"
    asked = [request.body for request in stand.model.requests if b"case <with data>" in request.body]
    assert b"runtime_init_data" not in asked[0]


async def test_hooks_note_change_refuse_and_withhold_and_one_that_fails_refuses(stand: Stand) -> None:
    points = {"after_discover": "note", "after_validate": "mend", "before_authorize": "broken"}
    points |= {"before_execute": "guard", "after_execute": "veil", "after_format": "note"}
    stand.begin("hooks", agent=agent(hooks={point: f"{HOOKS}:{name}" for point, name in points.items()}))
    found = await stand.outcome("hooks")
    told = [found.tool(place)["content"] for place in range(len(HOOKED))]
    assert [text[: len(wanted)] for text, wanted in zip(told, HOOKED.values(), strict=True)] == list(HOOKED.values())
    kept = of(found.told, EventType.HOOK)
    did = {(data["point"], data["did"]): data["note"] for data in kept}
    assert did["after_discover", "noted"] == "after_discover calculator in turn 0"
    assert did["before_execute", "denied"] == "not this number"
    assert {("after_validate", "changed"), ("after_execute", "changed"), ("after_format", "noted")} <= did.keys()
    assert len([data for data in kept if data["point"] == "after_discover"]) == len(HOOKED)
