"""Outputs of nodes that a job kept when it failed over them."""

import json
from typing import Any

from loom_dsl.errors import NotFoundError
from loom_store.transaction import Transaction


def kept_outputs(tx: Transaction, job: str) -> list[dict[str, Any]]:
    """List what a job kept, the oldest first.

    Returns:
        Of each: ``node`` (where it ran, such as ``each#1``), ``size`` (characters of JSON), ``blobs`` (the contents
        that it is in, one after the other) and, of a list, ``items`` and how many of them are ``done``.
    """
    return [json.loads(value) for value in tx.marks(job, "output")]


def kept_output(tx: Transaction, job: str, node: str) -> Any:
    """Give the output of a node that a job kept; of several the last one.

    Args:
        tx: Where the job is.
        job: Its id.
        node: The node's id, or where it ran, such as ``each#2`` or ``each``.

    Raises:
        NotFoundError: The job kept no output of such a node.
        BlobMissing: It is not in the store any more.
    """
    kept = kept_outputs(tx, job)
    found = [one for one in kept if node in _names(one["node"])]
    if not found:
        there = ", ".join(dict.fromkeys(_names(one["node"])[0] for one in kept))
        why = f"it kept those of {there}" if kept else "outputs are kept when an expression fails over them"
        raise NotFoundError(f"job {job} kept no output of a node {node!r}: {why}")
    return json.loads("".join(tx.get_blob(blob).decode() for blob in found[-1]["blobs"]))


def _names(at: str) -> tuple[str, ...]:
    """What a place is called: as people read it, as it is, and by its node alone."""
    short = at.replace("#1/", "/").replace("#1[", "[").removesuffix("#1")
    return short, at, at.rpartition("/")[2].partition("#")[0]
