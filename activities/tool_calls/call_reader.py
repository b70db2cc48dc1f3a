"""The reading side of a tool call: which tool it names, and with which arguments."""

import asyncio
import json
from collections.abc import Callable
from functools import partial
from typing import Any

from activities.catalogue import tool_of_call
from activities.record.activity_call import ActivityCall, Item, is_node_call, this_run
from activities.record.job_store import JobFacts, JobStore
from activities.record.transcript import MASKED, Transcript
from activities.tool_calls.node import inline_arguments
from loom_dsl.agent.finish import is_cut
from loom_dsl.errors import ToolNotFound, ToolUnavailable
from loom_dsl.text.canonical import canonical_json
from loom_dsl.text.wording import suggest
from loom_dsl.tools.mcp import is_mcp
from loom_dsl.tools.tool import Arguments, Tool, validate_arguments
from loom_store.transcript import PRIVATE
from loom_tools.mcp.servers import Servers
from loom_tools.registry import ToolRegistry
from loom_tools.running import ANSWER_SECONDS, describe, in_time, run_function, runs_apart
from loom_tools.user_code import GUARD, Code, Raised, as_truth


class CallReader:
    """Finds what a call names: its tool, and its arguments as they were sent or approved."""

    def __init__(self, jobs: JobStore, transcript: Transcript, registry: ToolRegistry, mcp: Servers) -> None:
        self._jobs, self._transcript, self._registry, self._mcp = jobs, transcript, registry, mcp
        self._asked: dict[str, asyncio.Task[bool]] = {}
        """By reference: the questions under way. One that hangs is not asked again and again, each in a thread."""

    async def tool(self, facts: JobFacts, item: Item) -> Tool:
        """Find the tool that the model, or a graph's node, named.

        Raises:
            ToolNotFound: The agent has no tool of that name.
            ToolUnavailable: It cannot be used now.
            MissingTools: The agent has it, and this worker does not.
        """
        name, known = item["name"], facts.offered(item)
        if is_mcp(name) and (name in known or not is_node_call(item)):
            if is_node_call(item):
                return await self._mcp.found(name)
            session = await self._jobs.conversation(this_run()[0])
            return await tool_of_call(self._jobs.store, self._mcp, self._transcript, session, item)
        if name in known:
            tool = self._registry.resolve(known[name])
            if tool.is_available is not None:
                await self._check_available(known[name], tool, tool.is_available)
            return tool
        hint = suggest(name, known)
        listed = f"the tools are {', '.join(known)}" if known else "there are no tools"
        raise ToolNotFound(f"there is no tool {name!r}; {hint or listed}")

    async def _check_available(self, reference: str, tool: Tool, is_available: Callable[[], bool]) -> None:
        code = Code.of(tool, "is_available", as_truth)
        if code is not None and (guard := GUARD.get()) is not None:
            await guard.begin()  # here: the question may be another step's
        shared = self._asked if not runs_apart(code) else {}
        asking = shared.get(reference)
        if asking is None:
            work = run_function(partial(as_truth, is_available), {}, code=code, seconds=ANSWER_SECONDS)
            asking = shared[reference] = asyncio.create_task(work)
            asking.add_done_callback(lambda done: answered(shared, reference, done))
        unclear = f"it could not be found out whether the tool {tool.name} is available"
        try:
            available = await in_time(asking, code)
        except TimeoutError:
            why = f"{unclear}: its is_available gave no answer within {ANSWER_SECONDS:g} s"
            raise ToolUnavailable(why) from None
        except Raised as raised:
            if isinstance(raised.error, ToolUnavailable):
                raise raised.error from None  # it says itself why it cannot be used
            raise ToolUnavailable(f"{unclear}: {describe(raised.error)}") from None
        if not available:
            raise ToolUnavailable(f"the tool {tool.name} is not available now")

    async def raw_arguments(self, call: ActivityCall) -> str:
        """What the model sent as arguments of this call."""
        item = call.arguments["call"]
        if is_node_call(item):
            return inline_arguments(item, self._jobs.secrets)
        head = await self._head(call)
        raw: str = head["tool_calls"][item["i"]]["function"]["arguments"]
        return raw

    async def was_cut(self, call: ActivityCall) -> bool:
        """Whether the message that makes this call was cut off, by the limit of output tokens or by a filter."""
        if is_node_call(call.arguments["call"]):
            return False
        return is_cut((await self._head(call)).get(PRIVATE, {}).get("finish", ""))

    async def was_masked(self, call: ActivityCall) -> bool:
        """Whether secrets were masked in what the caller sent as arguments."""
        item = call.arguments["call"]
        if is_node_call(item):
            return inline_arguments(item, self._jobs.secrets) != canonical_json(item["arguments"])
        return item["i"] in (await self._head(call)).get(PRIVATE, {}).get(MASKED, ())

    async def arguments(self, call: ActivityCall, tool: Tool) -> Arguments:
        """The validated arguments: those that were approved, where somebody was asked."""
        name = call.arguments.get("arguments")
        if name:
            text = await self._jobs.store.read(lambda tx: tx.get_blob(name))
            value: Arguments = json.loads(text)
            return value
        return validate_arguments(tool, await self.raw_arguments(call))

    async def _head(self, call: ActivityCall) -> dict[str, Any]:
        return await self._transcript.head(await self._jobs.conversation(call.job), call.arguments["call"]["e"])


def answered(shared: dict[str, "asyncio.Task[bool]"], reference: str, asking: "asyncio.Task[bool]") -> None:
    """Take a question that was asked once for several calls away when it has its answer."""
    shared.pop(reference, None)
    asking.cancelled() or asking.exception()  # looked at, because it may be that nobody waits any more
