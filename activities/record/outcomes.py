"""What became of a tool call: as the ledger knows it where nobody saw its end, and as the model is told of it."""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from activities.lifecycle.lease import is_held, never_began
from activities.record.activity_call import ActivityCall
from loom_dsl.errors import LoomError, MissingTools, OutcomeUnknown, StepDied, StoreError, UnreadableResult
from loom_dsl.tools.context import Reconciliation, ToolContext
from loom_dsl.tools.result import ToolMessage, failure, reference_of, refusal, success
from loom_dsl.tools.tool import Arguments, Tool
from loom_store.rows import EffectStatus
from loom_store.transaction import Transaction
from loom_tools.masking import redact
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


MAX_MESSAGE = 8_000
"""Characters of a failure's message that enter the history."""


def is_told(error: LoomError) -> bool:
    """Whether the model is to hear of it. What is wrong with this worker may be right with another, or later."""
    return not isinstance(error, StoreError | MissingTools | StepDied)


def failed(error: LoomError) -> dict[str, Any]:
    """Give an error as a stage's outcome.

    Raises:
        LoomError: It is not the model's to hear of.
    """
    if not is_told(error):
        raise error
    return {"ok": False, "code": error.code, "message": error.message[:MAX_MESSAGE]}


def message_of(
    outcome: Mapping[str, Any], output: bytes, secrets: Mapping[str, str], *, reads_on: bool
) -> tuple[ToolMessage, str]:
    """Make the message of a call's outcome, and its text as it may be stored.

    Args:
        outcome: What the stage `execute` said, or who decided about the call.
        output: The content that an outcome names which is ok.
        secrets: Values that must not be stored.
        reads_on: Whether the agent can read on in an output that is cut.
    """
    if "choice" in outcome:
        message = refusal(outcome)
    elif outcome.get("ok"):
        reference = reference_of(outcome["output"]) if reads_on else ""
        message = success(output.decode(), reference=reference)
    else:
        message = failure(outcome["code"], outcome["message"])
    # An output was redacted before it was kept; what others say about a call was not.
    return message, message.content if outcome.get("ok") else redact(message.content, secrets)
