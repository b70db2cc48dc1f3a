"""Rules that name no tool: `loom validate` and `loom run` say so."""

import json
import re
from pathlib import Path

import pytest

from loom_cli.project.validate import RULE_WITHOUT_TOOL, Tools, check_file
from loom_tools.registry import ToolRegistry
from tests.cli.conftest import House

HEAD = "loom: 1\nkind: agent\nname: scribe\nmodel: calm:any\ntools: [glob, write_file, 'mine:look_up']\n"


@pytest.mark.parametrize(
    ("permissions", "expected"),
    [
        ("{allow: [glob, look_up, 'mine:look_up', '*', read_file, 'write_file(a/**)']}", []),
        ("{deny: ['wirte_file(secret/**)']}", [("error", 22, "did you mean `write_file`?")]),
        ("{deny: [send_mail]}", [("warning", 22, "")]),
        (
            "{allow: [golb], ask: [lookup]}",
            [("warning", 23, "did you mean `glob`?"), ("warning", 36, "did you mean `look_up`?")],
        ),
        ("{wirte_file: deny, glob: allow}", [("error", 15, "did you mean `write_file`?")]),
    ],
)
def test_a_rule_that_holds_for_nothing_is_found_with_its_place(
    tmp_path: Path, permissions: str, expected: list[tuple[str, int, str]]
) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text(f"{HEAD}permissions: {permissions}\n")
    _, findings = check_file(file, Tools(ToolRegistry.load(), frozenset({"mine"})), {})
    assert [(found.severity, found.column, found.fix) for found in findings] == expected
    assert {(found.code, found.line) for found in findings} <= {(RULE_WITHOUT_TOOL, 6)}


@pytest.mark.server
def test_validate_ends_with_a_mistake_for_a_prohibition_only_and_run_tells_of_both(house: House) -> None:
    for rule, status in (("wirte_file", 2), ("send_mail", 0)):
        agent = house.agent("calm", permissions={"deny": [rule]})
        said = house.loom("validate", agent)
        assert (said.code, f"the rule `deny: {rule}` holds for nothing" in said.out) == (status, True), said
        started = house.loom("run", agent, "x", "--workdir", house.workdir(), "--detach", "--json")
        assert started.code == 0
        told = f"warning: {agent}:1:\\d+: L152 the rule `deny: {rule}` holds for nothing: agent scribe has no tool"
        assert re.match(told, started.err)
        assert house.loom("wait", json.loads(started.out)["job"]).code == 0
