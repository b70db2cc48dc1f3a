"""A user's job may have a dot in its id: it is below no other for that, whatever stands before the dot."""

import json
import uuid

import pytest

from loom_store.store import Store
from tests.cli.conftest import House

pytestmark = pytest.mark.server


def approvals_of(house: House, job: str) -> set[str]:
    said = house.loom("approvals", "--job", job, "--json")
    return {json.loads(line)["job"] for line in said.out.splitlines()}


def test_a_job_whose_id_begins_like_anothers_is_one_of_its_own_everywhere(house: House) -> None:
    plain = f"my-{uuid.uuid4().hex[:8]}"
    dotted = f"{plain}.job"
    for job in (plain, dotted):
        assert house.started("writer", "--job", job) == job
        house.pending(job)
    assert approvals_of(house, plain) == {plain}
    assert approvals_of(house, dotted) == {dotted}
    assert json.loads(house.loom("show", plain, "--json").out)["children"] == []
    listed = {json.loads(line)["job"] for line in house.loom("jobs", "--json").out.splitlines()}
    assert {plain, dotted} <= listed
    assert house.loom("approve", plain, "--yes").code == 0  # one approval waits there, so none need be named
    assert house.loom("wait", plain).code == 0
    assert approvals_of(house, dotted) == {dotted}
    assert house.loom("abort", dotted).code == 0
    assert house.loom("result", dotted).code != 0
    with Store.open(house.store) as store:
        rows = {job: store.read_sync(lambda tx, job=job: tx.job(job)) for job in (plain, dotted)}  # type: ignore[misc]
    assert {job: (row or {}).get("status") for job, row in rows.items()} == {plain: "completed", dotted: "aborted"}
