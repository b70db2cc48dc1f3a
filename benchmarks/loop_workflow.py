"""The hand-written workflow that Loom is held against: a while loop with the messages in its arguments."""

from datetime import timedelta
from typing import Any

from temporalio import workflow


@workflow.defn(name="bench.loop")
class LoopWorkflow:
    """One activity for each model call and one for each tool call, all in one run."""

    @workflow.run
    async def run(self, model: str, tool: str, messages: list[dict[str, Any]]) -> str:
        """Loop until the model calls no more tools."""
        while True:
            answer = await workflow.execute_activity(
                "bench.model",
                args=[model, tool, messages],
                start_to_close_timeout=timedelta(minutes=30),
                result_type=dict[str, Any],
            )
            messages.append(answer)
            if not answer.get("tool_calls"):
                return str(answer["content"])
            for call in answer["tool_calls"]:
                content = await workflow.execute_activity(
                    "bench.tool",
                    args=[call["function"]["name"], call["function"]["arguments"]],
                    start_to_close_timeout=timedelta(minutes=2),
                    result_type=str,
                )
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})
