"""`loom show --entries`: looking back at every turn of a job and every entry of its conversation."""

import json
import uuid
from collections.abc import Callable

import pytest

from loom_dsl.agent.turn import turn_id
from tests.cli.conftest import House

pytestmark = pytest.mark.server

TASK = {"role": "user", "content": "write it down"}


@pytest.fixture(scope="module")
def written(house: House) -> str:
    """A job of two turns, whose only call was rejected."""
    agent, workdir, job = house.agent("writer"), house.workdir(), f"look-{uuid.uuid4().hex[:4]}"
    said = house.loom("run", agent, TASK["content"], "--workdir", workdir, "--job", job, "--detach")
    assert said.code == 0, said
    house.pending(job)
    assert house.loom("reject", job, "--reason", "not today", "--by", "ann").code == 0
    assert house.loom("wait", job).code == 0
    return job


def test_programs_get_the_chain_of_turns_and_the_whole_conversation(house: House, written: str) -> None:
    told = json.loads(house.loom("show", written, "--entries", "--json").out)
    names = [turn_id(written, number) for number in range(2)]
    chain = told["chain"]
    assert [(turn["turn"], turn["turn_id"], turn["parent_turn_id"], turn["tools"]) for turn in chain] == [
        (1, names[0], None, ["write_file"]),
        (2, names[1], names[0], []),
    ]
    assert told["created_at"][:19] <= chain[0]["started_at"][:19] <= chain[1]["started_at"][:19] <= told["ended_at"]
    assert sum(turn["usage"]["prompt_tokens"] for turn in chain) == told["usage"]["prompt_tokens"]
    entries = told["conversation"]
    assert [(entry["number"], entry["turn"], entry["role"]) for entry in entries] == [
        (0, 1, "user"),
        (1, 1, "assistant"),
        (2, 1, "tool"),
        (3, 2, "assistant"),
    ]
    assert len(entries) == told["entries"]
    assert entries[0]["content"] == TASK["content"]
    (call,) = entries[1]["tool_calls"]
    assert json.loads(call["function"]["arguments"])["path"] == "report.md"
    assert (entries[2]["tool_call_id"], entries[2]["tool"]) == (call["id"], "write_file")
    assert (entries[2]["status"], entries[2]["code"]) == ("error", "rejected")
    assert "not today" in entries[2]["content"]
    assert entries[3]["content"].startswith("It said: ")


def test_people_see_a_line_for_each_turn_and_entry(house: House, written: str) -> None:
    brief = house.loom("show", written).out
    whole = house.loom("show", written, "--entries").out
    assert whole.startswith(brief)
    lines = [" ".join(line.split()) for line in whole[len(brief) :].splitlines()]
    assert lines[0] == "turns"
    assert lines[3].startswith(f"2 {turn_id(written, 1)} ")
    at = lines.index("entries")
    assert lines[at + 2] == "0 1 user write it down"
    assert lines[at + 3] == "1 1 assistant I write. → write_file report.md content=(8)"
    assert lines[at + 4].startswith("2 1 tool write_file rejected: The call was rejected by ann: not today")
    assert len(lines) == at + 6


def test_one_turn_can_be_looked_at(house: House, written: str) -> None:
    told = json.loads(house.loom("show", written, "--turn", "2", "--json").out)
    assert [turn["turn"] for turn in told["chain"]] == [2]
    assert [entry["number"] for entry in told["conversation"]] == [3]
    none = house.loom("show", written, "--turn", "3")
    assert (none.code, none.out) == (2, "")
    assert none.err == f"error: job {written} has no turn 3; `loom show {written} --entries` lists those that it has\n"


def test_no_line_is_wider_than_the_terminal(house: House, written: str) -> None:
    for columns in (80, 200):
        with house.at_terminal("show", written, "--entries", columns=columns, NO_COLOR="1") as terminal:
            terminal.expect("It said: ")
            assert terminal.end() == 0
            lines = terminal.screen.splitlines()
        assert max(len(line.rstrip()) for line in lines) < columns
        (result,) = (line for line in lines if "rejected: The call was" in line)
        assert result.rstrip().endswith("…") is (columns == 80)


def test_a_job_of_a_graph_has_neither(house: House, fresh: Callable[[str], str]) -> None:
    job = fresh("graph")
    path = house.folder / f"{job}.yaml"
    path.write_text("{loom: 1, kind: graph, name: brief, nodes: {done: {end: 1}}}")
    assert house.loom("run", str(path), "--job", job).code == 0
    said = house.loom("show", job, "--entries")
    assert said.code == 2
    assert f"job {job} is a graph's and has neither turns nor entries; see `loom watch {job}`" in said.err
