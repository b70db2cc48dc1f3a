"""What doctor says of webhooks: messages that nobody delivers, and those that were given up."""

import asyncio
import base64
import json
import uuid
from pathlib import Path

import pytest

from activities.webhooks.sending import Senders
from loom_client.connection import temporal
from loom_client.dev_server import DevServer
from loom_client.doctor import Check, Status, examine
from loom_client.settings import Settings
from loom_store.store import Store
from tests.support.receiver import receiver
from tests.support.waiting import eventually
from worker import delivering

pytestmark = pytest.mark.server
SECRET = f"whsec_{base64.b64encode(bytes(32)).decode()}"


def told(settings: Settings) -> dict[str, list[Check]]:
    """What is said of webhooks, by the endpoint."""
    found: dict[str, list[Check]] = {}
    for check in examine(settings, {}):
        if check.what.startswith("webhook "):
            found.setdefault(check.what.removeprefix("webhook "), []).append(check)
    return found


def senders(folder: Path, url: str) -> Senders:
    file = folder / "webhooks.yaml"
    endpoint = {"name": "chat", "url": url, "secret": "HOOK", "timeout": "60s"}
    file.write_text(json.dumps({"loom": 1, "kind": "webhooks", "endpoints": [endpoint]}))
    return Senders.load(file, {"HOOK": SECRET})


async def test_messages_that_no_worker_delivers_and_dead_letters_are_told(
    dev_server: DevServer, tmp_path: Path
) -> None:
    path = tmp_path / "loom.db"
    settings = Settings(
        address=dev_server.address, namespace="default", task_queue=f"told-{uuid.uuid4().hex[:8]}", store=str(path)
    )
    endpoint = receiver()
    endpoint.hold.clear()
    with Store.open(path) as store, endpoint.up():
        place = {"namespace": "default", "task_queue": settings.task_queue, "workdir": "/", "created_at": 1.0}
        store.write_sync(lambda tx: tx.create_job("one", session="s", agent="a", plan="p", task="t", **place))  # type: ignore[arg-type]
        assert await asyncio.to_thread(told, settings) == {}

        for message, name in (("m1", "chat"), ("m2", "chat"), ("m3", "mail")):
            store.write_sync(lambda tx, message=message, name=name: tx.add_delivery(message, "one", name, "test", {}))  # type: ignore[misc]
        (dead,) = (row.number for row in store.read_sync(lambda tx: tx.deliveries()) if row.message == "m3")
        store.write_sync(lambda tx: tx.bury_delivery(dead, "mail answered 500"))
        found = await asyncio.to_thread(told, settings)
        assert [(check.status, check.found) for check in found["chat"]] == [
            (Status.WARN, "2 messages are waiting, and no worker has this endpoint")
        ]
        assert "--webhooks FILE" in found["chat"][0].fix
        assert [(check.status, check.found) for check in found["mail"]] == [(Status.WARN, "1 message is given up")]
        assert "loom webhooks retry --all" in found["mail"][0].fix

        client = await temporal(settings, store)
        async with delivering(client, store, settings.task_queue, senders(tmp_path, endpoint.url), {}):

            async def served() -> bool:
                (check,) = (await asyncio.to_thread(told, settings))["chat"]
                assert check.found == "2 messages are waiting for the delivery", check
                return check.status is Status.OK

            await eventually(served)
            endpoint.hold.set()
            await eventually(lambda: "chat" not in endpoints_of(store))


def endpoints_of(store: Store) -> set[str]:
    return {row.endpoint for row in store.read_sync(lambda tx: tx.deliveries())}
