"""The state of things for which a call was approved: what was changed since is not what its approver was shown."""

import json
from typing import Any

from activities.attempt import Attempt
from activities.runtime import Call, Runtime
from loom_dsl.canonical import canonical_json
from loom_dsl.tools import Arguments, Tool
from loom_store.transaction import Transaction


async def approved_states(runtime: Runtime, call: Call, tool: Tool, arguments: Arguments) -> frozenset[str]:
    """Give the states in which an approved call may find what it changes; none: its approver was shown none.

    Besides the one that was shown, these are those in which approved calls of the same turn left things: they are
    asked about together, and each is shown what was there before all of them.
    """
    if not call.arguments.get("approved"):
        return frozenset()
    return await runtime.store.read(lambda tx: _states(tx, call, tool, arguments))


def _states(tx: Transaction, call: Call, tool: Tool, arguments: Arguments) -> frozenset[str]:
    mine = (call.turn, call.arguments["call"]["id"])
    rows = [row for row in tx.approvals(job=call.job) if (row["turn"], row["call_id"]) == mine]
    asked = rows[-1] if rows else None
    if asked is None or not asked["details"].get("state") or _is_elsewhere(tx, asked, tool, arguments):
        return frozenset()
    left = [json.loads(mark) for mark in tx.marks(call.job, "left")]
    return frozenset([asked["details"]["state"], *(state for turn, state in left if turn == call.turn)])


def _is_elsewhere(tx: Transaction, asked: dict[str, Any], tool: Tool, arguments: Arguments) -> bool:
    """Whether the approver edited where the call works: of that place nothing was shown."""
    shown = json.loads(tx.get_blob(asked["arguments_digest"]))
    return any(shown.get(name) != arguments.get(name) for name in tool.path_arguments)


def keep_left(tx: Transaction, run: Attempt) -> None:
    """Keep the states in which an approved call left things."""
    for state in run.left if run.states else ():
        tx.mark(run.call.job, "left", canonical_json([run.call.turn, state]))
