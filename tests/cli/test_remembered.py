"""What was remembered of an approval is worth no more than that approval: who asks for more is asked again."""

import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loom_store.store import Store
from tests.cli.conftest import House, models_served, served

pytestmark = pytest.mark.server
AGAIN = """
  - calls: [{tool: write_file, args: {path: report.md, content: one}}]
  - calls: [{tool: write_file, args: {path: report.md, content: two}}]
  - {say: "It is written."}
"""
STRICTER: dict[str, dict[str, Any]] = {
    "a quorum": {"quorum": 2},
    "four eyes": {"four_eyes": True},
    "a signature": {"signed": "low"},
}


@pytest.fixture(scope="module")
def again(house: House, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder, queue = tmp_path_factory.mktemp("again"), f"again-{uuid.uuid4().hex[:8]}"
    with models_served({"again": AGAIN}) as models:
        made = replace(house, folder=folder, queue=queue, models=models)
        with served(["worker"], made.environment(), folder, "worker ready", made.ready):
            yield made


def begun(house: House, workdir: str, **fields: Any) -> str:
    said = house.loom("run", house.agent("again", **fields), "do it", "--workdir", workdir, "--detach")
    assert said.code == 0, said
    return said.out.strip()


def asked_by(house: House, job: str) -> list[dict[str, Any]]:
    with Store.open(house.store) as store:
        return store.read_sync(lambda tx: tx.approvals(job=job))


def test_a_rule_of_one_persons_word_lets_nothing_run_that_needs_more(again: House) -> None:
    workdir = again.workdir()
    first = begun(again, workdir)
    (asked,) = again.pending(first)
    assert again.loom("decide", asked["id"], "--approve", "--by", "ann", "--remember", "rule").code == 0
    assert again.loom("wait", first).code == 0
    same = begun(again, workdir)
    assert again.loom("wait", same).code == 0
    assert asked_by(again, same) == []
    for approvals in STRICTER.values():
        stricter = begun(again, workdir, approvals=approvals)
        assert again.pending(stricter)[0]["tool"] == "write_file"
        assert again.loom("abort", stricter).code == 0


def test_a_rule_that_enough_people_kept_counts_where_so_many_are_needed(again: House) -> None:
    workdir = again.workdir()
    first = begun(again, workdir, approvals={"quorum": 2})
    (asked,) = again.pending(first)
    for who in ("ann", "bob"):
        said = again.loom("decide", asked["id"], "--approve", "--by", who, "--remember", "rule")
        assert said.code == 0, said
    assert "if all who agree say so, remembered for later jobs too" in said.out
    assert again.loom("wait", first).code == 0
    same = begun(again, workdir, approvals={"quorum": 2})
    assert again.loom("wait", same).code == 0
    assert asked_by(again, same) == []
    more = begun(again, workdir, approvals={"quorum": 3})
    assert again.pending(more)
    assert again.loom("abort", more).code == 0


def test_what_is_remembered_for_a_job_does_not_stand_in_for_a_signature_that_is_wanted_later(again: House) -> None:
    workdir = Path(again.workdir())
    job = begun(again, str(workdir))
    (first,) = again.pending(job)
    (workdir / ".loom").mkdir()
    (workdir / ".loom" / "policy.yaml").write_text("loom: 1\nkind: policy\nsigned: low\n")
    assert again.loom("decide", first["id"], "--approve", "--by", "ann", "--remember", "job").code == 0
    (second,) = again.pending(job, but=(first["id"],))
    assert second["details"]["signed"] is True
    assert not (workdir / "report.md").exists()  # nor did the first one run: it was decided without one
    assert again.loom("abort", job).code == 0
