"""How often a tool may be called in a job."""

from collections.abc import Mapping
from typing import Any

from activities.runtime import Call, JobFacts, Runtime
from loom_dsl.errors import PermissionDenied
from loom_store.transaction import Transaction


async def check_call_limit(runtime: Runtime, call: Call, facts: JobFacts) -> None:
    """Refuse a model's call beyond the agent's limit for its tool.

    Counted is what the model asked for in the order in which it did, whatever became of it, so that every attempt
    finds the same number.

    Raises:
        PermissionDenied: It is one too many.
    """
    item = call.arguments["call"]
    limit = facts.agent.limits.calls.get(item["name"])
    if limit is None or "e" not in item:
        return
    number = await runtime.store.read(lambda tx: _number(tx, call, item))
    if number > limit:
        raise PermissionDenied(
            f"{item['name']} may be called {limit} time{'' if limit == 1 else 's'} in a job, and this is call {number}"
        )


def _number(tx: Transaction, call: Call, item: Mapping[str, Any]) -> int:
    """Say the how manyth call of its tool in this job it is, from 1."""
    count = 0
    for entry in tx.read_entries(call.session, 0, item["e"] + 1):
        if entry.job != call.job:
            continue
        for index, made in enumerate(entry.head.get("tool_calls", ())):
            if made["function"]["name"] == item["name"] and (entry.seq, index) <= (item["e"], item["i"]):
                count += 1
    return count
