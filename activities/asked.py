"""The arguments that an approval is about, for those who are told of it and have no store to look into."""

from typing import Any

from loom_dsl.approval import is_digest
from loom_dsl.canonical import read_json
from loom_dsl.errors import BlobMissing
from loom_store.transaction import Transaction

LARGEST_CONTENT = 64 * 1024
"""Bytes of arguments that somebody is told."""


def arguments_of(tx: Transaction, name: object) -> Any:
    """Give the arguments that a request names by their digest, if they are few.

    Args:
        tx: Where contents are.
        name: What the request says. A graph's question may say anything, and a model may write what is no JSON.

    Returns:
        The JSON value; None when there is none, or one of more than 64 KiB. Who is told goes by the summary then.
    """
    if not isinstance(name, str) or not is_digest(name):
        return None
    try:
        text = tx.get_blob(name)
        return read_json(text) if len(text) <= LARGEST_CONTENT else None
    except (BlobMissing, ValueError):
        return None
