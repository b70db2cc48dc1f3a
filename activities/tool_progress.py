"""What a tool tells while it works, as events of its job: without secrets, also those that come in pieces."""

import contextlib
from collections.abc import Iterator

from temporalio import activity

from activities.masked import LARGEST_MESSAGE, OVERLAP, masked_message
from activities.progress import Progress
from activities.runtime import Call, Runtime
from loom_dsl.errors import StoreError
from loom_dsl.redaction import MaskedStream

LARGEST = 2_000
"""Characters of a text that a tool tells while it works."""
LEAST_HELD = 4
"""Characters of a secret's beginning at the end of what a tool tells that are held back."""


def progress_of(runtime: Runtime, call: Call, numbers: Iterator[int]) -> Progress:
    """Give what a call's function tells by.

    Args:
        runtime: Has the store, and the secrets.
        call: The call.
        numbers: Tell apart what is told.
    """
    item, attempt = call.arguments["call"], activity.info().attempt
    stream = MaskedStream(runtime.secrets, LEAST_HELD)

    async def tell(text: str) -> None:
        # What may be the beginning of a secret goes with the next text, or with none.
        content = masked_message(stream.feed(text), runtime.secrets)[:LARGEST]
        if not content and text:
            return
        event = {"t": "progress", "n": call.turn, "tool_call_id": item["id"], "content": content}
        key = f"{call.turn}/{call.at}/progress/{attempt}/{next(numbers)}"
        # The tool's work does not depend on who hears of it.
        with contextlib.suppress(StoreError):
            await runtime.store.write(lambda tx: tx.append_events(call.job, key, [event]), durable=False)

    return Progress(tell, LARGEST_MESSAGE + OVERLAP)
