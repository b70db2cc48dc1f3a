"""Every code of the static checks has a document that shows it and one that does not."""

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from loom_cli.project.validate import RULE_FOR_ANY_CODE
from loom_dsl.documents.document import MAX_DOCUMENT, load_yaml
from loom_dsl.errors import Diagnostic, DocumentError
from loom_dsl.graph.checks import flow, tokens, unit
from loom_dsl.graph.checks.codes import CODES, severity_of
from loom_dsl.graph.checks.unit import Contract
from loom_dsl.graph.compiler import check_text, compile_graph
from loom_dsl.graph.library import NAMES, source_of

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "tests" / "fixtures" / "checks"
PAGE = ROOT / "docs" / "reference" / "checks.md"
CLEAN = {"type": "object", "properties": {"text": {"type": "string"}}, "additionalProperties": False}
WITH_MODULES = ("L152",)
"""Codes of what is known only where the functions' modules are."""


def contracts(what: str, name: str) -> Contract | None:
    return Contract(CLEAN) if (what, name) == ("activity", "steps:clean") else None


@pytest.mark.parametrize("code", CODES)
def test_a_document_with_the_mistake_has_exactly_that_finding_at_its_place(code: str) -> None:
    text = (FIXTURES / f"{code}-bad.yaml").read_text(encoding="utf-8")
    place = re.match(r"# at (\d+):(\d+)\n", text)
    assert place, "the first line says where the finding is"
    told = [
        (found.code, found.line, found.column) for found in check_text(text, f"{code}-bad.yaml", contracts=contracts)
    ]
    assert told == [(code, int(place[1]), int(place[2]))]


@pytest.mark.parametrize("code", CODES)
def test_a_document_without_the_mistake_has_no_finding(code: str) -> None:
    text = (FIXTURES / f"{code}-ok.yaml").read_text(encoding="utf-8")
    assert check_text(text, f"{code}-ok.yaml", contracts=contracts) == []


def test_there_are_no_fixtures_of_other_codes() -> None:
    names = {f"{code}-{kind}.yaml" for code in CODES for kind in ("ok", "bad")}
    assert {file.name for file in FIXTURES.iterdir()} == names


@pytest.mark.parametrize("code", CODES)
def test_every_code_has_a_paragraph_with_its_title_and_severity(code: str) -> None:
    severity, title = CODES[code]
    page = PAGE.read_text(encoding="utf-8")
    heading = f"### {code}: {title}" + (" (warning)" if severity == "warning" else "")
    assert page.count(f"{heading}\n") == 1
    paragraph = page.partition(f"{heading}\n")[2].partition("\n#")[0]
    assert len(paragraph.split()) > 25, "say what is wrong, why it matters and what to do"


def test_the_page_has_no_codes_that_are_not_checked() -> None:
    headings = re.findall(r"(?m)^### (L\d{3})", PAGE.read_text(encoding="utf-8"))
    assert headings == sorted([*CODES, RULE_FOR_ANY_CODE])


@pytest.mark.parametrize("code", [code for code in CODES if severity_of(code) == "warning"])
def test_a_warning_does_not_keep_a_graph_from_running(code: str) -> None:
    text = (FIXTURES / f"{code}-bad.yaml").read_text(encoding="utf-8")
    assert compile_graph(text, "x.yaml").root == "example"
    assert [found.severity for found in check_text(text, "x.yaml")] == ["warning"]
    assert f"{code} warning: " in str(check_text(text, "x.yaml")[0])


@pytest.mark.parametrize("code", [c for c in CODES if severity_of(c) == "error" and c not in WITH_MODULES])
def test_an_error_keeps_a_graph_from_running(code: str) -> None:
    with pytest.raises(DocumentError) as caught:
        compile_graph((FIXTURES / f"{code}-bad.yaml").read_text(encoding="utf-8"), "x.yaml")
    assert [found.code for found in caught.value.diagnostics] == [code]


def test_a_refused_graph_tells_its_warnings_too() -> None:
    text = (FIXTURES / "L141-bad.yaml").read_text(encoding="utf-8").replace("next: done", "next: dne")
    with pytest.raises(DocumentError) as caught:
        compile_graph(text, "x.yaml")
    assert {found.code: found.severity for found in caught.value.diagnostics} == {
        "L102": "error",
        "L141": "warning",
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_graph_has_neither_errors_nor_warnings(name: str) -> None:
    assert check_text(source_of(name), name) == []


def test_findings_come_in_the_order_of_the_document() -> None:
    text = "\n".join((FIXTURES / "L140-bad.yaml").read_text(encoding="utf-8").splitlines()[1:])
    found = check_text(text + "\n  lost: {end: '${input.x}'}\n  also: {fail: '${state.y}'}\n", "x.yaml")
    assert [(f.line, f.column) for f in found] == sorted((f.line, f.column) for f in found)
    assert [f.code for f in found] == ["L140", "L104", "L121", "L104", "L121"]


def chain(count: int) -> str:
    """A document of so many nodes: diamonds one after another, with cycles and references."""
    nodes = {}
    for index in range(count // 5):
        here, after = f"n{index}", f"n{index + 1}"
        nodes |= {
            here: {"next": [f"{here}a", f"{here}b"]},
            f"{here}a": {"activity": "x.a", "next": f"{here}j"},
            f"{here}b": {"activity": "x.b", "with": {"x": "${run.id}"}, "next": f"{here}j"},
            f"{here}j": {"join": "all", "next": f"{here}c"},
            f"{here}c": {
                "max_visits": 3,
                "next": [{"if": f"nodes.{here}a.ok", "to": here}, {"to": after}],
            },
        }
    nodes[f"n{count // 5}"] = {"end": None}
    return json.dumps({"loom": 1, "kind": "graph", "name": "long", "nodes": nodes})


def test_the_work_of_the_checks_grows_no_faster_than_the_square_of_the_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted, not timed: how often nodes are walked over for the checks of two graphs, one four times the other."""
    steps = 0
    original = flow.ControlFlow.reach

    def counted(self: flow.ControlFlow, *args: object, **kwargs: object) -> set[str]:
        nonlocal steps
        found = original(self, *args, **kwargs)  # type: ignore[arg-type]
        steps += len(found)
        return found

    monkeypatch.setattr(flow.ControlFlow, "reach", counted)
    assert check_text(chain(100), "x.yaml") == []
    small, steps = steps, 0
    assert check_text(chain(400), "x.yaml") == []
    assert 0 < small < 100 * 100
    assert steps < 20 * small


def test_what_stands_around_a_graph_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted, not timed: it is asked for by each graph about each other one."""
    asked: list[str] = []
    original = unit._closure

    def counted(start: str, edges: Mapping[str, list[str]]) -> list[str]:
        asked.append(start)
        return original(start, edges)

    monkeypatch.setattr(unit, "_closure", counted)
    graphs = {f"g{i}": {"nodes": {"a": {"end": {"v": 1}}}} for i in range(40)}
    nodes = {f"n{i}": {"graph": f"g{i}", "next": f"n{i + 1}"} for i in range(40)}
    text = {"loom": 1, "kind": "graph", "name": "many", "nodes": {**nodes, "n40": {"end": None}}, "graphs": graphs}
    assert check_text(json.dumps(text), "x.yaml") == []
    assert 40 < len(asked) < 3 * 40


def test_what_is_too_large_is_refused_before_the_checks() -> None:
    found = check_text("x" * (MAX_DOCUMENT + 1), "x.yaml")
    assert [(f.code, f.severity) for f in found] == [("L007", "error")]


def test_a_part_of_a_document_keeps_its_places() -> None:
    document = load_yaml("a:\n  b: {c: 1}\n", "x.yaml")
    part = document.part(("a", "b"))
    assert part.data == {"c": 1}
    assert part.diagnostic("L1", "", ("c",)) == Diagnostic("L1", "", "x.yaml", 2, 10)
    with pytest.raises(KeyError):
        document.part(("a", "x"))


def test_a_split_of_a_thousand_branches_is_followed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted: how often it is looked at which edges to the join a token of a node may miss."""
    names = [f"n{index}" for index in range(1000)]
    nodes = {"all": {"next": names}, **{name: {"activity": "x", "next": "meet"} for name in names}}
    nodes |= {"meet": {"join": "all", "next": "done"}, "done": {"end": None}}
    calls = 0
    original = tokens.deque.popleft

    class Counted(tokens.deque[str]):
        def popleft(self) -> str:
            nonlocal calls
            calls += 1
            return original(self)

    monkeypatch.setattr(tokens, "deque", Counted)
    assert check_text(json.dumps({"loom": 1, "kind": "graph", "name": "wide", "nodes": nodes}), "x.yaml") == []
    assert 1000 < calls < 5000
