"""What doctor says of webhooks: messages that nobody delivers, and those that were given up."""

import asyncio
import base64
import json
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from temporalio.client import Client

from activities.runtime import Runtime
from activities.webhooks.sender import SETTING, Senders
from loom_cli.dev.server import DevServer
from loom_cli.doctor import examine
from loom_cli.doctor.check import Check, Status
from loom_client.connection import temporal
from loom_client.settings import Settings
from loom_store.store import Store
from loom_tools.registry import ToolRegistry
from tests.support.receiver import receiver
from tests.support.waiting import PATIENCE, eventually
from worker import delivering, make_worker

pytestmark = pytest.mark.server
SECRET = f"whsec_{base64.b64encode(bytes(32)).decode()}"


def told(settings: Settings, env: Mapping[str, str] | None = None) -> dict[str, list[Check]]:
    """What is said of webhooks, by the endpoint."""
    found: dict[str, list[Check]] = {}
    for check in examine(settings, env or {}, PATIENCE):
        if check.what.startswith("webhook "):
            found.setdefault(check.what.removeprefix("webhook "), []).append(check)
    return found


def settings_in(folder: Path, dev_server: DevServer) -> Settings:
    queue = f"told-{uuid.uuid4().hex[:8]}"
    return Settings(address=dev_server.address, namespace="default", task_queue=queue, store=str(folder / "loom.db"))


def senders(folder: Path, url: str) -> Senders:
    file = folder / "webhooks.yaml"
    endpoint = {"name": "chat", "url": url, "secret": "HOOK", "timeout": "60s"}
    file.write_text(json.dumps({"loom": 1, "kind": "webhooks", "endpoints": [endpoint]}))
    return Senders.load(file, {"HOOK": SECRET})


async def test_messages_that_no_worker_delivers_and_dead_letters_are_told(
    dev_server: DevServer, tmp_path: Path
) -> None:
    settings = settings_in(tmp_path, dev_server)
    endpoint = receiver()
    endpoint.hold.clear()
    with Store.open(settings.store_path()) as store, endpoint.up():
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


@asynccontextmanager
async def a_worker(settings: Settings, store: Store, identity: str, has: Senders | None = None) -> AsyncIterator[None]:
    """A worker that the server knows by a name of its own, with or without a file of webhooks."""
    client = await Client.connect(settings.address, identity=identity)
    async with (
        Runtime(store, ToolRegistry.load(), Path(settings.store_path()).parent) as runtime,
        make_worker(client, runtime, settings.task_queue),
        delivering(client, store, settings.task_queue, has or Senders({}), {}),
    ):
        yield


async def test_a_worker_that_lacks_the_file_which_others_have_is_told(dev_server: DevServer, tmp_path: Path) -> None:
    settings, has = settings_in(tmp_path, dev_server), senders(tmp_path, "https://chat.example")
    env = {SETTING: str(tmp_path / "webhooks.yaml")}

    async def says(*expected: tuple[str, str]) -> bool:
        found = (await asyncio.to_thread(told, settings, env)).get("chat", [])
        assert [(check.found, check.fix) for check in found] == list(expected)
        assert all(check.status is Status.WARN for check in found)
        return True

    queue = f"of the queue {settings.task_queue}"
    nobody = "no worker has this endpoint, so none writes messages for it"
    some = "1 of 2 workers lack this endpoint and write no messages for it: plain"
    with Store.open(settings.store_path()) as store:
        await says()  # that there is no worker at all is told elsewhere
        async with a_worker(settings, store, "plain"):
            with_it = f"start a worker {queue} with a --webhooks FILE that has this endpoint"
            await eventually(lambda: says((nobody, with_it)))
            async with a_worker(settings, store, "telling", has):
                await eventually(lambda: says((some, f"give all workers {queue} the same --webhooks FILE")))
        checks = await asyncio.to_thread(lambda: list(examine(settings, {SETTING: "nowhere.yaml"}, PATIENCE)))
        (wrong,) = [check for check in checks if SETTING in check.what]
        assert (wrong.status, "nowhere.yaml" in wrong.found) == (Status.FAIL, True)
