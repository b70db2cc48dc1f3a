"""What the ledger knows of a tool call that an attempt began, and nobody saw the end of."""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from activities.lifecycle.lease import is_held, never_began
from activities.runtime import ActivityCall
from loom_dsl.errors import OutcomeUnknown, UnreadableResult
from loom_dsl.tools.context import Reconciliation, ToolContext
from loom_dsl.tools.tool import Arguments, Tool
from loom_store.rows import EffectStatus
from loom_store.transaction import Transaction
from loom_tools.running import run_function, runs_apart
from loom_tools.user_code import Code, Raised, by_position

NEVER_BEGAN = "its worker ended before the tool was called"


def effect_key(call: ActivityCall) -> str:
    """Names one tool call over all jobs, in the ledger and towards the tool."""
    return f"{call.job}/{call.turn}/{call.arguments['call']['id']}"


def given_of(output: str, images: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Write what a call gave as the stage `execute` tells it: its text, by digest, and its images if it has any."""
    return {"output": output, **({"images": [dict(image) for image in images]} if images else {})}


def status_of(error: BaseException) -> EffectStatus:
    """Say how an effect ended whose function raised this."""
    return "unknown" if isinstance(error, OutcomeUnknown) else "failed"


async def ask_tool(tool: Tool, arguments: Arguments, context: ToolContext) -> Reconciliation:
    """Ask a tool what became of an earlier call; one that cannot say, or says nothing in time, does not know."""
    reconcile = tool.reconcile
    found: object = None
    if reconcile is not None:
        asking = {"arguments": arguments, "context": context}
        code = Code.of(tool, "reconcile", by_position)
        with contextlib.suppress(Raised, TimeoutError):
            async with asyncio.timeout(None if runs_apart(code) else tool.timeout):
                found = await run_function(
                    lambda arguments, context: reconcile(arguments, context),
                    asking,
                    code=code,
                    seconds=tool.timeout,
                )
    return found if isinstance(found, Reconciliation) else Reconciliation(outcome="unknown")


def outcome_of(tx: Transaction, key: str) -> dict[str, Any] | None:
    """Give the outcome as the stage `execute` tells it; None when no attempt let the effect happen.

    An effect of which nobody can tell any more what became of it is unknown from now on, and one whose tool was never
    called is cancelled; one that runs in another worker has its outcome written down there.
    """
    effect = tx.effect(key)
    if effect is None or effect.status == "cancelled":
        return None
    if never_began(effect, tx.epoch_began()) and not is_held(effect):
        tx.settle_effect(key, "cancelled", note=NEVER_BEGAN)
        return None
    if effect.status == "settled" and effect.result_digest:
        if effect.note == UnreadableResult.code:
            return {"ok": False, "code": effect.note, "message": tx.get_blob(effect.result_digest).decode()}
        return {"ok": True, **given_of(effect.result_digest, effect.images)}
    if effect.status == "failed":
        return {"ok": False, "code": "tool_error", "message": effect.note or "the tool failed"}
    unknown = OutcomeUnknown()
    if effect.status == "pending" and not is_held(effect):
        tx.settle_effect(key, "unknown", note=unknown.message)
    return {"ok": False, "code": unknown.code, "message": unknown.message}
