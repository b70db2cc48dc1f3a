"""The hand-written workflows that Loom is held against: a while loop with its messages in arguments, a fan-out,
a chain of activities, and a gate that somebody must open."""

import asyncio
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


@workflow.defn(name="bench.map")
class MapWorkflow:
    """One activity for each item, so many at once."""

    @workflow.run
    async def run(self, count: int, window: int) -> int:
        """Do every item and count them."""
        free = asyncio.Semaphore(window)

        async def one(item: int) -> int:
            async with free:
                done: int = await workflow.execute_activity(
                    "bench.item", item, start_to_close_timeout=timedelta(minutes=1), result_type=int
                )
                return done

        return len(await asyncio.gather(*(one(item) for item in range(count))))


@workflow.defn(name="bench.chain")
class ChainWorkflow:
    """One activity after the other."""

    @workflow.run
    async def run(self, count: int) -> int:
        """Do all of them; the number of the last one."""
        done = 0
        for number in range(count):
            done = await workflow.execute_activity(
                "bench.pause", number, start_to_close_timeout=timedelta(minutes=1), result_type=int
            )
        return done


@workflow.defn(name="bench.gate")
class GateWorkflow:
    """One activity, once somebody has decided."""

    def __init__(self) -> None:
        self._choice = ""

    @workflow.run
    async def run(self) -> int:
        """Wait, and do it."""
        await workflow.wait_condition(lambda: self._choice != "")
        done: int = await workflow.execute_activity(
            "bench.item", 1, start_to_close_timeout=timedelta(minutes=1), result_type=int
        )
        return done

    @workflow.update
    async def decide(self, choice: str) -> str:
        """Take the decision."""
        self._choice = choice
        return "recorded"

    @workflow.query
    def waits(self) -> bool:
        """Whether nobody has decided yet."""
        return self._choice == ""
