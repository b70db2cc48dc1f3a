"""Dead letters of an endpoint that no worker has: they are not given up again, and who revives them is told."""

import json

import pytest

from loom_store.store import Store
from tests.cli.conftest import House

pytestmark = pytest.mark.server


def test_who_has_dead_letters_delivered_is_told_when_no_worker_has_their_endpoint(house: House) -> None:
    job = house.started("calm")
    assert house.loom("wait", job).code == 0
    with Store.open(house.store) as store:
        store.write_sync(lambda tx: tx.add_delivery("msg_left", job, "gone", "job_failed", {"job": job}))
        (row,) = store.read_sync(lambda tx: tx.deliveries())
        store.write_sync(lambda tx: tx.bury_delivery(row.number, "gone answered 500"))
    assert house.loom("webhooks", "list").out.count("msg_left") == 1
    said = house.loom("webhooks", "retry", "--all")
    assert (said.code, said.out) == (0, "1 message to be delivered\n")
    assert "no worker has gone now" in said.err
    (listed,) = map(json.loads, house.loom("webhooks", "list", "--all", "--json").out.splitlines())
    assert (listed["message"], listed["died_at"]) == ("msg_left", None)
