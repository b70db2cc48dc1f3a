"""The activities that deliver: which message is next, sending it, and giving it up."""

import contextlib
import json
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.lifecycle.heartbeats import Heartbeats
from activities.webhooks.sender import NotTaken, Sender, Senders
from loom_dsl.errors import ConfigurationError, StoreError
from loom_dsl.observe.webhook_names import BURY, NEXT, POST
from loom_dsl.observe.webhooks import ASKS, shown
from loom_store.job_facts import arguments_of
from loom_store.queries.deliveries import Delivery
from loom_store.store import Store
from loom_store.transaction import Transaction
from loom_tools.masking import redact

Links = Callable[[Mapping[str, Any], str], dict[str, str]]
"""Makes links that decide, by choice: of an approval's row, for a person. None where the person may not decide."""


def no_links(row: Mapping[str, Any], person: str) -> dict[str, str]:
    """Make no links: there is no gateway."""
    return {}


class Deliveries:
    """Activities about messages of webhooks.

    Args:
        store: Where they wait.
        senders: Where they go.
        secrets: Names and values that no message has.
        links: Makes the links of messages that ask somebody.
    """

    def __init__(self, store: Store, senders: Senders, secrets: Mapping[str, str], links: Links = no_links) -> None:
        self._store, self._senders, self._secrets, self._links = store, senders, secrets, links

    @property
    def all(self) -> list[Callable[..., Awaitable[Any]]]:
        """What a worker registers."""
        return [self.next, self.post, self.bury]

    @activity.defn(name=NEXT)
    async def next(self, job: str, endpoint: str) -> dict[str, Any] | None:
        """Give the number of the message that is next, and how it is tried; None: there is none."""
        try:
            found = await self._store.read(lambda tx: tx.next_delivery(job, endpoint))
        except StoreError as error:
            raise ApplicationError(error.message, type=error.code) from None
        if found is None:
            return None
        known = self._senders.get(endpoint).endpoint
        seconds = math.ceil(known.timeout) + 5  # the store and the network's names, too
        return {"number": found.number, "seconds": seconds, **dict(known.retry)}

    @activity.defn(name=POST)
    async def post(self, number: int) -> None:
        """Send a message, and forget it when it was taken. What was forgotten is not sent again."""
        try:
            found, content, row = await self._store.read(lambda tx: _looked_up(tx, number))
            if found is None:
                return
            sender = self._senders.get(found.endpoint)
            async with Heartbeats():  # also while the store is waited for, or a message that was taken is sent again
                await sender.send(found.message, self._body(sender, found, content, row))
                await self._store.write(lambda tx: tx.delivered(number))
        except NotTaken as error:
            wait = None if error.wait is None else min(error.wait, sender.endpoint.retry.longest)
            told = {"gone": error.gone, "wait": wait}
            raise ApplicationError(error.message, told, type=error.code, non_retryable=True) from None
        except StoreError as error:
            raise ApplicationError(error.message, type=error.code) from None  # the engine tries that without an end
        except ConfigurationError as error:
            raise ApplicationError(error.message, type=error.code, non_retryable=True) from None
        except Exception as error:  # its text may be a part of the message, and is not for the history
            problem = f"the message could not be sent: {type(error).__name__}"
            raise ApplicationError(problem, type="internal", non_retryable=True) from None

    @activity.defn(name=BURY)
    async def bury(self, number: int, problem: str) -> None:
        """Make a dead letter of a message; the next one is not held up by it any more."""
        try:
            await self._store.write(lambda tx: tx.bury_delivery(number, problem))
        except StoreError as error:
            raise ApplicationError(error.message, type=error.code) from None

    def _body(self, sender: Sender, found: Delivery, content: Any, row: Mapping[str, Any] | None) -> str:
        data = dict(found.data)
        if sender.endpoint.arguments and content is not None:
            data["content"] = content
        data = _without_secrets(data, self._secrets)
        if "approval_id" in data:
            data["shown"] = shown(data)
        if row is not None and row["status"] == "pending" and found.event in ASKS:
            made = {person: self._links(row, person) for person in sender.endpoint.links}
            data |= {"links": links} if (links := {person: urls for person, urls in made.items() if urls}) else {}
        message = {"type": found.event, "timestamp": found.created_at, "data": data}
        return json.dumps(message, separators=(",", ":"))


def _looked_up(tx: Transaction, number: int) -> tuple[Delivery | None, Any, dict[str, Any] | None]:
    """Give a message with the arguments that it is about, if they are few, and its approval."""
    found = tx.delivery(number)
    if found is None:
        return None, None, None
    asks = found.event in ASKS
    content = arguments_of(tx, found.data.get("request", {}).get("arguments")) if asks else None
    row = tx.approval(found.data["approval_id"]) if "approval_id" in found.data else None
    return found, content, row


def _without_secrets(data: dict[str, Any], secrets: Mapping[str, str]) -> dict[str, Any]:
    """Mask what is secret: as a whole, where a name stands beside its value, and in each text."""
    with contextlib.suppress(ValueError):  # a mask took more than a text
        data = json.loads(redact(json.dumps(data), secrets))
    masked: dict[str, Any] = _masked(data, secrets)
    return masked


def _masked(value: Any, secrets: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return redact(value, secrets)
    if isinstance(value, dict):
        return {key: _masked(part, secrets) for key, part in value.items()}
    return [_masked(part, secrets) for part in value] if isinstance(value, list) else value
