"""One way to write JSON and one way to name bytes, so that equal content has one digest."""

import hashlib
import json
from typing import Any

Json = Any
"""A JSON value: None, bool, int, float, str, list or dict with string keys."""
MAX_NESTING = 100
"""How deep what others write may be nested, so that everything after it can write it again."""
_TOO_DEEP = f"the text is nested over {MAX_NESTING} levels deep"


def canonical_json(value: Json) -> str:
    """Write a JSON value in one form: sorted keys, no spaces, text as it is.

    Raises:
        ValueError: The value holds a NaN or an infinity, which JSON does not have.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def written_json(value: Json) -> str:
    """Write a JSON value as `canonical_json` does, with the keys in the order that they have.

    Raises:
        ValueError: The value holds a NaN or an infinity, which JSON does not have.
    """
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def read_json(text: str | bytes, **how: Any) -> Json:
    """Read JSON that somebody else wrote: a model, a server or a person.

    Args:
        text: The JSON.
        how: Further arguments of `json.loads`.

    Raises:
        ValueError: It is not JSON, or nested more than `MAX_NESTING` deep.
    """
    try:
        value = json.loads(text, **how)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    if _is_deep(value):
        raise ValueError(_TOO_DEEP)
    return value


def read_json_or_text(text: str) -> Any:
    """Read JSON; what is none, or is nested too deep, is the text itself."""
    try:
        return read_json(text)
    except ValueError:
        return text


def _is_deep(value: Json) -> bool:
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(MAX_NESTING + 1):
        parts = (part for outer in level for part in (outer.values() if isinstance(outer, dict) else outer))
        level = [part for part in parts if isinstance(part, (dict, list))]
        if not level:
            return False
    return True


def digest(data: bytes | str) -> str:
    """Name bytes by their SHA-256, as 64 hexadecimal digits. Text is taken as UTF-8 (lone surrogates kept)."""
    raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    return hashlib.sha256(raw).hexdigest()
