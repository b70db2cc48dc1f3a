"""Arguments that an approver writes are held against the tool's schema before anything is decided: every way in."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import House
from tests.cli.door import Door, opened_door

pytestmark = pytest.mark.server

WRONG, RIGHT = {"path": "b.md", "content": 5}, {"path": "b.md", "content": "mine\n"}


@pytest.fixture(scope="module")
def door(house: House, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    with opened_door(house, tmp_path_factory.mktemp("gateway"), {}) as door:
        yield door


def written(house: House, name: str, arguments: object) -> str:
    path = house.folder / name
    path.write_text(json.dumps(arguments))
    return str(path)


@pytest.mark.parametrize("command", [("approve",), ("decide", "--yes")], ids=lambda command: command[0])
@pytest.mark.parametrize("named", [True, False], ids=["named", "the only one"])
def test_the_command_line_names_the_argument_and_decides_nothing(
    house: House, command: tuple[str, ...], named: bool
) -> None:
    job = house.started("writer")
    (row,) = house.pending(job)
    wanted = [*command, row["id"] if named else job, "--edit"]
    refused = house.loom(*wanted, written(house, "wrong.json", WRONG))
    assert refused.code == 2
    assert refused.err.startswith("error: the arguments do not fit the tool write_file, and nothing was decided:")
    assert "'content': expected string, got integer 5" in refused.err
    assert refused.out == ""
    assert [waits["id"] for waits in house.pending(job)] == [row["id"]]
    said = house.loom(*wanted, written(house, "right.json", RIGHT))
    assert (said.code, "approved with other arguments" in said.out) == (0, True), said
    assert house.loom("wait", job).code == 0


def test_the_gateway_says_so_with_its_status(door: Door) -> None:
    job = door.house.started("writer")
    (row,) = door.house.pending(job)
    refused = door.decide(row["id"], choice="edit", edited_arguments=WRONG)
    assert (refused.status_code, refused.json()["verdict"]) == (422, "invalid"), refused.text
    assert "'content': expected string" in refused.json()["detail"]
    assert door.ask("GET", f"/v1/approvals/{row['id']}").json()["status"] == "pending"
    assert door.decide(row["id"], choice="edit", edited_arguments=RIGHT).json()["verdict"] == "recorded"
    assert door.house.loom("wait", job).code == 0


def test_at_a_terminal_it_asks_again(house: House) -> None:
    editor = house.folder / "spoil.sh"
    editor.write_text("""#!/bin/sh\necho '{"path": "b.md", "content": 5}' > "$1"\n""")
    editor.chmod(0o755)
    workdir = house.workdir()
    with house.at_terminal("run", house.agent("writer"), "write", "--workdir", workdir, EDITOR=str(editor)) as terminal:
        place = terminal.expect("[y]es")
        terminal.type("e\n")
        place = terminal.expect("not taken: 'content': expected string", since=place)
        terminal.expect("[y]es", since=place)
        terminal.type("y\n")
        assert terminal.end() == 0, terminal.said
    assert [path.name for path in Path(workdir).iterdir()] == ["report.md"]
