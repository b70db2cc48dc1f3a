"""What the gateway answers when something is not done yet, or not now, and what a client does then."""

import re
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from loom_dsl.errors import (
    ConfigurationError,
    ConflictError,
    DecisionRefused,
    LoomError,
    StoreLocked,
    StoreTooNew,
    UserError,
)
from loom_gateway.responses import LATER, SOON, STATUS, Problem, problem, problem_for
from tests.cli.conftest import House
from tests.cli.door import Door, opened_door
from tests.support.waiting import until


@pytest.fixture(scope="module")
def door(house: House, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    with opened_door(house, tmp_path_factory.mktemp("gateway"), LOOM_ANSWER_SECONDS="3") as door:
        yield door


def described(door: Door, path: str, status: int) -> dict[str, Any]:
    """What the description says of an answer to a POST."""
    told: dict[str, Any] = door.ask("GET", "/openapi.json", by="").json()["paths"][path]["post"]["responses"]
    found: dict[str, Any] = told[str(status)]
    return found


@pytest.mark.server
def test_messages_beyond_what_a_job_keeps_are_told_to_come_again_and_do_when_it_has_room(door: Door) -> None:
    job = door.house.started("writer")
    (asked,) = door.house.pending(job)
    inject = f"/v1/jobs/{job}/inject"

    def full() -> httpx2.Response | None:
        answer = door.ask("POST", inject, json={"text": "and also this", "when": "when_idle"})
        assert answer.status_code in (200, 202, 503), answer.text
        return answer if answer.status_code == 503 else None

    answer = until(full)
    assert answer.json()["verdict"] == "full"
    assert answer.headers["retry-after"] == str(LATER)
    told = described(door, "/v1/jobs/{id}/inject", 503)
    assert "Retry-After" in told["headers"]
    assert "(`full`)" in told["description"]

    assert door.decide(asked["id"]).status_code in (200, 202)

    def taken() -> bool:  # as a client does that heeds what it was told
        answer = door.ask("POST", inject, json={"text": "now?"})
        assert answer.status_code in (200, 202, 409), answer.text
        return True

    until(taken)


@pytest.mark.server
def test_what_no_worker_confirms_is_sent_and_is_described_as_that(door: Door) -> None:
    job = door.house.started("writer", "--task-queue", "nobody-serves-this")
    for op, body in {"pause": {}, "inject": {"text": "and also this"}, "resume": {}}.items():
        answer = door.ask("POST", f"/v1/jobs/{job}/{op}", json=body)
        assert (answer.status_code, answer.json()["verdict"]) == (202, "unconfirmed"), answer.text
        assert "retry-after" not in answer.headers
    twice = described(door, "/v1/jobs/{id}/inject", 202)["description"]
    assert "(`unconfirmed`)" in twice
    assert "Do not send it again" in twice
    for path in ("/v1/approvals/{id}/decision", "/v1/jobs/{id}/pause", "/links/{text}"):
        assert "harmless" in described(door, path, 202)["description"]
    assert door.ask("POST", f"/v1/jobs/{job}/abort", json={}).status_code == 202


@pytest.mark.parametrize(
    ("error", "status", "after"),
    [
        (ConfigurationError("no server"), 503, LATER),
        (StoreLocked("busy"), 503, LATER),
        (LoomError("the server did not take it: too busy"), 503, LATER),
        (DecisionRefused("again", "retry"), 503, SOON),
        (DecisionRefused("too many", "full"), 503, LATER),
        (DecisionRefused("no keys", "unverifiable"), 503, None),
        (StoreTooNew("newer"), 503, None),
        (Problem(503, "the file of agent a is not in order"), 503, None),
        (DecisionRefused("late", "expired"), 410, None),
        (ConflictError("over"), 409, None),
        (UserError("what?"), 422, None),
    ],
)
def test_only_what_time_alone_cures_says_when_to_come_again(error: LoomError, status: int, after: int | None) -> None:
    answer = problem(problem_for(error))
    assert answer.status_code == status
    assert answer.headers.get("retry-after") == (None if after is None else str(after))


@pytest.mark.server
def test_each_verdict_that_is_not_now_is_described(door: Door) -> None:
    told = described(door, "/v1/approvals/{id}/decision", 503)["description"]
    assert set(re.findall(r"`([a-z_]+)`", told)) == {name for name, status in STATUS.items() if status == 503}
