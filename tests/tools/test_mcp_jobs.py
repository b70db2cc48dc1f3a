"""Jobs whose agents use tools of MCP servers, on a real server."""

import json
import shutil
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from activities import catalogue
from loom_cli.dev.server import DevServer
from loom_client.records import ApprovalRecord
from loom_dsl.observe.events import EventType
from tests.failures.stand import Stand, serving, standing
from tests.failures.test_jobs import asked
from tests.support.waiting import PATIENCE, eventually
from tests.tools.test_mcp import loaded, settings, written

pytestmark = [pytest.mark.server, pytest.mark.asyncio(loop_scope="module")]


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"calls": [{"tool": f"mcp__{tool}", "args": arguments}]}


@pytest.fixture(scope="module", autouse=True)
def servers_may_be_slow() -> Iterator[None]:
    """Python alone takes seconds to import what a server needs, on a machine with other work many times as long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(catalogue, "WAIT_SECONDS", PATIENCE)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mcp")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stand(dev_server: DevServer, folder: Path) -> AsyncIterator[Stand]:
    cases: dict[str, list[dict[str, Any]]] = {
        "approved": [call("small__note", line="from a job"), {"say": "noted"}],
        "changed": [
            call("small__note", line="changed"),
            call("small__change"),
            call("small__note", line="case"),
            {"say": "done"},
        ],
        "failing": [
            call("small__die"),
            call("slow__hang"),
            call("small__note", line="after"),
            call("small__nothing"),
            call("gone__any"),
            {"say": "went on"},
        ],
        "from a registry": [
            call("time__convert_time", source_timezone="UTC", time="12:00", target_timezone="Asia/Tokyo"),
            call("git__git_status", repo_path=str(folder / "repository")),
            call("git__git_add", repo_path=str(folder / "repository"), files=["notes.md"]),
            call("git__git_commit", repo_path=str(folder / "repository"), message="Keep the notes"),
            {"say": "committed"},
        ],
    }
    small, slow = settings(folder), settings(folder, timeout=3)
    gone = {"command": sys.executable, "args": ["-c", "raise SystemExit('no luck')"]}
    time = {"command": sys.executable, "args": ["-m", "mcp_server_time", "--local-timezone", "UTC"]}
    git = {"command": sys.executable, "args": ["-m", "mcp_server_git", "--repository", str(folder / "repository")]}
    servers = loaded(written(folder, small=small, slow=slow, gone=gone, time=time, git=git))
    async with (
        standing(dev_server, folder, f"test-{uuid.uuid4().hex[:12]}", cases, serve=False) as made,
        serving(made, {}, mcp=servers),
    ):
        yield made


async def test_an_agent_calls_a_tool_of_a_server_after_it_was_approved(stand: Stand, folder: Path) -> None:
    (folder / "effects").unlink(missing_ok=True)
    job = await stand.start("approved", agent={"tools": ["mcp__small__note"], "permissions": {}})
    approval = await asked(stand, job.id)
    await job.decide(approval, "approve", by="me")
    found = await stand.unharmed(job)
    assert found.tool()["content"] == "noted 'from a job'"
    assert (folder / "effects").read_text() == "from a job\n"
    (body, *_) = [json.loads(request.body) for request in stand.model.requests if b"case <approved>" in request.body]
    assert [tool["function"]["name"] for tool in body["tools"]] == ["mcp__small__note"]
    assert body["tools"][0]["function"]["parameters"]["properties"]["line"]["type"] == "string"


async def test_a_tool_that_changed_in_a_job_asks_again_although_a_rule_allows_it(stand: Stand, folder: Path) -> None:
    (folder / "effects").unlink(missing_ok=True)
    # What the user's words name runs also after untrusted content was read, so only the change asks here.
    allowed = {"tools": ["mcp__small__*"], "permissions": {"allow": ["mcp__small__note", "mcp__small__change"]}}
    job = await stand.start("changed", agent=allowed)
    rows: dict[str, ApprovalRecord] = {}

    async def more() -> bool:  # a decision is written down a moment after it was taken
        for row in await stand.loom.approvals(job.id):
            if row.id not in rows:
                rows[row.id] = row
                await job.decide(row.id, "approve", by="me", remember="job")
        return len(rows) == 2  # the call without arguments names nothing that the user named

    await eventually(more)
    found = await stand.unharmed(job)
    assert [row.tool for row in rows.values()] == ["mcp__small__change", "mcp__small__note"]
    assert "its server describes it otherwise than when this job first saw it" in list(rows.values())[1].reason
    assert (folder / "effects").read_text() == "changed\ncase\n"
    assert found.result.answer == "done"


async def test_a_server_that_dies_hangs_or_is_missing_is_a_result_with_advice(stand: Stand) -> None:
    tools = ["mcp__small__*", "mcp__slow__hang", "mcp__gone__any"]
    job = await stand.start("failing", agent={"tools": tools, "permissions": {"enabled": False}})
    asking = []
    async for event in job.events():
        if event.type == EventType.APPROVAL_REQUESTED:
            asking.append(event.data["tool"])
            await job.decide(event.data["approval_id"], "approve", by="me")
    found = await stand.unharmed(job)
    # Not the first, as permissions are switched off; but what a server gave was read before the others.
    assert asking == ["mcp__slow__hang", "mcp__small__note"]
    told = [found.tool(place)["content"] for place in range(5)]
    assert told[0].startswith("Error (outcome_unknown): the MCP server small was lost while the tool ran")
    assert told[1].startswith("Error (timeout): the tool mcp__slow__hang did not end within 3 s")
    assert told[2] == "noted 'after'"
    assert told[3].startswith("Error (tool_not_found): there is no tool 'mcp__small__nothing'")
    assert told[4].startswith("Error (tool_unavailable): the MCP server gone does not start")
    assert all(text.strip().split("\n")[-1].endswith(".") for text in told if text.startswith("Error"))
    status = {effect.tool: effect.status for effect in await stand.loom.store.read(lambda tx: tx.effects(job.id))}
    assert status == {"mcp__small__die": "unknown", "mcp__slow__hang": "unknown", "mcp__small__note": "settled"}


GRAPH = """
loom: 1
kind: graph
name: keeps-a-line
permissions: {allow: ["mcp__small__structured"]}
nodes:
  count: {tool: mcp__small__structured, next: keep}
  keep: {tool: mcp__small__note, with: {line: "${str(nodes.count.count)}"}, next: done}
  done: {end: "${nodes.keep}"}
"""


async def test_a_node_of_a_graph_calls_a_tool_of_a_server(stand: Stand, folder: Path) -> None:
    (folder / "effects").unlink(missing_ok=True)
    (folder / "graph.yaml").write_text(GRAPH)
    job = await stand.loom.start_graph(folder / "graph.yaml", workdir=folder)
    await job.decide(await asked(stand, job.id), "approve", by="me")
    assert (await job.result()).result == "noted '3'"
    assert (folder / "effects").read_text() == "3\n"


async def test_an_agent_uses_the_published_servers_of_time_and_git(stand: Stand, folder: Path) -> None:
    repository = folder / "repository"

    def git(*arguments: str) -> str:
        person = ["-c", "user.name=Ann", "-c", "user.email=ann@example.com"]
        command = ["git", "-C", str(repository), *person, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    shutil.rmtree(repository, ignore_errors=True)  # of a first try
    repository.mkdir()
    git("init", "--quiet")
    git("config", "user.name", "Ann")
    git("config", "user.email", "ann@example.com")
    (repository / "notes.md").write_text("one\n")
    rules = {"allow": ["mcp__time__*", "mcp__git__git_status"], "ask": ["mcp__git__git_add", "mcp__git__git_commit"]}
    agent = {"tools": ["mcp__time__convert_time", "mcp__git__*"], "permissions": rules}
    job = await stand.start("from a registry", agent=agent)
    asking = []
    async for event in job.events():
        if event.type == EventType.APPROVAL_REQUESTED:
            asking.append(event.data["tool"])
            assert git("log", "--all", "--oneline") == ""
            await job.decide(event.data["approval_id"], "approve", by="me")
    found = await stand.unharmed(job)
    # The status, too: a server's answer was read before, and no word of the user's named the place that it is asked of.
    assert asking == ["mcp__git__git_status", "mcp__git__git_add", "mcp__git__git_commit"]
    assert "T21:00:00+09:00" in found.tool(0)["content"]
    assert "notes.md" in found.tool(1)["content"]
    assert git("log", "--format=%an %s") == "Ann Keep the notes\n"
    assert found.result.answer == "committed"
