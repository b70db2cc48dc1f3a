"""Reading what strangers send to a workflow: never an exception, always a value or the reason why not."""

import json

from loom_dsl.canonical import Json, canonical_json


def read_payload(data: bytes, encoding: str, largest: int) -> tuple[Json, str]:
    """Read a signal's payload.

    Args:
        data: The payload's bytes.
        encoding: Its encoding as Temporal names it, such as ``json/plain``.
        largest: Most bytes.

    Returns:
        The JSON value and an empty text, or None and what is wrong.
    """
    if encoding == "binary/null":
        return None, ""
    if encoding not in ("json/plain", "json/protobuf"):
        return None, f"the payload's encoding is {encoding[:40]!r}; send json/plain"
    if len(data) > largest:
        return None, f"the payload has {len(data)} bytes; the limit is {largest}"
    try:
        value = json.loads(data.decode("utf-8-sig"))  # left to itself, it would read UTF-16 too
        canonical_json(value).encode("utf-8")
    except (ValueError, RecursionError):
        return None, "the payload is not JSON in UTF-8"
    return value, ""
