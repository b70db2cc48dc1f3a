"""What a tool gives and what is told of it, without secrets and down to size."""

import asyncio
from collections.abc import Mapping

from loom_dsl.redaction import redact

LARGEST_OUTPUT = 8 * 1024 * 1024
"""Characters of a tool's output that are kept."""
LARGEST_MESSAGE = 8_000
"""Characters of a failure's message that enter the history."""
OVERLAP = 4_096
"""Characters beyond a cut that are looked at: half a secret at the cut would not be seen as one."""
_SMALL = 64 * 1024


async def masked_output(text: str, secrets: Mapping[str, str]) -> str:
    """Give an output as it may be kept; a large one is looked at in a thread."""
    text = text[: LARGEST_OUTPUT + OVERLAP]
    masked = redact(text, secrets) if len(text) < _SMALL else await asyncio.to_thread(redact, text, secrets)
    return masked[:LARGEST_OUTPUT]


def masked_message(message: str, secrets: Mapping[str, str]) -> str:
    """Give a failure's message as it may be told."""
    return redact(message[: LARGEST_MESSAGE + OVERLAP], secrets)[:LARGEST_MESSAGE]
