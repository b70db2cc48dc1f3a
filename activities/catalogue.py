"""The tools of MCP servers that a turn is offered: found out once, kept in the store, and named by the turn's context.

Every stage of a call looks the tool up in the catalogue of the turn that made the call, not at the server: what the
model was told is what is validated, judged and approved.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from activities.record.activity_call import ActivityCall, Item, is_node_call
from activities.record.job_store import Conversation
from activities.record.transcript import Transcript
from loom_dsl.agent.definition import Agent
from loom_dsl.errors import ToolError, ToolNotFound, ToolUnavailable
from loom_dsl.text.canonical import canonical_json
from loom_dsl.text.wording import suggest
from loom_dsl.tools.mcp import Definition, is_mcp, is_named, servers_of
from loom_dsl.tools.tool import Tool
from loom_store.store import Store
from loom_store.transcript import PRIVATE
from loom_tools.mcp.servers import Servers
from loom_tools.registry import ToolRegistry

WAIT_SECONDS = 12.0
"""How long a turn waits for its servers; one that takes longer goes on starting, for the next turn."""
EXECUTE_MARGIN = 10.0
"""Seconds between a tool's own timeout and its activity's."""
KEPT = "mcp"
"""Under this name an answer's entry names the catalogue that its turn was offered."""


@dataclass(frozen=True)
class Catalogue:
    """What a turn is offered.

    Attributes:
        tools: By the names that a model calls them.
        missing: Why servers offer nothing, by their names.
    """

    tools: Mapping[str, Definition]
    missing: Mapping[str, str]

    def dump(self) -> bytes:
        """Give it as it is kept."""
        data = {"tools": [tool.as_json() for tool in self.tools.values()], "missing": dict(self.missing)}
        return canonical_json(data).encode()

    @classmethod
    def load(cls, text: bytes) -> "Catalogue":
        """Read what `dump` gave."""
        data = json.loads(text)
        tools = [Definition(**tool) for tool in data["tools"]]
        return cls({tool.name: tool for tool in tools}, data["missing"])


EMPTY = Catalogue({}, {})


async def current(mcp: Servers, agent: Agent) -> Catalogue:
    """Ask the servers that an agent names what they offer now. One that cannot be asked offers what it last did.

    Raises:
        MissingTools: This worker does not have one of them.
    """
    names = servers_of(agent.tools)
    for name in names:
        mcp.check(name)
    asked = await asyncio.gather(*(_asked(mcp, name) for name in names))
    missing = {name: said for name, said in zip(names, asked, strict=True) if said}
    found = [tool for name in names if (known := mcp.known(name)) for tool in known.tools]
    return Catalogue({tool.name: tool for tool in found if is_named(tool, agent.tools)}, missing)


async def _asked(mcp: Servers, server: str) -> str:
    """Let a server list its tools; why it did not, or nothing."""
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            await mcp.listing(server)
    except TimeoutError:
        return f"the MCP server {server} is not ready after {WAIT_SECONDS:g} s; it may be later"
    except ToolError as error:
        return error.message
    return ""


async def kept(store: Store, name: str | None) -> Catalogue:
    """Give a catalogue by its digest; none is an empty one."""
    if not name:
        return EMPTY
    return Catalogue.load(await store.content(name))


def tools_of(registry: ToolRegistry, mcp: Servers, agent: Agent, catalogue: Catalogue) -> dict[str, Tool]:
    """Give all tools of an agent by the names that a model calls them.

    Raises:
        UserError: The worker does not have one of them.
    """
    own = registry.resolve_all(reference for reference in agent.tools if not is_mcp(reference))
    return own | {name: mcp.tool(definition) for name, definition in catalogue.tools.items()}


def catalogue_of(head: Mapping[str, Any]) -> str | None:
    """Name the catalogue of the turn that gave an answer."""
    found: str | None = head.get(PRIVATE, {}).get(KEPT)
    return found


async def tool_of_call(store: Store, mcp: Servers, transcript: Transcript, session: Conversation, item: Item) -> Tool:
    """Find the tool that a model's call names, as the turn that made the call was offered it.

    Raises:
        ToolNotFound: The turn was offered none of that name.
        ToolUnavailable: Its server could not be asked when the turn began.
        MissingTools: This worker does not have its server.
    """
    name = item["name"]
    head = await transcript.head(session, item["e"])
    catalogue = await kept(store, catalogue_of(head))
    if name in catalogue.tools:
        return mcp.tool(catalogue.tools[name])
    for server, why in catalogue.missing.items():
        if name.startswith(f"mcp__{server}__"):
            raise ToolUnavailable(why)
    hint = suggest(name, catalogue.tools) or f"the tools of MCP servers are {', '.join(catalogue.tools) or 'none'}"
    raise ToolNotFound(f"there is no tool {name!r}; {hint}")


async def changed(store: Store, call: ActivityCall) -> str:
    """Say that a tool's server describes it otherwise than when the job first saw it; empty: it does not."""
    item = call.arguments["call"]
    if not is_mcp(item["name"]) or is_node_call(item):
        return ""
    entries = await store.read(lambda tx: tx.read_entries(call.session, 0, item["e"] + 1))
    now = first = ""
    for digest in _catalogues(call, entries):
        definition = (await kept(store, digest)).tools.get(item["name"])
        now = definition.fingerprint if definition else now
        first = first or now
    if now == first:
        return ""
    return f"{item['name']} must be approved: its server describes it otherwise than when this job first saw it"


def _catalogues(call: ActivityCall, entries: Any) -> Iterator[str]:
    """The catalogues of a job's turns up to a call, each change once."""
    last = None
    for entry in entries:
        name = catalogue_of(entry.head) if entry.job == call.job else None
        if name and name != last:
            last = name
            yield name


def tool_specs(registry: ToolRegistry, mcp: Servers, agent: Agent, catalogue: Catalogue) -> str:
    """Give the agent's tools as the JSON that a model reads.

    Raises:
        UserError: The worker does not have one of them.
    """
    return json.dumps([registry.spec(tool) for tool in tools_of(registry, mcp, agent, catalogue).values()])
