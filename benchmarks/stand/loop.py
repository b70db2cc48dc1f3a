"""The agent loop without Loom: in plain asyncio, and as activities of a hand-written workflow."""

import json
from collections.abc import Mapping
from typing import Any

from temporalio import activity

from activities.chat.client import ChatEndpoint, chat_body, endpoint_from_environment
from benchmarks.stand.tools import TOOLS
from benchmarks.stand.workload import Workload
from loom_tools.registry import ToolRegistry

Message = dict[str, Any]


def opening(workload: Workload) -> list[Message]:
    """Give the messages that a loop starts with."""
    system = f"Answer briefly.\nTools you may call now: {workload.tool}."
    return [{"role": "system", "content": system}, {"role": "user", "content": "Look everything up."}]


class Steps:
    """The two things that a loop does; the same model adapter and the same tools as Loom's."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._endpoint: ChatEndpoint | None = None
        self._registry = ToolRegistry.load(modules=["benchmarks.stand.tools"])

    @activity.defn(name="bench.model")
    async def model(self, model: str, tool: str, messages: list[Message]) -> Message:
        """Ask the model; gives the assistant's message."""
        if self._endpoint is None:
            self._endpoint, _ = endpoint_from_environment("bench", self._environment)
        specs = json.dumps([self._registry.spec(TOOLS[tool])])
        texts = [json.dumps(message, ensure_ascii=False) for message in messages]
        body = chat_body(texts, model=model, tools_json=specs, parameters={})
        reply = await self._endpoint.stream(body, on_text=lambda text: None)
        message: Message = {"role": "assistant", "content": reply.text or None}
        if reply.tool_calls:
            message["tool_calls"] = [
                {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
                for c in reply.tool_calls
            ]
        return message

    @activity.defn(name="bench.tool")
    async def tool(self, name: str, arguments: str) -> str:
        """Run a tool."""
        return str(TOOLS[name].function(**json.loads(arguments)))

    async def aclose(self) -> None:
        """Close the connections to the model."""
        if self._endpoint is not None:
            await self._endpoint.aclose()

    async def run(self, workload: Workload) -> str:
        """Run the loop to its end, in this process and with nothing kept."""
        messages = opening(workload)
        while True:
            answer = await self.model(workload.model, workload.tool, messages)
            messages.append(answer)
            if not answer.get("tool_calls"):
                return str(answer["content"])
            for call in answer["tool_calls"]:
                content = await self.tool(call["function"]["name"], call["function"]["arguments"])
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})
