"""What is written as YAML is read as the same, whatever it is."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from loom_dsl.documents.document import load_document, load_yaml
from loom_dsl.documents.validation import validate_model
from loom_dsl.documents.yaml_writer import Rows, write_yaml
from loom_dsl.errors import DocumentError
from loom_dsl.graph.builder import GraphBuilder
from loom_dsl.graph.dump import to_yaml
from loom_dsl.graph.extend import extended
from loom_dsl.graph.graph import Graph
from loom_dsl.graph.library import NAMES, shipped, source_of
from loom_dsl.graph.plan import Plan
from tests.docs.markdown import PAGES, blocks
from tests.unit.test_graph import DOCUMENTS

ROOT = Path(__file__).parents[2]
FILES = [path for folder in ("examples", "loom_dsl", "loom_cli", "tests") for path in ROOT.glob(f"{folder}/**/*.yaml")]
GRAPHS = {
    **{name: source_of(name) for name in NAMES},
    **{path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in FILES},
    **{block.place: block.text for page in PAGES for block in blocks(page) if block.language == "yaml"},
}
"""Every document of the repository, by where it is."""


def read(text: str) -> Graph:
    document = load_document(text, "test.yaml", kinds=("graph",))
    return validate_model(extended(document, lambda name: shipped(name).dump(), NAMES), Graph)


def is_graph(text: str) -> bool:
    try:
        read(text)
    except DocumentError:
        return False
    return True


@pytest.mark.parametrize("name", [name for name, text in GRAPHS.items() if is_graph(text)])
def test_a_graph_of_the_repository_is_dumped_and_read_as_the_same(name: str) -> None:
    graph = read(GRAPHS[name])
    text = to_yaml(graph)
    again = read(text)
    assert again == graph
    assert to_yaml(again) == text
    assert Plan(again.name, {again.name: again}, {}).hash == Plan(graph.name, {graph.name: graph}, {}).hash


@given(DOCUMENTS)
def test_any_graph_is_dumped_and_read_as_the_same(document: dict[str, Any]) -> None:
    graph = Graph.model_validate(document)
    text = to_yaml(graph)
    assert read(text) == graph
    assert to_yaml(read(text)) == text


def test_the_graphs_of_the_repository_are_found() -> None:
    found = {name for name, text in GRAPHS.items() if is_graph(text)}
    assert {*NAMES, "examples/extend/critic.yaml"} <= found
    assert any(name.startswith("docs/reference/graph.md:") for name in found)


WRITTEN = """\
loom: 1
kind: graph
name: release
version: "1.0"
doc: Ships a release when a human agrees.
input: {version: str, note: {type: str, default: ""}}
start: agree
nodes:
  build:
    activity: my.build
    with: {version: "${input.version}", retries: null, odd key: [1, 2.5, true]}
    timeout: 10m
    retry: {attempts: 5, initial: 500ms}
    write: {built: "${result}"}
    catch: {any: broken}
    next: agree
  agree:
    approval: {ask: "Ship ${nodes.build.version}?"}
    deadline: {after: 1d, to: broken}
    next:
      - {if: result.choice == 'approve', to: several}
      - {if: result.choice == 'later', to: wait}
      - {to: broken}
  wait: {timer: 2h30m, next: agree}
  forever: {event: paid, deadline: never, next: wait}
  several: {next: [done, forever]}
  many: {next: {times: 3, to: join}}
  join: {join: all, next: done}
  done:
    end:
      text: |-
        Released.

          Go home: it is "late"
      more: ${nodes.build}
  broken: {fail: the release was not shipped}
graphs:
  part:
    nodes:
      x: {end: null}
"""


def test_the_form_that_is_written_is_the_one_that_people_write() -> None:
    assert to_yaml(read(WRITTEN)) == WRITTEN


def test_seconds_that_are_no_whole_milliseconds_stay_numbers() -> None:
    g = GraphBuilder("g")
    g.activity("a", "x").timeout(0.12345).heartbeat(1e300)
    assert "timeout: 0.12345, heartbeat: 1e+300" in to_yaml(g.build())
    assert read(to_yaml(g.build())) == g.build()


TEXT = st.text(max_size=12) | st.text(
    st.sampled_from("ab:# -\n\t'\"{}[],&*!|>%@`?~0.e\\\x85\u2028\ufeff\U0001f600"), max_size=9
)
DATA = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(TEXT, DATA, min_size=1, max_size=4))
@example(
    {"a": "1.5", "b": "null", "c": "True", "d": "~", "e": "2026-01-01", "f": "yes", "g": "<<", "h": "10m", "i": ""}
)
@example(
    {"a": ["x" * 200, ["y" * 200, {"z": "w" * 200, "e": {}}]], "<<": 1, "- a": "a\n\nb", "b": "a\n \nb\n", "c": "a\n\n"}
)
@example(
    {"a": {"b": {"c": ["d" * 120]}}, "t": "é: ü", "u": "a #b", "v": "a:", "w": "a:b", "x": "$x", "y": "(z", "n": -0.0}
)
def test_any_data_is_read_as_it_was(data: dict[str, Any]) -> None:
    for written in (Rows(data), Rows({"wide": Rows(data), "rows": [Rows(data), data]})):
        text = write_yaml(written)
        assert repr(load_yaml(text, "x").data) == repr(plain(written))


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("\ud800", "half of a surrogate pair"),
        (float("nan"), "is not JSON"),
        ({"k" * 1001: 1}, "over 1,000 characters"),
    ],
)
def test_what_no_document_can_hold_is_refused(value: Any, message: str) -> None:
    with pytest.raises(DocumentError, match=message):
        write_yaml(Rows({"a": value}))
