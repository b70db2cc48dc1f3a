"""The same decision once more: answered like the first, also by who only sees the store."""

from collections.abc import Mapping
from typing import Any

from loom_dsl.approval_policy import is_among
from loom_dsl.canonical import canonical_json, digest


def is_repeated(row: Mapping[str, Any], by: str, said: Mapping[str, Any]) -> bool:
    """Whether an unsigned decision says what has been decided, by one of those who decided.

    Args:
        row: The approval, as the store has it.
        by: Who sends it.
        said: Its fields: `choice`, `message`, `edited_arguments`, `remember`, `digest`.
    """
    if row["choice"] is None or row.get("keys") or said.get("signature"):
        return False
    edited = said.get("edited_arguments")
    names, messages = str(row["by"] or ""), str(row["message"] or "")
    return (
        said["choice"] == row["choice"]
        and is_among(by, [names, *names.split(", ")])
        and said.get("message", "") in (messages, *messages.split("; "))
        and (None if edited is None else digest(canonical_json(edited))) == row.get("edited")
        and said.get("remember", "no") == row.get("remember", "no")
        and said.get("digest", "") in ("", row["arguments_digest"], row["details"].get("digest", ""))
    )
