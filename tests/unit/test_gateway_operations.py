"""The gateway's table of operations: what is described of them, who is let in, and what an answer must be."""

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest
from openapi_spec_validator import validate
from temporalio.client import Client

from loom_client.client import Loom
from loom_client.settings import Settings
from loom_dsl.permissions.roles import Role
from loom_gateway.app import application
from loom_gateway.openapi import description
from loom_gateway.operations import OPERATIONS
from loom_gateway.service import Service
from loom_gateway.tokens import Tokens, add_token
from loom_store.rows import ApprovalRow
from loom_store.store import Store


class Gate:
    """A gateway in this process over a store of its own, with a token of ann, who may look only."""

    def __init__(self, store: Store, client: httpx2.AsyncClient, token: str) -> None:
        self.store, self._client, self._token = store, client, token

    async def ask(self, method: str, path: str, *, token: bool = True, **more: Any) -> httpx2.Response:
        headers = {"Authorization": f"Bearer {self._token}"} if token else {}
        return await self._client.request(method, path, headers=headers, **more)

    async def put(self, **fields: Any) -> None:
        given = {"tool": "", "arguments_digest": "", "summary": "", **fields}
        row = ApprovalRow(id="ap_1", job="one", created_at=time.time(), **given)
        await self.store.write(lambda tx: tx.upsert_approval(row))


@pytest.fixture
async def gate(tmp_path: Path) -> AsyncIterator[Gate]:
    token = add_token(tmp_path / "tokens", "ann")
    with Store.open(tmp_path / "loom.db") as store:
        loom = Loom(cast(Client, None), store, Settings())
        app = application(Service(loom, {"looker": Role(who=("ann",))}), Tokens(tmp_path / "tokens"))
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://gate") as client:
            yield Gate(store, client, token)


def test_the_table_gives_a_valid_description_in_which_each_operation_has_its_models() -> None:
    described = description(OPERATIONS, "http://gate")
    validate(described)
    schemas = described["components"]["schemas"]
    assert schemas["Approval"]["properties"]["arguments_digest"]["description"].startswith("Of what is asked")
    assert schemas["Links"]["required"] == ["expires_at"]
    for operation in OPERATIONS:
        told = described["paths"][operation.path][operation.method]
        assert (told["operationId"], "security" in told) == (operation.name, operation.open)
        content = told["responses"][str(operation.status)]["content"]
        assert ("text/html" in content) == (operation.gives is None)
        assert ("403" in told["responses"]) == (operation.name != "openapi")
    told = {one["name"]: one["schema"] for one in described["paths"]["/v1/approvals"]["get"]["parameters"]}
    assert (told["job"]["type"], told["status"]["enum"]) == ("string", ["pending", "all"])
    assert (told["limit"]["maximum"], told["limit"]["default"]) == (500, 100)


@pytest.mark.parametrize("operation", [one for one in OPERATIONS if not one.open], ids=lambda one: str(one.name))
async def test_who_asks_is_looked_at_before_what_is_asked(gate: Gate, operation: Any) -> None:
    path = operation.path.replace("{id}", "none") + "?limit=none"
    refused = await gate.ask(operation.method, path, token=False, content=b"{")
    assert refused.status_code == 401
    if operation.right:
        refused = await gate.ask(operation.method, path, content=b"{")
        assert (refused.status_code, refused.json()["verdict"]) == (403, "not_allowed")
    elif operation.takes:
        assert (await gate.ask(operation.method, path, content=b"{")).status_code in (415, 422)


async def test_an_answer_that_does_not_fit_its_model_is_a_mistake_of_ours_and_nothing_of_it_is_sent(
    gate: Gate, capfd: pytest.CaptureFixture[str]
) -> None:
    await gate.put(summary="a secret", turn="the first")
    for path in ("/v1/approvals", "/v1/approvals/ap_1"):
        answer = await gate.ask("GET", path)
        assert (answer.status_code, answer.json()["code"]) == (500, "unfit_answer")
        assert answer.headers["content-type"] == "application/problem+json"
        assert "secret" not in answer.text
    logged = capfd.readouterr().err
    assert "gateway: the answer of approvals does not fit Approvals: approvals.0.turn: " in logged
    assert "gateway: the answer of approval does not fit ApprovalDetail: turn: " in logged
    assert "the first" not in logged


async def test_a_question_whose_texts_are_none_is_shown_with_them_as_json(gate: Gate) -> None:
    """A graph's question is whatever its author has put together."""
    await gate.put(summary={"cost": [1, None]}, requester=7, reason="\ud83d\ude00", details={"risk": 1})
    (row,) = (await gate.ask("GET", "/v1/approvals")).json()["approvals"]
    assert (row["summary"], row["requester"], row["reason"]) == ('{"cost": [1, null]}', "7", "😀")
    assert row["details"] == {"risk": 1}
    await gate.put(summary=None, reason=None, requester=None)
    (row,) = (await gate.ask("GET", "/v1/approvals")).json()["approvals"]
    assert (row["summary"], row["requester"], row["reason"]) == ("", "", "")
