"""What client and worker both write down of a job and read: its origin, its runtime data, what an approval is about."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from loom_dsl.agent.messages import RUNTIME_DATA
from loom_dsl.approvals.decision import is_digest
from loom_dsl.errors import BlobMissing
from loom_dsl.text.canonical import canonical_json, read_json
from loom_store.transaction import Transaction

MAX_CONTENT = 64 * 1024
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
        return read_json(text) if len(text) <= MAX_CONTENT else None
    except (BlobMissing, ValueError):
        return None


def last_key(job: str, turn: int) -> str:
    """Give the key of the entry that tells the model that this turn is the last."""
    return f"{job}/{turn}/last"


MAX_TASK = 2_000
"""Characters of a graph's input that lists show."""


@dataclass(frozen=True, slots=True)
class Order:
    """What every job of a schedule is.

    Attributes:
        schedule: The schedule's name.
        mark: Makes the order another one than that of any other schedule, here or in another store.
        name: The agent's or the graph's.
        plan: Hash of the plan that all its jobs run.
        task: The task of an agent, or None.
        input: The values of a graph's input.
        workdir: Absolute path of the directory that file tools are confined to.
    """

    schedule: str
    mark: str
    name: str
    plan: str
    task: str | None
    input: Mapping[str, JsonValue]
    workdir: str
    namespace: str
    task_queue: str

    @classmethod
    def read(cls, tx: Transaction, digest: str) -> "Order":
        """Read an order from the store.

        Raises:
            BlobMissing: It is another store's, or the schedule is gone.
        """
        return cls(**json.loads(tx.get_blob(digest)))

    def text(self) -> str:
        """Give the order as the store holds it."""
        return canonical_json(dataclasses.asdict(self))


def origin_of(tx: Transaction, job: str) -> str:
    """Name a job of this store: another store's job of the same id has another name."""
    row = tx.job(job) or {}
    content = "\n".join(str(row.get(name)) for name in ("job", "created_at", "session", "plan", "workdir"))
    return hashlib.sha256(content.encode()).hexdigest()[:24]


def runtime_data(tx: Transaction, job: str, session: str) -> dict[str, Any]:
    """Give what a job was started with for the tools that need it."""
    for entry in tx.read_entries(session, 0) if session else ():
        if entry.job == job and entry.head.get("note") == RUNTIME_DATA and entry.content_digest:
            found: dict[str, Any] = json.loads(tx.get_blob(entry.content_digest))
            return found
    return {}


def sources_below(tx: Transaction, job: str) -> list[str]:
    """Name the tools that gave content from outside to the jobs below a job, or below one that it was forked from."""
    below = (*tx.marks_below(job, "untrusted"), *tx.marks_below(job, "earlier"))
    return list(dict.fromkeys((*below, *tx.marks(job, "earlier"))))
