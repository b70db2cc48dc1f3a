"""Entries of a session as messages of a model: their text, their size in tokens, and what of them is never sent."""

from collections.abc import Mapping, Sequence
from typing import Any

from loom_dsl.agent.context import estimate_tokens
from loom_dsl.agent.messages import render
from loom_dsl.agent.provider_fields import ProviderFields
from loom_store.transaction import Transaction

IMAGE_TOKENS = 1_000
"""What an image counts at least, in tokens."""
_BYTES_PER_TOKEN = 100
"""Large ones count more, so that a request stays below what providers take."""


def image_tokens(kept: Sequence[Mapping[str, Any]]) -> int:
    """Estimate what images cost of the context."""
    return sum(max(IMAGE_TOKENS, int(image["size"]) // _BYTES_PER_TOKEN) for image in kept)


PRIVATE = "_loom"
"""Key of a head that is Loom's own and never sent."""

GIVEN = "given"
"""Under this name an answer's head has the digest of what the provider gave beside the text and the calls."""

Message = tuple[str, int, str]
"""A message as JSON, its estimated tokens and its role; for a note its text, 0 and ``note:`` with its name."""
NOTE = "note:"


def tool_head(call: str, status: str, code: str, output: str = "") -> dict[str, Any]:
    """Write the head of the message that answers a call.

    Args:
        call: The call's id.
        status: How it went, ``success`` or otherwise.
        code: Why otherwise.
        output: Name of the whole output, where the message lacks some of it.
    """
    head: dict[str, Any] = {"role": "tool", "tool_call_id": call}
    if status != "success":
        head[PRIVATE] = {"status": status, "code": code}
    elif output:
        head[PRIVATE] = {"output": output}
    return head


def images_in(head: dict[str, Any]) -> list[dict[str, Any]]:
    """Give what stands in an entry for the images that belong to it."""
    found: list[dict[str, Any]] = head.get(PRIVATE, {}).get("images", [])
    return found


def rendered(head: dict[str, Any], content: str | None, kind: str = "message", parts: Sequence[Any] = ()) -> Message:
    """Write one entry as the model reads it, with the parts that carry its images."""
    if kind != "message":
        return content or "", 0, f"{NOTE}{head.get('note', '')}"
    shown = {key: value for key, value in head.items() if key != PRIVATE}
    if parts:
        text = render({**shown, "content": [{"type": "text", "text": content or ""}, *parts]}, None)
        return text, estimate_tokens(content or "") + image_tokens(images_in(head)) + 4, head["role"]
    return sized(render(shown, content), head["role"])


def sized(text: str, role: str) -> Message:
    """Give a message that is JSON already, with its estimated tokens."""
    return text, estimate_tokens(text) + 4, role


def given_in(tx: Transaction, head: Mapping[str, Any]) -> ProviderFields | None:
    """Give what the provider put into an answer beside the text and the calls; None where it was nothing."""
    name = (head.get(PRIVATE) or {}).get(GIVEN)
    return ProviderFields.load(tx.get_blob(name)) if name else None
