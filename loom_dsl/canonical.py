"""One way to write JSON and one way to name bytes, so that equal content has one digest."""

import hashlib
import json
from typing import Any

Json = Any
"""A JSON value: None, bool, int, float, str, list or dict with string keys."""


def canonical_json(value: Json) -> str:
    """Write a JSON value in one form: sorted keys, no spaces, text as it is.

    Raises:
        ValueError: The value holds a NaN or an infinity, which JSON does not have.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest(data: bytes | str) -> str:
    """Name bytes by their SHA-256, as 64 hexadecimal digits. Text is taken as UTF-8 (lone surrogates kept)."""
    raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    return hashlib.sha256(raw).hexdigest()
