"""`loom replay`: a job once more from its record, as its user sees it."""

import json
import uuid
from collections.abc import Callable

import pytest

from tests.cli.conftest import House

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def ended(house: House) -> str:
    """A job of two turns that has ended."""
    job = f"replayed-{uuid.uuid4().hex[:4]}"
    said = house.loom("run", house.agent("calm"), "look", "--workdir", house.workdir(), "--job", job)
    assert said.code == 0, said
    return job


def test_a_job_is_gone_through_again_without_a_server_or_a_model(house: House, ended: str) -> None:
    nowhere = {"LOOM_ADDRESS": "127.0.0.1:1", "CALM_BASE_URL": "http://127.0.0.1:1/v1"}
    before = house.loom("show", ended, "--entries", "--json").out
    said = house.loom("replay", ended, **nowhere)
    assert (said.code, said.err) == (0, "")
    lines = said.out.splitlines()
    assert lines[:3] == ["● turn 1", "│ the session has 1 entries", "│ the model calls glob, read_file"]
    assert sorted(lines[3:5]) == ["│ glob: success", "│ read_file: tool_error"]
    assert lines[5:] == ["● turn 2", "│ the session has 4 entries", "│ the model answers", "✓ the same: completed"]
    assert house.loom("show", ended, "--entries", "--json").out == before


def test_another_agent_shows_what_it_would_have_done(house: House, ended: str) -> None:
    said = house.loom("replay", ended, "--agent", house.agent("calm", limits={"max_tool_calls": 1}))
    assert said.code == 1
    assert "│ - then: tool_calls_start glob, read_file" in said.out
    assert "│ + now: error max_tool_calls" in said.out
    assert said.out.endswith("✗ it differs; then completed, now failed (max_tool_calls)\n")
    told = json.loads(house.loom("replay", ended, "--agent", house.agent("calm"), "--json").out)
    assert (told["job"], told["status"], told["differs"], told["stopped"]) == (ended, "completed", False, "")
    assert told["recorded"] == {"status": "completed", "code": ""}
    assert [turn["number"] for turn in told["turns"]] == [0, 1]


def test_what_cannot_be_replayed_says_why(house: House, ended: str, fresh: Callable[[str], str]) -> None:
    job = fresh("graph")
    path = house.folder / f"{job}.yaml"
    path.write_text("{loom: 1, kind: graph, name: brief, nodes: {done: {end: 1}}}")
    assert house.loom("run", str(path), "--job", job).code == 0
    for arguments, why in (
        ((job,), f"job {job} is a graph's: what its nodes gave is not in the store; `loom simulate` plays graphs"),
        (("nonesuch",), "there is no job 'nonesuch'"),
        ((ended, "--agent", str(path)), "this is a graph's file; give an agent's"),
        ((ended, "--agent", "nowhere.yaml"), "nowhere.yaml"),
    ):
        said = house.loom("replay", *arguments)
        assert (said.code, said.out) == (2, "")
        assert why in said.err


def test_no_line_is_wider_than_the_terminal(house: House, ended: str) -> None:
    for columns in (80, 200):
        with house.at_terminal("replay", ended, columns=columns, NO_COLOR="1") as terminal:
            terminal.expect("the same: completed")
            assert terminal.end() == 0
            assert max(len(line.rstrip()) for line in terminal.screen.splitlines()) < columns
