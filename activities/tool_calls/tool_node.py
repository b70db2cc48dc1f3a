"""What a tool node needs besides the six stages of a tool call: how to run it, and its output as a value."""

from dataclasses import replace
from typing import Any

from temporalio import activity

from activities.catalogue import EXECUTE_MARGIN
from activities.observe.events import begin
from activities.record.activity_call import ActivityCall
from activities.record.job_store import JobStore
from activities.tool_calls.approval_request import in_expressions
from activities.tool_calls.node import MAX_VALUE, value_of
from loom_dsl.errors import LoomError, MissingTools
from loom_dsl.tools.mcp import is_mcp, split_reference, unconnected
from loom_dsl.tools.tool import Tool
from loom_tools.mcp.servers import Servers
from loom_tools.registry import ToolRegistry


class ToolNode:
    """The activities ``loom.tool.prepare`` and ``loom.tool.output``."""

    def __init__(self, jobs: JobStore, registry: ToolRegistry, mcp: Servers) -> None:
        self._jobs, self._registry, self._mcp = jobs, registry, mcp

    @activity.defn(name="loom.tool.prepare")
    async def prepare(self, envelope: dict[str, Any]) -> dict[str, Any]:
        """Look up how the call is to be run. A tool that is not there is told of by the next stage.

        Returns:
            ``quick``, ``timeout`` of the execution in seconds, and ``policy``, the graph's or the agent's `approvals`.
        """
        call = await begin(self._jobs.store, envelope)
        tool = await self._tool(call)
        approvals = (await self._jobs.facts(call.job)).agent.approvals
        return {
            "quick": tool.quick if tool else False,
            "timeout": (tool.timeout if tool else 0.0) + EXECUTE_MARGIN,
            "policy": in_expressions(approvals),  # read by jobs that began when no question had its own
        }

    @activity.defn(name="loom.tool.output")
    async def output(self, envelope: dict[str, Any]) -> Any:
        """Give a tool's output as a value; a large one as ``{"$blob": digest, "chars": number}``."""
        call = await begin(self._jobs.store, envelope)
        name = call.arguments["output"]
        text = (await self._jobs.store.read(lambda tx: tx.get_blob(name))).decode()
        if len(text) > MAX_VALUE:
            return {"$blob": name, "chars": len(text)}
        return value_of(text, await self._tool(call))

    async def _tool(self, call: ActivityCall) -> Tool | None:
        item = call.arguments["call"]
        reference = (await self._jobs.facts(call.job)).offered(item).get(item["name"])
        try:
            if reference and is_mcp(reference):
                return replace(unconnected(reference), timeout=self._mcp.check(split_reference(reference)[0]).timeout)
            return self._registry.resolve(reference) if reference else None
        except MissingTools:  # another worker has it
            raise
        except LoomError:
            return None
