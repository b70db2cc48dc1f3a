"""The approvals that wait, and those that nobody can decide any more."""

import json

import pytest
from temporalio.client import Client

from loom_store.store import Store
from tests.cli.conftest import House
from tests.support.waiting import eventually, until

pytestmark = pytest.mark.server


async def test_what_a_terminated_job_asked_is_withdrawn_and_not_listed(house: House) -> None:
    client = await Client.connect(house.address)
    alive, dead = house.started("writer"), house.started("writer")
    house.pending(alive)
    (approval,) = house.pending(dead)
    await client.get_workflow_handle(dead).terminate("by hand")

    def listed() -> list[str]:
        return [json.loads(line)["job"] for line in house.loom("approvals", "--json").out.splitlines()]

    # A list waits for a slow server only for a moment.
    await eventually(lambda: dead not in listed())
    assert alive in listed()
    assert f"no approval waits in job {dead}" in house.loom("approve", dead).err
    assert "is already decided: cancelled" in house.loom("approve", dead, approval["id"]).err
    with Store.open(house.store) as store:
        row = store.read_sync(lambda tx: tx.job(dead))
    assert row is not None
    assert row["status"] == "failed"
    assert row["ended_at"]
    assert house.loom("result", dead).err == f"error: job {dead} was terminated on the server\n"
    assert house.loom("abort", alive).code == 0


def test_a_list_of_approvals_needs_no_server_and_takes_none_away_that_another_one_does_not_know(
    house: House,
) -> None:
    job = house.started("writer")
    house.pending(job)
    without = house.loom("approvals", "--job", job, LOOM_ADDRESS="127.0.0.1:1")
    assert (without.code, without.err) == (0, "")
    assert f"loom approve {job} " in without.out
    assert house.loom("abort", job).code == 0


@pytest.mark.parametrize(("answers", "written"), [("maybe\ny\n", True), ("n\n", False), ("\x04", False)])
def test_at_a_terminal_who_names_no_approval_sees_the_call_and_is_asked(
    house: House, answers: str, written: bool
) -> None:
    job = house.started("writer")
    (approval,) = house.pending(job)
    with house.at_terminal("approve", job) as terminal:
        terminal.expect("approve this? [y]es [n]o ")
        assert "write report.md (8 characters)" in terminal.screen
        assert "+one" in terminal.screen
        terminal.type(answers)
        assert terminal.end() == (0 if written else 1), terminal.said
    assert (f"approved: {approval['id']}" in terminal.screen) is written
    if not written:
        assert f"it waits: `loom approve {approval['id']}` or" in " ".join(terminal.screen.split())
        assert house.loom("reject", job, approval["id"]).code == 0
    assert house.loom("wait", job).code == 0


def test_who_names_the_approval_or_says_yes_is_not_asked(house: House) -> None:
    job = house.started("twice")
    (first,) = house.pending(job)
    with house.at_terminal("approve", first["id"]) as terminal:
        assert terminal.end() == 0
    assert terminal.screen.strip() == f"approved: {first['id']} (write_file) of job {job}"
    (second,) = house.pending(job, but=(first["id"],))
    with house.at_terminal("approve", job, "--yes") as terminal:
        assert terminal.end() == 0
    assert f"approved: {second['id']}" in terminal.screen
    assert "approve this?" not in terminal.screen
    assert "write a.md" in terminal.screen
    assert house.loom("wait", job).code == 0


def test_a_call_without_a_preview_is_shown_with_its_arguments_and_with_the_other_ones(house: House) -> None:
    job = house.started("calm", permissions={"ask": ["glob", "read_file"]})
    house.pending(job, 2)
    rows = [json.loads(line) for line in house.loom("approvals", "--job", job, "--json").out.splitlines()]
    globbed, read = sorted(rows, key=lambda row: str(row["tool"]))
    assert house.loom("reject", globbed["id"]).code == 0
    until(lambda: [row["id"] for row in house.pending(job)] == [read["id"]])  # which is written down a moment later
    other = house.folder / "other.json"
    other.write_text('{"path": "another.txt"}')
    said = house.loom("approve", job, "--edit", str(other))
    assert said.out.endswith(f"\napproved with other arguments: {read['id']} (read_file) of job {job}\n")
    shown = " ".join(said.out.split())
    assert '"path": "missing.txt"' in shown
    assert 'with other arguments: { "path": "another.txt" }' in shown
    assert house.loom("wait", job).code == 0


def test_several_are_decided_at_once_each_for_itself_and_the_trail_tells_of_all(house: House) -> None:
    job = house.started("pair", approvals={"approvers": ["ann"], "quorum": 1})
    first, second = house.pending(job, 2)
    assert house.loom("decide", job).err.startswith("error: give one of --approve, --reject, --edit")
    refused = house.loom("decide", job, "--all", "--approve", "--by", "eve", "--json")
    assert refused.code == 1
    verdicts = [json.loads(line)["verdict"] for line in refused.out.splitlines()]
    assert verdicts == ["not_allowed"] * 2
    wrong = house.loom("decide", job, first["id"], "--approve", "--by", "ann", "--digest", "0" * 64)
    assert (wrong.code, "has the digest" in wrong.err) == (2, True)
    said = house.loom("decide", job, first["id"], "--approve", "--by", "ann", "--remember", "rule")
    assert said.out.startswith(f"approved: {first['id']} (write_file) of job {job}; remembered for later jobs too: ")
    both = house.loom("decide", first["id"], second["id"], "--respond", "It is there.", "--by", "ann")
    assert both.code == 1
    assert both.err.startswith(f"not taken: {first['id']} of job {job}: approval {first['id']} is already decided")
    assert both.out == f"answered in the tool's place: {second['id']} (write_file) of job {job}\n"
    assert house.loom("wait", job).code == 0
    (rule,) = [json.loads(line) for line in house.loom("rules", "--json").out.splitlines()]
    assert (rule["kept_by"], rule["approval"]) == ("ann", first["id"])
    assert house.loom("rules", "--revoke", str(rule["id"])).code == 0
    assert "no rule" in house.loom("rules", "--revoke", str(rule["id"])).err
    trail = [json.loads(line) for line in house.loom("audit", "export", "--job", job).out.splitlines()]
    kinds = [(entry["kind"], entry["data"].get("verdict") or entry["data"].get("choice")) for entry in trail]
    assert kinds.count(("decision_refused", "not_allowed")) == 2
    assert ("decision_refused", "wrong_digest") in kinds
    assert {choice for kind, choice in kinds if kind == "approval_decided"} == {"approve", "respond"}
    assert ("rule_kept", None) in kinds
    whole = json.loads(house.loom("audit", "verify", "--json").out)
    assert whole["problem"] == ""
    assert house.loom("audit", "verify", "--head", whole["head"]).code == 0
    assert house.loom("audit", "verify", "--head", "0" * 63 + "1").code == 1


def test_what_became_of_a_decision_is_said_and_who_has_voted(house: House) -> None:
    job = house.started("writer", approvals={"quorum": 2})
    (asked,) = house.pending(job)
    of = f"{asked['id']} (write_file) of job {job}"
    said = house.loom("decide", job, "--approve", "--by", "ann", "--yes", asked["id"])
    assert said.out == f"recorded, and it still waits: {of}: approve recorded: 1 of 2 (ann)\n"
    said = house.loom("decide", asked["id"], "--approve", "--by", "ANN", "--yes")
    assert said.out == f"counted before: {of}: ANN has answered already, and counts once; 1 of 2 (ann)\n"

    def listed() -> str:
        return house.loom("approvals", "--job", job).out

    until(lambda: "  approve by ann: 1 of 2\n" in listed())
    assert house.loom("decide", asked["id"], "--approve", "--by", "bob", "--yes").out == f"approved: {of}\n"
    assert house.loom("wait", job).code == 0


def test_a_job_is_ended_by_what_is_said_to_its_question(house: House) -> None:
    job = house.started("pair")
    house.pending(job, 2)
    assert house.loom("decide", job, "--all", "--terminate", "--reason", "enough", "--by", "ann", "--yes").code == 0
    ended = house.loom("result", job)
    assert ended.code == 1
    assert "terminated by ann: enough" in ended.err
