"""Findings can be read by whatever reads SARIF."""

import json
from typing import Any

import pytest

from loom_dsl.authoring.sarif import sarif
from loom_dsl.errors import Diagnostic
from loom_dsl.graph.compiler import check_text

TEXT = """\
loom: 1
kind: graph
name: release
nodes:
  ask: {approval: Release?, next: train}
  train: {activity: a.train, timeout: 2h, next: dne}
"""


def run_of(findings: list[Diagnostic]) -> dict[str, Any]:
    log = json.loads(json.dumps(sarif(findings)))
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    assert isinstance(run, dict)
    return run


def test_each_finding_is_a_result_at_its_place_with_its_level() -> None:
    run = run_of(check_text(TEXT, "graphs/release.yaml"))
    assert [(result["ruleId"], result["level"]) for result in run["results"]] == [
        ("L140", "error"),
        ("L141", "warning"),
        ("L102", "error"),
    ]
    place = run["results"][0]["locations"][0]["physicalLocation"]
    assert place == {
        "artifactLocation": {"uri": "graphs/release.yaml"},
        "region": {"startLine": 5, "startColumn": 3},
    }


def test_every_result_names_its_rule_by_id_and_by_index() -> None:
    run = run_of([*check_text(TEXT, "x.yaml"), *check_text(TEXT, "y.yaml")])
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == ["L102", "L140", "L141"]
    assert all(rules[result["ruleIndex"]]["id"] == result["ruleId"] for result in run["results"])
    assert {rule["id"]: rule["defaultConfiguration"]["level"] for rule in rules}["L141"] == "warning"


def test_a_result_says_what_to_do() -> None:
    (first, *_) = run_of(check_text(TEXT, "x.yaml"))["results"]
    fix = "add `deadline: {after: 4h, to: NODE}`, or `deadline: never` when that is meant"
    assert first["message"]["text"].endswith(f" ({fix})")
    assert first["properties"] == {"fix": fix}


@pytest.mark.parametrize(
    ("file", "uri"),
    [
        ("a b.yaml", "a%20b.yaml"),
        ("/home/ä.yaml", "file:///home/%C3%A4.yaml"),
        ("sub\\x.yaml", "sub/x.yaml"),
        ("100%.yaml", "100%25.yaml"),
    ],
)
def test_a_files_name_is_a_uri(file: str, uri: str) -> None:
    (result,) = run_of([Diagnostic("L001", "no", file)])["results"]
    assert result["locations"] == [{"physicalLocation": {"artifactLocation": {"uri": uri}}}]


def test_what_has_no_file_has_no_location_and_nothing_is_an_empty_run() -> None:
    (result,) = run_of([Diagnostic("L010", "cannot be read")])["results"]
    assert "locations" not in result
    assert run_of([])["results"] == []
