"""Images that tools return: kept in the store, named in the conversation, and sent to the model beside the text."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from loom_dsl.tool_output import Image, ToolOutput
from loom_store.transaction import Transaction

IMAGE_TOKENS = 1_000
"""What an image counts at least, in tokens."""
_BYTES_PER_TOKEN = 100
"""Large ones count more, so that a request stays below what providers take."""


def images_of(result: Any) -> Sequence[Image]:
    """Give the images in what a tool's function returned."""
    if isinstance(result, Image):
        return (result,)
    return result.images if isinstance(result, ToolOutput) else ()


def put_images(tx: Transaction, images: Sequence[Image]) -> list[dict[str, Any]]:
    """Keep images, and give what stands for them in the history and in the conversation."""
    return [{"digest": tx.put_blob(i.data), "type": i.media_type, "size": len(i.data)} for i in images]


def image_parts(tx: Transaction, kept: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Give the parts of a message that carry the images, in the form of the OpenAI API."""
    data = [(image["type"], base64.b64encode(tx.get_blob(image["digest"])).decode()) for image in kept]
    return [{"type": "image_url", "image_url": {"url": f"data:{kind};base64,{text}"}} for kind, text in data]


def image_tokens(kept: Sequence[Mapping[str, Any]]) -> int:
    """Estimate what images cost of the context."""
    return sum(max(IMAGE_TOKENS, int(image["size"]) // _BYTES_PER_TOKEN) for image in kept)
