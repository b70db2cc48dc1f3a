"""Tokens that do not count: an address may try some, then it waits; others and those at work are not locked out."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import cast

import httpx2
import pytest
from temporalio.client import Client

from loom_client.client import Loom
from loom_client.settings import Settings
from loom_dsl.permissions.roles import Role
from loom_gateway.app import application
from loom_gateway.attempts import MAX_ADDRESSES, MAX_KNOWN, MOST, SECONDS, Attempts
from loom_gateway.service import Service
from loom_gateway.tokens import Tokens, add_token
from loom_store.store import Store


class Clock:
    """A time that only a test moves."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def spend(attempts: Attempts, address: str, count: int = MOST) -> None:
    for number in range(count):
        assert attempts.wait(address, f"wrong {number}") == 0
        attempts.failed(address, f"wrong {number}")


def test_an_address_waits_after_so_many_wrong_tokens_and_then_has_one_more(clock: Clock) -> None:
    attempts = Attempts(clock)
    spend(attempts, "192.0.2.1")
    wait = attempts.wait("192.0.2.1", "right")
    assert 1 <= wait <= SECONDS + 1
    clock.now += wait
    spend(attempts, "192.0.2.1", 1)
    assert attempts.wait("192.0.2.1", "right") > 0
    clock.now += MOST * SECONDS + 1
    spend(attempts, "192.0.2.1")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("192.0.2.1", "192.0.2.2", False),
        ("2001:db8::1", "2001:db8::ffff", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("fe80::1%eth0", "fe80::2%eth0", True),
        ("", "192.0.2.1", False),
        ("testclient", "other", False),
    ],
)
def test_only_the_same_client_waits(clock: Clock, one: str, other: str, same: bool) -> None:
    attempts = Attempts(clock)
    spend(attempts, one)
    assert (attempts.wait(other, "right") > 0) is same


def test_who_came_in_from_an_address_before_comes_in_while_it_waits(clock: Clock) -> None:
    attempts = Attempts(clock)
    attempts.succeeded("192.0.2.1", "right")
    spend(attempts, "192.0.2.1")
    assert attempts.wait("192.0.2.1", "right") == 0
    assert attempts.wait("192.0.2.1", "another") > 0
    attempts.failed("192.0.2.1", "right")  # it was taken out of the file
    assert attempts.wait("192.0.2.1", "right") > 0


def test_what_is_remembered_is_bounded_and_the_latest_stay(clock: Clock) -> None:
    attempts = Attempts(clock)
    for number in range(MAX_ADDRESSES + 10):
        attempts.failed(f"2001:db8:{number:x}::1", "wrong")
        attempts.succeeded("192.0.2.1", str(number))
    assert (len(attempts._spent), len(attempts._known)) == (MAX_ADDRESSES, MAX_KNOWN)
    spend(attempts, "192.0.2.1")
    assert attempts.wait("192.0.2.1", str(MAX_ADDRESSES)) == 0
    assert attempts.wait("192.0.2.1", "0") > 0


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Callable[[str], httpx2.AsyncClient]]:
    add_token(tmp_path / "tokens", "bob")
    with Store.open(tmp_path / "loom.db") as store:
        loom = Loom(cast(Client, None), store, Settings())
        roles = {"looker": Role(who=("ann", "bob"))}
        app = application(Service(loom, roles), Tokens(tmp_path / "tokens"))
        made: list[httpx2.AsyncClient] = []

        def client(address: str) -> httpx2.AsyncClient:
            transport = httpx2.ASGITransport(app, client=(address, 1))
            made.append(httpx2.AsyncClient(transport=transport, base_url="http://gate"))
            return made[-1]

        yield client
        for one in made:
            await one.aclose()


async def test_the_gateway_answers_429_with_the_time_to_wait(
    door: Callable[[str], httpx2.AsyncClient], tmp_path: Path
) -> None:
    token = add_token(tmp_path / "tokens", "ann")
    here, there = door("192.0.2.1"), door("192.0.2.2")

    async def ask(client: httpx2.AsyncClient, token: str) -> httpx2.Response:
        return await client.get("/v1/jobs", headers={"Authorization": f"Bearer {token}"} if token else {})

    assert (await ask(here, token)).status_code == 200
    assert {(await ask(here, "")).status_code for _ in range(2 * MOST)} == {401}  # nothing was tried
    assert {(await ask(here, f"loom_{n}")).status_code for n in range(MOST)} == {401}
    refused = await ask(here, "loom_more")
    assert (refused.status_code, refused.json()["title"]) == (429, "Too many tries")
    assert 1 <= int(refused.headers["retry-after"]) <= SECONDS + 1
    new = add_token(tmp_path / "tokens", "bob")
    assert [(await ask(client, one)).status_code for client, one in ((here, token), (there, token), (here, new))] == [
        200, 200, 429,
    ]  # fmt: skip
    assert (await ask(there, new)).status_code == 200
