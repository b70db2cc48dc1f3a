"""What an MCP server answers, as the result of a tool."""

import base64
import binascii
import json
from typing import Any

from loom_dsl.errors import ToolError
from loom_dsl.tool_output import MOST_IMAGES, Image, ToolOutput


def output_of(server: str, result: Any) -> ToolOutput:
    """Read a `CallToolResult`: text as it is, images as images, everything else told by what it is.

    Raises:
        ToolError: The tool says that it failed.
    """
    texts: list[str] = []
    images: list[Image] = []
    for block in result.content:
        read = _block(block)
        if isinstance(read, Image) and len(images) < MOST_IMAGES:
            images.append(read)
        elif isinstance(read, Image):
            texts.append(f"(one more image, {len(read.data):,} bytes, not shown)")
        else:
            texts.append(read)
    # Servers repeat structured content as text, for clients that do not read it.
    if result.structured_content is not None and not texts:
        texts.append(json.dumps(result.structured_content, ensure_ascii=False))
    text = "\n".join(texts)
    if result.is_error:
        raise ToolError(text or f"the MCP server {server} says that the call failed, and not why")
    if images and not text:
        text = f"{len(images)} image{'s' if len(images) > 1 else ''}"
    return ToolOutput(text=text, images=tuple(images))


def _block(block: Any) -> str | Image:
    kind = block.type
    if kind == "text":
        return str(block.text)
    if kind == "image":
        return _image(block)
    if kind == "audio":
        return f"(audio, {block.mime_type}, not shown)"
    if kind == "resource_link":
        return f"(resource {block.name}: {block.uri})"
    resource = block.resource
    text = getattr(resource, "text", None)
    return f"{resource.uri}:\n{text}" if text is not None else f"(resource {resource.uri}, not text, not shown)"


def _image(block: Any) -> str | Image:
    try:
        return Image(data=base64.b64decode(block.data, validate=True))
    except (binascii.Error, ValueError) as error:
        return f"(an image that cannot be shown: {error})"
